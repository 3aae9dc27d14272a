//! A connection that takes a session over finds the same as one that connects after the end of the previous one
//! ([MQTT-3.1.2-6], MQTT 5.0 §3.1.2.11.2): the session or none, and the will published or not.

use std::io::Write;
use std::net::Shutdown;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, Connection, V4, V5, packet, string};
use fogmux_tests::tcp;

use super::super::client::{Client, Login};
use super::super::wire::Transport;

/// Packet identifier of the QoS 2 messages.
const ID: u16 = 7;

/// The session that the first connection has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    /// Version 3.1.1, clean or not.
    Old { clean: bool },
    /// Version 5 with this expiry.
    Expiry(u32),
    /// Version 5 with expiry 0, in a session that had a longer one.
    Resumed,
}

/// How the first connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    Closed,
    TakenOver,
    Disconnect,
    /// Reason 0x04.
    DisconnectWithWill,
    /// Reason 0x04, and Session Expiry 0.
    DisconnectWithWillAndSession,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    first: First,
    ends: Ends,
    /// Will Delay Interval.
    delay: u32,
    /// Version of the second connection, and whether it asks for a new session.
    second: (u8, bool),
}

/// The messages and flags that the second connection and a subscriber see.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    present: bool,
    /// Messages of the old subscription: one in flight, and a new one.
    messages: Vec<Vec<u8>>,
    wills: usize,
    /// A new QoS 2 message with an identifier that the first connection has not released.
    exactly_once: bool,
}

impl Row {
    const fn version(self) -> u8 {
        if matches!(self.first, First::Old { .. }) { V4 } else { V5 }
    }

    fn expected(self) -> Seen {
        let transient = match self.first {
            First::Old { clean } => clean,
            First::Expiry(seconds) => seconds == 0,
            First::Resumed => true,
        };
        let ended = transient || self.ends == Ends::DisconnectWithWillAndSession;
        let present = !ended && !self.second.1;
        let due = self.delay == 0 || !present;
        let messages: [&[u8]; 2] = [b"in flight", b"new"];
        Seen {
            present,
            messages: messages.into_iter().filter(|_| present).map(<[u8]>::to_vec).collect(),
            wills: usize::from(due && self.ends != Ends::Disconnect),
            exactly_once: !present,
        }
    }
}

fn rows() -> Vec<Row> {
    let firsts =
        [First::Old { clean: true }, First::Old { clean: false }, First::Expiry(0), First::Expiry(60), First::Resumed];
    let ends =
        [Ends::Closed, Ends::TakenOver, Ends::Disconnect, Ends::DisconnectWithWill, Ends::DisconnectWithWillAndSession];
    let mut rows = Vec::new();
    for (first, ends, delay) in firsts.into_iter().flat_map(|first| {
        ends.into_iter().flat_map(move |ends| [0, 30].into_iter().map(move |delay| (first, ends, delay)))
    }) {
        let is_old = matches!(first, First::Old { .. });
        let needs_v5 = delay > 0 || matches!(ends, Ends::DisconnectWithWill | Ends::DisconnectWithWillAndSession);
        if is_old && needs_v5 {
            continue;
        }
        rows.extend([(V4, true), (V4, false), (V5, true), (V5, false)].into_iter().map(|second| Row {
            first,
            ends,
            delay,
            second,
        }));
    }
    rows
}

/// CONNECT; Session Expiry and Will Delay are sent in version 5 only.
fn connect(version: u8, clean: bool, client: &str, expiry: u32, will: Option<(&str, u32)>) -> Vec<u8> {
    let flags = u8::from(clean) << 1 | if will.is_some() { 0x0c } else { 0 };
    let mut body = string(b"MQTT");
    body.extend([version, flags, 0, 60]);
    if version == V5 {
        body.extend([5, 0x11]);
        body.extend(expiry.to_be_bytes());
    }
    body.extend(string(client.as_bytes()));
    if let Some((topic, delay)) = will {
        if version == V5 {
            body.extend([5, 0x18]);
            body.extend(delay.to_be_bytes());
        }
        body.extend(string(topic.as_bytes()));
        body.extend(string(b"gone"));
    }
    packet(0x10, &body)
}

/// Connects and says whether there is a session.
fn open(gateway: &Gateway, version: u8, connect: &[u8]) -> Result<(Connection, bool)> {
    let mut stream = tcp::connect(gateway.address("mqtt")?)?;
    stream.write_all(connect)?;
    let mut connection = Connection::over(stream, version);
    let (first, body) = connection.read().context("CONNACK")?;
    ensure!(first == 0x20 && body.get(1) == Some(&0), "CONNACK {first:#x} {body:?}");
    Ok((connection, body.first() == Some(&1)))
}

/// Reads until a packet of this type.
fn read_until(connection: &mut Connection, kind: u8) -> Result<()> {
    while connection.read().with_context(|| format!("packet {kind}"))?.0 >> 4 != kind {}
    Ok(())
}

fn end(first: &mut Connection, ends: Ends) -> Result<()> {
    match ends {
        Ends::TakenOver => return Ok(()),
        Ends::Closed => first.stream.shutdown(Shutdown::Write)?,
        Ends::Disconnect => first.stream.write_all(&[0xe0, 0])?,
        Ends::DisconnectWithWill => first.stream.write_all(&[0xe0, 2, 4, 0])?,
        Ends::DisconnectWithWillAndSession => first.stream.write_all(&[0xe0, 7, 4, 5, 0x11, 0, 0, 0, 0])?,
    }
    ensure!(tcp::read_end(&mut first.stream, tcp::PATIENCE)?.is_closed(), "the first connection is still open");
    Ok(())
}

/// Reads the messages of the old subscription, until that of a new one.
fn old_messages(second: &mut Connection, version: u8, name: &str) -> Result<Vec<Vec<u8>>> {
    let (old, new) = (format!("t/{name}"), format!("s/{name}"));
    second.publish(&old, b"new")?;
    second.stream.write_all(&mqtt::subscribe(version, 1, &[&new], 0))?;
    second.publish(&new, b"end")?;
    let mut messages = Vec::new();
    loop {
        let (first, body) = second.read().context("the end")?;
        if first >> 4 != 3 {
            continue;
        }
        let (topic, rest) = body.get(2..).and_then(|body| body.split_at_checked(old.len())).context("a topic")?;
        if topic == new.as_bytes() {
            return Ok(messages);
        }
        ensure!(topic == old.as_bytes(), "a message of {topic:?}");
        let skip = usize::from(first & 6 != 0) * 2 + usize::from(version == V5);
        messages.push(rest.get(skip..).context("a payload")?.to_vec());
    }
}

fn observe(gateway: &Gateway, watcher: &mut Client, row: Row, name: &str) -> Result<Seen> {
    let (version, will) = (row.version(), format!("w/{name}"));
    let (clean, expiry) = match row.first {
        First::Old { clean } => (clean, 0),
        First::Expiry(seconds) => (true, seconds),
        First::Resumed => (false, 0),
    };
    if row.first == First::Resumed {
        let (mut before, _) = open(gateway, V5, &connect(V5, true, name, 60, None))?;
        before.stream.shutdown(Shutdown::Write)?;
        tcp::read_end(&mut before.stream, tcp::PATIENCE)?;
    }
    let (mut first, present) =
        open(gateway, version, &connect(version, clean, name, expiry, Some((&will, row.delay))))?;
    ensure!(present == (row.first == First::Resumed), "the first connection has session present {present}");
    first.subscribe(1, &[&format!("t/{name}")], 1)?;
    watcher.publish_all([(format!("t/{name}").as_str(), b"in flight".as_slice())], 1, false, 1)?;
    read_until(&mut first, 3)?;
    first.stream.write_all(&mqtt::publish(version, will.as_bytes(), b"first", 2, false, ID))?;
    read_until(&mut first, 5)?;
    ensure!(watcher.message_or("the first message")?.payload == b"first", "another message");
    end(&mut first, row.ends)?;
    let (version, clean) = row.second;
    let (mut second, present) = open(gateway, version, &connect(version, clean, name, 60, None))?;
    let messages = old_messages(&mut second, version, name)?;
    second.stream.write_all(&mqtt::publish(version, will.as_bytes(), b"second", 2, false, ID))?;
    second.publish(&will, b"end")?;
    let mut seen = Seen { present, messages, wills: 0, exactly_once: false };
    loop {
        match watcher.message_or("the end")?.payload.as_slice() {
            b"gone" => seen.wills += 1,
            b"second" => seen.exactly_once = true,
            b"end" => break,
            other => anyhow::bail!("{other:?} came"),
        }
    }
    // Ends the session.
    open(gateway, V4, &connect(V4, true, name, 0, None))?;
    Ok(seen)
}

pub(super) fn all() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let mut watcher = Client::login(&gateway, &Login::new("watcher", Transport::Tcp))?;
    watcher.subscribe(&["w/#"], 0)?;
    let rows = rows();
    let mut wrong = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let seen = observe(&gateway, &mut watcher, *row, &format!("device-{index}"));
        let (seen, expected) = (seen.with_context(|| format!("{row:?}"))?, row.expected());
        if seen != expected {
            wrong.push(format!("{row:?}: {seen:?}, not {expected:?}"));
        }
    }
    ensure!(wrong.is_empty(), "{} of {} are wrong: {}", wrong.len(), rows.len(), wrong.join("\n"));
    drop(watcher);
    gateway.settle()?;
    Ok(format!("{} rows", rows.len()))
}
