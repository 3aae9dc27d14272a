//! Memory after clients of every door at once: what they made the process take comes back when they go.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fogmux_tests::coap_stream::Line;
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, V4};
use fogmux_tests::suite::Case;
use fogmux_tests::{coap, dtls, tcp, tls, users, xmpp};

use crate::mqtt::wire::{self, Transport};

pub(super) const GONE: Case = Case { name: "memory: clients of every door at once come and go", run: gone };

pub(super) const PSK: &[u8] = b"a key of 16 byte";
/// How long each driver goes on.
pub(super) const LOAD: Duration = Duration::from_secs(20);
/// Clients that each driver has at once.
const AT_ONCE: usize = 24;
/// The load takes more than this for a time: the bound afterwards is 8 MB.
const LEAST_BYTES: u64 = 12_000_000;
/// Bytes of a message: above what one read takes, and above what a mailbox copies.
const LARGE: usize = 40_000;
const TRANSPORTS: [Transport; 5] = [Transport::Tcp, Transport::Tls, Transport::Ws, Transport::Wss, Transport::Http2];
const DISCONNECT: [u8; 2] = [0xe0, 0];

type Driver = fn(&Gateway, usize) -> Result<()>;
const DRIVERS: [(&str, Driver); 6] = [
    ("MQTT", mqtt_clients),
    ("sessions", sessions),
    ("HTTP", http_clients),
    ("CoAP", coap_clients),
    ("DTLS", dtls_client),
    ("XMPP", xmpp_client),
];

fn gone() -> Result<String> {
    // Our clients of DTLS and event streams vanish without a word. Exchanges of CoAP are remembered for 247 s after
    // the last client (RFC 7252 §4.8.2), so they get little room here.
    let settings = ["coap.exchange_bytes_max=1MiB", "coap.dtls.idle_timeout=2s", "http.event_stream_grace=1s"];
    let mut gateway = users::gateway(&settings, &["ada"], &[("psk.toml", &users::key_file("sensor", PSK))])?;
    let idle = gateway.anonymous_bytes()?;
    let retained = gateway.sum(&["fogmux_bus_retained_bytes"])?;
    retain(&gateway, &[b'r'; LARGE])?;
    let rounds = load(&gateway, LOAD)?;
    retain(&gateway, b"")?;
    // The maximum of the whole resident set, without the pages of files that are there now.
    let most = gateway.peak_resident_bytes()?.saturating_sub(gateway.file_bytes()?);
    ensure!(most > idle + LEAST_BYTES, "the load took only {most} bytes, {idle} before");
    let after = gateway.gives_back(idle)?;
    let sessions = gateway.metrics()?.get("fogmux_share_largest{table=\"sessions\"}").copied();
    ensure!(sessions == Some(0.0), "{sessions:?} sessions are left");
    // The gateway's own status messages are some hundred bytes each.
    let more = gateway.sum(&["fogmux_bus_retained_bytes"])?.saturating_sub(retained);
    ensure!(more < LARGE as u64, "{more} bytes of retained messages are left");
    let kilobytes = |bytes: u64| bytes / 1_000;
    let (idle, most, after) = (kilobytes(idle), kilobytes(most), kilobytes(after));
    let files = kilobytes(gateway.file_bytes()?);
    Ok(format!("({rounds}; anonymous: idle {idle} kB, then {most}, after {after}; of files {files})"))
}

/// Has values retained, 16 MB with large payloads, or clears them.
fn retain(gateway: &Gateway, payload: &[u8]) -> Result<()> {
    let mut client = mqtt::Connection::open(gateway.address("mqtt")?, V4, "keeper")?;
    for id in 1..=400 {
        let topic = format!("mixed/r/{id}");
        client.stream.write_all(&mqtt::publish(V4, topic.as_bytes(), payload, 1, true, id))?;
        if id % 50 == 0 {
            for _ in 0..50 {
                let (first, _) = client.read()?;
                ensure!(first == 0x40, "{first:#x} instead of PUBACK");
            }
        }
    }
    Ok(())
}

/// Runs all drivers side by side. Returns how many rounds each had.
pub(super) fn load(gateway: &Gateway, lasting: Duration) -> Result<String> {
    let end = Instant::now() + lasting;
    let told: Result<Vec<String>> = std::thread::scope(|scope| {
        let running = DRIVERS.map(|(name, driver)| {
            scope.spawn(move || -> Result<String> {
                let mut round = 0;
                while Instant::now() < end {
                    driver(gateway, round).map_err(|error| error.context(format!("{name}, round {round}")))?;
                    round += 1;
                }
                Ok(format!("{name} {round}"))
            })
        });
        let join = |driver: std::thread::ScopedJoinHandle<'_, Result<String>>| {
            driver.join().map_err(|_| anyhow::anyhow!("a driver panicked"))?
        };
        running.into_iter().map(join).collect()
    });
    Ok(told?.join(", "))
}

/// Over each transport: subscribers of each other, and retained messages that are cleared.
fn mqtt_clients(gateway: &Gateway, round: usize) -> Result<()> {
    for transport in TRANSPORTS {
        let mut clients = Vec::new();
        for number in 0..AT_ONCE {
            let mut wire = wire::open(gateway, transport, None)?;
            wire.write_all(&mqtt::connect(V4, &format!("{transport:?}-{number}")))?;
            wire.write_all(&mqtt::subscribe(V4, 1, &["mixed/m/+"], 1))?;
            wire.flush()?;
            // CONNACK and SUBACK.
            wire.read_exact(&mut [0; 9])?;
            clients.push(wire);
        }
        for (number, client) in clients.iter_mut().enumerate() {
            let topic = format!("mixed/m/{round}-{number}");
            client.write_all(&mqtt::publish(V4, topic.as_bytes(), &[b'm'; LARGE], 0, true, 0))?;
            client.write_all(&mqtt::publish(V4, topic.as_bytes(), b"", 0, true, 0))?;
            client.write_all(&DISCONNECT)?;
            client.flush()?;
        }
        // Closed with a TLS alert or without, each has ended.
        for mut client in clients {
            let _ = std::io::copy(&mut client, &mut std::io::sink());
        }
    }
    Ok(())
}

/// Logins with a password to sessions that get messages while they are away, and end.
fn sessions(gateway: &Gateway, round: usize) -> Result<()> {
    let address = gateway.address("mqtt")?;
    let names: Vec<String> = (0..AT_ONCE).map(|number| format!("session-{round}-{number}")).collect();
    for name in &names {
        let (mut connection, ..) = users::Login::of("ada", name).connect(address)?;
        connection.subscribe(1, &["mixed/s"], 1)?;
    }
    let clean = |client| users::Login { clean: true, expiry: 0, ..users::Login::of("ada", client) };
    let (mut publisher, ..) = clean("publisher").connect(address)?;
    for id in 1..=20 {
        publisher.stream.write_all(&mqtt::publish(mqtt::V5, b"mixed/s", &[b's'; 5_000], 1, false, id))?;
        let (first, _) = publisher.read()?;
        ensure!(first == 0x40, "{first:#x} instead of PUBACK");
    }
    for name in &names {
        let (mut connection, present, _) = clean(name).connect(address)?;
        ensure!(!present, "Clean Start, and a session is present");
        connection.stream.write_all(&DISCONNECT)?;
    }
    Ok(())
}

/// Uploads that are retained and deleted, with a password, and event streams over TLS.
fn http_clients(gateway: &Gateway, round: usize) -> Result<()> {
    let config = tls::config(gateway.ca())?;
    let mut streams = Vec::new();
    for _ in 0..AT_ONCE {
        let mut stream = tls::connect(&config, gateway.address("https")?)?;
        write!(stream, "GET /subscribe?filter=mixed/h/%2B HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let mut status = [0; 12];
        stream.read_exact(&mut status)?;
        ensure!(&status == b"HTTP/1.1 200", "{}", String::from_utf8_lossy(&status));
        streams.push(stream);
    }
    for number in 0..AT_ONCE {
        let topic = format!("/topics/mixed/h/{round}-{number}");
        for (method, body) in [("PUT", &[b'h'; LARGE][..]), ("GET", b""), ("DELETE", b"")] {
            let status = users::http(gateway.address("http")?, "ada", method, &topic, body)?;
            // Short of memory, it says so.
            ensure!(status < 300 || matches!(status, 404 | 503), "{method} {topic}: {status}");
        }
    }
    Ok(())
}

/// Values set, fetched and deleted over UDP and TCP, by endpoints that never spoke before.
fn coap_clients(gateway: &Gateway, round: usize) -> Result<()> {
    let topic = format!("mixed/c/{round}");
    for _ in 0..AT_ONCE {
        let socket = coap::endpoint(gateway.address("coap")?)?;
        for (id, (code, payload)) in (1..).zip([(3, &[b'c'; 900][..]), (1, b""), (4, b"")]) {
            coap::exchange(&socket, &coap::request(coap::CON, code, id, b"mixed", &topic, &[], payload), b"mixed")?;
        }
    }
    let mut line = Line::open(gateway.address("coap_tcp")?)?;
    let path = round.to_string();
    for (code, payload) in [(3, &[b'c'; 900][..]), (1, b""), (4, b"")] {
        line.send(code, b"t", &[(11, b"ps"), (11, b"mixed"), (11, b"t"), (11, path.as_bytes())], payload)?;
        let answer = line.next(tcp::PATIENCE)?;
        ensure!(answer.is_some(), "no answer over TCP");
    }
    Ok(())
}

fn dtls_client(gateway: &Gateway, round: usize) -> Result<()> {
    let socket = coap::endpoint(gateway.address("coaps")?)?;
    let mut session = dtls::Session::open(&dtls::psk("sensor", PSK)?, socket)?;
    for (id, code) in [(1, 3), (2, 4)] {
        session.exchange(&coap::request(coap::CON, code, id, b"d", &format!("mixed/d/{round}"), &[], b"value"))?;
    }
    Ok(())
}

/// A node that gets an item and is deleted, over TLS.
fn xmpp_client(gateway: &Gateway, round: usize) -> Result<()> {
    let config = tls::config(gateway.ca())?;
    let mut session = xmpp::Session::anonymous(&config, gateway.address("xmpps")?)?;
    let options = xmpp::form("publish-options", &[("pubsub#persist_items", "0")]);
    let text = "x".repeat(LARGE);
    let publish = format!(
        "<iq type='set' id='mixed' to='pubsub.localhost'><pubsub xmlns='http://jabber.org/protocol/pubsub'>\
         <publish node='mixed/x/{round}'><item><a xmlns='b'>{text}</a></item></publish>\
         <publish-options>{options}</publish-options></pubsub></iq>"
    );
    session.send(&publish)?;
    let answer = session.until("</iq>")?;
    ensure!(answer.contains("type='result'"), "{answer}");
    // A node stays until its owner deletes it.
    let answer = session.owner("set", &format!("<delete node='mixed/x/{round}'/>"))?;
    ensure!(answer.contains("type='result'"), "{answer}");
    Ok(())
}
