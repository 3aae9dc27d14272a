//! A line between a link and its broker that can be cut, and whose end can move; and what the cases share.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, Connection, V5, packet};
use fogmux_tests::tcp;
use serde_json::Value;

pub(super) const PATIENCE: Duration = Duration::from_secs(40);

/// A port whose connections are passed on to another.
pub(super) struct Line {
    pub(super) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    to: Option<SocketAddr>,
    open: Vec<TcpStream>,
    /// The time that each piece of 4 KiB takes.
    pace: Duration,
    /// The bytes at which the other end closes the connection, like a broker that does not take a message; how often.
    closes_at: Option<(Vec<u8>, usize)>,
}

impl Line {
    /// Passes connections on to `to`; without one they are closed.
    pub(super) fn new(to: Option<SocketAddr>) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let state = Arc::new(Mutex::new(State { to, ..State::default() }));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Some(to) = lock(&shared).to else { continue };
                let Ok(far) = TcpStream::connect(to) else { continue };
                let ends = (near.try_clone(), far.try_clone(), near.try_clone(), far.try_clone());
                let (Ok(near_out), Ok(far_out), Ok(near_kept), Ok(far_kept)) = ends else { continue };
                lock(&shared).open.extend([near_kept, far_kept]);
                let (forth, back) = (Arc::clone(&shared), Arc::clone(&shared));
                thread::spawn(move || pump(near, far_out, |bytes| forth_passes(&forth, bytes)));
                thread::spawn(move || pump(far, near_out, |_| back_passes(&back)));
            }
        });
        Ok(Self { address, state })
    }

    /// Cuts all connections.
    pub(super) fn cut(&self) {
        for stream in std::mem::take(&mut lock(&self.state).open) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Slows it down.
    pub(super) fn pace(&self, pace: Duration) {
        lock(&self.state).pace = pace;
    }

    /// Has connections end at bytes for the other end, so many times.
    pub(super) fn close_at(&self, text: &str, times: usize) {
        lock(&self.state).closes_at = Some((text.as_bytes().to_vec(), times));
    }

    /// How often connections will still end so.
    pub(super) fn closes_left(&self) -> usize {
        lock(&self.state).closes_at.as_ref().map_or(0, |(_, times)| *times)
    }

    /// Cuts all connections and passes the next ones on to another address, or none.
    pub(super) fn lead(&self, to: Option<SocketAddr>) {
        lock(&self.state).to = to;
        self.cut();
    }
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn forth_passes(state: &Mutex<State>, bytes: &[u8]) -> bool {
    let mut state = lock(state);
    let Some((text, times)) = state.closes_at.as_mut().filter(|(_, times)| *times > 0) else { return true };
    let is_there = bytes.windows(text.len()).any(|window| window == text);
    *times -= usize::from(is_there);
    !is_there
}

fn back_passes(state: &Mutex<State>) -> bool {
    let pace = lock(state).pace;
    thread::sleep(pace);
    true
}

fn pump(mut from: TcpStream, mut to: TcpStream, passes: impl Fn(&[u8]) -> bool) {
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if !passes(buffer.get(..read).unwrap_or_default()) {
            break;
        }
        if to.write_all(buffer.get(..read).unwrap_or_default()).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// The configuration of a link that is called `north`.
pub(super) fn north(broker: SocketAddr, lines: &str) -> String {
    format!("[links.north]\nurl = \"mqtt://{broker}\"\n{lines}\n")
}

/// `GET /api/v1/links`, the entry of a link.
pub(super) fn shown(gateway: &Gateway, link: &str) -> Result<Option<Value>> {
    let request = b"GET /api/v1/links HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let answer = tcp::ask(gateway.address("http")?, request)?;
    let text = String::from_utf8_lossy(&answer);
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let body = body.get(body.find('{').unwrap_or(0)..=body.rfind('}').unwrap_or(0)).unwrap_or_default();
    let document: Value = serde_json::from_str(body).with_context(|| text.to_string())?;
    let links = document.get("links").and_then(Value::as_array).cloned().unwrap_or_default();
    Ok(links.into_iter().find(|entry| entry.get("name").and_then(Value::as_str) == Some(link)))
}

/// Waits until the entry of a link satisfies `holds`.
pub(super) fn wait(gateway: &Gateway, link: &str, holds: impl Fn(&Value) -> bool) -> Result<Value> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let entry = shown(gateway, link)?;
        if let Some(entry) = entry.as_ref().filter(|entry| holds(entry)) {
            return Ok(entry.clone());
        }
        ensure!(Instant::now() < deadline, "{link}: {entry:?}\n{}", gateway.log());
        thread::sleep(Duration::from_millis(30));
    }
}

/// Waits until a link is connected.
pub(super) fn wait_up(gateway: &Gateway, link: &str) -> Result<Value> {
    wait(gateway, link, |entry| entry.get("connected") == Some(&Value::Bool(true)))
}

/// A number in the entry of a link, such as `/queue/messages`.
pub(super) fn number(entry: &Value, pointer: &str) -> u64 {
    entry.pointer(pointer).and_then(Value::as_u64).unwrap_or(u64::MAX)
}

/// The count of messages dropped for a reason, in one direction.
pub(super) fn dropped(entry: &Value, direction: &str, reason: &str) -> u64 {
    let all = entry.pointer(&format!("/{direction}/dropped")).and_then(Value::as_array).cloned().unwrap_or_default();
    let found = all.iter().find(|one| one.get("reason").and_then(Value::as_str) == Some(reason));
    found.map_or(u64::MAX, |one| number(one, "/count"))
}

/// Numbers as texts.
pub(super) fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|number| number.to_string()).collect()
}

/// A session of version 5 that waits for messages of QoS 2 at a broker, with or without a connection.
pub(super) struct Mailbox(pub(super) &'static str);

impl Mailbox {
    /// Begins the session.
    pub(super) fn open(self, broker: SocketAddr, filter: &str) -> Result<Self> {
        let (mut connection, _) = Connection::resume(broker, self.0, 3600, true)?;
        connection.subscribe(1, &[filter], 2)?;
        connection.stream.write_all(&packet(0xe0, &[]))?;
        Ok(self)
    }

    /// Takes what waits until there are `enough` different messages, and a moment more; their payloads in order.
    pub(super) fn empty(&self, broker: SocketAddr, enough: usize) -> Result<Vec<String>> {
        let (mut connection, _) = Connection::resume(broker, self.0, 3600, false)?;
        let (mut payloads, deadline) = (Vec::new(), Instant::now() + PATIENCE);
        loop {
            let distinct = payloads.iter().collect::<std::collections::BTreeSet<_>>().len();
            if distinct >= enough {
                connection.stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            }
            let (first, body) = match connection.read() {
                Ok(read) => read,
                Err(_) if distinct >= enough => return Ok(payloads),
                Err(error) => return Err(error.context(format!("{distinct} of {enough}"))),
            };
            ensure!(Instant::now() < deadline, "{distinct} of {enough}");
            match first & 0xf0 {
                0x30 => {
                    let length = body.first_chunk().map(|length| usize::from(u16::from_be_bytes(*length)));
                    let mut at = 2 + length.context("no topic")?;
                    let id = body.get(at..at + 2).context("no identifier")?.to_vec();
                    at += 2;
                    at += 1 + usize::from(*body.get(at).context("no properties")?);
                    payloads.push(String::from_utf8_lossy(body.get(at..).unwrap_or_default()).into_owned());
                    connection.stream.write_all(&packet(if first >> 1 & 3 == 1 { 0x40 } else { 0x50 }, &id))?;
                }
                0x60 => connection.stream.write_all(&packet(0x70, body.get(..2).context("no identifier")?))?,
                _ => {}
            }
        }
    }
}

/// Publishes messages of QoS 2 with consecutive numbers, a few at a time, and never again. Returns how many were
/// acknowledged before the connection ended; the next `PARALLEL` may have arrived or not.
pub(super) fn publish_exactly(broker: SocketAddr, topic: &str, numbers: std::ops::Range<usize>) -> Result<usize> {
    let mut connection = Connection::open(broker, V5, "source")?;
    let mut done = numbers.start;
    while done < numbers.end {
        let batch = done..numbers.end.min(done + PARALLEL);
        let exchange = || -> Result<()> {
            for (id, number) in (1..).zip(batch.clone()) {
                let text = number.to_string();
                let publish = mqtt::publish(V5, topic.as_bytes(), text.as_bytes(), 2, false, id);
                connection.stream.write_all(&publish)?;
            }
            for (answer, next) in [(0x50, Some(0x62)), (0x70, None)] {
                for _ in batch.clone() {
                    let (first, body) = connection.read()?;
                    ensure!(first == answer, "{first:#x} instead of {answer:#x}");
                    if let Some(next) = next {
                        connection.stream.write_all(&packet(next, body.get(..2).context("no identifier")?))?;
                    }
                }
            }
            Ok(())
        };
        let mut exchange = exchange;
        if exchange().is_err() {
            return Ok(done);
        }
        done = batch.end;
    }
    Ok(done)
}

/// Messages of [`publish_exactly`] that are under way at a time.
pub(super) const PARALLEL: usize = 20;
