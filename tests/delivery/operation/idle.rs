//! The memory that an idle client takes: resident bytes of the gateway for each of many.
//!
//! An HTTP event stream is in `http/streams.rs`, an XMPP login in `xmpp/idle.rs`.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Result, ensure};
use fogmux_tests::coap;
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{Connection, V4};
use fogmux_tests::suite::Case;

pub(super) const CLIENTS: Case =
    Case { name: "idle: memory of an MQTT connection and of a CoAP observer", run: clients };

/// Clients of a kind, few enough for the usual limit of open files.
const COUNT: u64 = 400;
/// Clients that come first and go: they pay for what is made once.
const FIRST: u64 = 100;
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes of an idle MQTT connection. A build without optimisation, with its checks, takes a little more than a release
/// build; the heap in use is some 1 750 of them, of which tokio has 384, the rest is lost between blocks.
const MQTT_BYTES_MAX: u64 = 2_560;
/// Bytes of a CoAP observer at an address of its own.
const OBSERVER_BYTES_MAX: u64 = 2_048;

fn clients() -> Result<String> {
    let mut gateway = Gateway::start(&["store.durability=none", "limits.per_address_max=1000"])?;
    let mqtt = gateway.address("mqtt")?;
    drop((0..FIRST).map(|number| Connection::open(mqtt, V4, &format!("first{number}"))).collect::<Result<Vec<_>>>()?);
    gateway.wait_metric("fogmux_door_connections{door=\"mqtt\"}", PATIENCE, |open| open == 0.0)?;
    let before = gateway.anonymous_bytes()?;
    let connections = (0..COUNT).map(|number| Connection::open(mqtt, V4, &format!("c{number}")));
    let connections = connections.collect::<Result<Vec<_>>>()?;
    let connection = gateway.anonymous_bytes()?.saturating_sub(before) / COUNT;

    let coap = gateway.address("coap")?;
    let observers = |count: u64| (0..count).map(|_| observe(coap)).collect::<Result<Vec<_>>>();
    drop(observers(FIRST)?);
    let before = gateway.anonymous_bytes()?;
    let watching = observers(COUNT)?;
    let observer = gateway.anonymous_bytes()?.saturating_sub(before) / COUNT;
    drop((connections, watching));
    ensure!(connection <= MQTT_BYTES_MAX, "{connection} bytes for each idle MQTT connection");
    ensure!(observer <= OBSERVER_BYTES_MAX, "{observer} bytes for each CoAP observer");
    gateway.check_alive()?;
    Ok(format!("{connection} bytes for a connection, {observer} for an observer"))
}

/// Observes a topic without a value from a socket of its own.
fn observe(server: SocketAddr) -> Result<UdpSocket> {
    const OBSERVE: u16 = 6;
    const URI_PATH: u16 = 11;
    let socket = coap::endpoint(server)?;
    let options: [(u16, &[u8]); 3] = [(OBSERVE, b""), (URI_PATH, b"ps"), (URI_PATH, b"idle")];
    let answer = coap::exchange(&socket, &coap::message(0, 1, 1, b"t", &options, b""), b"t")?;
    ensure!(answer.get(1) == Some(&0x45), "{}", coap::dotted(&answer));
    Ok(socket)
}
