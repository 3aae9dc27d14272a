//! Messages that weigh much in other fields than the payload: queues count those, too.

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, Connection, V5};
use fogmux_tests::{coap, tcp, tls, xmpp};

/// A message takes this beside its topic and its payload, which are a few bytes.
const TYPE_BYTES: usize = 65_000;
/// Below the receive maximum: their acknowledgements are awaited at the end.
const MESSAGES: u16 = 900;
/// All different, because an observer is to get the newest value of each topic only.
const TOPICS: u16 = 900;
/// Half of what all messages take.
const MORE_BYTES: u64 = 29_000_000;

const BOUNDS: &[&str] = &[
    "mqtt.queue_bytes_max=4MiB",
    "xmpp.mailbox_bytes_max=1MiB",
    "coap.notification_bytes_max=4MiB",
    "mqtt.slow_subscriber=drop_oldest",
    "http.event_stream_grace=1s",
];

/// Ends a reader that takes nothing.
type End = Box<dyn FnOnce() -> Result<()>>;

/// Ends one whose connections are all that there is of it.
fn closing(connections: impl Sized + 'static) -> End {
    Box::new(move || {
        drop(connections);
        Ok(())
    })
}

/// Publishes beside a reader that takes nothing. The gateway keeps what the queues may have, and no more.
fn beside(open: impl FnOnce(&Gateway) -> Result<End>) -> Result<String> {
    let mut gateway = Gateway::start(BOUNDS)?;
    let end = open(&gateway)?;
    let mut publisher = Connection::open(gateway.address("mqtt")?, V5, "publisher")?;
    let idle = gateway.resident_bytes()?;
    let properties = properties();
    for id in 1..=MESSAGES {
        publisher.stream.write_all(&heavy(&format!("heavy/{}", id % TOPICS), id, &properties))?;
    }
    for id in 1..=MESSAGES {
        let (first, body) = publisher.read()?;
        ensure!(first == 0x40 && body.starts_with(&id.to_be_bytes()), "{first:#x} {body:?} for {id}");
    }
    let peak = gateway.peak_resident_bytes()?;
    let more = peak.saturating_sub(idle);
    ensure!(more <= MORE_BYTES, "it grew from {} to {} MB", idle / 1_000_000, peak / 1_000_000);
    gateway.check_conservation()?;
    drop(publisher);
    end()?;
    gateway.settle()?;
    Ok(format!("{} MB more", more / 1_000_000))
}

/// A content type (MQTT 5 §3.3.2.3.9).
fn properties() -> Vec<u8> {
    let mut properties = vec![0x03];
    properties.extend(mqtt::string(&[b'w'; TYPE_BYTES]));
    properties
}

fn heavy(topic: &str, id: u16, properties: &[u8]) -> Vec<u8> {
    let mut body = mqtt::string(topic.as_bytes());
    body.extend(id.to_be_bytes());
    body.extend(mqtt::varint(properties.len()));
    body.extend(properties);
    body.push(b'x');
    mqtt::packet(0x32, &body)
}

pub(super) fn mqtt_connected() -> Result<String> {
    beside(|gateway| {
        let mut reader = Connection::open(gateway.address("mqtt")?, V5, "deaf")?;
        ensure!(reader.subscribe(1, &["heavy/#"], 1)? == [1]);
        Ok(closing(reader))
    })
}

pub(super) fn mqtt_absent() -> Result<String> {
    beside(|gateway| {
        let address = gateway.address("mqtt")?;
        let (mut reader, _) = Connection::resume(address, "absent", 600, true)?;
        ensure!(reader.subscribe(1, &["heavy/#"], 1)? == [1]);
        // A clean start without an expiry is the end of the session (§3.1.2.11.2).
        Ok(Box::new(move || Connection::resume(address, "absent", 0, true).map(drop)))
    })
}

pub(super) fn xmpp_session() -> Result<String> {
    beside(|gateway| {
        let config = tls::config(gateway.ca())?;
        let stream = tcp::connect_narrow(gateway.address("xmpp")?, 4096)?;
        let mut reader = xmpp::Session::over(stream, &config, xmpp::Via::Plain)?;
        for topic in 0..TOPICS {
            let action = format!("<subscribe node='heavy/{topic}' jid='{}'/>", reader.bare());
            let answer = reader.entity("set", &action)?;
            ensure!(answer.contains("subscription='subscribed'"), "{answer}");
        }
        reader.send("<presence/>")?;
        Ok(closing(reader))
    })
}

pub(super) fn event_streams() -> Result<String> {
    beside(|gateway| {
        let http = gateway.address("http")?;
        let open = |_| -> Result<TcpStream> {
            let mut reader = tcp::connect_narrow(http, 4096)?;
            reader.write_all(
                b"GET /subscribe?filter=heavy/%23 HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n",
            )?;
            let mut status = [0; 12];
            reader.read_exact(&mut status)?;
            ensure!(&status == b"HTTP/1.1 200", "{}", String::from_utf8_lossy(&status));
            Ok(reader)
        };
        Ok(closing((0..8).map(open).collect::<Result<Vec<_>>>()?))
    })
}

pub(super) fn coap_observer() -> Result<String> {
    beside(|gateway| {
        let reader: UdpSocket = coap::endpoint(gateway.address("coap")?)?;
        let options: [(u16, &[u8]); 4] = [
            (coap::OBSERVE, b""),
            (coap::URI_PATH, b"ps"),
            (coap::URI_QUERY, b"filter=heavy/#"),
            (coap::URI_QUERY, b"qos=1"),
        ];
        let request = coap::message(coap::CON, coap::FETCH, 1, b"h", &options, b"");
        let answer = coap::exchange(&reader, &request, b"h").context("the observation")?;
        ensure!(coap::dotted(&answer) == "2.05", "{}", coap::dotted(&answer));
        Ok(closing(reader))
    })
}
