//! Shared subscriptions (MQTT 5.0 §4.8.2): members that take messages get them, and what one leaves goes to another.

use std::collections::HashMap;
use std::io::Write;
use std::ops::Range;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, Connection, V4};
use fogmux_tests::{tcp, tls, xmpp};

const PATIENCE: Duration = Duration::from_secs(20);

/// Publishes numbers with QoS 1, a few at a time; `after` so many come the next few.
fn publish_paced(
    gateway: &Gateway,
    topic: &str,
    numbers: Range<u32>,
    mut after: impl FnMut(u32) -> Result<()>,
) -> Result<()> {
    let mut publisher = Connection::open(gateway.address("mqtt")?, V4, "shared-publisher")?;
    let numbers: Vec<u32> = numbers.collect();
    for some in numbers.chunks(5) {
        let mut packets = Vec::new();
        for (id, number) in (1..).zip(some) {
            packets.extend(mqtt::publish(V4, topic.as_bytes(), &number.to_be_bytes(), 1, false, id));
        }
        publisher.stream.write_all(&packets)?;
        for _ in some {
            let (first, _) = publisher.read()?;
            ensure!(first == 0x40, "{first:#x} instead of PUBACK");
        }
        after(some.last().map_or(0, |last| last + 1))?;
    }
    Ok(())
}

fn publish(gateway: &Gateway, topic: &str, numbers: Range<u32>) -> Result<()> {
    publish_paced(gateway, topic, numbers, |_| Ok(()))
}

/// A member that acknowledges everything, and tells what it got; it goes when the connection is shut down.
fn member(mut connection: Connection, got: Sender<(u32, bool)>) {
    while let Ok((first, _, rest)) = super::next_publish(&mut connection) {
        let (Some(id), Some(number)) = (rest.get(..2), rest.get(2..).and_then(|rest| rest.first_chunk::<4>())) else {
            return;
        };
        let mut ack = vec![0x40, 2];
        ack.extend(id);
        if connection.stream.write_all(&ack).is_err() {
            return;
        }
        let _ = got.send((u32::from_be_bytes(*number), first & 0x08 != 0));
    }
}

/// Counts what comes until so many different numbers are there.
fn collect(got: &Receiver<(u32, bool)>, seen: &mut HashMap<u32, usize>, enough: usize) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while seen.len() < enough {
        match got.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok((number, dup)) => {
                ensure!(!dup, "{number} with DUP: it is new to this member");
                *seen.entry(number).or_default() += 1;
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                bail!("{} of {enough} messages came", seen.len())
            }
        }
    }
    Ok(())
}

/// One member neither reads nor acknowledges: the others get all but a few, and these when it has gone.
pub(super) fn deaf_member() -> Result<String> {
    const MESSAGES: u32 = 250;
    /// Messages that the deaf member may get before it counts as busy, and a batch of the publisher.
    const HELD_MAX: usize = 32;
    let mut text = String::new();
    for members in [2, 3, 11, 40] {
        let mut gateway = Gateway::start(&[])?;
        let (sender, got) = channel();
        let (mut sockets, mut deaf) = (Vec::new(), None);
        for number in 0..members {
            let mut connection = Connection::open(gateway.address("mqtt")?, V4, &format!("member-{number}"))?;
            ensure!(connection.subscribe(1, &["$share/crew/work/#"], 1)? == [1]);
            if number == members / 2 {
                deaf = Some(connection);
                continue;
            }
            connection.stream.set_read_timeout(None)?;
            sockets.push(connection.stream.try_clone()?);
            let sender = sender.clone();
            std::thread::spawn(move || member(connection, sender));
        }
        let mut seen = HashMap::new();
        // At the pace of those who take messages, so that none of them counts as busy.
        publish_paced(&gateway, "work/item", 0..MESSAGES, |count| {
            collect(&got, &mut seen, usize::try_from(count)?.saturating_sub(HELD_MAX))
        })
        .with_context(|| format!("with {members} members"))?;
        let before = seen.len();
        drop(deaf);
        collect(&got, &mut seen, usize::try_from(MESSAGES)?).with_context(|| format!("of {members} members"))?;
        ensure!(seen.values().all(|count| *count == 1), "some came twice");
        for socket in sockets {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
        gateway.settle()?;
        gateway.check_conservation()?;
        text = format!("at least {before} of {MESSAGES} before the deaf member left");
    }
    Ok(text)
}

/// A member that leaves the group, not the gateway, keeps what is in flight and hands on what it was not sent.
pub(super) fn unsubscribing_member() -> Result<String> {
    const MESSAGES: u32 = 40;
    let mut gateway = Gateway::start(&["mqtt.max_inflight=4"])?;
    let mut slow = Connection::open(gateway.address("mqtt")?, V4, "slow")?;
    ensure!(slow.subscribe(1, &["$share/crew/work/#"], 1)? == [1]);
    publish(&gateway, "work/item", 0..MESSAGES)?;
    let mut heir = Connection::open(gateway.address("mqtt")?, V4, "heir")?;
    ensure!(heir.subscribe(1, &["$share/crew/work/#"], 1)? == [1]);
    let mut unsubscribe = 2_u16.to_be_bytes().to_vec();
    unsubscribe.extend(mqtt::string(b"$share/crew/work/#"));
    slow.stream.write_all(&mqtt::packet(0xa2, &unsubscribe))?;
    let mut kept = 0;
    loop {
        match slow.read()? {
            (first, _) if first & 0xf0 == 0x30 => kept += 1,
            (0xb0, _) => break,
            (first, _) => bail!("{first:#x} instead of UNSUBACK"),
        }
    }
    ensure!(kept == 4, "{kept} in flight");
    heir.stream.set_read_timeout(None)?;
    let socket = heir.stream.try_clone()?;
    let (sender, got) = channel();
    std::thread::spawn(move || member(heir, sender));
    let mut seen = HashMap::new();
    collect(&got, &mut seen, usize::try_from(MESSAGES)? - kept)?;
    ensure!((0..4).all(|number| !seen.contains_key(&number)), "delivery is completed of what has begun");
    socket.shutdown(std::net::Shutdown::Both)?;
    drop(slow);
    gateway.settle()?;
    gateway.check_conservation()?;
    Ok(String::new())
}

/// Makes a session with a shared subscription, and leaves it.
fn leave_session(gateway: &Gateway, client: &str, qos: u8) -> Result<()> {
    let mut connect = mqtt::connect(V4, client);
    // Clean Session 0 (MQTT 3.1.1 §3.1.2.4).
    if let Some(flags) = connect.get_mut(9) {
        *flags = 0;
    }
    let mut absent = Connection::over(fogmux_tests::tcp::connect(gateway.address("mqtt")?)?, V4);
    absent.stream.write_all(&connect)?;
    ensure!(absent.read()?.0 == 0x20, "no CONNACK");
    ensure!(absent.subscribe(1, &["$share/crew/work/#"], qos)? == [qos]);
    Ok(())
}

/// While one member is connected it gets everything, however many are not.
pub(super) fn absent_members() -> Result<String> {
    const MESSAGES: u32 = 100;
    for absent in [1, 63, 64, 65, 150] {
        let mut gateway = Gateway::start(&[])?;
        for number in 0..absent {
            leave_session(&gateway, &format!("absent-{number}"), 1)?;
        }
        gateway.wait_metric("fogmux_door_connections{door=\"mqtt\"}", PATIENCE, |count| count == 0.0)?;
        let mut present = Connection::open(gateway.address("mqtt")?, V4, "present")?;
        ensure!(present.subscribe(1, &["$share/crew/work/#"], 1)? == [1]);
        present.stream.set_read_timeout(None)?;
        let socket = present.stream.try_clone()?;
        let (sender, got) = channel();
        std::thread::spawn(move || member(present, sender));
        publish(&gateway, "work/item", 0..MESSAGES)?;
        collect(&got, &mut HashMap::new(), usize::try_from(MESSAGES)?)
            .with_context(|| format!("beside {absent} absent members"))?;
        socket.shutdown(std::net::Shutdown::Both)?;
        for number in 0..absent {
            // A clean session ends the old one.
            drop(Connection::open(gateway.address("mqtt")?, V4, &format!("absent-{number}"))?);
        }
        gateway.settle()?;
        gateway.check_conservation()?;
    }
    Ok(String::new())
}

/// A member goes and its session stays: its messages wait for it, until the session expires.
pub(super) fn expired_session() -> Result<String> {
    const MESSAGES: u32 = 30;
    for qos in [1, 2] {
        let mut gateway = Gateway::start(&["mqtt.session_expiry_max=2s"])?;
        leave_session(&gateway, "absent", qos)?;
        gateway.wait_metric("fogmux_door_connections{door=\"mqtt\"}", PATIENCE, |count| count == 0.0)?;
        publish(&gateway, "work/item", 0..MESSAGES)?;
        let mut heir = Connection::open(gateway.address("mqtt")?, V4, "heir")?;
        ensure!(heir.subscribe(1, &["$share/crew/work/#"], 1)? == [1]);
        let socket = heir.stream.try_clone()?;
        heir.stream.set_read_timeout(None)?;
        let (sender, got) = channel();
        std::thread::spawn(move || member(heir, sender));
        collect(&got, &mut HashMap::new(), usize::try_from(MESSAGES)?)?;
        socket.shutdown(std::net::Shutdown::Both)?;
        gateway.settle()?;
        gateway.check_conservation()?;
    }
    Ok(String::new())
}

/// Messages that wait for an event stream or an XMPP client that goes are for another member.
pub(super) fn other_doors() -> Result<String> {
    const MESSAGES: u32 = 200;
    let mut said = Vec::new();
    for door in ["http", "xmpp"] {
        let mut gateway = Gateway::start(&[
            "http.event_stream_grace=1s",
            "http.event_stream_bytes=64MiB",
            "http.event_streams_bytes=64MiB",
            "xmpp.mailbox_bytes_max=64MiB",
        ])?;
        // Reads nothing of what it is sent.
        let deaf = deaf_member_of(&gateway, door)?;
        let (sender, got) = channel();
        let mut connection = Connection::open(gateway.address("mqtt")?, V4, "member")?;
        ensure!(connection.subscribe(1, &["$share/crew/work/#"], 1)? == [1]);
        connection.stream.set_read_timeout(None)?;
        let socket = connection.stream.try_clone()?;
        std::thread::spawn(move || member(connection, sender));
        let mut publisher = Connection::open(gateway.address("mqtt")?, V4, "publisher")?;
        // Large enough that sockets do not take half of them.
        let pad = vec![0; 60_000];
        for number in 0..MESSAGES {
            let payload = [&number.to_be_bytes()[..], &pad].concat();
            publisher.stream.write_all(&mqtt::publish(V4, b"work/item", &payload, 1, false, 1))?;
            ensure!(publisher.read()?.0 == 0x40, "no PUBACK");
        }
        drop(publisher);
        let waiting = gateway.metrics()?.get("fogmux_bus_mailbox_messages").copied().unwrap_or_default();
        ensure!(waiting > 0.0, "{door}: nothing waits for the deaf member");
        drop(deaf);
        gateway.wait_metric("fogmux_bus_handed_on_total", PATIENCE, |count| count > 0.0).with_context(|| door)?;
        gateway.wait_metric("fogmux_bus_mailbox_messages", PATIENCE, |count| count == 0.0)?;
        let metrics = gateway.metrics()?;
        let count = |name: &str| metrics.get(name).copied().unwrap_or_default();
        let (handed_on, gone) = (count("fogmux_bus_handed_on_total"), count("fogmux_bus_dropped_gone_total"));
        ensure!(gone == 0.0, "{door}: {gone} were dropped, {handed_on} handed on");
        let mut seen = HashMap::new();
        collect(&got, &mut seen, usize::try_from(gateway.sum(&["fogmux_bus_handed_on_total"])?)?)?;
        let _ = socket.shutdown(std::net::Shutdown::Both);
        gateway.settle()?;
        said.push(format!("{door}: {handed_on} handed on"));
    }
    Ok(said.join(", "))
}

/// A member of the group that never reads; it leaves when this is dropped.
fn deaf_member_of(gateway: &Gateway, door: &str) -> Result<Box<dyn std::any::Any>> {
    if door == "http" {
        let mut stream = tcp::connect_narrow(gateway.address("http")?, 4096)?;
        let target = "/subscribe?filter=%24share%2Fcrew%2Fwork%2F%23";
        write!(stream, "GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let mut start = [0; 12];
        std::io::Read::read_exact(&mut stream, &mut start)?;
        ensure!(start.ends_with(b"200"), "{}", String::from_utf8_lossy(&start));
        return Ok(Box::new(stream));
    }
    let config = tls::config(gateway.ca())?;
    let stream = tcp::connect_narrow(gateway.address("xmpps")?, 4096)?;
    let mut session = xmpp::Session::over(stream, &config, xmpp::Via::DirectTls)?;
    let jid = session.bare();
    let filter = xmpp::form("subscribe_options", &[("{urn:fogmux:0}filter", "true")]);
    let options = format!("<options>{filter}</options>");
    let answer = session.entity("set", &format!("<subscribe node='$share/crew/work/#' jid='{jid}'/>{options}"))?;
    ensure!(answer.contains("type='result'"), "{answer}");
    Ok(Box::new(session))
}
