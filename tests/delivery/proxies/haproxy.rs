//! HAProxy in front of the listeners: it sends headers of the PROXY protocol as its own code writes them.
//!
//! Its frontends believe a header as well (`accept-proxy`), so that a test can be a client at any address: the gateway
//! never sees the header that the test has written.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, V4};
use fogmux_tests::{proxy, tcp, users};

use super::FEW_GUESSES;
use super::server::Server;

/// HAProxy connects from another address than the rest of the test, which may read the metrics.
const NAMED: &str = "proxy.addresses=[\"127.0.0.2\"]";
const PATIENCE: Duration = Duration::from_secs(30);
const NONE: &str = "skipped: there is no HAProxy";
/// The ways in which HAProxy says whose connection it is: both versions, and the second one with a TLV.
const WAYS: [&str; 3] = ["send-proxy", "send-proxy-v2", "send-proxy-v2 proxy-v2-options crc32c"];

/// The PROXY protocol in front of HTTP on the listener of HTTPS, because the test asks the other one for metrics.
const HTTP: [&str; 6] = [
    NAMED,
    FEW_GUESSES,
    "auth.backoff.first=10s",
    "listeners.https.profile=none",
    "listeners.https.allow_weak=true",
    "listeners.https.proxy_protocol=true",
];

/// One listener of HAProxy.
struct Frontend<'a> {
    mode: &'a str,
    server: SocketAddr,
    options: &'a str,
}

/// Starts it; `None` if it is not installed.
fn start(frontends: &[Frontend<'_>]) -> Result<Option<Server>> {
    Server::start("haproxy", &["-db", "-f", "config"], frontends.len(), |addresses| {
        let listen = |(number, (frontend, address)): (usize, (&Frontend<'_>, &SocketAddr))| {
            let Frontend { mode, server, options } = frontend;
            format!(
                "listen l{number}\n mode {mode}\n bind {address} accept-proxy\n \
                 server fog {server} source 127.0.0.2 {options}\n"
            )
        };
        let listeners: String = frontends.iter().zip(addresses).enumerate().map(listen).collect();
        format!(
            "global\n maxconn 500\ndefaults\n timeout connect 10s\n timeout client 60s\n timeout server 60s\n{listeners}"
        )
    })
}

fn tcp_mode<'a>(server: SocketAddr, options: &'a str) -> Frontend<'a> {
    Frontend { mode: "tcp", server, options }
}

/// Opens a connection to HAProxy that is one of a client at `from`.
fn open(frontend: SocketAddr, from: &str) -> Result<TcpStream> {
    let mut stream = tcp::connect(frontend)?;
    stream.write_all(&proxy::version_1(from.parse()?))?;
    Ok(stream)
}

/// The return code of CONNACK; `None` when the connection ends.
fn connack(stream: &mut TcpStream, connect: &[u8]) -> Result<Option<u8>> {
    tcp::pour(stream, connect)?;
    let mut connack = [0; 4];
    match stream.read_exact(&mut connack) {
        Ok(()) => Ok(connack.last().copied()),
        Err(error) if tcp::is_end(error.kind()) => Ok(None),
        Err(error) => Err(error).context("neither CONNACK nor an end"),
    }
}

pub(super) fn mqtt() -> Result<String> {
    let settings = [NAMED, "listeners.mqtt.proxy_protocol=true", "limits.per_address_max=5"];
    let mut gateway = users::gateway(&settings, &["dev"], &[])?;
    let server = gateway.address("mqtt")?;
    let Some(haproxy) = start(&WAYS.map(|way| tcp_mode(server, way)))? else { return Ok(NONE.to_owned()) };
    for (number, way) in WAYS.into_iter().enumerate() {
        let frontend = haproxy.address(number)?;
        for from in ["203.0.113.9:4711", "[2001:db8::9]:4711", "127.0.0.1:4711"] {
            let reason = connack(&mut open(frontend, from)?, &mqtt::connect(V4, "nobody"))?;
            ensure!(reason == Some(5), "{way}: an anonymous client at {from} gets {reason:?}");
            let reason = connack(&mut open(frontend, from)?, &users::connect_3("dev", "d"))?;
            ensure!(reason == Some(0), "{way}: a user at {from} gets {reason:?}");
        }
        check_log(&gateway, frontend, number).context(way)?;
        check_limit(frontend).context(way)?;
        gateway.wait_metric("fogmux_door_connections{door=\"mqtt\"}", PATIENCE, |open| open == 0.0)?;
    }
    drop(haproxy);
    gateway.settle()?;
    gateway.check_alive()?;
    Ok(String::new())
}

/// A refused login is in the log with the address of the client.
fn check_log(gateway: &Gateway, frontend: SocketAddr, number: usize) -> Result<()> {
    let from = format!("198.51.100.{number}");
    let reason = connack(&mut open(frontend, &format!("{from}:4711"))?, &mqtt::connect(V4, "nobody"))?;
    ensure!(reason == Some(5), "{reason:?}");
    gateway.wait_log(&format!("login refused peer={from} port=4711 door=mqtt"), PATIENCE)
}

/// Connections count for the address that they come from, not for HAProxy's.
fn check_limit(frontend: SocketAddr) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let mut held = Vec::new();
    // Those of the tests before may still be ending.
    while held.len() < 5 {
        ensure!(Instant::now() < deadline, "{} of 5 connections from one address", held.len());
        let mut stream = open(frontend, "203.0.113.9:1")?;
        if connack(&mut stream, &users::connect_3("dev", &format!("d{}", held.len())))? == Some(0) {
            held.push(stream);
        }
    }
    let reason = connack(&mut open(frontend, "203.0.113.9:1")?, &users::connect_3("dev", "one-more"))?;
    ensure!(reason.is_none(), "the sixth connection from one address gets {reason:?}");
    let reason = connack(&mut open(frontend, "203.0.113.10:1")?, &users::connect_3("dev", "other"))?;
    ensure!(reason == Some(0), "another address behind HAProxy gets {reason:?}");
    Ok(())
}

/// Asks by HTTP/1.1 from an address; the status code.
fn ask(frontend: SocketAddr, from: &str, headers: &str, method: &str) -> Result<u16> {
    let body = if method == "PUT" { "x" } else { "" };
    let request = format!(
        "{method} /topics/t HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let bytes = [&proxy::version_1(from.parse()?), request.as_bytes()].concat();
    let answer = tcp::ask(frontend, &bytes)?;
    let line = String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned();
    line.split(' ').nth(1).and_then(|code| code.parse().ok()).with_context(|| format!("no answer but {line:?}"))
}

pub(super) fn guesses() -> Result<String> {
    for way in WAYS {
        let mut gateway = users::gateway(&HTTP, &["dev"], &[])?;
        let Some(haproxy) = start(&[tcp_mode(gateway.address("https")?, way)])? else { return Ok(NONE.to_owned()) };
        let frontend = haproxy.address(0)?;
        let status = ask(frontend, "203.0.113.9:1", "", "PUT")?;
        ensure!(status == 401, "{way}: an anonymous PUT is answered {status}");
        let guess = |number: u16| {
            let wrong = users::basic(&format!("nobody{number}"), "wrong");
            ask(frontend, &format!("203.0.113.9:{}", 1000 + number), &wrong, "GET")
        };
        let answers: Vec<u16> = (0..8).map(guess).collect::<Result<_>>()?;
        ensure!(answers.contains(&429), "{way}: guesses from one address are answered {answers:?}");
        let status = ask(frontend, "203.0.113.77:1", &users::authorization("dev"), "PUT")?;
        ensure!(matches!(status, 201 | 204), "{way}: another client is answered {status}");
        drop(haproxy);
        gateway.settle()?;
    }
    Ok(String::new())
}

/// HAProxy keeps connections to its server and uses them again: but not one for several clients, if the server is told
/// whose connection it is.
pub(super) fn requests() -> Result<String> {
    let mut gateway = users::gateway(&HTTP, &["dev"], &[])?;
    let (by_header, by_protocol) = (gateway.address("http")?, gateway.address("https")?);
    let http = |server, options| Frontend { mode: "http\n http-reuse always\n option forwardfor", server, options };
    let frontends = [http(by_header, ""), http(by_protocol, "send-proxy-v2"), http(by_protocol, "send-proxy")];
    let Some(haproxy) = start(&frontends)? else { return Ok(NONE.to_owned()) };
    for number in 0..frontends.len() {
        let frontend = haproxy.address(number)?;
        let client = |host: usize| format!("203.0.113.{}:1", 100 + 10 * number + host);
        for _ in 0..4 {
            let status = ask(frontend, &client(0), "", "PUT")?;
            ensure!(status == 401, "frontend {number}: an anonymous PUT is answered {status}");
            let status = ask(frontend, &client(1), &users::authorization("dev"), "PUT")?;
            ensure!(matches!(status, 201 | 204), "frontend {number}: a user's PUT is answered {status}");
        }
        let guess =
            |guess: usize| ask(frontend, &client(2), &users::basic(&format!("nobody{number}{guess}"), "wrong"), "GET");
        let answers: Vec<u16> = (0..8).map(guess).collect::<Result<_>>()?;
        ensure!(answers.contains(&429), "frontend {number}: guesses from one address are answered {answers:?}");
        let status = ask(frontend, &client(1), &users::authorization("dev"), "GET")?;
        ensure!(status == 200, "frontend {number}: another client is answered {status}");
    }
    drop(haproxy);
    gateway.settle()?;
    Ok(String::new())
}

/// A health check says that HAProxy speaks for itself, or only connects, and ends: it must not pass for a client's
/// guess, nor be in the way of clients.
pub(super) fn checks() -> Result<String> {
    let settings = [NAMED, "listeners.mqtt.proxy_protocol=true", FEW_GUESSES, "auth.backoff.first=10s"];
    let mut gateway = users::gateway(&settings, &["dev"], &[])?;
    let server = gateway.address("mqtt")?;
    let checked = WAYS.map(|way| format!("{way} check inter 20ms rise 1 fall 1"));
    let Some(haproxy) = start(&checked.each_ref().map(|way| tcp_mode(server, way)))? else {
        return Ok(NONE.to_owned());
    };
    let accepted = "fogmux_door_accepted_total{door=\"mqtt\"}";
    gateway.wait_metric(accepted, PATIENCE, |accepted| accepted > 60.0)?;
    for number in 0..checked.len() {
        // HAProxy sends nobody to a server whose check has failed.
        let reason = connack(&mut open(haproxy.address(number)?, "203.0.113.9:1")?, &users::connect_3("dev", "d"))?;
        ensure!(reason == Some(0), "{}: a user gets {reason:?}", WAYS.get(number).copied().unwrap_or_default());
    }
    let log = gateway.whole_log();
    ensure!(!log.contains("refused"), "health checks are in the log:\n{log}");
    drop(haproxy);
    gateway.settle()?;
    Ok(String::new())
}
