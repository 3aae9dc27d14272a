//! Subscribers that pause: what was published meanwhile arrives when they read on, and so does what comes after.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::suite::Case;

use super::client::{Client, Login};
use super::wire::{SMALL_BUFFER, Transport};

pub(crate) const CASES: &[Case] = &[
    Case { name: "a subscriber that pauses gets the backlog over TCP", run: || pause(Transport::Tcp) },
    Case { name: "a subscriber that pauses gets the backlog over TLS", run: || pause(Transport::Tls) },
    Case { name: "a subscriber that pauses gets the backlog over WebSocket", run: || pause(Transport::Ws) },
    Case { name: "a subscriber that pauses gets the backlog over secure WebSocket", run: || pause(Transport::Wss) },
    Case { name: "a subscriber that pauses gets the backlog over HTTP/2", run: || pause(Transport::Http2) },
    Case { name: "a queue that is too small loses the oldest, and the loss is counted", run: overflow },
    Case { name: "what an absent client loses is in the log, and not without a loss", run: away },
];

const MESSAGES: usize = 7812;

/// Publishes numbered messages of 1 KiB and waits until the gateway has routed them all.
fn flood(gateway: &Gateway, qos: u8) -> Result<()> {
    let mut publisher = Client::open(gateway, "publisher", Transport::Tcp)?;
    let payloads: Vec<Vec<u8>> = (0..MESSAGES).map(|index| format!("{index:01024}").into_bytes()).collect();
    publisher.publish_all(payloads.iter().map(|payload| ("flood", payload.as_slice())), qos, false, 100)?;
    let expected = MESSAGES as f64;
    gateway.wait_metric("fogmux_bus_published_total", Duration::from_secs(60), |count| count >= expected)?;
    Ok(())
}

/// Reads what is left of the flood after the counted losses: each message after the one before it.
fn read(gateway: &Gateway, subscriber: &mut Client) -> Result<usize> {
    let dropped = gateway.metrics()?.get("fogmux_bus_dropped_full_total").copied().unwrap_or_default();
    let expected = (0..=MESSAGES).rev().find(|count| (MESSAGES - count) as f64 >= dropped).unwrap_or_default();
    let mut last = None;
    for count in 0..expected {
        let message = subscriber
            .message_or("a message of the backlog")
            .with_context(|| format!("{count} of {MESSAGES} came, {dropped} were dropped"))?;
        let number: usize = std::str::from_utf8(&message.payload)?.parse()?;
        ensure!(last < Some(number), "{number} after {last:?}");
        last = Some(number);
    }
    ensure!(last == Some(MESSAGES - 1), "the newest that came is {last:?}");
    let mut publisher = Client::open(gateway, "later", Transport::Tcp)?;
    publisher.publish_all([("flood", b"later".as_slice())], 1, false, 1)?;
    ensure!(subscriber.message_or("what came later")?.payload == b"later");
    Ok(expected)
}

fn pause(transport: Transport) -> Result<String> {
    for qos in 0..2 {
        let mut gateway = Gateway::start(&[])?;
        let login = Login { buffer: Some(SMALL_BUFFER), ..Login::new("subscriber", transport) };
        let mut subscriber = Client::login(&gateway, &login)?;
        subscriber.subscribe(&["flood"], qos)?;
        flood(&gateway, qos)?;
        let came = read(&gateway, &mut subscriber)?;
        ensure!(came == MESSAGES, "the queue has room for all, {came} came");
        drop(subscriber);
        gateway.settle()?;
    }
    Ok(String::new())
}

fn overflow() -> Result<String> {
    let mut gateway = Gateway::start(&["mqtt.queue_messages_max=1000"])?;
    let login = Login { buffer: Some(SMALL_BUFFER), ..Login::new("subscriber", Transport::Tcp) };
    let mut subscriber = Client::login(&gateway, &login)?;
    subscriber.subscribe(&["flood"], 0)?;
    flood(&gateway, 0)?;
    let came = read(&gateway, &mut subscriber)?;
    ensure!(came < MESSAGES, "nothing was lost");
    drop(subscriber);
    gateway.settle()?;
    Ok(format!("{came} of {MESSAGES} came"))
}

/// The queue holds so many messages.
const ROOM: usize = 100;

fn away() -> Result<String> {
    for count in [ROOM, ROOM + 1, 3 * ROOM] {
        let mut gateway = Gateway::start(&[&format!("mqtt.queue_messages_max={ROOM}")])?;
        let login = Login { session: 3600, ..Login::new("away", Transport::Tcp).v5() };
        let mut subscriber = Client::login(&gateway, &login)?;
        subscriber.subscribe(&["plant/1"], 1)?;
        drop(subscriber);
        gateway.wait_metric("fogmux_door_connections{door=\"mqtt\"}", Duration::from_secs(20), |count| count == 0.0)?;
        let mut publisher = Client::open(&gateway, "publisher", Transport::Tcp)?;
        publisher.publish_all((0..count).map(|_| ("plant/1", b"1".as_slice())), 1, false, 10)?;
        drop(publisher);
        let log = gateway.whole_log();
        let line = log.lines().find(|line| line.contains("dropped that wait for an absent client"));
        ensure!(line.is_some() == (count > ROOM), "{count} messages: {line:?}");
        if let Some(line) = line {
            ensure!(["anonymous", "plant/1", "messages=100"].iter().all(|word| line.contains(word)), "{line}");
        }
        // Ends the session.
        drop(Client::open(&gateway, "away", Transport::Tcp)?);
        gateway.settle()?;
    }
    Ok(String::new())
}
