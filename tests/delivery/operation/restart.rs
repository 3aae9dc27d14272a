//! A restart with much to read: retained messages, sessions and what is queued for them are there, whole and in order.

use std::io::{BufReader, Read, Write};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::mqtt::{self, V4};
use fogmux_tests::suite::Case;
use rustix::process::Signal;

use super::sessions::resume;

pub(super) const MANY: Case =
    Case { name: "operation: after kill -9 many retained messages, sessions and queues are there", run: many };

/// Retained messages, and queued ones; `FOGMUX_RESTART` sets another number.
const MESSAGES: usize = 20_000;
/// Messages that are queued for each session.
const QUEUED: usize = 100;
/// Messages that are sent before their acknowledgements are read.
const WINDOW: usize = 1_000;
/// Clients that make sessions at once.
const MAKERS: usize = 32;
const DISCONNECT: [u8; 2] = [0xe0, 0];
const END: Duration = Duration::from_secs(60);

fn many() -> Result<String> {
    let messages = std::env::var("FOGMUX_RESTART").ok().and_then(|count| count.parse().ok()).unwrap_or(MESSAGES);
    let sessions = messages.div_ceil(QUEUED);
    let home = tempfile::tempdir()?;
    let data = home.path().join("data");
    std::fs::create_dir(&data)?;
    let retained_max = format!("bus.retained_messages_max={}", messages + 1);
    let settings =
        [&*retained_max, "bus.retained_bytes_max=4GiB", "bus.memory_high_bytes=4GiB", "mqtt.tight_bytes=4GiB"];
    let plan = Plan { data: Some(&data), settings: &settings, ..Plan::default() };
    let mut gateway = Gateway::start_as(plan)?;
    let idle = gateway.anonymous_bytes()?;
    let address = gateway.address("mqtt")?;
    make_sessions(address, sessions)?;
    publish(address, messages, true, |number| (kept(number), value(number)))?;
    publish(address, sessions * QUEUED, false, |number| (queue(number / QUEUED), value(number)))?;
    let before = gateway.anonymous_bytes()?;
    gateway.signal(Signal::KILL)?;
    gateway.wait_exit(END)?;

    let start = Instant::now();
    let mut gateway = Gateway::start_as(plan)?;
    let ready = start.elapsed();
    let after = gateway.anonymous_bytes()?;
    let address = gateway.address("mqtt")?;
    check_retained(address, messages)?;
    for number in 0..sessions {
        check_queue(address, number).with_context(|| format!("session {number}"))?;
    }
    gateway.check_alive()?;
    let megabytes = |bytes: u64| bytes / 1_000_000;
    let (idle, before, after) = (megabytes(idle), megabytes(before), megabytes(after));
    Ok(format!(
        "({messages} retained, {sessions} sessions with {QUEUED} messages each: ready after {ready:.1?}; anonymous \
         memory: idle {idle} MB, before {before} MB, after the start {after} MB)"
    ))
}

/// Makes sessions, each with a subscription. Each waits for the disk twice, so there are several under way.
pub(super) fn make_sessions(address: SocketAddr, sessions: usize) -> Result<()> {
    let make = |number: usize| -> Result<()> {
        let (mut connection, is_present) = resume(address, &format!("session-{number}"))?;
        ensure!(!is_present, "session {number} was there before it was made");
        ensure!(connection.subscribe(1, &[&queue(number)], 1)? == [1], "not granted");
        Ok(connection.stream.write_all(&DISCONNECT)?)
    };
    thread::scope(|scope| {
        let makers: Vec<_> = (0..MAKERS)
            .map(|first| scope.spawn(move || (first..sessions).step_by(MAKERS).try_for_each(make)))
            .collect();
        makers.into_iter().try_for_each(|maker| maker.join().map_err(|_| anyhow::anyhow!("a client panicked"))?)
    })
}

fn kept(number: usize) -> String {
    format!("restart/kept/{}/{number}", number % 100)
}

pub(super) fn queue(session: usize) -> String {
    format!("restart/queue/{session}")
}

fn value(number: usize) -> String {
    format!("value {number}")
}

/// Publishes at QoS 1 and reads every acknowledgement.
pub(super) fn publish(
    address: SocketAddr,
    messages: usize,
    retain: bool,
    message: impl Fn(usize) -> (String, String) + Sync,
) -> Result<()> {
    let mut publisher = mqtt::Connection::open(address, V4, "publisher")?;
    let mut acknowledged = BufReader::new(publisher.stream.try_clone()?);
    for first in (0..messages).step_by(WINDOW) {
        let window = first..messages.min(first + WINDOW);
        let (count, message) = (window.len(), &message);
        let stream = &mut publisher.stream;
        thread::scope(|scope| -> Result<()> {
            // A full socket must not keep the acknowledgements from being read.
            let sent = scope.spawn(move || -> std::io::Result<()> {
                let mut bytes = Vec::new();
                for (id, number) in (1..).zip(window) {
                    let (topic, payload) = message(number);
                    bytes.extend(mqtt::publish(V4, topic.as_bytes(), payload.as_bytes(), 1, retain, id));
                }
                stream.write_all(&bytes)
            });
            for _ in 0..count {
                let mut puback = [0; 4];
                acknowledged.read_exact(&mut puback)?;
                ensure!(puback.starts_with(&[0x40, 2]), "{puback:x?} instead of PUBACK");
            }
            sent.join().map_err(|_| anyhow::anyhow!("the publisher panicked"))??;
            Ok(())
        })?;
    }
    Ok(())
}

/// Each retained message comes once, with its payload.
fn check_retained(address: SocketAddr, messages: usize) -> Result<()> {
    let mut reader = mqtt::Connection::open(address, V4, "reader")?;
    reader.stream.write_all(&mqtt::subscribe(V4, 1, &["restart/kept/#"], 0))?;
    let mut missing = vec![true; messages];
    let mut left = messages;
    while left > 0 {
        let (first, body) = reader.read().with_context(|| format!("{left} retained messages are missing"))?;
        if first == 0x90 {
            continue;
        }
        ensure!(first == 0x31, "{first:#x} instead of a retained PUBLISH");
        let (topic, payload) = parts(&body, false)?;
        let number: usize = topic.rsplit('/').next().unwrap_or_default().parse()?;
        ensure!(topic == kept(number) && payload == value(number), "{topic} has {payload:?}");
        let one = missing.get_mut(number).with_context(|| format!("{topic} was never published"))?;
        ensure!(std::mem::take(one), "{topic} came twice");
        left -= 1;
    }
    Ok(())
}

/// The topic and the payload of a PUBLISH of 3.1.1, with a packet identifier or not.
pub(super) fn parts(body: &[u8], has_id: bool) -> Result<(&str, &str)> {
    let (length, rest) = body.split_first_chunk().context("no topic")?;
    let (topic, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into()).context("a short topic")?;
    let payload = rest.get(if has_id { 2 } else { 0 }..).context("no packet identifier")?;
    Ok((std::str::from_utf8(topic)?, std::str::from_utf8(payload)?))
}

/// The session's queue is whole and in order, and nothing follows.
fn check_queue(address: SocketAddr, session: usize) -> Result<()> {
    let (mut connection, is_present) = resume(address, &format!("session-{session}"))?;
    ensure!(is_present, "it is not there");
    for message in session * QUEUED..(session + 1) * QUEUED {
        let (first, body) = connection.read().with_context(|| format!("message {message} is missing"))?;
        ensure!(first == 0x32, "{first:#x} instead of message {message}");
        let (topic, payload) = parts(&body, true)?;
        ensure!(topic == queue(session) && payload == value(message), "{topic} has {payload:?}");
        let id = body.get(2 + topic.len()..4 + topic.len()).context("no packet identifier")?;
        connection.stream.write_all(&mqtt::packet(0x40, id))?;
    }
    connection.stream.write_all(&[0xc0, 0])?;
    let (first, _) = connection.read()?;
    ensure!(first == 0xd0, "{first:#x} behind the last message");
    Ok(connection.stream.write_all(&DISCONNECT)?)
}
