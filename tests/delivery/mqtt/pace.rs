//! Publishers whose subscriber reads at a fixed pace: they are slowed to that pace, and not stopped.

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

pub(crate) const CASES: &[Case] =
    &[Case { name: "a publisher goes on at the pace of its subscriber, whatever that is", run: any_pace }];

/// Bytes a second, all of them fair for a queue of 4 MiB. At less, the 64 KiB of one turn take half a second.
const PACES: [u64; 4] = [300_000, 400_000, 1_500_000, 6_000_000];
const PAYLOAD_BYTES: usize = 1024;
const WINDOW: usize = 100;
/// Time in which publishers send as fast as they may, and from when on pauses count: sockets and half of the queue are
/// full by then.
const TIME: Duration = Duration::from_secs(9);
const FULL_AFTER: Duration = Duration::from_secs(4);
/// A pause longer than that is a stop; the machine may make up to so many. A publisher that is stopped for a second at
/// a time has six.
const STOP: Duration = Duration::from_millis(700);
const STOPS_MAX: usize = 3;

fn any_pace() -> Result<String> {
    let mut gateway = Gateway::start(&["mqtt.queue_bytes_max=\"4MiB\""])?;
    let stops = thread::scope(|scope| {
        let pairs: Vec<_> = PACES.iter().map(|pace| scope.spawn(|| one_pace(&gateway, *pace))).collect();
        let join =
            |pair: thread::ScopedJoinHandle<'_, Result<Vec<Duration>>>| pair.join().unwrap_or_else(|_| Ok(vec![]));
        pairs.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    for (pace, stops) in PACES.iter().zip(&stops) {
        ensure!(stops.len() <= STOPS_MAX, "at {pace} bytes a second, pauses of {stops:?}");
    }
    gateway.settle()?;
    Ok(String::new())
}

/// Pauses of a publisher that were stops.
fn one_pace(gateway: &Gateway, pace: u64) -> Result<Vec<Duration>> {
    let topic = format!("pace/{pace}");
    let reader = format!("reader-{pace}");
    let login = Login { buffer: Some(SMALL_BUFFER), ..Login::new(&reader, Transport::Tcp) };
    let mut reader = Client::login(gateway, &login)?;
    reader.subscribe(&[&topic], 1)?;
    let in_haste = Arc::new(AtomicBool::new(false));
    let hurry = Arc::clone(&in_haste);
    let reader = thread::spawn(move || -> Result<()> {
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
    let stops = publish(gateway, &topic).with_context(|| format!("at {pace} bytes a second"));
    in_haste.store(true, Relaxed);
    reader.join().map_err(|_| anyhow::anyhow!("panic"))?.with_context(|| format!("at {pace} bytes a second"))?;
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
