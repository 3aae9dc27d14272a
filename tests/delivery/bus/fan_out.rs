//! One publication to thousands of subscribers: neighbours are served in between, and nothing is lost.

use std::io::{ErrorKind, Write};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, Connection, V4};

const SUBSCRIBERS: usize = 2000;
/// Rounds of which one has to show a neighbour's answer in the midst: this process may be held up in any of them.
const ROUNDS: usize = 10;

fn subscribers(gateway: &Gateway, count: usize) -> Result<Vec<Connection>> {
    let address = gateway.address("mqtt")?;
    let open = |number| -> Result<Connection> {
        let mut subscriber = Connection::open(address, V4, &format!("wide-{number}"))?;
        subscriber.subscribe(1, &["wide"], 0)?;
        Ok(subscriber)
    };
    (0..count).map(open).collect()
}

/// How many have nothing to read yet.
fn without(subscribers: &[Connection]) -> Result<usize> {
    let mut count = 0;
    // Those that are woken last first: what they get meanwhile does not hide the others.
    for subscriber in subscribers.iter().rev() {
        subscriber.stream.set_nonblocking(true)?;
        match subscriber.stream.peek(&mut [0]) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => count += 1,
            Err(error) => return Err(error.into()),
        }
        subscriber.stream.set_nonblocking(false)?;
    }
    Ok(count)
}

/// To itself, through the gateway.
fn round_trip(neighbour: &mut Connection) -> Result<()> {
    neighbour.publish("near", b"to myself")?;
    let (_, topic, _) = super::next_publish(neighbour)?;
    ensure!(topic == "near", "{topic}");
    Ok(())
}

pub(super) fn neighbours() -> Result<String> {
    let mut gateway = Gateway::start(&["workers.count=1"])?;
    let mut all = subscribers(&gateway, SUBSCRIBERS)?;
    let mut publisher = Connection::open(gateway.address("mqtt")?, V4, "wide-publisher")?;
    let mut neighbour = Connection::open(gateway.address("mqtt")?, V4, "neighbour")?;
    neighbour.subscribe(1, &["near"], 0)?;
    let (mut best, mut rounds) = (0, 0);
    while best == 0 && rounds < ROUNDS {
        rounds += 1;
        publisher.publish("wide", b"to all")?;
        // The first has it: the others are being served.
        all.first().context("nobody")?.stream.peek(&mut [0])?;
        round_trip(&mut neighbour)?;
        best = best.max(without(&all)?);
        for subscriber in &mut all {
            let (first, topic, payload) = super::next_publish(subscriber)?;
            ensure!(first == 0x30 && topic == "wide" && payload == b"to all", "{first:#x} {topic} {payload:?}");
        }
    }
    ensure!(best > 0, "{ROUNDS} times the neighbour was answered after all {SUBSCRIBERS}");
    drop((all, publisher, neighbour));
    gateway.settle()?;
    gateway.check_conservation()?;
    Ok(format!("{best} of {SUBSCRIBERS} after the neighbour, in round {rounds}"))
}

/// A publisher that writes without a pause: QoS 0 messages to readers that read are not lost, however many there are.
pub(super) fn no_loss() -> Result<String> {
    const MESSAGES: u32 = 300;
    for count in [1, 64, 65, 200] {
        let mut gateway = Gateway::start(&[])?;
        let all = subscribers(&gateway, count)?;
        let mut publisher = Connection::open(gateway.address("mqtt")?, V4, "wide-publisher")?;
        let readers: Vec<_> = all
            .into_iter()
            .map(|mut subscriber| {
                std::thread::spawn(move || -> Result<()> {
                    for expected in 0..MESSAGES {
                        let (_, _, payload) = super::next_publish(&mut subscriber)?;
                        let number = payload.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes));
                        ensure!(number == Some(expected), "{number:?} instead of {expected}");
                    }
                    Ok(())
                })
            })
            .collect();
        let mut stream = Vec::new();
        for number in 0..MESSAGES {
            let mut payload = number.to_be_bytes().to_vec();
            payload.resize(1000, b'x');
            stream.extend(mqtt::publish(V4, b"wide", &payload, 0, false, 0));
        }
        publisher.stream.write_all(&stream)?;
        for reader in readers {
            reader.join().map_err(|_| anyhow::anyhow!("a reader panicked"))?.with_context(|| format!("of {count}"))?;
        }
        drop(publisher);
        gateway.settle()?;
        gateway.check_conservation()?;
    }
    Ok(String::new())
}
