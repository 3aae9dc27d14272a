//! Headers of the PROXY protocol by hand, right or wrong (HAProxy, `doc/proxy-protocol.txt`).

use std::io::Write;
use std::net::{IpAddr, SocketAddr};

use anyhow::{Result, ensure};

use crate::mqtt::{self, Connection, V4};
use crate::tcp;

/// The first bytes of version 2 (§2.2).
pub const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// A header of version 1 (§2.1) for a client at this address.
#[must_use]
pub fn version_1(client: SocketAddr) -> Vec<u8> {
    let (family, own) = if client.is_ipv4() { ("TCP4", "127.0.0.1") } else { ("TCP6", "::1") };
    format!("PROXY {family} {} {own} {} 1883\r\n", client.ip(), client.port()).into_bytes()
}

/// A header of version 2 (§2.2) for a client at this address.
#[must_use]
pub fn version_2(client: SocketAddr) -> Vec<u8> {
    let (family, mut rest) = match client.ip() {
        IpAddr::V4(address) => (0x11, [address.octets(), [127, 0, 0, 1]].concat()),
        IpAddr::V6(address) => (0x21, [address.octets(), [0; 16]].concat()),
    };
    rest.extend(client.port().to_be_bytes());
    rest.extend(1883_u16.to_be_bytes());
    binary(0x21, family, &rest)
}

/// A header of version 2 from its parts: version and command, family and transport, and what follows the length.
#[must_use]
pub fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    announced(command, family, u16::try_from(rest.len()).unwrap_or(u16::MAX), rest)
}

/// The same with any length.
#[must_use]
pub fn announced(command: u8, family: u8, length: u16, rest: &[u8]) -> Vec<u8> {
    [SIGNATURE, &[command, family], &length.to_be_bytes(), rest].concat()
}

/// Logs in at an MQTT listener behind a header, from a proxy at `proxy`.
///
/// # Errors
/// When CONNACK does not say success.
pub fn login(proxy: IpAddr, listener: SocketAddr, header: &[u8], client: &str) -> Result<Connection> {
    let mut stream = tcp::connect_from(proxy, listener)?;
    stream.write_all(&[header, &mqtt::connect(V4, client)].concat())?;
    let mut connection = Connection::over(stream, V4);
    let (first, body) = connection.read()?;
    ensure!(first == 0x20 && body.get(1) == Some(&0), "CONNACK {first:#x} {body:?}");
    Ok(connection)
}
