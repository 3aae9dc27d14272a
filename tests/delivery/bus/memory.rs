//! Queues of clients that have gone: the memory comes back at once, and publications are taken by every door.

use std::io::{Read, Write};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, Connection, V4};
use fogmux_tests::{tcp, tls, xmpp};

const MAILBOX_BYTES: &str = "fogmux_bus_mailbox_bytes";
const PATIENCE: Duration = Duration::from_secs(20);

/// Publishes large messages, QoS 1, until the queues of those who do not read hold so much.
fn fill(gateway: &Gateway, topic: &str, bytes: f64) -> Result<f64> {
    let mut publisher = Connection::open(gateway.address("mqtt")?, V4, "filler")?;
    let payload = vec![b'x'; 48 << 10];
    let mut held = 0.0;
    for _ in 0..400 {
        publisher.stream.write_all(&mqtt::publish(V4, topic.as_bytes(), &payload, 1, false, 1))?;
        ensure!(publisher.read()?.0 == 0x40, "no PUBACK");
        held = gateway.metrics()?.get(MAILBOX_BYTES).copied().context("no gauge")?;
        if held >= bytes {
            return Ok(held);
        }
    }
    anyhow::bail!("only {held} bytes in the queues");
}

/// Nobody publishes on the topic again: what the gateway remembers of its subscribers may keep nothing alive.
fn comes_back(gateway: &mut Gateway) -> Result<()> {
    gateway.wait_metric(MAILBOX_BYTES, PATIENCE, |bytes| bytes == 0.0)?;
    super::all_doors_take(gateway)?;
    super::settle_beside_coap(gateway)
}

pub(super) fn mqtt_readers() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let mut readers = Vec::new();
    for number in 0..14 {
        let mut reader = Connection::open(gateway.address("mqtt")?, V4, &format!("deaf-{number}"))?;
        reader.subscribe(1, &["heavy/#"], (number % 3).try_into()?)?;
        readers.push(reader);
    }
    let held = fill(&gateway, "heavy/1", f64::from(24 << 20))?;
    drop(readers);
    comes_back(&mut gateway)?;
    Ok(format!("{held} bytes"))
}

pub(super) fn xmpp_readers() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let config = tls::config(gateway.ca())?;
    let mut readers = Vec::new();
    for _ in 0..16 {
        let mut reader = xmpp::Session::anonymous(&config, gateway.address("xmpps")?)?;
        let jid = reader.jid.clone();
        reader.send(&format!(
            "<iq type='set' id='s' to='pubsub.localhost'><pubsub xmlns='http://jabber.org/protocol/pubsub'>\
             <subscribe node='heavy/x' jid='{jid}'/></pubsub></iq>"
        ))?;
        reader.until("</iq>")?;
        readers.push(reader);
    }
    let held = fill(&gateway, "heavy/x", f64::from(8 << 20))?;
    drop(readers);
    comes_back(&mut gateway)?;
    Ok(format!("{held} bytes"))
}

pub(super) fn event_streams() -> Result<String> {
    // A stream waits for its reader to come back; here not for long.
    let mut gateway = Gateway::start(&["http.event_stream_grace=1s"])?;
    let mut readers = Vec::new();
    for _ in 0..300 {
        let mut stream = tcp::connect(gateway.address("http")?)?;
        stream.write_all(b"GET /subscribe?filter=heavy/%23 HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        stream.read_exact(&mut [0; 12])?;
        readers.push(stream);
    }
    let held = fill(&gateway, "heavy/s", f64::from(12 << 20))?;
    drop(readers);
    gateway.wait_metric("fogmux_http_event_streams", PATIENCE, |streams| streams == 0.0)?;
    comes_back(&mut gateway)?;
    Ok(format!("{held} bytes"))
}
