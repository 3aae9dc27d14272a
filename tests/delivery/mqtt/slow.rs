//! Subscribers that do not acknowledge, do not read, or read slowly: they are cut or lose messages, and publishers and
//! other subscribers do not notice.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fogmux_tests::coap;
use fogmux_tests::gateway::Gateway;
use fogmux_tests::suite::Case;
use fogmux_tests::tcp;

use super::client::{Came, Client, Login};
use super::wire::{SMALL_BUFFER, Transport};

pub(crate) const CASES: &[Case] = &[
    Case { name: "a subscriber that never acknowledges is disconnected, and no publisher is refused", run: deaf },
    Case { name: "the session of a slow subscriber keeps the newest messages", run: session },
    Case { name: "a slow subscriber may lose its oldest messages instead", run: drop_oldest },
    Case { name: "ten publishers at full speed lose no subscriber that reads", run: flood },
    Case { name: "a subscriber that takes nothing is disconnected, and its will is published", run: stalled },
    Case { name: "a subscriber whose host is silent is disconnected", run: unreachable },
];

const QUEUE: usize = 500;
const SENT: usize = 4000;
const PATIENCE: Duration = Duration::from_secs(20);

fn payloads(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|index| format!("{index:064}").into_bytes()).collect()
}

fn publish(gateway: &Gateway, login: &Login<'_>, count: usize, qos: u8) -> Result<()> {
    let payloads = payloads(count);
    let mut publisher = Client::login(gateway, login)?;
    publisher.publish_all(payloads.iter().map(|payload| ("t", payload.as_slice())), qos, false, 100)?;
    Ok(())
}

fn cut(gateway: &Gateway, reason: &str) -> Result<()> {
    let name = format!("fogmux_mqtt_cut_total{{reason=\"{reason}\"}}");
    gateway.wait_metric(&name, PATIENCE, |count| count == 1.0).map(drop)
}

/// Reads without acknowledging until the gateway ends the connection; returns the reason of its DISCONNECT.
fn read_to_end(client: &mut Client) -> Result<(usize, Option<u8>)> {
    let (mut count, mut reason) = (0, None);
    loop {
        match client.next()? {
            Came::End => return Ok((count, reason)),
            Came::Disconnect(code) => reason = Some(code),
            Came::Message(_) => count += 1,
            Came::Suback(_) | Came::Acknowledged(..) | Came::Pong => {}
        }
    }
}

fn deaf() -> Result<String> {
    let gateway = Gateway::start(&["mqtt.queue_messages_max=500"])?;
    let mut deaf = Client::login(&gateway, &Login::new("deaf", Transport::Tcp).v5())?;
    deaf.acknowledges = false;
    deaf.subscribe(&["t"], 1)?;
    let mut good = Client::open(&gateway, "good", Transport::Tcp)?;
    good.subscribe(&["t"], 1)?;
    let reader = thread::spawn(move || -> Result<Vec<Vec<u8>>> {
        let mut came = Vec::new();
        while came.last().is_none_or(|last: &Vec<u8>| last != b"end") {
            came.push(good.message_or("a message")?.payload);
        }
        Ok(came)
    });
    let silent = thread::spawn(move || read_to_end(&mut deaf));
    publish(&gateway, &Login::new("older", Transport::Tcp), SENT, 1).context("3.1.1")?;
    publish(&gateway, &Login::new("newer", Transport::Tcp).v5(), SENT, 1).context("5.0")?;
    publish(&gateway, &Login::new("exact", Transport::Tcp), SENT, 2).context("QoS 2")?;
    let request =
        b"POST /topics/t?qos=1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 4\r\n\r\nhttp";
    let answer = tcp::ask(gateway.address("http")?, request)?;
    ensure!(answer.starts_with(b"HTTP/1.1 202"), "{}", String::from_utf8_lossy(&answer));
    let options: [(u16, &[u8]); 2] = [(coap::URI_PATH, b"ps"), (coap::URI_PATH, b"t")];
    let request = coap::message(coap::CON, 2, 7, b"t", &options, b"coap");
    let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(tcp::PATIENCE))?;
    socket.send_to(&request, gateway.address("coap")?)?;
    let mut answer = [0; 64];
    let length = socket.recv(&mut answer)?;
    ensure!(length > 1 && answer[1] >> 5 == 2, "POST over CoAP is answered by {:#x}", answer[1]);
    let end = [("t", b"end".as_slice())];
    Client::open(&gateway, "end", Transport::Tcp)?.publish_all(end, 1, false, 1)?;
    let came = reader.join().map_err(|_| anyhow::anyhow!("panic"))??;
    ensure!(came.len() == 3 * SENT + 3, "{} messages came", came.len());
    let (taken, reason) = silent.join().map_err(|_| anyhow::anyhow!("panic"))??;
    ensure!(reason == Some(0x97), "DISCONNECT {reason:?}");
    cut(&gateway, "queue_full")?;
    let log = gateway.log();
    ensure!(log.contains("WARN") && log.contains("deaf") && log.contains("127.0.0.1"), "{log}");
    // CoAP remembers its peer for EXCHANGE_LIFETIME, so that not every gauge goes back to 0.
    for gauge in ["fogmux_bus_mailbox_bytes", "fogmux_bus_subscriptions", "fogmux_missed_wakes_total"] {
        gateway.wait_metric(gauge, PATIENCE, |value| value == 0.0)?;
    }
    Ok(format!("after {taken} messages"))
}

fn session() -> Result<String> {
    let mut gateway = Gateway::start(&["mqtt.queue_messages_max=500", "mqtt.max_inflight=100"])?;
    let login = Login { session: 3600, ..Login::new("sleeper", Transport::Tcp).v5() };
    let mut sleeper = Client::login(&gateway, &login)?;
    sleeper.acknowledges = false;
    sleeper.subscribe(&["t"], 1)?;
    publish(&gateway, &Login::new("publisher", Transport::Tcp), SENT, 1)?;
    let (first, reason) = read_to_end(&mut sleeper)?;
    ensure!(first == 100 && reason == Some(0x97), "{first} messages, DISCONNECT {reason:?}");
    let mut sleeper = Client::login(&gateway, &login)?;
    let mut numbers = BTreeSet::new();
    while !numbers.contains(&(SENT - 1)) {
        let message = sleeper.message_or("a message of the session")?;
        numbers.insert(std::str::from_utf8(&message.payload)?.parse::<usize>()?);
    }
    // Messages in flight come again, then the newest without a gap.
    ensure!(numbers.len() == 100 + QUEUE && numbers.contains(&(SENT - QUEUE)), "{} came", numbers.len());
    let dropped = gateway.metrics()?.get("fogmux_bus_dropped_full_total").copied();
    ensure!(dropped == Some((SENT - 100 - QUEUE) as f64), "{dropped:?} dropped");
    drop(sleeper);
    let fresh = Login { session: 0, ..login };
    drop(Client::login(&gateway, &fresh)?);
    gateway.settle()?;
    Ok(String::new())
}

fn drop_oldest() -> Result<String> {
    let settings = ["mqtt.queue_messages_max=500", "mqtt.max_inflight=100", "mqtt.slow_subscriber=\"drop_oldest\""];
    let mut gateway = Gateway::start(&settings)?;
    let mut slow = Client::open(&gateway, "slow", Transport::Tcp)?;
    slow.subscribe(&["t"], 1)?;
    publish(&gateway, &Login::new("publisher", Transport::Tcp), SENT, 1)?;
    // Acknowledges from here on: 100 were in flight.
    let mut last = None;
    let mut count = 0;
    while last != Some(SENT - 1) {
        let message = slow.message_or("a message")?;
        let number = std::str::from_utf8(&message.payload)?.parse::<usize>()?;
        ensure!(last < Some(number), "{number} after {last:?}");
        (last, count) = (Some(number), count + 1);
    }
    let dropped = gateway.metrics()?.get("fogmux_bus_dropped_full_total").copied();
    ensure!(dropped == Some((SENT - count) as f64) && count == 100 + QUEUE, "{count} came, {dropped:?} dropped");
    ensure!(gateway.log().contains("slow MQTT subscriber"), "{}", gateway.log());
    drop(slow);
    gateway.settle()?;
    Ok(String::new())
}

const PUBLISHERS: usize = 10;
const EACH: usize = 600;

fn flood() -> Result<String> {
    // A queue that the flood would fill six times over.
    let mut gateway = Gateway::start(&["mqtt.queue_bytes_max=\"1MiB\""])?;
    let mut readers = Vec::new();
    for index in 0..10 {
        let mut client = Client::open(&gateway, &format!("subscriber-{index}"), Transport::Tcp)?;
        client.subscribe(&["t"], 1)?;
        readers.push(thread::spawn(move || -> Result<()> {
            for count in 0..PUBLISHERS * EACH {
                client.message_or("a message").with_context(|| format!("{count} came"))?;
            }
            Ok(())
        }));
    }
    let payload = vec![b'x'; 1024];
    let mut publishers = Vec::new();
    for index in 0..PUBLISHERS {
        let mut client = Client::open(&gateway, &format!("publisher-{index}"), Transport::Tcp)?;
        let payload = payload.clone();
        publishers.push(thread::spawn(move || {
            client.publish_all((0..EACH).map(|_| ("t", payload.as_slice())), 1, false, 100)
        }));
    }
    for client in publishers {
        client.join().map_err(|_| anyhow::anyhow!("panic"))??;
    }
    for client in readers {
        client.join().map_err(|_| anyhow::anyhow!("panic"))??;
    }
    let dropped = gateway.metrics()?.get("fogmux_bus_dropped_full_total").copied();
    ensure!(dropped == Some(0.0), "{dropped:?} dropped");
    gateway.settle()?;
    Ok(String::new())
}

/// A subscriber that reads nothing, and one that hears of its will. Eight megabytes are more than both sockets hold.
fn neglect(settings: &[&str], reason: &str) -> Result<String> {
    let mut gateway = Gateway::start(settings)?;
    let mut heir = Client::open(&gateway, "heir", Transport::Tcp)?;
    heir.subscribe(&["will"], 0)?;
    let login = Login {
        buffer: Some(SMALL_BUFFER),
        keep_alive: 0,
        will: Some("will"),
        ..Login::new("neglectful", Transport::Tcp)
    };
    let mut neglectful = Client::login(&gateway, &login)?;
    neglectful.subscribe(&["t"], 0)?;
    let payload = vec![b'x'; 1024];
    let mut publisher = Client::open(&gateway, "publisher", Transport::Tcp)?;
    publisher.publish_all((0..8000).map(|_| ("t", payload.as_slice())), 0, false, 1)?;
    ensure!(heir.message_or("the will")?.payload == b"gone");
    cut(&gateway, reason)?;
    drop((publisher, heir, neglectful));
    gateway.settle()?;
    Ok(String::new())
}

fn stalled() -> Result<String> {
    neglect(&["mqtt.stall_max=\"2s\""], "stalled")
}

/// TCP's user timeout ends also connections whose window stays closed (RFC 9293 §3.8.6.1 leaves that to the host): to
/// this test a peer that does not read is one that has vanished.
fn unreachable() -> Result<String> {
    neglect(&["mqtt.stall_max=\"1h\"", "mqtt.unacknowledged_max=\"2s\""], "unreachable")
}
