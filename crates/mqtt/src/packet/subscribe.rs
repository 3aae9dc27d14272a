//! SUBSCRIBE and SUBACK (§3.8, §3.9).

use super::{PacketType, put_header};
use crate::cursor::Cursor;
use crate::property::{Place, Properties};
use crate::writer::put_field;
use crate::{DecodeError, EncodeError, PacketId, Qos, ReasonCode, SubscriptionOptions, Version};

/// A client asks for messages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Subscribe<'a> {
    /// Answered with the same.
    pub packet_id: PacketId,
    /// Version 5 only.
    pub properties: Properties<'a>,
    /// At least one ([MQTT-3.8.3-2]).
    pub entries: SubscribeEntries<'a>,
}

/// The pairs of Topic Filter and options in SUBSCRIBE. That a filter is a filter, the reader decides.
#[derive(Clone, Copy)]
pub struct SubscribeEntries<'a>(Entries<'a>);

#[derive(Clone, Copy)]
enum Entries<'a> {
    /// As they stand in a packet, checked.
    Wire(&'a [u8]),
    /// To be sent.
    List(&'a [(&'a str, SubscriptionOptions)]),
}

impl<'a> SubscribeEntries<'a> {
    /// The filters with their options.
    #[must_use]
    pub const fn new(entries: &'a [(&'a str, SubscriptionOptions)]) -> Self {
        Self(Entries::List(entries))
    }

    /// The pairs as they stand in a packet; empty for pairs to be sent.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        match self.0 {
            Entries::Wire(bytes) => bytes,
            Entries::List(_) => &[],
        }
    }

    /// The pairs in bytes that [`as_bytes`](Self::as_bytes) has given; in others, those before the first that is
    /// malformed.
    #[must_use]
    pub const fn from_bytes(bytes: &'a [u8]) -> Self {
        Self(Entries::Wire(bytes))
    }

    /// The first pair and those behind it.
    #[must_use]
    pub fn split_first(&self) -> Option<((&'a str, SubscriptionOptions), Self)> {
        match self.0 {
            Entries::Wire(bytes) => {
                let mut cursor = Cursor::new(bytes);
                let first = entry(&mut cursor).ok()?;
                Some((first, Self(Entries::Wire(cursor.rest()))))
            }
            Entries::List(list) => list.split_first().map(|(first, rest)| (*first, Self::new(rest))),
        }
    }

    /// Walks the pairs.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, SubscriptionOptions)> + use<'a> {
        let (mut cursor, list) = match self.0 {
            Entries::Wire(bytes) => (Cursor::new(bytes), [].as_slice()),
            Entries::List(list) => (Cursor::new(&[]), list),
        };
        let wire = std::iter::from_fn(move || entry(&mut cursor).ok());
        wire.chain(list.iter().copied())
    }
}

impl PartialEq for SubscribeEntries<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl std::fmt::Debug for SubscribeEntries<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

fn entry<'a>(cursor: &mut Cursor<'a>) -> Result<(&'a str, SubscriptionOptions), DecodeError> {
    let filter = cursor.string()?;
    Ok((filter, SubscriptionOptions::from_bits(cursor.u8()?)?))
}

impl<'a> Subscribe<'a> {
    pub(super) fn decode(mut cursor: Cursor<'a>, version: Version) -> Result<Self, DecodeError> {
        let packet_id = cursor.packet_id()?;
        let properties =
            if version.is_v5() { Properties::read(&mut cursor, Place::Subscribe)? } else { Properties::NONE };
        let bytes = cursor.rest();
        if bytes.is_empty() {
            return Err(DecodeError::SubscribeEmpty);
        }
        while !cursor.is_empty() {
            let (filter, options) = match entry(&mut cursor) {
                // [MQTT-3-8.3-4] of 3.1.1: the upper six bits are reserved.
                Err(DecodeError::RetainHandling) if !version.is_v5() => return Err(DecodeError::SubscriptionOptions),
                entry => entry?,
            };
            if !version.is_v5() && options != SubscriptionOptions::qos(options.qos) {
                return Err(DecodeError::SubscriptionOptions);
            }
            if options.no_local && filter.starts_with("$share/") {
                return Err(DecodeError::NoLocalShared);
            }
        }
        Ok(Self { packet_id, properties, entries: SubscribeEntries(Entries::Wire(bytes)) })
    }

    pub(super) fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let v5 = version.is_v5();
        let mut length = 2 + if v5 { self.properties.written_len() } else { 0 };
        for (filter, _) in self.entries.iter() {
            length += 3 + filter.len();
        }
        put_header(out, PacketType::Subscribe.first_byte(), length)?;
        out.extend_from_slice(&self.packet_id.get().to_be_bytes());
        if v5 {
            self.properties.write(out);
        }
        for (filter, options) in self.entries.iter() {
            put_field(out, filter.as_bytes())?;
            out.push(if v5 { options.bits() } else { options.qos.bits() });
        }
        Ok(())
    }
}

/// The codes of SUBACK or UNSUBACK, one for each filter, in order ([MQTT-3.8.4-6]).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ReasonCodes<'a>(pub(super) &'a [u8]);

impl<'a> ReasonCodes<'a> {
    /// Codes to send, as bytes.
    #[must_use]
    pub const fn new(codes: &'a [u8]) -> Self {
        Self(codes)
    }

    /// Walks the codes.
    pub fn iter(&self) -> impl Iterator<Item = ReasonCode> + use<'a> {
        self.0.iter().map(|&code| ReasonCode(code))
    }

    /// Reads what is left of a packet as codes that `kind` may carry.
    pub(super) fn decode(cursor: Cursor<'a>, kind: PacketType) -> Result<Self, DecodeError> {
        let codes = cursor.rest();
        if codes.is_empty() {
            return Err(DecodeError::AckEmpty);
        }
        match codes.iter().find(|&&code| !ReasonCode(code).allowed_in(kind)) {
            Some(&code) => Err(DecodeError::Reason { packet: kind, code }),
            None => Ok(Self(codes)),
        }
    }
}

impl std::fmt::Debug for ReasonCodes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The answer to SUBSCRIBE.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Suback<'a> {
    /// Of the SUBSCRIBE.
    pub packet_id: PacketId,
    /// Version 5 only.
    pub properties: Properties<'a>,
    /// The granted QoS or a failure for each filter.
    pub codes: ReasonCodes<'a>,
}

impl<'a> Suback<'a> {
    pub(super) fn decode(mut cursor: Cursor<'a>, version: Version) -> Result<Self, DecodeError> {
        let packet_id = cursor.packet_id()?;
        let properties = if version.is_v5() { Properties::read(&mut cursor, Place::Suback)? } else { Properties::NONE };
        let codes = ReasonCodes::decode(cursor, PacketType::Suback)?;
        if !version.is_v5()
            && let Some(code) = codes.iter().find(|code| code.0 > Qos::ExactlyOnce.bits() && code.0 != 0x80)
        {
            return Err(DecodeError::Reason { packet: PacketType::Suback, code: code.0 });
        }
        Ok(Self { packet_id, properties, codes })
    }

    pub(super) fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let v5 = version.is_v5();
        let length = 2 + if v5 { self.properties.written_len() } else { 0 } + self.codes.0.len();
        put_header(out, PacketType::Suback.first_byte(), length)?;
        out.extend_from_slice(&self.packet_id.get().to_be_bytes());
        if v5 {
            self.properties.write(out);
            out.extend_from_slice(self.codes.0);
        } else {
            // 3.1.1 knows one failure (§3.9.3 of 3.1.1).
            out.extend(self.codes.iter().map(|code| if code.is_error() { 0x80 } else { code.0 }));
        }
        Ok(())
    }
}
