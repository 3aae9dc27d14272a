//! Ends of connections that would be the gateway's fault, not the client's: for time in which it was not read, for
//! memory that others hold, or in the middle of what it reads during a shutdown.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::suite::Case;
use rustix::process::Signal;

use super::client::{Came, Client, Login};
use super::wire::{SMALL_BUFFER, Transport};

pub(crate) const CASES: &[Case] = &[
    Case { name: "the keep alive is not judged while a client is not read for its own output", run: keep_alive },
    Case { name: "SIGTERM leaves no client that reads, however slowly and at what QoS", run: slow_shutdown },
    Case { name: "a subscriber that reads is not cut for the wills of clients that leave at once", run: wills },
];

const PATIENCE: Duration = Duration::from_secs(60);

fn joined<T>(thread: thread::JoinHandle<Result<T>>) -> Result<T> {
    thread.join().map_err(|_| anyhow!("panic"))?
}

/// Output of more than the socket takes keeps the gateway from reading a client, for three times its keep alive.
fn keep_alive() -> Result<String> {
    const COUNT: usize = 12;
    let mut gateway = Gateway::start(&[])?;
    let login = Login { buffer: Some(SMALL_BUFFER), keep_alive: 1, ..Login::new("slow", Transport::Tcp).v5() };
    let mut slow = Client::login(&gateway, &login)?;
    slow.subscribe(&["t"], 0)?;
    let payload = vec![b'x'; 700_000];
    let mut publisher = Client::open(&gateway, "publisher", Transport::Tcp)?;
    publisher.publish_all((0..COUNT).map(|_| ("t", payload.as_slice())), 1, false, 1)?;
    ensure!(gateway.sum(&["fogmux_bus_mailbox_bytes"])? > 0, "nothing waits");
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(4500) {
        slow.send(&[0xc0, 0])?;
        thread::sleep(Duration::from_millis(400));
    }
    let (mut messages, mut pongs) = (0, 0);
    while messages < COUNT || pongs == 0 {
        match slow.next()? {
            Came::Message(_) => messages += 1,
            Came::Pong => pongs += 1,
            other @ (Came::Suback(_) | Came::Acknowledged(..) | Came::Disconnect(_) | Came::End) => {
                anyhow::bail!("{other:?} after {messages} messages")
            }
        }
        // It is silent only as long as it does not ask.
        slow.send(&[0xc0, 0])?;
    }
    drop((slow, publisher));
    gateway.settle()?;
    Ok(String::new())
}

/// Reads at 100 kB/s and pings: a message takes longer than a shutdown waits for clients that take nothing.
fn slow_reader(transport: Transport, qos: u8) -> Result<()> {
    let mut gateway = Gateway::start(&["workers.drain=30s"])?;
    let login = Login { buffer: Some(SMALL_BUFFER), ..Login::new("slow", transport).v5() };
    let mut slow = Client::login(&gateway, &login)?;
    slow.subscribe(&["t"], qos)?;
    slow.pace = Some((Duration::from_millis(20), 2 << 10));
    // At QoS 0 no acknowledgement keeps the connection open, and a ping that comes too late resets it.
    let count = if qos == 0 { 10 } else { 1 };
    let payload = vec![b'x'; 500_000 / count];
    let mut publisher = Client::open(&gateway, "publisher", Transport::Tcp)?;
    publisher.publish_all((0..count).map(|_| ("t", payload.as_slice())), 1, false, 1)?;
    gateway.signal(Signal::TERM)?;
    let context = || format!("{transport:?}, QoS {qos}");
    let (mut messages, mut reason) = (0, None);
    loop {
        match slow.next().with_context(context)? {
            Came::Message(_) => {
                messages += 1;
                if messages < count {
                    slow.send(&[0xc0, 0]).with_context(context)?;
                }
            }
            Came::Disconnect(code) => reason = Some(code),
            Came::Pong => {}
            Came::End => break,
            other @ (Came::Suback(_) | Came::Acknowledged(..)) => anyhow::bail!("{other:?}"),
        }
    }
    ensure!((messages, reason) == (count, Some(0x8b)), "{}: {messages} messages, {reason:?}", context());
    ensure!(gateway.wait_exit(PATIENCE)?.success(), "{}", gateway.log());
    let log = gateway.log();
    ensure!(!log.contains("did not"), "{}: {log}", context());
    Ok(())
}

fn slow_shutdown() -> Result<String> {
    let ways = [(Transport::Tcp, 0), (Transport::Tcp, 1), (Transport::Tcp, 2), (Transport::Tls, 1), (Transport::Ws, 1)];
    let all: Vec<_> = ways.map(|(transport, qos)| thread::spawn(move || slow_reader(transport, qos))).into();
    all.into_iter().try_for_each(joined)?;
    Ok(String::new())
}

/// Clients that follow each other's wills leave at once, under bounds that their wills for each other would exceed.
fn wills() -> Result<String> {
    const COUNT: usize = 300;
    let settings = ["bus.memory_high_bytes=8MiB", "mqtt.tight_bytes=3MiB", "mqtt.queue_bytes_max=2MiB"];
    let mut gateway = Gateway::start(&settings)?;
    let mut reader = Client::login(&gateway, &Login::new("reader", Transport::Tcp).v5())?;
    reader.subscribe(&["w/#"], 1)?;
    let mut leaving = Vec::new();
    for number in 0..COUNT {
        let (name, topic) = (format!("leaving-{number}"), format!("w/{number:01000}"));
        let login = Login { will: Some(&topic), will_qos: 1, ..Login::new(&name, Transport::Tcp) };
        let mut client = Client::login(&gateway, &login)?;
        client.subscribe(&["w/#"], 1)?;
        leaving.push(client);
    }
    drop(leaving);
    for number in 0..COUNT {
        reader.message_or("a will").with_context(|| format!("{number} came"))?;
    }
    drop(reader);
    gateway.settle()?;
    Ok(String::new())
}
