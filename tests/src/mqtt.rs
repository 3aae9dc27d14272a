//! MQTT by hand: packets as bytes, right or wrong.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, bail, ensure};

use crate::tcp;

/// Protocol level of 3.1.1.
pub const V4: u8 = 4;
/// Protocol level of 5.0.
pub const V5: u8 = 5;

/// A UTF-8 string with its two-byte length (MQTT 5 §1.5.4); longer ones are cut.
#[must_use]
pub fn string(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    let mut out = length.to_be_bytes().to_vec();
    out.extend(bytes.iter().take(usize::from(length)));
    out
}

/// A variable byte integer (§1.5.5).
#[must_use]
pub fn varint(mut value: usize) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let low = u8::try_from(value % 128).unwrap_or_default();
        value /= 128;
        out.push(if value > 0 { low | 0x80 } else { low });
        if value == 0 {
            return out;
        }
    }
}

/// A packet from its first byte and body, with the right length.
#[must_use]
pub fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![first];
    out.extend(varint(body.len()));
    out.extend(body);
    out
}

/// CONNECT with a clean session; version 5 without properties.
#[must_use]
pub fn connect(version: u8, client: &str) -> Vec<u8> {
    let mut body = string(b"MQTT");
    body.extend([version, 0x02, 0, 60]);
    if version == V5 {
        body.push(0);
    }
    body.extend(string(client.as_bytes()));
    packet(0x10, &body)
}

/// SUBSCRIBE to these filters with one maximum QoS.
#[must_use]
pub fn subscribe(version: u8, id: u16, filters: &[&str], qos: u8) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    if version == V5 {
        body.push(0);
    }
    for filter in filters {
        body.extend(string(filter.as_bytes()));
        body.push(qos);
    }
    packet(0x82, &body)
}

/// PUBLISH; `id` is only sent with QoS 1 and 2.
#[must_use]
pub fn publish(version: u8, topic: &[u8], payload: &[u8], qos: u8, retain: bool, id: u16) -> Vec<u8> {
    let mut body = string(topic);
    if qos > 0 {
        body.extend(id.to_be_bytes());
    }
    if version == V5 {
        body.push(0);
    }
    body.extend(payload);
    packet(0x30 | (qos << 1) | u8::from(retain), &body)
}

/// A connection of which only the framing is trusted.
#[derive(Debug)]
pub struct Connection {
    /// The socket.
    pub stream: TcpStream,
    version: u8,
}

impl Connection {
    /// A connection on which nothing was said yet, or not by us.
    #[must_use]
    pub fn over(stream: TcpStream, version: u8) -> Self {
        Self { stream, version }
    }

    /// Connects and expects success.
    ///
    /// # Errors
    /// When CONNACK says otherwise.
    pub fn open(address: SocketAddr, version: u8, client: &str) -> Result<Self> {
        let mut stream = tcp::connect(address)?;
        stream.write_all(&connect(version, client))?;
        let mut connection = Self::over(stream, version);
        let (first, body) = connection.read()?;
        ensure!(first == 0x20 && body.get(1) == Some(&0), "CONNACK {first:#x} {body:?}");
        Ok(connection)
    }

    /// Connects with version 5 to a session that outlives its connection by so many seconds; `clean` begins a new one.
    /// Returns whether it was there.
    ///
    /// # Errors
    /// When CONNACK refuses.
    pub fn resume(address: SocketAddr, client: &str, seconds: u32, clean: bool) -> Result<(Self, bool)> {
        let mut body = string(b"MQTT");
        body.extend([V5, u8::from(clean) << 1, 0, 60, 5, 0x11]);
        body.extend(seconds.to_be_bytes());
        body.extend(string(client.as_bytes()));
        let mut stream = tcp::connect(address)?;
        stream.write_all(&packet(0x10, &body))?;
        let mut connection = Self::over(stream, V5);
        let (first, body) = connection.read()?;
        ensure!(first == 0x20 && body.get(1) == Some(&0), "CONNACK {first:#x} {body:?}");
        Ok((connection, body.first() == Some(&1)))
    }

    /// The next packet: first byte and body.
    ///
    /// # Errors
    /// When the connection ends or stays silent.
    pub fn read(&mut self) -> Result<(u8, Vec<u8>)> {
        let mut byte = [0];
        self.stream.read_exact(&mut byte)?;
        let [first] = byte;
        let mut length = 0;
        for shift in [0, 7, 14, 21] {
            self.stream.read_exact(&mut byte)?;
            let [digit] = byte;
            length |= usize::from(digit & 0x7f) << shift;
            if digit & 0x80 == 0 {
                let mut body = vec![0; length];
                self.stream.read_exact(&mut body)?;
                return Ok((first, body));
            }
        }
        bail!("a remaining length of more than four bytes")
    }

    /// Subscribes and returns the reason codes.
    ///
    /// # Errors
    /// When no SUBACK follows.
    pub fn subscribe(&mut self, id: u16, filters: &[&str], qos: u8) -> Result<Vec<u8>> {
        self.stream.write_all(&subscribe(self.version, id, filters, qos))?;
        loop {
            let (first, body) = self.read()?;
            if first == 0x90 {
                let skip = if self.version == V5 { 3 } else { 2 };
                return Ok(body.into_iter().skip(skip).collect());
            }
            ensure!(first & 0xf0 == 0x30, "{first:#x} instead of SUBACK");
        }
    }

    /// Publishes with QoS 0.
    ///
    /// # Errors
    /// When the socket does not take it.
    pub fn publish(&mut self, topic: &str, payload: &[u8]) -> Result<()> {
        self.stream.write_all(&publish(self.version, topic.as_bytes(), payload, 0, false, 0)).context("PUBLISH")
    }
}
