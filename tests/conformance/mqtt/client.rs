//! A client that sends what a case says, and reads packets of which only the framing is trusted.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{V5, packet, string, varint};
use fogmux_tests::tcp;

/// A time in which a gateway would have sent what it must not send.
const SILENCE: Duration = Duration::from_millis(300);

/// A will.
#[derive(Clone, Default)]
pub(super) struct Will {
    pub(super) topic: &'static str,
    pub(super) qos: u8,
    pub(super) retain: bool,
    /// Version 5 only.
    pub(super) properties: Vec<u8>,
}

/// A CONNECT.
#[derive(Clone)]
pub(super) struct Connect {
    pub(super) version: u8,
    pub(super) id: String,
    pub(super) clean: bool,
    pub(super) keep_alive: u16,
    /// Version 5 only.
    pub(super) properties: Vec<u8>,
    pub(super) will: Option<Will>,
    pub(super) login: Option<(&'static str, &'static str)>,
}

impl Connect {
    pub(super) fn new(version: u8, id: &str) -> Self {
        let (id, properties) = (id.to_owned(), Vec::new());
        Self { version, id, clean: true, keep_alive: 60, properties, will: None, login: None }
    }

    /// With a session that goes on for an hour, in version 3.1.1 for good.
    pub(super) fn lasting(version: u8, id: &str) -> Self {
        Self { clean: false, ..Self::new(version, id) }.with(&[0x11, 0, 0, 0x0e, 0x10])
    }

    /// With further properties.
    pub(super) fn with(mut self, properties: &[u8]) -> Self {
        self.properties.extend(properties);
        self
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut flags = u8::from(self.clean) << 1;
        let mut payload = string(self.id.as_bytes());
        if let Some(will) = &self.will {
            flags |= 4 | will.qos << 3 | u8::from(will.retain) << 5;
            if self.version == V5 {
                payload.extend(list(&will.properties));
            }
            payload.extend([string(will.topic.as_bytes()), string(b"gone")].concat());
        }
        if let Some((user, password)) = self.login {
            flags |= 0xc0;
            payload.extend([string(user.as_bytes()), string(password.as_bytes())].concat());
        }
        let mut body = string(b"MQTT");
        body.extend([self.version, flags]);
        body.extend(self.keep_alive.to_be_bytes());
        if self.version == V5 {
            body.extend(list(&self.properties));
        }
        packet(0x10, &[body, payload].concat())
    }
}

/// Properties with their length.
pub(super) fn list(properties: &[u8]) -> Vec<u8> {
    [varint(properties.len()), properties.to_vec()].concat()
}

/// A PUBLISH that was received.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Message {
    pub(super) dup: bool,
    pub(super) qos: u8,
    pub(super) retain: bool,
    pub(super) topic: String,
    pub(super) id: u16,
    pub(super) properties: Vec<u8>,
    pub(super) payload: Vec<u8>,
}

/// A connection.
pub(super) struct Client {
    pub(super) stream: TcpStream,
    pub(super) version: u8,
    /// Flags, reason and properties of CONNACK.
    pub(super) present: bool,
    pub(super) granted: Vec<u8>,
}

impl Client {
    /// Connects, and expects success.
    pub(super) fn connect(gateway: &Gateway, connect: &Connect) -> Result<Self> {
        let (client, reason) = Self::try_connect(gateway, connect)?;
        ensure!(reason == 0, "CONNACK {reason:#x}");
        Ok(client)
    }

    pub(super) fn open(gateway: &Gateway, version: u8, id: &str) -> Result<Self> {
        Self::connect(gateway, &Connect::new(version, id))
    }

    /// Connects. Returns the reason of CONNACK, whose form is checked.
    pub(super) fn try_connect(gateway: &Gateway, connect: &Connect) -> Result<(Self, u8)> {
        let mut stream = tcp::connect(gateway.address("mqtt")?)?;
        stream.write_all(&connect.bytes())?;
        let version = connect.version;
        let mut client = Self { stream, version, present: false, granted: Vec::new() };
        let (first, body) = client.read()?;
        ensure!(first == 0x20, "{first:#x} {body:02x?} instead of CONNACK");
        let (flags, reason) = (*body.first().context("no flags")?, *body.get(1).context("no reason")?);
        ensure!(flags < 2, "[MQTT-3.2.2-1] {flags:#x}");
        client.present = flags == 1;
        if version == V5 {
            client.granted = body.get(2..).context("no properties")?.to_vec();
            let length = client.granted.first().map(|length| usize::from(*length));
            ensure!(length == Some(client.granted.len() - 1), "[MQTT-2.2.2-1] {body:02x?}");
        } else {
            ensure!(body.len() == 2, "CONNACK {body:02x?}");
        }
        Ok((client, reason))
    }

    /// The value of a property of CONNACK, without the length of a string.
    pub(super) fn property(&self, wanted: u8) -> Option<&[u8]> {
        let mut rest = self.granted.get(1..)?;
        while let Some((id, after)) = rest.split_first() {
            let (skip, length) = match id {
                0x11 | 0x27 => (0, 4),
                0x13 | 0x21 | 0x22 => (0, 2),
                0x24 | 0x25 | 0x28 | 0x29 | 0x2a => (0, 1),
                _ => (2, usize::from(u16::from_be_bytes(*after.first_chunk()?))),
            };
            let value = after.get(skip..skip + length)?;
            if *id == wanted {
                return Some(value);
            }
            rest = after.get(skip + length..)?;
        }
        None
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).context("send")
    }

    /// The next packet.
    pub(super) fn read(&mut self) -> Result<(u8, Vec<u8>)> {
        let mut byte = [0];
        self.stream.read_exact(&mut byte)?;
        let [first] = byte;
        let mut length = 0;
        for shift in [0, 7, 14, 21] {
            self.stream.read_exact(&mut byte)?;
            let [digit] = byte;
            ensure!(shift == 0 || digit != 0, "[MQTT-1.5.5-1] a length that could be shorter");
            length |= usize::from(digit & 0x7f) << shift;
            if digit & 0x80 == 0 {
                let mut body = vec![0; length];
                self.stream.read_exact(&mut body)?;
                return Ok((first, body));
            }
        }
        bail!("a remaining length of more than four bytes")
    }

    /// The next packet, which has this first byte.
    pub(super) fn expect(&mut self, first: u8) -> Result<Vec<u8>> {
        let (came, body) = self.read()?;
        ensure!(came == first, "{came:#x} {body:02x?} instead of {first:#x}");
        Ok(body)
    }

    /// The next packet, which is this one.
    pub(super) fn expect_all(&mut self, bytes: &[u8]) -> Result<()> {
        let (first, body) = self.read()?;
        let whole = packet(first, &body);
        ensure!(whole == bytes, "{whole:02x?} instead of {bytes:02x?}");
        Ok(())
    }

    /// The next message; anything else is an error.
    pub(super) fn message(&mut self) -> Result<Message> {
        let (first, body) = self.read()?;
        ensure!(first & 0xf0 == 0x30, "{first:#x} {body:02x?} instead of PUBLISH");
        let qos = first >> 1 & 3;
        ensure!(qos < 3, "[MQTT-3.3.1-4]");
        let length = usize::from(u16::from_be_bytes(*body.first_chunk().context("no topic")?));
        let topic = String::from_utf8(body.get(2..2 + length).context("a short topic")?.to_vec())?;
        let mut rest = body.get(2 + length..).unwrap_or_default();
        let mut id = 0;
        if qos > 0 {
            let (number, after) = rest.split_first_chunk().context("no identifier")?;
            id = u16::from_be_bytes(*number);
            ensure!(id > 0, "[MQTT-2.2.1-4] identifier 0");
            rest = after;
        }
        let mut properties = Vec::new();
        if self.version == V5 {
            let (length, after) = rest.split_first().context("no properties")?;
            ensure!(*length < 0x80, "more properties than a case asks for");
            let (list, after) = after.split_at_checked(usize::from(*length)).context("short properties")?;
            properties = list.to_vec();
            rest = after;
        }
        let (dup, retain) = (first & 8 > 0, first & 1 > 0);
        ensure!(!dup || qos > 0, "[MQTT-3.3.1-2] DUP with QoS 0");
        Ok(Message { dup, qos, retain, topic, id, properties, payload: rest.to_vec() })
    }

    /// The payload of the next message, as text. It is not acknowledged.
    pub(super) fn text(&mut self) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.message()?.payload).into_owned())
    }

    /// Subscribes with these options and properties; the reasons.
    pub(super) fn subscribe_with(&mut self, filters: &[(&str, u8)], properties: &[u8]) -> Result<Vec<u8>> {
        let mut body = vec![0x12, 0x34];
        if self.version == V5 {
            body.extend(list(properties));
        }
        for (filter, options) in filters {
            body.extend(string(filter.as_bytes()));
            body.push(*options);
        }
        self.send(&packet(0x82, &body))?;
        self.reasons(0x90)
    }

    pub(super) fn subscribe(&mut self, filters: &[(&str, u8)]) -> Result<Vec<u8>> {
        self.subscribe_with(filters, &[])
    }

    /// Unsubscribes; the reasons, which 3.1.1 has not.
    pub(super) fn unsubscribe(&mut self, filters: &[&str]) -> Result<Vec<u8>> {
        let mut body = vec![0x12, 0x34];
        if self.version == V5 {
            body.push(0);
        }
        filters.iter().for_each(|filter| body.extend(string(filter.as_bytes())));
        self.send(&packet(0xa2, &body))?;
        self.reasons(0xb0)
    }

    /// The reasons of the next SUBACK or UNSUBACK, which has the identifier of the request.
    fn reasons(&mut self, first: u8) -> Result<Vec<u8>> {
        let body = self.expect(first)?;
        let rest = body.strip_prefix(&[0x12, 0x34]).with_context(|| format!("[MQTT-2.2.1-6] {body:02x?}"))?;
        if self.version != V5 {
            return Ok(rest.to_vec());
        }
        let (length, rest) = rest.split_first().context("no properties")?;
        Ok(rest.get(usize::from(*length)..).context("no reasons")?.to_vec())
    }

    /// Sends a message without waiting for an answer.
    pub(super) fn send_message(&mut self, message: &Message) -> Result<()> {
        let mut body = string(message.topic.as_bytes());
        if message.qos > 0 {
            body.extend(message.id.to_be_bytes());
        }
        if self.version == V5 {
            body.extend(list(&message.properties));
        }
        body.extend(&message.payload);
        let first = 0x30 | u8::from(message.dup) << 3 | message.qos << 1 | u8::from(message.retain);
        self.send(&packet(first, &body))
    }

    /// Publishes at QoS 1 and waits for PUBACK, so that it is published when this returns.
    pub(super) fn publish(&mut self, topic: &str, text: &str, retain: bool) -> Result<()> {
        self.send_message(&Message { retain, ..message(topic, text, 1) })?;
        let body = self.expect(0x40)?;
        ensure!(body.starts_with(&[0, 7]), "PUBACK {body:02x?}");
        Ok(())
    }

    /// Acknowledges by a packet without reason.
    pub(super) fn ack(&mut self, first: u8, id: u16) -> Result<()> {
        self.send(&packet(first, &id.to_be_bytes()))
    }

    /// Nothing comes for a while, and the connection is there.
    pub(super) fn silent(&mut self) -> Result<()> {
        self.stream.set_read_timeout(Some(SILENCE))?;
        let mut byte = [0];
        let came = self.stream.peek(&mut byte);
        self.stream.set_read_timeout(Some(tcp::PATIENCE))?;
        match came {
            Err(error) if tcp::is_timeout(error.kind()) => Ok(()),
            Ok(0) => bail!("the connection is closed"),
            Ok(_) => bail!("{:02x?} instead of nothing", self.read()),
            Err(error) => Err(error.into()),
        }
    }

    /// A PING is answered, behind everything that was sent before.
    pub(super) fn ping(&mut self) -> Result<()> {
        self.send(&[0xc0, 0])?;
        self.expect_all(&[0xd0, 0])
    }

    /// The bytes up to the end of the connection, which comes.
    pub(super) fn end(&mut self) -> Result<Vec<u8>> {
        let end = tcp::read_end(&mut self.stream, tcp::PATIENCE)?;
        ensure!(end.is_closed(), "left open, {:02x?}", end.bytes());
        Ok(end.bytes().to_vec())
    }
}

/// A message with identifier 7.
pub(super) fn message(topic: &str, text: &str, qos: u8) -> Message {
    Message { qos, topic: topic.to_owned(), id: 7, payload: text.as_bytes().to_vec(), ..Message::default() }
}

/// A property with a string.
pub(super) fn text(id: u8, value: &str) -> Vec<u8> {
    [vec![id], string(value.as_bytes())].concat()
}
