//! Publishers whose subscriber reads at a fixed pace: they are slowed to that pace and not stopped, or go on without a
//! subscriber that is too slow.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, V4};
use fogmux_tests::suite::Case;

use super::client::{Came, Client, Login};
use super::wire::{SMALL_BUFFER, Transport};

pub(crate) const CASES: &[Case] = &[
    Case { name: "a publisher goes on at the pace of its subscriber, whatever that is", run: any_pace },
    Case { name: "a publisher goes on without a subscriber that hardly reads", run: too_slow },
];

/// Bytes a second, all of them fair for a queue of 4 MiB, of which a thirty-second has to be read in two seconds.
const PACES: [u64; 6] = [80_000, 100_000, 300_000, 400_000, 1_500_000, 6_000_000];
const UNFAIR: u64 = 30_000;
const QUEUE: &str = "mqtt.queue_bytes_max=\"4MiB\"";
const PAYLOAD_BYTES: usize = 1024;
const WINDOW: usize = 100;
/// Time in which publishers send as fast as they may, and from when on pauses count: sockets and half of the queue are
/// full by then.
const TIME: Duration = Duration::from_secs(9);
const FULL_AFTER: Duration = Duration::from_secs(4);
const PATIENCE: Duration = Duration::from_secs(30);
/// A pause longer than that is a stop; the machine may make up to so many. A publisher that is stopped for a second at
/// a time has six.
const STOP: Duration = Duration::from_millis(450);
const STOPS_MAX: usize = 3;

fn any_pace() -> Result<String> {
    let mut gateway = Gateway::start(&[QUEUE])?;
    let stops = thread::scope(|scope| {
        let pairs: Vec<_> = PACES.iter().map(|pace| scope.spawn(|| one_pace(&gateway, *pace))).collect();
        let join =
            |pair: thread::ScopedJoinHandle<'_, Result<Vec<Duration>>>| pair.join().unwrap_or_else(|_| Ok(vec![]));
        pairs.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    let many = |(_, stops): &(&u64, &Vec<Duration>)| stops.len() > STOPS_MAX;
    let stopped: Vec<String> = PACES
        .iter()
        .zip(&stops)
        .filter(many)
        .map(|(pace, stops)| format!("at {pace} bytes a second, {} pauses, as {:?}", stops.len(), stops.first()))
        .collect();
    ensure!(stopped.is_empty(), "{}", stopped.join("; "));
    gateway.settle()?;
    Ok(String::new())
}

/// It is disconnected when its queue is full (ADR 0018).
fn too_slow() -> Result<String> {
    let mut gateway = Gateway::start(&[QUEUE])?;
    let topic = format!("pace/{UNFAIR}");
    let reader = read(&gateway, &topic, UNFAIR)?;
    let stops = publish(&gateway, &topic)?;
    ensure!(stops.len() <= STOPS_MAX, "at {UNFAIR} bytes a second, pauses of {stops:?}");
    let outcome = reader.finish();
    ensure!(outcome.is_err(), "a subscriber that takes {UNFAIR} bytes a second was not disconnected");
    gateway.wait_metric("fogmux_mqtt_cut_total{reason=\"queue_full\"}", PATIENCE, |cut| cut == 1.0)?;
    gateway.settle()?;
    Ok(String::new())
}

/// A subscriber that reads at its pace on a thread of its own.
struct Reader {
    in_haste: Arc<AtomicBool>,
    thread: thread::JoinHandle<Result<()>>,
}

impl Reader {
    /// Lets it read the rest as fast as it can.
    fn finish(self) -> Result<()> {
        self.in_haste.store(true, Relaxed);
        self.thread.join().map_err(|_| anyhow::anyhow!("panic"))?
    }
}

fn read(gateway: &Gateway, topic: &str, pace: u64) -> Result<Reader> {
    let name = format!("reader-{pace}");
    let login = Login { buffer: Some(SMALL_BUFFER), ..Login::new(&name, Transport::Tcp) };
    let mut reader = Client::login(gateway, &login)?;
    reader.subscribe(&[topic], 1)?;
    let in_haste = Arc::new(AtomicBool::new(false));
    let hurry = Arc::clone(&in_haste);
    let thread = thread::spawn(move || -> Result<()> {
        let (began, mut bytes) = (Instant::now(), 0);
        while reader.message_or("a message")?.payload != b"end" {
            bytes += PAYLOAD_BYTES as u64;
            let at = began + Duration::from_micros(bytes * 1_000_000 / pace);
            if !hurry.load(Relaxed) {
                thread::sleep(at.saturating_duration_since(Instant::now()));
            }
        }
        Ok(())
    });
    Ok(Reader { in_haste, thread })
}

/// Pauses of a publisher that were stops.
fn one_pace(gateway: &Gateway, pace: u64) -> Result<Vec<Duration>> {
    let topic = format!("pace/{pace}");
    let what = || format!("at {pace} bytes a second");
    let reader = read(gateway, &topic, pace)?;
    let stops = publish(gateway, &topic).with_context(what);
    reader.finish().with_context(what)?;
    stops
}

fn publish(gateway: &Gateway, topic: &str) -> Result<Vec<Duration>> {
    let payload = vec![b'x'; PAYLOAD_BYTES];
    let mut publisher = Client::open(gateway, &format!("publisher-of-{topic}"), Transport::Tcp)?;
    let packet = |id: u16, payload: &[u8]| mqtt::publish(V4, topic.as_bytes(), payload, 1, false, id);
    let mut id = 0_u16;
    let mut next = move || {
        id = id % 1000 + 1;
        id
    };
    for _ in 0..WINDOW {
        publisher.send(&packet(next(), &payload))?;
    }
    let (began, mut last, mut stops) = (Instant::now(), Instant::now(), Vec::new());
    while began.elapsed() < TIME {
        let came = publisher.next()?;
        ensure!(matches!(came, Came::Acknowledged(..)), "{came:?}");
        let pause = last.elapsed();
        last = Instant::now();
        if pause > STOP && began.elapsed() > FULL_AFTER {
            stops.push(pause);
        }
        publisher.send(&packet(next(), &payload))?;
    }
    publisher.send(&packet(next(), b"end"))?;
    for _ in 0..=WINDOW {
        publisher.next()?;
    }
    Ok(stops)
}
