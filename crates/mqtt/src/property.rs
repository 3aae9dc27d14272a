//! The properties of MQTT 5.0 (§2.2.2): validated once when a packet is decoded, then read in place.
//!
//! [`Properties`] is a view of bytes that are known to be well formed; walking it allocates nothing.

use crate::cursor::Cursor;
use crate::writer::{VARIABLE_MAX, put_field, put_variable, variable_len};
use crate::{DecodeError, EncodeError};

/// Where properties stand; a Will Message has its own (§3.1.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Place {
    /// CONNECT.
    Connect = 1,
    /// CONNACK.
    Connack = 1 << 1,
    /// PUBLISH.
    Publish = 1 << 2,
    /// The Will Properties of CONNECT.
    Will = 1 << 3,
    /// PUBACK.
    Puback = 1 << 4,
    /// PUBREC.
    Pubrec = 1 << 5,
    /// PUBREL.
    Pubrel = 1 << 6,
    /// PUBCOMP.
    Pubcomp = 1 << 7,
    /// SUBSCRIBE.
    Subscribe = 1 << 8,
    /// SUBACK.
    Suback = 1 << 9,
    /// UNSUBSCRIBE.
    Unsubscribe = 1 << 10,
    /// UNSUBACK.
    Unsuback = 1 << 11,
    /// DISCONNECT.
    Disconnect = 1 << 12,
    /// AUTH.
    Auth = 1 << 13,
}

/// The places in which a property may stand.
const fn places(list: &[Place]) -> u16 {
    let mut set = 0;
    let mut rest = list;
    while let [first, others @ ..] = rest {
        set |= *first as u16;
        rest = others;
    }
    set
}

/// A value on the wire, by data type.
enum Value<'a> {
    Bool(bool),
    U16(u16),
    U32(u32),
    Variable(u32),
    Text(&'a str),
    Binary(&'a [u8]),
    Pair(&'a str, &'a str),
}

macro_rules! properties {
    ($($id:literal $name:ident ( $($field:ident : $ty:ty),+ ) $kind:ident $read:ident [$($place:ident)+] $doc:literal;)*) => {
        /// One property (§2.2.2.2).
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Property<'a> {
            $(#[doc = $doc] $name($($ty),+),)*
        }

        impl<'a> Property<'a> {
            /// The identifier on the wire.
            #[must_use]
            pub const fn id(&self) -> u8 {
                match self { $(Self::$name(..) => $id,)* }
            }

            const fn value(self) -> Value<'a> {
                match self { $(Self::$name($($field),+) => Value::$kind($($field),+),)* }
            }

            /// Reads one property, with the set of places in which it may stand.
            fn read(cursor: &mut Cursor<'a>) -> Result<(Self, u16), DecodeError> {
                let id = cursor.variable()?;
                match id {
                    $($id => {
                        let ($($field,)+) = $read(cursor, $id)?;
                        Ok((Self::$name($($field),+), const { places(&[$(Place::$place),+]) }))
                    })*
                    _ => Err(DecodeError::Property(id)),
                }
            }
        }
    };
}

properties! {
    0x01 PayloadFormatIndicator(v: bool) Bool flag [Publish Will] "Whether the payload is UTF-8 text.";
    0x02 MessageExpiryInterval(v: u32) U32 number [Publish Will] "Seconds the message is worth delivering.";
    0x03 ContentType(v: &'a str) Text text [Publish Will] "MIME type of the payload.";
    0x08 ResponseTopic(v: &'a str) Text response_topic [Publish Will] "Where an answer is expected; a Topic Name.";
    0x09 CorrelationData(v: &'a [u8]) Binary binary [Publish Will] "Ties an answer to its request.";
    0x0B SubscriptionIdentifier(v: u32) Variable identifier [Publish Subscribe] "1 to 268 435 455.";
    0x11 SessionExpiryInterval(v: u32) U32 number [Connect Connack Disconnect] "Seconds; `u32::MAX` is never.";
    0x12 AssignedClientIdentifier(v: &'a str) Text text [Connack] "The identifier the server chose.";
    0x13 ServerKeepAlive(v: u16) U16 short [Connack] "Seconds; replaces the client's Keep Alive.";
    0x15 AuthenticationMethod(v: &'a str) Text text [Connect Connack Auth] "Name of the method of extended authentication.";
    0x16 AuthenticationData(v: &'a [u8]) Binary binary [Connect Connack Auth] "Data of the method.";
    0x17 RequestProblemInformation(v: bool) Bool flag [Connect] "Whether reason strings may be sent everywhere.";
    0x18 WillDelayInterval(v: u32) U32 number [Will] "Seconds between the loss of the connection and the will.";
    0x19 RequestResponseInformation(v: bool) Bool flag [Connect] "Whether Response Information is wanted.";
    0x1A ResponseInformation(v: &'a str) Text text [Connack] "Basis for response topics.";
    0x1C ServerReference(v: &'a str) Text text [Connack Disconnect] "Another server to use.";
    0x1F ReasonString(v: &'a str) Text text
        [Connack Puback Pubrec Pubrel Pubcomp Suback Unsuback Disconnect Auth] "For people, not for programs.";
    0x21 ReceiveMaximum(v: u16) U16 short_not_zero [Connect Connack] "Unacknowledged QoS 1 and 2 messages; not zero.";
    0x22 TopicAliasMaximum(v: u16) U16 short [Connect Connack] "The highest alias accepted.";
    0x23 TopicAlias(v: u16) U16 alias [Publish] "Stands for a topic; not zero.";
    0x24 MaximumQos(v: bool) Bool flag [Connack] "The server's highest QoS, 0 or 1.";
    0x25 RetainAvailable(v: bool) Bool flag [Connack] "Whether the server keeps messages.";
    0x26 UserProperty(k: &'a str, v: &'a str) Pair pair
        [Connect Connack Publish Will Puback Pubrec Pubrel Pubcomp Subscribe Suback Unsubscribe Unsuback Disconnect Auth]
        "A name and a value; the only one that may repeat anywhere.";
    0x27 MaximumPacketSize(v: u32) U32 number_not_zero [Connect Connack] "Bytes; not zero.";
    0x28 WildcardSubscriptionAvailable(v: bool) Bool flag [Connack] "Whether wildcards are supported.";
    0x29 SubscriptionIdentifierAvailable(v: bool) Bool flag [Connack] "Whether Subscription Identifiers are supported.";
    0x2A SharedSubscriptionAvailable(v: bool) Bool flag [Connack] "Whether Shared Subscriptions are supported.";
}

fn flag(cursor: &mut Cursor<'_>, id: u8) -> Result<(bool,), DecodeError> {
    match cursor.u8()? {
        0 => Ok((false,)),
        1 => Ok((true,)),
        _ => Err(DecodeError::PropertyValue(id)),
    }
}

fn number(cursor: &mut Cursor<'_>, _: u8) -> Result<(u32,), DecodeError> {
    Ok((cursor.u32()?,))
}

fn number_not_zero(cursor: &mut Cursor<'_>, id: u8) -> Result<(u32,), DecodeError> {
    match cursor.u32()? {
        0 => Err(DecodeError::PropertyValue(id)),
        value => Ok((value,)),
    }
}

fn identifier(cursor: &mut Cursor<'_>, id: u8) -> Result<(u32,), DecodeError> {
    match cursor.variable()? {
        0 => Err(DecodeError::PropertyValue(id)),
        value => Ok((value,)),
    }
}

fn short(cursor: &mut Cursor<'_>, _: u8) -> Result<(u16,), DecodeError> {
    Ok((cursor.u16()?,))
}

fn short_not_zero(cursor: &mut Cursor<'_>, id: u8) -> Result<(u16,), DecodeError> {
    match cursor.u16()? {
        0 => Err(DecodeError::PropertyValue(id)),
        value => Ok((value,)),
    }
}

fn alias(cursor: &mut Cursor<'_>, _: u8) -> Result<(u16,), DecodeError> {
    match cursor.u16()? {
        0 => Err(DecodeError::TopicAliasZero),
        value => Ok((value,)),
    }
}

fn text<'a>(cursor: &mut Cursor<'a>, _: u8) -> Result<(&'a str,), DecodeError> {
    Ok((cursor.string()?,))
}

fn response_topic<'a>(cursor: &mut Cursor<'a>, _: u8) -> Result<(&'a str,), DecodeError> {
    match cursor.topic_name() {
        // [MQTT-4.7.3-1]
        Ok("") => Err(DecodeError::ResponseTopicEmpty),
        Ok(topic) => Ok((topic,)),
        Err(DecodeError::TopicWildcard) => Err(DecodeError::ResponseTopicWildcard),
        Err(other) => Err(other),
    }
}

fn binary<'a>(cursor: &mut Cursor<'a>, _: u8) -> Result<(&'a [u8],), DecodeError> {
    Ok((cursor.binary()?,))
}

fn pair<'a>(cursor: &mut Cursor<'a>, _: u8) -> Result<(&'a str, &'a str), DecodeError> {
    Ok((cursor.string()?, cursor.string()?))
}

/// A list of well-formed properties, as it stands in a packet without its length.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Properties<'a> {
    bytes: &'a [u8],
}

impl std::fmt::Debug for Properties<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> Properties<'a> {
    /// No properties.
    pub const NONE: Self = Self { bytes: &[] };

    /// Reads a property length and as many bytes of properties, checking that each may stand in `place`, none is there
    /// twice (but user properties, and Subscription Identifiers in PUBLISH) and no value is forbidden.
    #[inline]
    pub(crate) fn read(cursor: &mut Cursor<'a>, place: Place) -> Result<Self, DecodeError> {
        let length = cursor.variable()?;
        if length == 0 {
            return Ok(Self::NONE);
        }
        // A length of 28 bits fits every usize we build for.
        let bytes = cursor.take(usize::try_from(length).unwrap_or(usize::MAX))?;
        check(bytes, place)?;
        Ok(Self { bytes })
    }

    /// Whether there are none.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes as they stand in a packet, without the length.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Walks the list.
    #[must_use]
    pub const fn iter(&self) -> PropertyIter<'a> {
        PropertyIter { cursor: Cursor::new(self.bytes) }
    }

    /// The user properties in order.
    pub fn user(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.iter().filter_map(|property| if let Property::UserProperty(k, v) = property { Some((k, v)) } else { None })
    }

    /// The Subscription Identifiers in order.
    pub fn subscription_ids(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.iter()
            .filter_map(|property| if let Property::SubscriptionIdentifier(id) = property { Some(id) } else { None })
    }

    /// The Reason String, if there is one.
    #[must_use]
    pub fn reason_string(&self) -> Option<&'a str> {
        self.iter().find_map(|property| if let Property::ReasonString(text) = property { Some(text) } else { None })
    }

    /// Appends the length and the properties.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        put_variable(out, self.bytes.len());
        out.extend_from_slice(self.bytes);
    }

    /// Bytes that [`write`](Self::write) will append.
    pub(crate) const fn written_len(&self) -> usize {
        variable_len(self.bytes.len()) + self.bytes.len()
    }
}

impl<'a> IntoIterator for &Properties<'a> {
    type Item = Property<'a>;
    type IntoIter = PropertyIter<'a>;

    fn into_iter(self) -> PropertyIter<'a> {
        self.iter()
    }
}

/// Walks [`Properties`].
#[derive(Clone, Debug)]
pub struct PropertyIter<'a> {
    cursor: Cursor<'a>,
}

impl<'a> Iterator for PropertyIter<'a> {
    type Item = Property<'a>;

    fn next(&mut self) -> Option<Property<'a>> {
        // The bytes were checked, or written by us: an error cannot happen, and would end the list.
        Property::read(&mut self.cursor).ok().map(|(property, _)| property)
    }
}

fn check(bytes: &[u8], place: Place) -> Result<(), DecodeError> {
    let mut cursor = Cursor::new(bytes);
    let mut seen = 0u64;
    while !cursor.is_empty() {
        let (property, allowed) = Property::read(&mut cursor)?;
        let id = property.id();
        if allowed & place as u16 == 0 {
            return Err(DecodeError::Property(u32::from(id)));
        }
        let repeats = matches!(property, Property::UserProperty(..))
            || (place == Place::Publish && matches!(property, Property::SubscriptionIdentifier(_)));
        let bit = 1 << id;
        if seen & bit != 0 && !repeats {
            return Err(DecodeError::PropertyTwice(id));
        }
        seen |= bit;
    }
    let has = |id: u8| seen & (1 << id) != 0;
    if has(0x16) && !has(0x15) { Err(DecodeError::AuthenticationData) } else { Ok(()) }
}

/// Builds a list of properties for an outgoing packet; keep one and clear it to allocate once.
#[derive(Clone, Debug, Default)]
pub struct PropertyBuffer {
    bytes: Vec<u8>,
}

impl PropertyBuffer {
    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: Vec::new() }
    }

    /// Forgets the list, keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Adds a property. That it may stand in the packet, and once only, is the caller's affair.
    ///
    /// # Errors
    /// When a field is longer than 65 535 bytes or a number does not fit; the list is then as before.
    pub fn push(&mut self, property: Property<'_>) -> Result<(), EncodeError> {
        let before = self.bytes.len();
        let result = self.put(property);
        if result.is_err() {
            self.bytes.truncate(before);
        }
        result
    }

    fn put(&mut self, property: Property<'_>) -> Result<(), EncodeError> {
        let out = &mut self.bytes;
        out.push(property.id());
        match property.value() {
            Value::Bool(value) => out.push(u8::from(value)),
            Value::U16(value) => out.extend_from_slice(&value.to_be_bytes()),
            Value::U32(value) => out.extend_from_slice(&value.to_be_bytes()),
            Value::Variable(value) => {
                let value = usize::try_from(value).unwrap_or(usize::MAX);
                if value > VARIABLE_MAX {
                    return Err(EncodeError::FieldTooLong(value));
                }
                put_variable(out, value);
            }
            Value::Text(value) => put_field(out, value.as_bytes())?,
            Value::Binary(value) => put_field(out, value)?,
            Value::Pair(name, value) => {
                put_field(out, name.as_bytes())?;
                put_field(out, value.as_bytes())?;
            }
        }
        Ok(())
    }

    /// The list for a packet.
    #[must_use]
    pub fn properties(&self) -> Properties<'_> {
        Properties { bytes: &self.bytes }
    }
}
