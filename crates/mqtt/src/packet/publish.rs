//! PUBLISH (§3.3): the one packet whose speed matters. [`Publish`] is what was received, [`Outgoing`] what to send.

use super::{PacketType, put_header};
use crate::cursor::Cursor;
use crate::property::{Place, Properties, Property};
use crate::writer::{VARIABLE_MAX, field_len, put_field, put_variable, variable_len};
use crate::{DecodeError, EncodeError, PacketId, Qos, Version};

const FLAG_DUP: u8 = 0x08;
const FLAG_RETAIN: u8 = 0x01;

/// A message as it was received.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Publish<'a> {
    /// It may have been sent before (§3.3.1.1).
    pub dup: bool,
    /// The promise made for it.
    pub qos: Qos,
    /// Keep it, or: it was kept (§3.3.1.3).
    pub retain: bool,
    /// Empty when a Topic Alias stands for it.
    pub topic: &'a str,
    /// Present for QoS 1 and 2 only ([MQTT-2.2.1-2]).
    pub packet_id: Option<PacketId>,
    /// Version 5 only.
    pub properties: Properties<'a>,
    /// Any bytes, also none.
    pub payload: &'a [u8],
}

impl<'a> Publish<'a> {
    #[inline]
    pub(super) fn decode(flags: u8, body: &'a [u8], version: Version) -> Result<Self, DecodeError> {
        let qos = Qos::from_bits(flags >> 1 & 3)?;
        let dup = flags & FLAG_DUP != 0;
        if dup && qos == Qos::AtMostOnce {
            return Err(DecodeError::DupWithQos0);
        }
        let mut cursor = Cursor::new(body);
        let topic = cursor.topic_name()?;
        let packet_id = if qos == Qos::AtMostOnce { None } else { Some(cursor.packet_id()?) };
        let properties =
            if version.is_v5() { Properties::read(&mut cursor, Place::Publish)? } else { Properties::NONE };
        if topic.is_empty() {
            check_alias(version, properties)?;
        }
        let retain = flags & FLAG_RETAIN != 0;
        Ok(Self { dup, qos, retain, topic, packet_id, properties, payload: cursor.rest() })
    }

    pub(super) fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let id = self.packet_id.filter(|_| self.qos != Qos::AtMostOnce);
        let properties_len = if version.is_v5() { self.properties.written_len() } else { 0 };
        let length = 2 + self.topic.len() + id.map_or(0, |_| 2) + properties_len + self.payload.len();
        put_header(out, first_byte(self.dup, self.qos, self.retain), length)?;
        put_field(out, self.topic.as_bytes())?;
        if let Some(id) = id {
            out.extend_from_slice(&id.get().to_be_bytes());
        }
        if version.is_v5() {
            self.properties.write(out);
        }
        out.extend_from_slice(self.payload);
        Ok(())
    }
}

/// §3.3.2.1: the topic may be empty only where an alias stands for it, and aliases are of version 5.
#[cold]
fn check_alias(version: Version, properties: Properties<'_>) -> Result<(), DecodeError> {
    if !version.is_v5() {
        return Err(DecodeError::TopicEmpty);
    }
    let aliased = properties.iter().any(|property| matches!(property, Property::TopicAlias(_)));
    if aliased { Ok(()) } else { Err(DecodeError::TopicMissing) }
}

#[inline]
const fn first_byte(dup: bool, qos: Qos, retain: bool) -> u8 {
    PacketType::Publish.first_byte()
        | if dup { FLAG_DUP } else { 0 }
        | qos.bits() << 1
        | if retain { FLAG_RETAIN } else { 0 }
}

/// The properties of a received message (§3.3.2.3), user properties aside: those stay in [`Publish::properties`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublishProperties<'a> {
    /// Payload Format Indicator 1: the payload is UTF-8.
    pub utf8: bool,
    /// Message Expiry Interval in seconds.
    pub expiry: Option<u32>,
    /// Topic Alias.
    pub topic_alias: Option<u16>,
    /// Response Topic.
    pub response_topic: Option<&'a str>,
    /// Correlation Data.
    pub correlation: Option<&'a [u8]>,
    /// Content Type.
    pub content_type: Option<&'a str>,
    /// How many Subscription Identifiers there are.
    pub subscription_ids: usize,
    /// How many user properties there are.
    pub user: usize,
}

impl<'a> From<Properties<'a>> for PublishProperties<'a> {
    #[inline]
    fn from(list: Properties<'a>) -> Self {
        let mut this = Self::default();
        if list.is_empty() {
            return this;
        }
        for property in &list {
            this.take(property);
        }
        this
    }
}

impl<'a> PublishProperties<'a> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the decoder let no other property into PUBLISH or a will")]
    const fn take(&mut self, property: Property<'a>) {
        match property {
            Property::PayloadFormatIndicator(utf8) => self.utf8 = utf8,
            Property::MessageExpiryInterval(seconds) => self.expiry = Some(seconds),
            Property::TopicAlias(alias) => self.topic_alias = Some(alias),
            Property::ResponseTopic(topic) => self.response_topic = Some(topic),
            Property::CorrelationData(data) => self.correlation = Some(data),
            Property::ContentType(kind) => self.content_type = Some(kind),
            Property::SubscriptionIdentifier(_) => self.subscription_ids += 1,
            Property::UserProperty(..) => self.user += 1,
            _ => {}
        }
    }
}

/// A message to send. Everything borrowed; the fields that version 3 lacks fall away there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outgoing<'a> {
    /// The Topic Name, 65 535 bytes at most.
    pub topic: &'a str,
    /// The promise to make.
    pub qos: Qos,
    /// The retain flag to send.
    pub retain: bool,
    /// Payload Format Indicator 1.
    pub utf8: bool,
    /// Seconds of life left.
    pub expiry: Option<u32>,
    /// Content Type.
    pub content_type: Option<&'a str>,
    /// Response Topic.
    pub response_topic: Option<&'a str>,
    /// Correlation Data.
    pub correlation: Option<&'a [u8]>,
    /// User properties in order.
    pub user: &'a [(Box<str>, Box<str>)],
    /// Subscription Identifiers of the subscriptions that matched.
    pub subscription_ids: &'a [u32],
    /// Any bytes.
    pub payload: &'a [u8],
}

/// The fields that one transmission adds to an [`Outgoing`] message.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Transmission {
    pub(crate) dup: bool,
    pub(crate) packet_id: Option<PacketId>,
    pub(crate) alias: Option<u16>,
    /// The alias is known to the peer, so the topic is left out.
    pub(crate) alias_only: bool,
    /// The payload is counted but not appended: the caller sends it from where it is.
    pub(crate) head_only: bool,
}

impl Outgoing<'_> {
    /// Appends the packet; the identifier must be there exactly for QoS 1 and 2.
    ///
    /// # Errors
    /// When a field or the packet is too long; `out` is then as before.
    #[inline]
    pub fn encode(&self, version: Version, packet_id: Option<PacketId>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.transmit(version, Transmission { packet_id, ..Transmission::default() }, usize::MAX, out)
    }

    /// Appends the packet when it has `max` bytes or fewer.
    #[inline]
    pub(crate) fn transmit(
        &self,
        version: Version,
        how: Transmission,
        max: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let topic = if how.alias_only { "" } else { self.topic };
        let topic_len = field_len(topic.as_bytes())?;
        let properties_len = if version.is_v5() { self.properties_len(how.alias)? } else { 0 };
        let properties_all = if version.is_v5() { variable_len(properties_len) + properties_len } else { 0 };
        let length = 2 + topic.len() + how.packet_id.map_or(0, |_| 2) + properties_all + self.payload.len();
        let total = 1 + variable_len(length) + length;
        if length > VARIABLE_MAX || total > max {
            return Err(EncodeError::PacketTooLong(total));
        }
        out.reserve(if how.head_only { total - self.payload.len() } else { total });
        out.push(first_byte(how.dup, self.qos, self.retain));
        put_variable(out, length);
        out.extend_from_slice(&topic_len.to_be_bytes());
        out.extend_from_slice(topic.as_bytes());
        if let Some(id) = how.packet_id {
            out.extend_from_slice(&id.get().to_be_bytes());
        }
        if version.is_v5() {
            put_variable(out, properties_len);
            if properties_len > 0 {
                self.put_properties(how.alias, out)?;
            }
        }
        if !how.head_only {
            out.extend_from_slice(self.payload);
        }
        Ok(())
    }

    /// Bytes of the properties, their length aside; fails on a field that is too long.
    #[inline]
    fn properties_len(&self, alias: Option<u16>) -> Result<usize, EncodeError> {
        let mut length = if self.utf8 { 2 } else { 0 } + self.expiry.map_or(0, |_| 5) + alias.map_or(0, |_| 3);
        let texts = [self.content_type.map(str::as_bytes), self.response_topic.map(str::as_bytes), self.correlation];
        for field in texts.into_iter().flatten() {
            length += 3 + usize::from(field_len(field)?);
        }
        for (name, value) in self.user {
            length += 5 + usize::from(field_len(name.as_bytes())?) + usize::from(field_len(value.as_bytes())?);
        }
        for &id in self.subscription_ids {
            length += 1 + variable_len(usize::try_from(id).unwrap_or(VARIABLE_MAX));
        }
        if length > VARIABLE_MAX { Err(EncodeError::PacketTooLong(length)) } else { Ok(length) }
    }

    fn put_properties(&self, alias: Option<u16>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if self.utf8 {
            out.extend_from_slice(&[0x01, 1]);
        }
        if let Some(seconds) = self.expiry {
            out.push(0x02);
            out.extend_from_slice(&seconds.to_be_bytes());
        }
        if let Some(alias) = alias {
            out.push(0x23);
            out.extend_from_slice(&alias.to_be_bytes());
        }
        let fields = [
            (0x03, self.content_type.map(str::as_bytes)),
            (0x08, self.response_topic.map(str::as_bytes)),
            (0x09, self.correlation),
        ];
        for (id, field) in fields {
            if let Some(field) = field {
                out.push(id);
                put_field(out, field)?;
            }
        }
        for &id in self.subscription_ids {
            out.push(0x0B);
            put_variable(out, usize::try_from(id).unwrap_or(VARIABLE_MAX));
        }
        for (name, value) in self.user {
            out.push(0x26);
            put_field(out, name.as_bytes())?;
            put_field(out, value.as_bytes())?;
        }
        Ok(())
    }
}
