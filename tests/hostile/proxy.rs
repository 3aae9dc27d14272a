//! Headers of the PROXY protocol that are wrong, late or out of place: their connection ends in bounded time, nobody is
//! let in by one, and a client behind the same proxy notices nothing.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, Connection, V4};
use fogmux_tests::probe::Probe;
use fogmux_tests::proxy::{self, SIGNATURE, announced, binary};
use fogmux_tests::suite::Case;
use fogmux_tests::tcp::{self, End};

use crate::mqtt::noise;
use crate::{Setting, attack, attack_furnished};

pub(crate) const CASES: &[Case] = &[
    Case { name: "proxy malformed headers at each listener", run: || attack_furnished(&BEHIND, malformed) },
    Case { name: "proxy 4 000 headers that never end", run: || attack_furnished(&BEHIND, endless) },
    Case { name: "proxy every single byte of a header changed", run: || attack_furnished(&BEHIND, mutations) },
    Case { name: "proxy a header twice", run: || attack_furnished(&BEHIND, twice) },
    Case { name: "proxy a header where none is expected", run: || attack(unexpected) },
];

/// The proxy; the rest of the suite connects from another address.
const PROXY: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// Listeners behind it. That of MQTT over TLS speaks without, so that its clients are easy to be.
const LISTENERS: [&str; 5] = ["mqtts", "coap_tcp", "coaps_tcp", "https", "xmpp"];
const BEHIND: Setting = Setting {
    settings: &[
        "proxy.addresses=[\"127.0.0.2\"]",
        "proxy.timeout=1s",
        "listeners.mqtts.profile=none",
        "listeners.mqtts.allow_weak=true",
        "listeners.mqtts.allow_remote_anonymous=true",
        "listeners.mqtts.proxy_protocol=true",
        "listeners.coap_tcp.proxy_protocol=true",
        "listeners.coaps_tcp.proxy_protocol=true",
        "listeners.https.proxy_protocol=true",
        "listeners.xmpp.proxy_protocol=true",
    ],
    files: &[("acl.toml", "[[allow]]\nanonymous = true\nboth = \"#\"\n")],
};
const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9)), 4711);
/// Addresses and ports of a header of version 2 over IPv4.
const ADDRESSES: [u8; 12] = [203, 0, 113, 9, 127, 0, 0, 1, 0x12, 0x34, 7, 0x5b];
/// The limit of `proxy.timeout`, and what a busy machine adds.
const CLOSED_AFTER: Duration = Duration::from_secs(11);

/// A client behind the same proxy, whose round trips go on.
fn neighbour(gateway: &Gateway) -> Result<Probe> {
    Probe::over(newcomer(gateway).context("the neighbour")?, "neighbour/round/trip")
}

/// One more client behind it, whose identifier the gateway chooses.
fn newcomer(gateway: &Gateway) -> Result<Connection> {
    let client = SocketAddr::new([203, 0, 113, 77].into(), 1);
    proxy::login(PROXY, gateway.address("mqtts")?, &proxy::version_2(client), "")
}

/// Headers that are wrong from the first to the last byte, with their names.
fn wrong() -> Vec<(&'static str, Vec<u8>)> {
    let line = |rest: &str| format!("PROXY {rest}\r\n").into_bytes();
    let mut tail = ADDRESSES.to_vec();
    tail.resize(65_535, 4);
    vec![
        ("none, but the protocol", mqtt::connect(V4, "unasked")),
        ("another case", b"proxy TCP4 203.0.113.9 127.0.0.1 1 1883\r\n".to_vec()),
        ("a signature with one wrong byte", [&b"\r\n\r\n\0\r\nQUIT\r"[..], &[0x21, 0x11, 0, 12], &ADDRESSES].concat()),
        ("version 1 with 108 bytes", line(&format!("UNKNOWN {}", "x".repeat(92)))),
        ("version 1 that does not end", [b"PROXY TCP4 ".as_slice(), &[b'1'; 5000]].concat()),
        ("version 1 without CR", b"PROXY TCP4 203.0.113.9 127.0.0.1 1 1883\n".to_vec()),
        ("version 1 without a family", line("")),
        ("version 1 with another family", line("TCP5 203.0.113.9 127.0.0.1 1 1883")),
        ("version 1 of UDP", line("UDP4 203.0.113.9 127.0.0.1 1 1883")),
        ("version 1 with addresses of the other family", line("TCP4 ::1 ::1 1 1883")),
        ("version 1 with a name", line("TCP4 localhost 127.0.0.1 1 1883")),
        ("version 1 with an octal address", line("TCP4 203.0.113.011 127.0.0.1 1 1883")),
        ("version 1 without ports", line("TCP4 203.0.113.9 127.0.0.1")),
        ("version 1 with a port too many", line("TCP4 203.0.113.9 127.0.0.1 1 1883 7")),
        ("version 1 with a large port", line("TCP4 203.0.113.9 127.0.0.1 65536 1883")),
        ("version 1 with a sign", line("TCP4 203.0.113.9 127.0.0.1 +1 1883")),
        ("version 1 with two spaces", line("TCP4  203.0.113.9 127.0.0.1 1 1883")),
        ("version 1 that is not UTF-8", b"PROXY TCP4 \xff\xff 127.0.0.1 1 1883\r\n".to_vec()),
        ("version 0", binary(0x01, 0x11, &ADDRESSES)),
        ("version 3", binary(0x31, 0x11, &ADDRESSES)),
        ("another command", binary(0x22, 0x11, &ADDRESSES)),
        ("another family", binary(0x21, 0x41, &ADDRESSES)),
        ("another transport", binary(0x21, 0x13, &ADDRESSES)),
        ("IPv4 cut short", binary(0x21, 0x11, ADDRESSES.get(..11).unwrap_or_default())),
        ("IPv6 cut short", binary(0x21, 0x21, &[0; 35])),
        ("a UNIX socket cut short", binary(0x21, 0x31, &[0; 215])),
        ("a length of 65 535", binary(0x21, 0x11, &tail)),
        ("LOCAL with a length of 65 535", binary(0x20, 0x00, &tail)),
        ("a length of 65 535, of which nothing comes", announced(0x21, 0x11, 0xffff, &[])),
        // The rest of it never comes.
        ("a length longer than the header", announced(0x21, 0x11, 8000, &ADDRESSES)),
        ("half a line", b"PROXY TCP4 203.0".to_vec()),
        ("half a signature", SIGNATURE.get(..7).unwrap_or_default().to_vec()),
    ]
}

/// Connects as the proxy and sends what it takes before it closes.
fn send(gateway: &Gateway, listener: &str, bytes: &[u8]) -> Result<TcpStream> {
    let mut stream = tcp::connect_from(PROXY, gateway.address(listener)?)?;
    tcp::pour(&mut stream, bytes)?;
    Ok(stream)
}

fn malformed(gateway: &Gateway) -> Result<String> {
    const TIMES: usize = 5;
    let neighbour = neighbour(gateway)?;
    let headers = wrong();
    for listener in LISTENERS {
        let mut sent = Vec::new();
        for (what, header) in headers.iter().cycle().take(headers.len() * TIMES) {
            sent.push((what, send(gateway, listener, header)?));
        }
        let deadline = Instant::now() + CLOSED_AFTER;
        for (what, stream) in &mut sent {
            let end = tcp::read_end(stream, deadline.saturating_duration_since(Instant::now()))?;
            ensure!(end == End::Closed(Vec::new()), "{listener}: {what}: {end:?}");
        }
        newcomer(gateway).with_context(|| format!("after the headers at {listener}"))?;
    }
    let slowest = neighbour.p99().context("the neighbour")?;
    Ok(format!("{} headers, the neighbour's p99 {slowest:.1?}", headers.len() * TIMES * LISTENERS.len()))
}

fn endless(gateway: &Gateway) -> Result<String> {
    let beginnings: [Vec<u8>; 5] = [
        Vec::new(),
        b"PROXY TCP4 203".to_vec(),
        SIGNATURE.to_vec(),
        announced(0x21, 0x11, 8192, &[]),
        announced(0x20, 0x00, 8192, &[7; 8191]),
    ];
    let neighbour = neighbour(gateway)?;
    let began = Instant::now();
    let mut held = Vec::new();
    for number in 0..800 {
        for beginning in &beginnings {
            held.push(send(gateway, "mqtts", beginning)?);
        }
        if number % 100 == 0 {
            newcomer(gateway).with_context(|| format!("beside {} open headers", held.len()))?;
        }
    }
    // A byte now and then does not prolong it.
    let mut open = held.len();
    while open > 0 {
        ensure!(began.elapsed() < CLOSED_AFTER * 3, "{open} of {} headers are still waited for", held.len());
        thread::sleep(Duration::from_millis(100));
        held.retain_mut(|stream| {
            let _ = stream.write_all(b"1");
            matches!(tcp::read_end(stream, Duration::from_micros(50)), Ok(End::Open(_)))
        });
        open = held.len();
    }
    let slowest = neighbour.p99().context("the neighbour")?;
    Ok(format!("let go after {:.1?}, the neighbour's p99 {slowest:.1?}", began.elapsed()))
}

/// Each answer is CONNACK or the end of the connection, and comes in time.
fn mutations(gateway: &Gateway) -> Result<String> {
    let neighbour = neighbour(gateway)?;
    let connect = mqtt::connect(V4, "changed");
    let (mut let_in, mut tried) = (0, 0);
    for header in [proxy::version_1(CLIENT), proxy::version_2(CLIENT)] {
        for place in 0..header.len() {
            let mut sent = Vec::new();
            for value in (0..=255).step_by(3) {
                let mut bytes = header.clone();
                if let Some(byte) = bytes.get_mut(place) {
                    *byte = value;
                }
                // A longer header swallows bytes that never come, a shorter one leaves some.
                bytes.extend(&connect);
                sent.push((value, send(gateway, "mqtts", &bytes)?));
            }
            tried += sent.len();
            for (value, stream) in sent {
                let mut connection = Connection::over(stream, V4);
                match connection.read() {
                    Ok((0x20, body)) if body.get(1) == Some(&0) => let_in += 1,
                    Ok((first, body)) => ensure!(first == 0x20, "byte {place} as {value}: {first:#x} {body:02x?}"),
                    Err(error) => {
                        let ended =
                            error.downcast_ref::<std::io::Error>().is_some_and(|error| tcp::is_end(error.kind()));
                        ensure!(ended, "byte {place} as {value}: {error:#}");
                    }
                }
            }
        }
    }
    let slowest = neighbour.p99().context("the neighbour")?;
    Ok(format!("{tried} headers, {let_in} of them still right, the neighbour's p99 {slowest:.1?}"))
}

/// The second header is no part of the protocol behind the first: whoever is let through by it could name any address.
fn twice(gateway: &Gateway) -> Result<String> {
    let local = binary(0x20, 0x00, &[]);
    let neighbour = neighbour(gateway)?;
    for listener in LISTENERS {
        for first in [proxy::version_1(CLIENT), proxy::version_2(CLIENT)] {
            for second in [proxy::version_1(CLIENT), proxy::version_2(CLIENT), local.clone()] {
                let bytes = [&first[..], &second, &mqtt::connect(V4, "twice"), &noise(200, 1)].concat();
                let mut stream = send(gateway, listener, &bytes)?;
                let end = tcp::read_end(&mut stream, Duration::from_secs(45))?;
                ensure!(end.is_closed(), "{listener}: still open");
                ensure!(!end.bytes().starts_with(&[0x20, 2]), "{listener}: CONNACK behind two headers");
            }
        }
    }
    let slowest = neighbour.p99().context("the neighbour")?;
    Ok(format!("{} times, the neighbour's p99 {slowest:.1?}", LISTENERS.len() * 6))
}

/// A listener that is not configured for headers takes them for what they are there: a broken protocol.
fn unexpected(gateway: &Gateway) -> Result<String> {
    for listener in ["mqtt", "mqtts", "coap_tcp", "coaps_tcp", "http", "https", "xmpp", "xmpps"] {
        for header in [proxy::version_1(CLIENT), proxy::version_2(CLIENT), binary(0x20, 0x00, &[])] {
            let bytes = [&header[..], &mqtt::connect(V4, "unexpected")].concat();
            let mut stream = tcp::connect(gateway.address(listener)?)?;
            tcp::pour(&mut stream, &bytes)?;
            let end = tcp::read_end(&mut stream, Duration::from_secs(45))?;
            ensure!(end.is_closed(), "{listener}: still open");
            ensure!(!end.bytes().starts_with(&[0x20, 2]), "{listener}: CONNACK behind a header");
        }
    }
    Ok(String::new())
}
