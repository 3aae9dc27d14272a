//! SIGTERM at full load: what was acknowledged to a publisher arrives at every subscriber that reads.

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt;
use fogmux_tests::suite::Case;
use rustix::process::Signal;

use super::client::{Came, Client, Login};
use super::wire::{SMALL_BUFFER, Transport};

pub(crate) const CASES: &[Case] = &[
    Case { name: "SIGTERM at full load loses nothing that was acknowledged at QoS 1", run: || full_load(1) },
    Case { name: "SIGTERM at full load loses nothing that was acknowledged at QoS 2", run: || full_load(2) },
    Case { name: "SIGTERM does not wait for a subscriber that does not read, and says so", run: not_for_the_deaf },
    Case { name: "SIGTERM without clients ends at once", run: alone },
];

const PUBLISHERS: u16 = 4;

/// Messages by publisher and number.
type Numbers = BTreeSet<(u16, u16)>;

/// Publishes with a window until the connection ends; returns the numbers of the messages that were acknowledged.
fn publish(mut client: Client, name: u16, qos: u8, acknowledged: &mpsc::Sender<()>) -> Result<Vec<u16>> {
    let mut sure = Vec::new();
    for id in 1..u16::MAX {
        let payload = format!("{name} {id} {}", "x".repeat(200));
        if client.send(&mqtt::publish(mqtt::V4, b"t", payload.as_bytes(), qos, false, id)).is_err() {
            break;
        }
        if usize::from(id) < sure.len() + 100 {
            continue;
        }
        match client.next() {
            Ok(Came::Acknowledged(id, 0)) => {
                sure.push(id);
                // Nobody counts any more once the signal is sent.
                let _ = acknowledged.send(());
            }
            Ok(Came::End) | Err(_) => break,
            Ok(other) => anyhow::bail!("{other:?}"),
        }
    }
    // Acknowledgements that were on their way.
    while let Ok(Came::Acknowledged(id, 0)) = client.next() {
        sure.push(id);
    }
    Ok(sure)
}

fn full_load(qos: u8) -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let mut subscriber = Client::login(&gateway, &Login::new("subscriber", Transport::Tcp).v5())?;
    subscriber.subscribe(&["t"], qos)?;
    let reader = thread::spawn(move || -> Result<(Numbers, Option<u8>)> {
        let (mut came, mut reason) = (Numbers::new(), None);
        loop {
            match subscriber.next()? {
                Came::Message(message) => {
                    let text = String::from_utf8(message.payload)?;
                    let mut words = text.split(' ').map(str::parse);
                    came.insert((words.next().context("a name")??, words.next().context("a number")??));
                }
                Came::Disconnect(code) => reason = Some(code),
                Came::End => return Ok((came, reason)),
                Came::Suback(_) | Came::Acknowledged(..) | Came::Pong => {}
            }
        }
    });
    let (sender, acknowledged) = mpsc::channel();
    let mut publishers = Vec::new();
    for name in 0..PUBLISHERS {
        let client = Client::open(&gateway, &format!("publisher-{name}"), Transport::Tcp)?;
        let sender = sender.clone();
        publishers.push((name, thread::spawn(move || publish(client, name, qos, &sender))));
    }
    for _ in 0..5000 {
        acknowledged.recv_timeout(Duration::from_secs(20)).context("an acknowledgement")?;
    }
    let began = Instant::now();
    gateway.signal(Signal::TERM)?;
    let mut sure = BTreeSet::new();
    for (name, publisher) in publishers {
        let ids = publisher.join().map_err(|_| anyhow::anyhow!("panic"))??;
        sure.extend(ids.into_iter().map(|id| (name, id)));
    }
    let (came, reason) = reader.join().map_err(|_| anyhow::anyhow!("panic"))??;
    let lost = sure.difference(&came).count();
    ensure!(lost == 0, "{lost} of {} acknowledged messages did not arrive", sure.len());
    ensure!(reason == Some(0x8b), "DISCONNECT {reason:?}");
    ensure!(gateway.wait_exit(Duration::from_secs(15))?.success(), "{}", gateway.log());
    ensure!(
        began.elapsed() < Duration::from_secs(9),
        "everybody reads, and yet it took {:?}\n{}",
        began.elapsed(),
        gateway.log()
    );
    Ok(format!("{} acknowledged, {} arrived", sure.len(), came.len()))
}

fn not_for_the_deaf() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let login = Login { buffer: Some(SMALL_BUFFER), ..Login::new("deaf", Transport::Tcp) };
    let mut deaf = Client::login(&gateway, &login)?;
    deaf.subscribe(&["t"], 1)?;
    let payload = vec![b'x'; 1024];
    let mut publisher = Client::open(&gateway, "publisher", Transport::Tcp)?;
    publisher.publish_all((0..3000).map(|_| ("t", payload.as_slice())), 1, false, 100)?;
    let began = Instant::now();
    gateway.signal(Signal::TERM)?;
    ensure!(gateway.wait_exit(Duration::from_secs(20))?.success(), "{}", gateway.log());
    ensure!(began.elapsed() < Duration::from_secs(9), "{:?} of the ten seconds that it has", began.elapsed());
    let log = gateway.log();
    ensure!(log.contains("clients=1 messages=3000"), "{log}");
    Ok(String::new())
}

fn alone() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let began = Instant::now();
    gateway.signal(Signal::TERM)?;
    ensure!(gateway.wait_exit(Duration::from_secs(20))?.success(), "{}", gateway.log());
    ensure!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    Ok(String::new())
}
