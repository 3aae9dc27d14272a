//! The fifteen control packets (§2, §3): decoding borrows from the caller's bytes, encoding appends to the caller's
//! buffer, and neither allocates.

mod ack;
mod connack;
mod connect;
mod disconnect;
mod publish;
mod subscribe;
mod unsubscribe;

pub use ack::Ack;
pub use connack::Connack;
pub use connect::{Connect, Will};
pub use disconnect::{Auth, Disconnect};
pub(crate) use publish::Transmission;
pub use publish::{Outgoing, Publish, PublishProperties};
pub use subscribe::{ReasonCodes, Suback, Subscribe, SubscribeEntries};
pub use unsubscribe::{TopicFilters, Unsuback, Unsubscribe};

use crate::cursor::Cursor;
use crate::writer::{VARIABLE_MAX, put_variable};
use crate::{DecodeError, EncodeError, Version};

/// The type in the first four bits of a packet (§2.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PacketType {
    /// CONNECT: a client requests a connection.
    Connect = 1,
    /// The server's answer to CONNECT.
    Connack = 2,
    /// PUBLISH: a message.
    Publish = 3,
    /// PUBACK: a QoS 1 message was received.
    Puback = 4,
    /// PUBREC: a QoS 2 message was received.
    Pubrec = 5,
    /// PUBREL: the identifier of a QoS 2 message may be reused.
    Pubrel = 6,
    /// PUBCOMP: the end of a QoS 2 exchange.
    Pubcomp = 7,
    /// SUBSCRIBE: a client subscribes.
    Subscribe = 8,
    /// The answer to SUBSCRIBE.
    Suback = 9,
    /// UNSUBSCRIBE: a client unsubscribes.
    Unsubscribe = 10,
    /// The answer to UNSUBSCRIBE.
    Unsuback = 11,
    /// PINGREQ: a ping.
    Pingreq = 12,
    /// PINGRESP: its answer.
    Pingresp = 13,
    /// DISCONNECT: the end of a connection.
    Disconnect = 14,
    /// AUTH: a step of extended authentication, version 5 only.
    Auth = 15,
}

impl PacketType {
    const fn from_nibble(nibble: u8) -> Option<Self> {
        Some(match nibble {
            1 => Self::Connect,
            2 => Self::Connack,
            3 => Self::Publish,
            4 => Self::Puback,
            5 => Self::Pubrec,
            6 => Self::Pubrel,
            7 => Self::Pubcomp,
            8 => Self::Subscribe,
            9 => Self::Suback,
            10 => Self::Unsubscribe,
            11 => Self::Unsuback,
            12 => Self::Pingreq,
            13 => Self::Pingresp,
            14 => Self::Disconnect,
            15 => Self::Auth,
            _ => return None,
        })
    }

    /// The flags this type must carry ([MQTT-2.1.3-1]); PUBLISH has its own.
    const fn flags(self) -> u8 {
        match self {
            Self::Pubrel | Self::Subscribe | Self::Unsubscribe => 0b0010,
            Self::Connect
            | Self::Connack
            | Self::Publish
            | Self::Puback
            | Self::Pubrec
            | Self::Pubcomp
            | Self::Suback
            | Self::Unsuback
            | Self::Pingreq
            | Self::Pingresp
            | Self::Disconnect
            | Self::Auth => 0,
        }
    }

    /// The first byte of a packet of this type.
    pub(crate) const fn first_byte(self) -> u8 {
        (self as u8) << 4 | self.flags()
    }
}

/// Limits of what is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest packet in bytes, its fixed header included ([MQTT-3.2.2-15]).
    pub packet_bytes_max: usize,
}

impl Limits {
    /// As large as the protocol can say: 268 435 460 bytes.
    pub const PROTOCOL: Self = Self { packet_bytes_max: VARIABLE_MAX + 5 };
}

impl Default for Limits {
    /// 1 MiB and a little: a payload of 1 MiB with topic and properties.
    fn default() -> Self {
        Self { packet_bytes_max: (1 << 20) + (64 << 10) }
    }
}

/// The fixed header of a packet (§2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The type.
    pub kind: PacketType,
    flags: u8,
    header_len: usize,
    total_len: usize,
}

impl Frame {
    /// Decodes the fixed header; `None` when it is not complete. Errors depend on the first bytes alone, not on how the
    /// bytes arrive.
    ///
    /// # Errors
    /// A type or flags that do not exist, a length that is none or above the limit.
    #[inline]
    pub fn read(buf: &[u8], version: Version, limits: &Limits) -> Result<Option<Self>, DecodeError> {
        let Some((&first, rest)) = buf.split_first() else { return Ok(None) };
        let kind = PacketType::from_nibble(first >> 4).ok_or(DecodeError::ReservedType(first >> 4))?;
        let flags = first & 0x0F;
        if kind != PacketType::Publish {
            check_flags(kind, flags, version)?;
        }
        let mut remaining = 0;
        for (index, &byte) in rest.iter().take(4).enumerate() {
            remaining |= usize::from(byte & 0x7F) << (7 * index);
            if byte & 0x80 == 0 {
                if byte == 0 && index > 0 {
                    // [MQTT-1.5.5-1]; the older standards only show the shortest form and nobody sends another.
                    return Err(DecodeError::RemainingLength);
                }
                let header_len = index + 2;
                let total_len = header_len + remaining;
                if total_len > limits.packet_bytes_max {
                    return Err(DecodeError::PacketTooLarge { bytes: total_len, max: limits.packet_bytes_max });
                }
                return Ok(Some(Self { kind, flags, header_len, total_len }));
            }
        }
        if rest.len() >= 4 { Err(DecodeError::RemainingLength) } else { Ok(None) }
    }

    /// Bytes of the fixed header.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        self.header_len
    }

    /// Bytes of the whole packet, fixed header included.
    #[must_use]
    pub const fn total_len(&self) -> usize {
        self.total_len
    }
}

/// [MQTT-2.1.3-1]. Version 3.1 lets the DUP bit of SUBSCRIBE, UNSUBSCRIBE and PUBREL say that they are sent again.
fn check_flags(kind: PacketType, flags: u8, version: Version) -> Result<(), DecodeError> {
    if kind == PacketType::Auth && !version.is_v5() {
        return Err(DecodeError::ReservedType(15));
    }
    let again = version == Version::V31 && kind.flags() == 0b0010 && flags == 0b1010;
    if flags == kind.flags() || again { Ok(()) } else { Err(DecodeError::HeaderFlags(kind)) }
}

/// A control packet that borrows from the bytes it was decoded from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Packet<'a> {
    /// §3.1.
    Connect(Connect<'a>),
    /// §3.2.
    Connack(Connack<'a>),
    /// §3.3.
    Publish(Publish<'a>),
    /// §3.4.
    Puback(Ack<'a>),
    /// §3.5.
    Pubrec(Ack<'a>),
    /// §3.6.
    Pubrel(Ack<'a>),
    /// §3.7.
    Pubcomp(Ack<'a>),
    /// §3.8.
    Subscribe(Subscribe<'a>),
    /// §3.9.
    Suback(Suback<'a>),
    /// §3.10.
    Unsubscribe(Unsubscribe<'a>),
    /// §3.11.
    Unsuback(Unsuback<'a>),
    /// §3.12.
    Pingreq,
    /// §3.13.
    Pingresp,
    /// §3.14.
    Disconnect(Disconnect<'a>),
    /// §3.15.
    Auth(Auth<'a>),
}

/// Decodes the packet at the front of `buf`: the packet and how many bytes it took, or `None` when more bytes are
/// needed. CONNECT says its own version; every other packet is read as `version`.
///
/// # Errors
/// When the bytes can never become a packet; [`DecodeError::reason`] is what the peer is told.
#[inline]
pub fn decode<'a>(
    buf: &'a [u8],
    version: Version,
    limits: &Limits,
) -> Result<Option<(Packet<'a>, usize)>, DecodeError> {
    let Some(frame) = Frame::read(buf, version, limits)? else { return Ok(None) };
    let Some(body) = buf.get(frame.header_len..frame.total_len) else { return Ok(None) };
    let packet = if frame.kind == PacketType::Publish {
        Packet::Publish(Publish::decode(frame.flags, body, version)?)
    } else {
        decode_body(frame.kind, body, version)?
    };
    Ok(Some((packet, frame.total_len)))
}

fn decode_body(kind: PacketType, body: &[u8], version: Version) -> Result<Packet<'_>, DecodeError> {
    let cursor = Cursor::new(body);
    Ok(match kind {
        PacketType::Connect => Packet::Connect(Connect::decode(cursor)?),
        PacketType::Connack => Packet::Connack(Connack::decode(cursor, version)?),
        PacketType::Publish => Packet::Publish(Publish::decode(0, body, version)?),
        PacketType::Puback => Packet::Puback(Ack::decode(cursor, kind, version)?),
        PacketType::Pubrec => Packet::Pubrec(Ack::decode(cursor, kind, version)?),
        PacketType::Pubrel => Packet::Pubrel(Ack::decode(cursor, kind, version)?),
        PacketType::Pubcomp => Packet::Pubcomp(Ack::decode(cursor, kind, version)?),
        PacketType::Subscribe => Packet::Subscribe(Subscribe::decode(cursor, version)?),
        PacketType::Suback => Packet::Suback(Suback::decode(cursor, version)?),
        PacketType::Unsubscribe => Packet::Unsubscribe(Unsubscribe::decode(cursor, version)?),
        PacketType::Unsuback => Packet::Unsuback(Unsuback::decode(cursor, version)?),
        PacketType::Pingreq => cursor.finish().map(|()| Packet::Pingreq)?,
        PacketType::Pingresp => cursor.finish().map(|()| Packet::Pingresp)?,
        PacketType::Disconnect => Packet::Disconnect(Disconnect::decode(cursor, version)?),
        PacketType::Auth => Packet::Auth(Auth::decode(cursor)?),
    })
}

impl Packet<'_> {
    /// Appends the packet to `out` in the form of `version`; properties and reasons fall away before version 5.
    ///
    /// # Errors
    /// When a field or the packet is too long; `out` is then as before.
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let start = out.len();
        let result = match self {
            Self::Connect(packet) => packet.encode(out),
            Self::Connack(packet) => packet.encode(version, out),
            Self::Publish(packet) => packet.encode(version, out),
            Self::Puback(ack) => ack.encode(PacketType::Puback, version, out),
            Self::Pubrec(ack) => ack.encode(PacketType::Pubrec, version, out),
            Self::Pubrel(ack) => ack.encode(PacketType::Pubrel, version, out),
            Self::Pubcomp(ack) => ack.encode(PacketType::Pubcomp, version, out),
            Self::Subscribe(packet) => packet.encode(version, out),
            Self::Suback(packet) => packet.encode(version, out),
            Self::Unsubscribe(packet) => packet.encode(version, out),
            Self::Unsuback(packet) => packet.encode(version, out),
            Self::Pingreq => put_header(out, PacketType::Pingreq.first_byte(), 0),
            Self::Pingresp => put_header(out, PacketType::Pingresp.first_byte(), 0),
            Self::Disconnect(packet) => packet.encode(version, out),
            Self::Auth(packet) => packet.encode(out),
        };
        if result.is_err() {
            out.truncate(start);
        }
        result
    }

    /// [`encode`](Self::encode) for a peer with this Maximum Packet Size ([MQTT-3.1.2-24], [MQTT-3.2.2-15]).
    ///
    /// # Errors
    /// When a field is too long, or the packet for the peer; `out` is then as before.
    pub fn encode_within(&self, version: Version, bytes_max: u32, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let start = out.len();
        self.encode(version, out)?;
        let bytes = out.len() - start;
        if u32::try_from(bytes).is_ok_and(|bytes| bytes <= bytes_max) {
            return Ok(());
        }
        out.truncate(start);
        Err(EncodeError::PacketTooLong(bytes))
    }

    /// The type.
    #[must_use]
    pub const fn kind(&self) -> PacketType {
        match self {
            Self::Connect(_) => PacketType::Connect,
            Self::Connack(_) => PacketType::Connack,
            Self::Publish(_) => PacketType::Publish,
            Self::Puback(_) => PacketType::Puback,
            Self::Pubrec(_) => PacketType::Pubrec,
            Self::Pubrel(_) => PacketType::Pubrel,
            Self::Pubcomp(_) => PacketType::Pubcomp,
            Self::Subscribe(_) => PacketType::Subscribe,
            Self::Suback(_) => PacketType::Suback,
            Self::Unsubscribe(_) => PacketType::Unsubscribe,
            Self::Unsuback(_) => PacketType::Unsuback,
            Self::Pingreq => PacketType::Pingreq,
            Self::Pingresp => PacketType::Pingresp,
            Self::Disconnect(_) => PacketType::Disconnect,
            Self::Auth(_) => PacketType::Auth,
        }
    }
}

/// Appends a fixed header.
#[inline]
pub(crate) fn put_header(out: &mut Vec<u8>, first: u8, remaining: usize) -> Result<(), EncodeError> {
    if remaining > VARIABLE_MAX {
        return Err(EncodeError::PacketTooLong(remaining));
    }
    out.push(first);
    put_variable(out, remaining);
    Ok(())
}
