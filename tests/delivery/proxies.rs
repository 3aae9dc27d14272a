//! Proxies in front of the listeners: whom a connection or request belongs to, and that it is never taken for local.

mod haproxy;
mod nginx;
mod protocol;
mod server;

use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, V4};
use fogmux_tests::suite::Case;
use fogmux_tests::{tcp, users};

pub(crate) const CASES: &[Case] = &[
    Case { name: "proxies: a request that came through an unnamed proxy is not local", run: unnamed },
    Case { name: "proxies: a WebSocket that came through an unnamed proxy is not local", run: unnamed_socket },
    Case { name: "proxies: requests of a named proxy are those of its clients", run: named },
    Case { name: "proxies: guesses through a named proxy delay their client only", run: back_off },
    Case { name: "proxies: the PROXY protocol names clients on every listener", run: protocol::every_listener },
    Case { name: "proxies: limits per address hold behind the PROXY protocol", run: protocol::per_address },
    Case { name: "proxies: nobody but a named proxy speaks the PROXY protocol", run: protocol::stranger },
    Case { name: "proxies: nginx in front of the default listener", run: nginx::default_listener },
    Case { name: "proxies: HAProxy in front of MQTT, by both versions of its protocol", run: haproxy::mqtt },
    Case { name: "proxies: HAProxy in front of HTTP: guesses delay their own client", run: haproxy::guesses },
    Case { name: "proxies: HAProxy that reads HTTP passes each request on as its client's", run: haproxy::requests },
    Case { name: "proxies: HAProxy's health checks take nothing from anybody", run: haproxy::checks },
];

/// A client elsewhere.
const CLIENT: &str = "203.0.113.9";
/// The proxy is on this machine.
const NAMED: &str = "proxy.addresses=[\"127.0.0.1\"]";
const FEW_GUESSES: &str = "auth.backoff.free_failures=2";

fn unnamed() -> Result<String> {
    let gateway = users::gateway(&[], &["dev"], &[])?;
    let http = gateway.address("http")?;
    let put = |headers: &str| users::http_with(http, headers, "PUT", "/topics/t", b"x");
    ensure!(matches!(put("")?, 201 | 204), "a local client was refused");
    for header in [
        "X-Forwarded-For: 203.0.113.9\r\n",
        "x-forwarded-for: 127.0.0.1\r\n",
        "Forwarded: for=203.0.113.9\r\n",
        "Forwarded: for=127.0.0.1\r\n",
        "Via: 1.1 cache\r\n",
    ] {
        let status = put(header)?;
        ensure!(status == 401, "an anonymous PUT with {header:?} is answered {status}");
        let status = put(&format!("{header}{}", users::authorization("dev")))?;
        ensure!(matches!(status, 201 | 204), "a user's PUT with {header:?} is answered {status}");
        let status = users::http_with(http, header, "GET", "/subscribe?filter=t", b"")?;
        ensure!(status == 401, "an anonymous subscription with {header:?} is answered {status}");
    }
    // As nginx asks without any configuration.
    let answer = tcp::ask(
        http,
        format!("PUT /topics/t HTTP/1.0\r\nHost: {http}\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx").as_bytes(),
    )?;
    ensure!(
        answer.starts_with(b"HTTP/1.0 401") || answer.starts_with(b"HTTP/1.1 401"),
        "nginx's PUT is answered {}",
        { String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned() }
    );
    // Requests on one connection are judged each by its own fields.
    let mut stream = tcp::connect(http)?;
    for (header, expected) in [("", "HTTP/1.1 20"), ("Via: 1.1 x\r\n", "HTTP/1.1 401"), ("", "HTTP/1.1 20")] {
        write!(stream, "PUT /topics/t HTTP/1.1\r\nHost: {http}\r\n{header}Content-Length: 1\r\n\r\nx")?;
        let head = head(&mut stream)?;
        ensure!(head.starts_with(expected), "{header:?} on one connection: {head}");
        skip_body(&mut stream, &head)?;
    }
    Ok(String::new())
}

/// The head of a response.
fn head(stream: &mut TcpStream) -> Result<String> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        bytes.extend(byte);
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn skip_body(stream: &mut TcpStream, head: &str) -> Result<()> {
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    stream.read_exact(&mut vec![0; length.unwrap_or(0)])?;
    Ok(())
}

/// Opens MQTT over WebSocket and logs in without credentials; the reason code.
fn socket(gateway: &Gateway, headers: &str) -> Result<u8> {
    let mut stream = tcp::connect(gateway.address("http")?)?;
    write!(
        stream,
        "GET /mqtt HTTP/1.1\r\nHost: localhost\r\n{headers}Connection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
    )?;
    let head = head(&mut stream)?;
    ensure!(head.starts_with("HTTP/1.1 101"), "{head}");
    let connect = mqtt::connect(V4, "socket");
    // One masked binary frame; the mask is zero.
    let length = u8::try_from(connect.len())?;
    stream.write_all(&[&[0x82, 0x80 | length, 0, 0, 0, 0], &connect[..]].concat())?;
    let mut answer = [0; 6];
    stream.read_exact(&mut answer)?;
    ensure!(answer.get(2) == Some(&0x20), "{answer:02x?} instead of CONNACK");
    Ok(answer.last().copied().unwrap_or_default())
}

fn unnamed_socket() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    ensure!(socket(&gateway, "")? == 0, "a local client was refused");
    for header in ["X-Forwarded-For: 203.0.113.9\r\n", "Forwarded: for=203.0.113.9\r\n", "Via: 1.1 cache\r\n"] {
        let reason = socket(&gateway, header)?;
        ensure!(reason == 5, "an anonymous CONNECT with {header:?} is answered {reason}");
    }
    Ok(String::new())
}

fn named() -> Result<String> {
    for (setting, field) in
        [("x-forwarded-for", "X-Forwarded-For: 203.0.113.9"), ("forwarded", "Forwarded: for=203.0.113.9;proto=https")]
    {
        let gateway = users::gateway(&[NAMED, &format!("proxy.header={setting}")], &["dev"], &[])?;
        let http = gateway.address("http")?;
        let put = |headers: &str| users::http_with(http, headers, "PUT", "/topics/t", b"x");
        for headers in ["", &format!("{field}\r\n"), "Via: 1.1 x\r\n"] {
            ensure!(put(headers)? == 401, "an anonymous PUT through a named proxy with {headers:?}");
        }
        // Passwords are taken: the way from the proxy is on this machine.
        let status = put(&format!("{field}\r\n{}", users::authorization("dev")))?;
        ensure!(matches!(status, 201 | 204), "a user's PUT is answered {status}");
    }
    Ok(String::new())
}

fn back_off() -> Result<String> {
    let gateway = users::gateway(&[NAMED, FEW_GUESSES, "auth.backoff.first=5s"], &["dev"], &[])?;
    let http = gateway.address("http")?;
    let guess = |address: &str, name: &str| {
        let wrong = users::basic(name, "wrong");
        users::http_with(http, &format!("X-Forwarded-For: {address}\r\n{wrong}"), "GET", "/topics/t", b"")
    };
    let mut answers = Vec::new();
    for number in 0..8 {
        // The client's own fields precede the proxy's.
        answers.push(guess(&format!("198.51.100.{number}, {CLIENT}"), &format!("nobody{number}"))?);
    }
    ensure!(answers.contains(&429), "guesses from one address are answered {answers:?}");
    // Another address of the same proxy is not delayed.
    let own = format!("X-Forwarded-For: 203.0.113.77\r\n{}", users::authorization("dev"));
    let status = users::http_with(http, &own, "GET", "/topics/t", b"")?;
    ensure!(status == 404, "another client is answered {status}");
    Ok(format!("{answers:?}"))
}
