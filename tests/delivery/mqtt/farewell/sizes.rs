//! DISCONNECT at the end of all sizes of input, and the next connection of the client right after it, while the socket
//! of the previous one stays open.

use std::io::Write;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, Connection, V4, V5, packet};
use fogmux_tests::tcp;

use super::super::client::{Client, Login};
use super::super::wire::Transport;

/// Kilobytes before DISCONNECT: around the read buffer, and around the socket's.
const KILOBYTES: [usize; 8] = [0, 1, 16, 64, 66, 130, 200, 500];
/// Messages at most: the default Receive Maximum is above that.
const COUNT_MAX: usize = 100;
const TIMES: usize = 3;

/// The packets before DISCONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Publish(u8),
    /// One message of that size.
    Large(u8),
    /// Of identifiers that nobody knows.
    Pubrel,
    /// A QoS 2 message with its PUBREL, again and again.
    Exchanges,
}

fn input(before: Before, version: u8, bytes: usize) -> Vec<u8> {
    let id = |index: usize| u16::try_from(index + 1).unwrap_or(1);
    let count = (bytes / 100).clamp(1, COUNT_MAX);
    let payload = vec![b'x'; bytes / count];
    let publish = |index: usize, qos: u8| mqtt::publish(version, b"t", &payload, qos, false, id(index));
    let pubrel = |index: usize| packet(0x62, &id(index).to_be_bytes());
    match before {
        Before::Publish(qos) => (0..count).flat_map(|index| publish(index, qos)).collect(),
        Before::Large(qos) => mqtt::publish(version, b"t", &vec![b'x'; bytes], qos, false, 1),
        Before::Pubrel => (0..bytes / 4).flat_map(|index| pubrel(index % 1000)).collect(),
        Before::Exchanges => (0..count).flat_map(|index| [publish(0, 2), pubrel(index % 2)].concat()).collect(),
    }
}

/// Packets, their kilobytes, transport and version.
fn rows() -> Vec<(Before, usize, Transport, u8)> {
    let befores = [
        Before::Publish(0),
        Before::Publish(1),
        Before::Publish(2),
        Before::Large(0),
        Before::Large(2),
        Before::Pubrel,
        Before::Exchanges,
    ];
    let mut rows = Vec::new();
    for before in befores {
        // Answers to more of them would not fit the socket of a client that does not read.
        let sizes = KILOBYTES.into_iter().filter(|size| before != Before::Pubrel || *size <= 130);
        rows.extend(sizes.flat_map(|size| [V4, V5].map(|version| (before, size, Transport::Tcp, version))));
    }
    for transport in [Transport::Tls, Transport::Ws, Transport::Wss, Transport::Http2] {
        let sizes = [0, 16, 130].map(|size| (Before::Publish(2), size, transport, V5));
        rows.extend(sizes);
    }
    rows
}

/// Returns whether the will came.
fn is_willed(gateway: &Gateway, watcher: &mut Client, login: &Login<'_>, input: &[u8]) -> Result<bool> {
    let mut device = Client::login(gateway, login)?;
    let mut next = tcp::connect(gateway.address("mqtt")?)?;
    device.send(input)?;
    next.write_all(&mqtt::connect(login.version, "device"))?;
    let mut next = Connection::over(next, login.version);
    let (first, body) = next.read().context("CONNACK")?;
    ensure!(first == 0x20 && body.get(1) == Some(&0), "CONNACK {first:#x} {body:?}");
    next.publish("wills/end", b"")?;
    let is_willed = watcher.message_or("a will or the end")?.topic != "wills/end";
    if is_willed {
        watcher.message_or("the end")?;
    }
    // DISCONNECT, so that the next takeover is of a connection with a will.
    next.stream.write_all(&[0xe0, 0])?;
    tcp::read_end(&mut next.stream, tcp::PATIENCE)?;
    drop(device);
    Ok(is_willed)
}

pub(super) fn all() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let mut watcher = Client::open(&gateway, "watcher", Transport::Tcp)?;
    watcher.subscribe(&["wills/#"], 0)?;
    let mut wrong = Vec::new();
    let rows = rows();
    for (before, kilobytes, transport, version) in &rows {
        let login = Login { version: *version, will: Some("wills/device"), ..Login::new("device", *transport) };
        let mut input = input(*before, *version, kilobytes << 10);
        input.extend([0xe0, 0]);
        let row = format!("{before:?}, {kilobytes} kB, {transport:?}, version {version}");
        let mut wills = 0;
        for _ in 0..TIMES {
            let willed = is_willed(&gateway, &mut watcher, &login, &input);
            wills += usize::from(willed.with_context(|| row.clone())?);
        }
        if wills > 0 {
            wrong.push(format!("{row}: {wills} wills of {TIMES}"));
        }
    }
    ensure!(wrong.is_empty(), "{} of {} are wrong: {}", wrong.len(), rows.len(), wrong.join("\n"));
    drop(watcher);
    gateway.settle()?;
    Ok(format!("{} rows", rows.len()))
}
