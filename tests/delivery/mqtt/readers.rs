//! Subscribers that read all the time: large messages, each of which takes them longer than publishers wait for a
//! subscriber that reads nothing, and a gateway that is stopped for a while. They are not disconnected. A publisher
//! that waits for them still gets an answer to its PINGREQ.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, V4};
use fogmux_tests::suite::Case;
use fogmux_tests::tcp;
use rustix::process::Signal;

use super::client::{Came, Client};
use super::wire::Transport;

pub(crate) const CASES: &[Case] = &[
    Case { name: "a subscriber that takes seconds to read a message is not disconnected", run: large },
    Case { name: "a subscriber that reads is not disconnected when the gateway was stopped for a while", run: stopped },
    Case { name: "a publisher that waits for a subscriber has its PINGREQ answered meanwhile", run: ping },
];

const QUEUE: &str = "mqtt.queue_bytes_max=\"4MiB\"";
/// Bytes a second that are just fair for that queue: a thirty-second of it within two seconds.
const FAIR: usize = 64 << 10;
/// The content of its mailbox when publishers stop for it: seven eighths of the queue, and a window of 1 MiB in flight.
const FULL: f64 = 4_500_000.0;
const PATIENCE: Duration = Duration::from_secs(30);

/// How a subscriber divides its time.
#[derive(Clone, Copy, Debug)]
enum Reads {
    /// A few kilobytes at a time.
    Steadily,
    /// A message at once, with which it is busy before it reads the next.
    Messages,
}

/// The state of a scene that its threads share.
#[derive(Debug, Default)]
struct Scene {
    /// Publishers publish no more.
    over: AtomicBool,
    /// The subscriber reads as fast as it can.
    hurry: AtomicBool,
    /// The subscriber is stopped, too.
    frozen: AtomicBool,
}

impl Scene {
    /// Reads at `pace` bytes a second until each publisher has said that it ends.
    fn read(&self, mut client: Client, reads: Reads, pace: usize, message: usize, publishers: usize) -> Result<usize> {
        const PIECES: usize = 32;
        let time = Duration::from_secs(1) * u32::try_from(message)? / u32::try_from(pace)?;
        let (mut ends, mut count) = (0, 0);
        while ends < publishers {
            let hurries = self.hurry.load(Relaxed);
            client.pace = match reads {
                Reads::Steadily if !hurries => Some((time / u32::try_from(PIECES)?, message / PIECES)),
                Reads::Steadily | Reads::Messages => None,
            };
            let began = Instant::now();
            let came = client.message_or(&format!("message {count}"))?;
            ends += usize::from(came.payload == b"end");
            count += 1;
            while self.frozen.load(Relaxed)
                || matches!(reads, Reads::Messages) && began.elapsed() < time && !self.hurry.load(Relaxed)
            {
                thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(count)
    }

    /// Publishes as fast as it may until the scene is over.
    fn publish(&self, mut client: Client, topic: &str, message: usize) -> Result<()> {
        const WINDOW: u16 = 2;
        let payload = vec![b'x'; message];
        let mut id = 0;
        let mut packet = |payload: &[u8]| {
            id = id % 1000 + 1;
            mqtt::publish(V4, topic.as_bytes(), payload, 1, false, id)
        };
        for _ in 0..WINDOW {
            client.send(&packet(&payload))?;
        }
        while !self.over.load(Relaxed) {
            let came = client.next()?;
            ensure!(matches!(came, Came::Acknowledged(..)), "{came:?}");
            client.send(&packet(&payload))?;
        }
        client.send(&packet(b"end"))?;
        for _ in 0..=WINDOW {
            client.next()?;
        }
        Ok(())
    }
}

/// A subscriber and publishers of messages of so many bytes; `meanwhile` is how long they go on for.
fn scene(
    gateway: &Gateway,
    name: &str,
    (reads, pace): (Reads, usize),
    (publishers, message): (usize, usize),
    meanwhile: impl FnOnce(&Scene) -> Result<()>,
) -> Result<()> {
    let scene = Scene::default();
    let topic = format!("readers/{name}");
    let mut reader = Client::open(gateway, name, Transport::Tcp)?;
    reader.subscribe(&[&topic], 1)?;
    let clients = (0..publishers).map(|number| Client::open(gateway, &format!("{name}-{number}"), Transport::Tcp));
    let clients = clients.collect::<Result<Vec<_>>>()?;
    thread::scope(|threads| {
        let (scene, topic) = (&scene, topic.as_str());
        let reader = threads.spawn(move || scene.read(reader, reads, pace, message, publishers));
        let publish = |client| threads.spawn(move || scene.publish(client, topic, message));
        let published: Vec<_> = clients.into_iter().map(publish).collect();
        let done = meanwhile(scene);
        scene.over.store(true, Relaxed);
        scene.hurry.store(true, Relaxed);
        scene.frozen.store(false, Relaxed);
        let read = reader.join().map_err(|_| anyhow::anyhow!("panic"))?;
        let published = published.into_iter().map(|one| one.join().map_err(|_| anyhow::anyhow!("panic"))?);
        let published = published.collect::<Result<Vec<()>>>();
        // A subscriber that was disconnected is the reason for whatever else failed.
        read.with_context(|| format!("the subscriber {name}, {reads:?} {pace} bytes a second"))?;
        published.and(done)
    })
}

fn nobody_was_cut(gateway: &Gateway) -> Result<()> {
    let cut = gateway.sum(&["fogmux_mqtt_cut_total{reason=\"queue_full\"}"])?;
    ensure!(cut == 0, "{cut} subscribers were disconnected");
    Ok(())
}

fn large() -> Result<String> {
    const MESSAGE: usize = 256 << 10;
    /// The queue is full after a moment.
    const TIME: Duration = Duration::from_secs(9);
    let mut gateway = Gateway::start(&[QUEUE])?;
    let scenes = [
        ("steady", Reads::Steadily, FAIR * 3 / 2, 1),
        ("busy", Reads::Messages, FAIR * 3 / 2, 1),
        ("faster", Reads::Messages, FAIR * 2, 2),
    ];
    let wait = |_: &Scene| {
        thread::sleep(TIME);
        Ok(())
    };
    thread::scope(|threads| {
        let one = |(name, reads, pace, publishers)| {
            let gateway = &gateway;
            threads.spawn(move || scene(gateway, name, (reads, pace), (publishers, MESSAGE), wait))
        };
        let all: Vec<_> = scenes.into_iter().map(one).collect();
        all.into_iter().try_for_each(|one| one.join().map_err(|_| anyhow::anyhow!("panic"))?)
    })?;
    nobody_was_cut(&gateway)?;
    gateway.settle()?;
    Ok(String::new())
}

/// The gateway and its subscriber are stopped together, as on a machine that is suspended.
fn stopped() -> Result<String> {
    const MESSAGE: usize = 128 << 10;
    const STOPPED: Duration = Duration::from_millis(3500);
    let mut gateway = Gateway::start(&[QUEUE])?;
    scene(&gateway, "suspended", (Reads::Messages, FAIR * 4), (6, MESSAGE), |scene| {
        for _ in 0..2 {
            gateway.wait_metric("fogmux_bus_mailbox_bytes", PATIENCE, |bytes| bytes > FULL)?;
            scene.frozen.store(true, Relaxed);
            gateway.signal(Signal::STOP)?;
            thread::sleep(STOPPED);
            gateway.signal(Signal::CONT)?;
            // Publishers go on before the subscriber does: the gateway answers, so its workers have run.
            gateway.metrics()?;
            scene.frozen.store(false, Relaxed);
            thread::sleep(Duration::from_secs(1));
        }
        Ok(())
    })?;
    nobody_was_cut(&gateway)?;
    gateway.wait_log("the gateway did not run for a while", PATIENCE)?;
    gateway.settle()?;
    Ok(String::new())
}

/// While it pauses, its PINGREQ is answered, and the PUBLISH in front of it is not published.
fn ping() -> Result<String> {
    const MESSAGE: usize = 64 << 10;
    const ROUNDS: usize = 40;
    /// Half of the queue, at which one publisher goes on at the pace of the subscriber, and what is in flight.
    const HALF: f64 = 3_000_000.0;
    let mut gateway = Gateway::start(&[QUEUE])?;
    let mut round = 0;
    scene(&gateway, "slow", (Reads::Steadily, FAIR * 2), (1, MESSAGE), |_| {
        gateway.wait_metric("fogmux_bus_mailbox_bytes", PATIENCE, |bytes| bytes > HALF)?;
        let mut publisher = Client::open(&gateway, "pinging", Transport::Tcp)?;
        let payload = vec![b'x'; MESSAGE];
        let mut is_early = false;
        while !is_early {
            round += 1;
            ensure!(round <= ROUNDS, "PINGREQ was always answered with the PUBLISH in front of it");
            publisher.send(&mqtt::publish(V4, b"readers/slow", &payload, 1, false, 1))?;
            let came = publisher.next()?;
            ensure!(came == Came::Acknowledged(1, 0), "{came:?}");
            let topic = format!("elsewhere/{round}");
            let mut packets = mqtt::publish(V4, topic.as_bytes(), b"x", 1, true, 2);
            packets.extend([0xC0, 0]);
            publisher.send(&packets)?;
            let pong = publisher.next()?;
            is_early = pong == Came::Pong && !is_retained(&gateway, &topic)?;
            let came = [pong, publisher.next()?];
            ensure!(came.contains(&Came::Pong) && came.iter().any(is_acknowledged), "{came:?}");
        }
        Ok(())
    })?;
    nobody_was_cut(&gateway)?;
    gateway.settle()?;
    Ok(format!("in round {round}"))
}

fn is_acknowledged(came: &Came) -> bool {
    matches!(came, Came::Acknowledged(2, 0))
}

fn is_retained(gateway: &Gateway, topic: &str) -> Result<bool> {
    let request = format!("GET /topics/{topic} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let answer = tcp::ask(gateway.address("http")?, request.as_bytes())?;
    Ok(answer.starts_with(b"HTTP/1.1 200"))
}
