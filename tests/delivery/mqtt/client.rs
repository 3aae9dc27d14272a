//! Clients over any transport: a subscriber that acknowledges or not, and a publisher with a window.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, V4, V5, packet, string};
use fogmux_tests::tcp;

use super::wire::{self, Transport, Wire, number, remaining_length};

/// How a client connects.
#[derive(Clone, Debug)]
pub(crate) struct Login<'a> {
    pub(crate) client: &'a str,
    pub(crate) version: u8,
    pub(crate) transport: Transport,
    /// Bytes of the socket's receive buffer.
    pub(crate) buffer: Option<usize>,
    /// Session Expiry Interval in seconds (version 5); 0 ends the session with the connection.
    pub(crate) session: u32,
    pub(crate) keep_alive: u16,
    /// Topic of a will.
    pub(crate) will: Option<&'a str>,
    pub(crate) will_qos: u8,
    pub(crate) will_retain: bool,
}

impl<'a> Login<'a> {
    pub(crate) const fn new(client: &'a str, transport: Transport) -> Self {
        Self {
            client,
            version: V4,
            transport,
            buffer: None,
            session: 0,
            keep_alive: 60,
            will: None,
            will_qos: 0,
            will_retain: false,
        }
    }

    pub(crate) const fn v5(self) -> Self {
        Self { version: V5, ..self }
    }

    fn packet(&self) -> Vec<u8> {
        let clean = u8::from(self.session == 0) << 1;
        let retain = u8::from(self.will_retain) << 5;
        let will = if self.will.is_some() { 4 | self.will_qos << 3 | retain } else { 0 };
        let mut body = string(b"MQTT");
        body.extend([self.version, clean | will]);
        body.extend(self.keep_alive.to_be_bytes());
        if self.version == V5 {
            body.extend([5, 0x11]);
            body.extend(self.session.to_be_bytes());
        }
        body.extend(string(self.client.as_bytes()));
        if let Some(topic) = self.will {
            if self.version == V5 {
                body.push(0);
            }
            body.extend(string(topic.as_bytes()));
            body.extend(string(b"gone"));
        }
        packet(0x10, &body)
    }
}

/// A PUBLISH that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) topic: String,
    pub(crate) payload: Vec<u8>,
    pub(crate) qos: u8,
    pub(crate) retain: bool,
    pub(crate) duplicate: bool,
}

/// A packet that came, as far as a case asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    Message(Message),
    Suback(Vec<u8>),
    /// PUBACK or PUBREC with its reason.
    Acknowledged(u16, u8),
    /// DISCONNECT with its reason.
    Disconnect(u8),
    Pong,
    /// The connection is closed.
    End,
}

/// A client that acknowledges what it gets, unless it is told not to.
pub(crate) struct Client {
    wire: Box<dyn Wire>,
    version: u8,
    input: Vec<u8>,
    /// Bytes of `input` that are dealt with.
    used: usize,
    /// Acknowledgements that go out before the next read.
    output: Vec<u8>,
    pub(crate) acknowledges: bool,
    /// Reads so few bytes at a time, after such a pause.
    pub(crate) pace: Option<(Duration, usize)>,
}

impl Client {
    pub(crate) fn login(gateway: &Gateway, login: &Login<'_>) -> Result<Self> {
        let mut wire = wire::open(gateway, login.transport, login.buffer)?;
        wire.write_all(&login.packet())?;
        wire.flush()?;
        let mut client = Self {
            wire,
            version: login.version,
            input: Vec::new(),
            used: 0,
            output: Vec::new(),
            acknowledges: true,
            pace: None,
        };
        let (first, body) = client.packet()?.context("closed instead of CONNACK")?;
        ensure!(first == 0x20 && body.get(1) == Some(&0), "CONNACK {first:#x} {body:?}");
        Ok(client)
    }

    pub(crate) fn open(gateway: &Gateway, client: &str, transport: Transport) -> Result<Self> {
        Self::login(gateway, &Login::new(client, transport))
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.wire.write_all(bytes)?;
        Ok(self.wire.flush()?)
    }

    /// Subscribes in one packet and waits for SUBACK; returns the retained messages that came before it.
    pub(crate) fn subscribe(&mut self, filters: &[&str], qos: u8) -> Result<Vec<Message>> {
        self.send(&mqtt::subscribe(self.version, 1, filters, qos))?;
        let mut early = Vec::new();
        loop {
            match self.next()? {
                Came::Message(message) => early.push(message),
                Came::Suback(codes) => {
                    ensure!(codes.iter().all(|code| *code == qos), "SUBACK {codes:?}");
                    return Ok(early);
                }
                other @ (Came::Acknowledged(..) | Came::Disconnect(_) | Came::Pong | Came::End) => {
                    anyhow::bail!("{other:?} instead of SUBACK")
                }
            }
        }
    }

    /// The next packet a case may ask for; QoS 1 and 2 are acknowledged on the way.
    pub(crate) fn next(&mut self) -> Result<Came> {
        loop {
            let Some((first, body)) = self.packet()? else { return Ok(Came::End) };
            let skip = if self.version == V5 { 3 } else { 2 };
            return Ok(match first >> 4 {
                3 => Came::Message(self.message(first, &body)?),
                4 | 5 => Came::Acknowledged(number(&body, 0)?, body.get(2).copied().unwrap_or(0)),
                6 => {
                    self.acknowledge(0x70, number(&body, 0)?);
                    continue;
                }
                7 => continue,
                9 => Came::Suback(body.into_iter().skip(skip).collect()),
                13 => Came::Pong,
                14 => Came::Disconnect(body.first().copied().unwrap_or(0)),
                _ => anyhow::bail!("packet {first:#x} {body:?}"),
            });
        }
    }

    /// The next message; anything else but PINGRESP is an error.
    pub(crate) fn message_or(&mut self, expected: &str) -> Result<Message> {
        loop {
            match self.next().with_context(|| expected.to_owned())? {
                Came::Message(message) => return Ok(message),
                Came::Pong => {}
                other @ (Came::Suback(_) | Came::Acknowledged(..) | Came::Disconnect(_) | Came::End) => {
                    anyhow::bail!("{other:?} instead of {expected}")
                }
            }
        }
    }

    fn message(&mut self, first: u8, body: &[u8]) -> Result<Message> {
        let qos = (first >> 1) & 3;
        let topic_end = 2 + usize::from(number(body, 0)?);
        let topic = String::from_utf8(body.get(2..topic_end).context("a topic")?.to_vec())?;
        let mut at = topic_end;
        if qos > 0 {
            let id = number(body, at)?;
            at += 2;
            if self.acknowledges {
                self.acknowledge(if qos == 1 { 0x40 } else { 0x50 }, id);
            }
        }
        if self.version == V5 {
            // Properties of less than 128 bytes.
            at += 1 + usize::from(*body.get(at).context("properties")?);
        }
        let payload = body.get(at..).unwrap_or_default().to_vec();
        Ok(Message { topic, payload, qos, retain: first & 1 == 1, duplicate: first & 8 != 0 })
    }

    fn acknowledge(&mut self, first: u8, id: u16) {
        let first = if first == 0x60 { 0x62 } else { first };
        self.output.extend(packet(first, &id.to_be_bytes()));
    }

    /// The next packet, or `None` at the end of the connection. Acknowledgements go out before reading has to wait.
    fn packet(&mut self) -> Result<Option<(u8, Vec<u8>)>> {
        loop {
            let unread = self.input.get(self.used..).unwrap_or_default();
            if let Some((head, length)) = remaining_length(unread)?
                && let Some(body) = unread.get(head..head + length)
            {
                let first = unread.first().copied().unwrap_or_default();
                let body = body.to_vec();
                self.used += head + length;
                // PUBREC of ours is answered by PUBREL, that of the peer by us.
                if first >> 4 == 5 {
                    let id = number(&body, 0)?;
                    self.acknowledge(0x60, id);
                }
                return Ok(Some((first, body)));
            }
            if !self.read_more()? {
                return Ok(None);
            }
        }
    }

    fn read_more(&mut self) -> Result<bool> {
        self.input.drain(..self.used);
        self.used = 0;
        if !self.output.is_empty() {
            let output = std::mem::take(&mut self.output);
            // A peer that has gone is found by reading.
            let _ = self.wire.write_all(&output).and_then(|()| self.wire.flush());
        }
        let size = self.pace.map_or(64 << 10, |(pause, size)| {
            std::thread::sleep(pause);
            size
        });
        let mut buffer = vec![0; size];
        match self.wire.read(&mut buffer) {
            Ok(0) => Ok(false),
            Ok(count) => {
                self.input.extend(buffer.get(..count).unwrap_or_default());
                Ok(true)
            }
            Err(error) if tcp::is_end(error.kind()) => Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Publishes with a window of unacknowledged messages, and waits for every acknowledgement to be a success.
    pub(crate) fn publish_all<'m>(
        &mut self,
        messages: impl IntoIterator<Item = (&'m str, &'m [u8])>,
        qos: u8,
        retain: bool,
        window: usize,
    ) -> Result<usize> {
        let mut open = BTreeMap::new();
        let (mut id, mut count) = (0_u16, 0);
        let mut batch = Vec::new();
        for (topic, payload) in messages {
            id = if id == u16::MAX { 1 } else { id + 1 };
            batch.extend(mqtt::publish(self.version, topic.as_bytes(), payload, qos, retain, id));
            count += 1;
            if qos > 0 {
                open.insert(id, ());
            }
            if batch.len() > 32 << 10 || open.len() >= window {
                self.send(&std::mem::take(&mut batch))?;
            }
            while open.len() >= window {
                self.take_acknowledgement(&mut open)?;
            }
        }
        self.send(&batch)?;
        while !open.is_empty() {
            self.take_acknowledgement(&mut open)?;
        }
        Ok(count)
    }

    fn take_acknowledgement(&mut self, open: &mut BTreeMap<u16, ()>) -> Result<()> {
        match self.next()? {
            // 0x10: nobody was subscribed.
            Came::Acknowledged(id, 0 | 0x10) => {
                ensure!(open.remove(&id).is_some(), "an acknowledgement of nothing: {id}");
                Ok(())
            }
            Came::Pong => Ok(()),
            other @ (Came::Message(_) | Came::Suback(_) | Came::Acknowledged(..) | Came::Disconnect(_) | Came::End) => {
                anyhow::bail!("{other:?} instead of an acknowledgement")
            }
        }
    }
}
