//! The receiving half of a connection: topic aliases, receive maximum, and the identifiers of QoS 2 messages.
//!
//! [`Inbound`] lives and dies with a connection; [`ReceivedIds`] is part of the session (§4.1). Acknowledging is the
//! caller's affair, since it may have to wait; the caller says [`Inbound::release`] with each acknowledgement.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::{PacketId, Properties, ProtocolError, Publish, PublishProperties, Qos, Version};

/// Which side of the connection we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// We are the server, the peer is a client.
    Server,
    /// We are the client, the peer is a server.
    Client,
}

/// The maxima announced to the peer, and our own bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboundConfig {
    /// Our side.
    pub role: Role,
    /// Receive Maximum: unacknowledged QoS 1 and 2 messages (§3.2.2.3.3).
    pub receive_maximum: u16,
    /// Topic Alias Maximum (§3.2.2.3.8).
    pub topic_alias_maximum: u16,
    /// Bytes of all topics that aliases stand for.
    pub alias_bytes_max: usize,
}

/// A topic as it came: by name, or by an alias that stands for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicName<'a> {
    /// In the packet.
    Named(&'a str),
    /// Sent before.
    Aliased(Arc<str>),
}

impl TopicName<'_> {
    /// The text.
    #[must_use]
    #[inline]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Named(topic) => topic,
            Self::Aliased(topic) => topic,
        }
    }
}

/// A message with its topic resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Incoming<'a> {
    /// The topic it is published to.
    pub topic: TopicName<'a>,
    /// The promise made for it.
    pub qos: Qos,
    /// Keep it (to a server), or: it was kept (to a client).
    pub retain: bool,
    /// It may have been sent before.
    pub dup: bool,
    /// To acknowledge; present for QoS 1 and 2.
    pub packet_id: Option<PacketId>,
    /// Properties, which few messages have; [`PublishProperties`] reads them.
    pub properties: Properties<'a>,
    /// Any bytes.
    pub payload: &'a [u8],
}

impl Incoming<'_> {
    /// Whether the payload is what the Payload Format Indicator says it is (§3.3.2.3.2); otherwise the answer is
    /// Payload format invalid. A receiver may look, and we do: other doors hand such a payload on as text.
    #[must_use]
    #[inline]
    pub fn is_payload_valid(&self) -> bool {
        self.properties.is_empty()
            || !PublishProperties::from(self.properties).utf8
            || simdutf8::basic::from_utf8(self.payload).is_ok()
    }
}

/// The receiving half of a connection.
#[derive(Debug)]
pub struct Inbound {
    config: InboundConfig,
    version: Version,
    unacknowledged: u16,
    /// In a box, because most clients use none.
    aliases: Option<Box<Aliases>>,
}

/// The topics that aliases stand for.
#[derive(Debug, Default)]
struct Aliases {
    /// By alias, one less.
    topics: Vec<Option<Arc<str>>>,
    bytes: usize,
}

impl Inbound {
    /// For a new connection: no aliases ([MQTT-3.3.2-7]), nothing unacknowledged.
    #[must_use]
    pub const fn new(version: Version, config: InboundConfig) -> Self {
        Self { config, version, unacknowledged: 0, aliases: None }
    }

    /// Takes a message in. QoS 1 and 2 messages count against the receive maximum until [`release`](Self::release).
    /// For QoS 2 the caller asks [`ReceivedIds::insert`] whether it is new.
    ///
    /// # Errors
    /// When the message breaks what was announced.
    #[inline]
    pub fn handle_publish<'a>(&mut self, publish: &Publish<'a>) -> Result<Incoming<'a>, ProtocolError> {
        let topic = if publish.properties.is_empty() { TopicName::Named(publish.topic) } else { self.topic(publish)? };
        if publish.qos != Qos::AtMostOnce {
            self.count()?;
        }
        Ok(Incoming {
            topic,
            qos: publish.qos,
            retain: publish.retain,
            dup: publish.dup,
            packet_id: publish.packet_id,
            properties: publish.properties,
            payload: publish.payload,
        })
    }

    fn topic<'a>(&mut self, publish: &Publish<'a>) -> Result<TopicName<'a>, ProtocolError> {
        let properties = PublishProperties::from(publish.properties);
        if properties.subscription_ids > 0 && self.config.role == Role::Server {
            return Err(ProtocolError::SubscriptionIdentifier);
        }
        match properties.topic_alias {
            None => Ok(TopicName::Named(publish.topic)),
            Some(alias) => self.alias(alias, publish.topic),
        }
    }

    /// [MQTT-3.3.4-9]. The older versions have no such limit. There the caller reads no further while its
    /// acknowledgements are not taken, and a client may use every identifier: not to read it would keep PUBREL back,
    /// which comes behind.
    fn count(&mut self) -> Result<(), ProtocolError> {
        if self.unacknowledged >= self.config.receive_maximum && self.version.is_v5() {
            return Err(ProtocolError::ReceiveMaximum { max: self.config.receive_maximum });
        }
        self.unacknowledged = self.unacknowledged.saturating_add(1);
        Ok(())
    }

    /// §3.3.2.3.4: a topic beside the alias gives it a new meaning.
    fn alias<'a>(&mut self, alias: u16, topic: &'a str) -> Result<TopicName<'a>, ProtocolError> {
        if alias > self.config.topic_alias_maximum {
            return Err(ProtocolError::TopicAlias(alias));
        }
        let index = usize::from(alias) - 1;
        if topic.is_empty() {
            let known = self.aliases.as_ref().and_then(|aliases| aliases.topics.get(index)?.as_ref());
            return known
                .map(|topic| TopicName::Aliased(Arc::clone(topic)))
                .ok_or(ProtocolError::TopicAliasUnknown(alias));
        }
        let aliases = self.aliases.get_or_insert_default();
        if index >= aliases.topics.len() {
            aliases.topics.resize(index + 1, None);
        }
        if let Some(entry) = aliases.topics.get_mut(index) {
            let bytes = aliases.bytes - entry.as_ref().map_or(0, |old| old.len()) + topic.len();
            if bytes > self.config.alias_bytes_max {
                return Err(ProtocolError::AliasBytes { max: self.config.alias_bytes_max });
            }
            aliases.bytes = bytes;
            *entry = Some(Arc::from(topic));
        }
        Ok(TopicName::Named(topic))
    }

    /// A message has been acknowledged for good: PUBACK, PUBCOMP, or PUBREC with a failure was sent (§4.9).
    #[inline]
    pub const fn release(&mut self) {
        self.unacknowledged = self.unacknowledged.saturating_sub(1);
    }

    /// The Receive Maximum that was announced.
    #[must_use]
    pub const fn receive_maximum(&self) -> u16 {
        self.config.receive_maximum
    }

    /// Messages not acknowledged yet.
    #[must_use]
    pub const fn unacknowledged(&self) -> u16 {
        self.unacknowledged
    }
}

/// The outcome of [`ReceivedIds::insert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// A new message: hand it on.
    Fresh,
    /// It has been handed on already: only acknowledge it ([MQTT-4.3.3-10]).
    Duplicate,
    /// More identifiers than the session may hold.
    Full,
}

/// Identifiers of QoS 2 messages that were taken and not yet released by PUBREL (§4.3.3). Part of the session.
#[derive(Clone, Debug, Default)]
pub struct ReceivedIds {
    /// Ascending. Peers count up and release in order, so both ends are where things happen.
    ids: VecDeque<PacketId>,
}

impl ReceivedIds {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        Self { ids: VecDeque::new() }
    }

    /// Remembers an identifier, unless there are `max` already.
    #[inline]
    pub fn insert(&mut self, id: PacketId, max: usize) -> Received {
        let at = match self.ids.back() {
            Some(&last) if last >= id => match self.ids.binary_search(&id) {
                Ok(_) => return Received::Duplicate,
                Err(at) => at,
            },
            _ => self.ids.len(),
        };
        if self.ids.len() >= max {
            return Received::Full;
        }
        self.ids.insert(at, id);
        Received::Fresh
    }

    /// Forgets an identifier: PUBREL came, or PUBREC said failure. Says whether it was there.
    #[inline]
    pub fn remove(&mut self, id: PacketId) -> bool {
        let found = if self.ids.front() == Some(&id) { Ok(0) } else { self.ids.binary_search(&id) };
        let Ok(at) = found else { return false };
        self.ids.remove(at);
        if self.ids.is_empty() && self.ids.capacity() > 64 {
            self.ids = VecDeque::new();
        }
        true
    }

    /// Whether it was taken and not yet released.
    #[must_use]
    pub fn contains(&self, id: PacketId) -> bool {
        self.ids.binary_search(&id).is_ok()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Bytes they take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.ids.capacity() * size_of::<PacketId>()
    }
}
