//! The PROXY protocol by hand. Malformed headers are in the hostile suite.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, V4};
use fogmux_tests::{proxy, tcp, users};

use super::{CLIENT, NAMED};

/// The reason code of an anonymous CONNECT behind these bytes; `None` when the connection ends.
fn login_behind(gateway: &Gateway, listener: &str, header: &[u8]) -> Result<Option<u8>> {
    let mut stream = tcp::connect(gateway.address(listener)?)?;
    // It may be closed already.
    let _ = stream.write_all(&[header, &mqtt::connect(V4, "proxied")].concat());
    let mut connack = [0; 4];
    match stream.read_exact(&mut connack) {
        Ok(()) => Ok(connack.last().copied()),
        Err(error) if tcp::is_end(error.kind()) => Ok(None),
        Err(error) => Err(error).context("neither CONNACK nor an end"),
    }
}

pub(super) fn every_listener() -> Result<String> {
    let settings = [
        NAMED,
        "listeners.mqtt.proxy_protocol=true",
        "listeners.xmpp.proxy_protocol=true",
        "listeners.coap_tcp.proxy_protocol=true",
    ];
    let gateway = Gateway::start(&settings)?;
    let client = "203.0.113.9:4711".parse()?;
    let line = proxy::version_1(client);
    let addresses = [203, 0, 113, 9, 127, 0, 0, 1, 0x12, 0x34, 7, 0x5b];
    let with = |tlv: &[u8]| proxy::binary(0x21, 0x11, &[&addresses[..], tlv].concat());
    let remote: [(&str, Vec<u8>); 10] = [
        ("version 1", line.clone()),
        ("version 1 over IPv6", proxy::version_1("[2001:db8::9]:4711".parse()?)),
        ("version 1, unknown", b"PROXY UNKNOWN\r\n".to_vec()),
        ("version 2", proxy::version_2(client)),
        ("version 2 over IPv6", proxy::version_2("[2001:db8::9]:4711".parse()?)),
        ("version 2, no address", proxy::binary(0x21, 0x00, &[])),
        ("version 2, a UNIX socket", proxy::binary(0x21, 0x31, &[0; 216])),
        ("version 2 with a TLV", with(&[4, 0, 1, 0])),
        // TLVs are not looked at.
        ("version 2 with a TLV that is cut short", with(&[4, 0])),
        ("version 2 with a TLV longer than the header", with(&[2, 0xff, 0xff, b'x'])),
    ];
    for (what, header) in remote {
        let reason = login_behind(&gateway, "mqtt", &header)?;
        ensure!(reason == Some(5), "{what}: an anonymous client elsewhere gets {reason:?}");
    }
    // LOCAL: the proxy itself, which is on this machine.
    let reason = login_behind(&gateway, "mqtt", &proxy::binary(0x20, 0x00, &[]))?;
    ensure!(reason == Some(0), "the proxy itself gets {reason:?}");
    // In pieces, each of one byte.
    let mut stream = tcp::connect(gateway.address("mqtt")?)?;
    stream.set_nodelay(true)?;
    for byte in [&line[..], &mqtt::connect(V4, "slow")].concat() {
        stream.write_all(&[byte])?;
    }
    let mut connack = [0; 4];
    stream.read_exact(&mut connack)?;
    ensure!(connack == [0x20, 2, 0, 5], "{connack:?}");
    // The other doors: what follows the header is the protocol.
    let mut xmpp = tcp::connect(gateway.address("xmpp")?)?;
    xmpp.write_all(&line)?;
    write!(
        xmpp,
        "<?xml version='1.0'?><stream:stream to='localhost' xmlns='jabber:client' \
        xmlns:stream='http://etherx.jabber.org/streams' version='1.0'>"
    )?;
    let mut start = [0; 5];
    xmpp.read_exact(&mut start).context("XMPP")?;
    ensure!(&start == b"<?xml", "{start:?}");
    let mut coap = tcp::connect(gateway.address("coap_tcp")?)?;
    coap.write_all(&line)?;
    // RFC 8323 §5.3: a CSM comes first.
    let mut start = [0; 2];
    coap.read_exact(&mut start).context("CoAP")?;
    ensure!(start.last() == Some(&0xe1), "{start:02x?} instead of a CSM");
    Ok(String::new())
}

pub(super) fn per_address() -> Result<String> {
    let settings = [NAMED, "listeners.mqtt.proxy_protocol=true", "limits.per_address_max=5"];
    let gateway = users::gateway(&settings, &["dev"], &[])?;
    let open = |client: &str| -> Result<(TcpStream, bool)> {
        let mut stream = tcp::connect(gateway.address("mqtt")?)?;
        let _ = write!(stream, "PROXY TCP4 {client} 127.0.0.1 1 1883\r\n");
        stream.write_all(&users::connect_3("dev", client))?;
        let mut connack = [0; 4];
        let taken = stream.read_exact(&mut connack).is_ok();
        ensure!(!taken || connack == [0x20, 2, 0, 0], "{connack:?}");
        Ok((stream, taken))
    };
    let mut held = Vec::new();
    for number in 0..8 {
        let (stream, taken) = open(CLIENT)?;
        ensure!(taken == (number < 5), "connection {number} of 5: {taken}");
        held.push(stream);
    }
    let (_, taken) = open("203.0.113.10")?;
    ensure!(taken, "another address behind the same proxy was refused");
    drop(held);
    let deadline = Instant::now() + tcp::PATIENCE;
    while !open(CLIENT)?.1 {
        ensure!(Instant::now() < deadline, "places that were given back cannot be had again");
    }
    Ok(String::new())
}

/// A connection of another address than the named proxies' is closed.
pub(super) fn stranger() -> Result<String> {
    let gateway = Gateway::start(&["proxy.addresses=[\"192.0.2.1\"]", "listeners.mqtt.proxy_protocol=true"])?;
    for header in [proxy::version_1("203.0.113.9:1".parse()?), proxy::binary(0x20, 0x00, &[]), Vec::new()] {
        let reason = login_behind(&gateway, "mqtt", &header)?;
        ensure!(reason.is_none(), "somebody who is no named proxy got CONNACK {reason:?}");
    }
    Ok(String::new())
}
