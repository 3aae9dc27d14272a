//! UNSUBSCRIBE and UNSUBACK (§3.10, §3.11).

use super::{PacketType, ReasonCodes, put_header};
use crate::cursor::Cursor;
use crate::property::{Place, Properties};
use crate::writer::put_field;
use crate::{DecodeError, EncodeError, PacketId, Version};

/// A client wants no more messages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unsubscribe<'a> {
    /// Answered with the same.
    pub packet_id: PacketId,
    /// Version 5 only.
    pub properties: Properties<'a>,
    /// At least one ([MQTT-3.10.3-2]).
    pub filters: TopicFilters<'a>,
}

/// The Topic Filters of UNSUBSCRIBE.
#[derive(Clone, Copy)]
pub struct TopicFilters<'a>(Filters<'a>);

#[derive(Clone, Copy)]
enum Filters<'a> {
    /// As they stand in a packet, checked.
    Wire(&'a [u8]),
    /// To be sent.
    List(&'a [&'a str]),
}

impl<'a> TopicFilters<'a> {
    /// The filters.
    #[must_use]
    pub const fn new(filters: &'a [&'a str]) -> Self {
        Self(Filters::List(filters))
    }

    /// The filters as they stand in a packet; empty for filters to be sent.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        match self.0 {
            Filters::Wire(bytes) => bytes,
            Filters::List(_) => &[],
        }
    }

    /// The filters in bytes that [`as_bytes`](Self::as_bytes) has given; in others, those before the first that is
    /// malformed.
    #[must_use]
    pub const fn from_bytes(bytes: &'a [u8]) -> Self {
        Self(Filters::Wire(bytes))
    }

    /// The first filter and those behind it.
    #[must_use]
    pub fn split_first(&self) -> Option<(&'a str, Self)> {
        match self.0 {
            Filters::Wire(bytes) => {
                let mut cursor = Cursor::new(bytes);
                let first = cursor.string().ok()?;
                Some((first, Self(Filters::Wire(cursor.rest()))))
            }
            Filters::List(list) => list.split_first().map(|(first, rest)| (*first, Self::new(rest))),
        }
    }

    /// Walks the filters.
    pub fn iter(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let (mut cursor, list) = match self.0 {
            Filters::Wire(bytes) => (Cursor::new(bytes), [].as_slice()),
            Filters::List(list) => (Cursor::new(&[]), list),
        };
        let wire = std::iter::from_fn(move || cursor.string().ok());
        wire.chain(list.iter().copied())
    }
}

impl PartialEq for TopicFilters<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl std::fmt::Debug for TopicFilters<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> Unsubscribe<'a> {
    pub(super) fn decode(mut cursor: Cursor<'a>, version: Version) -> Result<Self, DecodeError> {
        let packet_id = cursor.packet_id()?;
        let properties =
            if version.is_v5() { Properties::read(&mut cursor, Place::Unsubscribe)? } else { Properties::NONE };
        let bytes = cursor.rest();
        if bytes.is_empty() {
            return Err(DecodeError::UnsubscribeEmpty);
        }
        while !cursor.is_empty() {
            cursor.string()?;
        }
        Ok(Self { packet_id, properties, filters: TopicFilters(Filters::Wire(bytes)) })
    }

    pub(super) fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let v5 = version.is_v5();
        let mut length = 2 + if v5 { self.properties.written_len() } else { 0 };
        for filter in self.filters.iter() {
            length += 2 + filter.len();
        }
        put_header(out, PacketType::Unsubscribe.first_byte(), length)?;
        out.extend_from_slice(&self.packet_id.get().to_be_bytes());
        if v5 {
            self.properties.write(out);
        }
        for filter in self.filters.iter() {
            put_field(out, filter.as_bytes())?;
        }
        Ok(())
    }
}

/// The answer to UNSUBSCRIBE.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unsuback<'a> {
    /// Of the UNSUBSCRIBE.
    pub packet_id: PacketId,
    /// Version 5 only.
    pub properties: Properties<'a>,
    /// One code for each filter; none before version 5.
    pub codes: ReasonCodes<'a>,
}

impl<'a> Unsuback<'a> {
    pub(super) fn decode(mut cursor: Cursor<'a>, version: Version) -> Result<Self, DecodeError> {
        let packet_id = cursor.packet_id()?;
        if !version.is_v5() {
            cursor.finish()?;
            return Ok(Self { packet_id, properties: Properties::NONE, codes: ReasonCodes::new(&[]) });
        }
        let properties = Properties::read(&mut cursor, Place::Unsuback)?;
        let codes = ReasonCodes::decode(cursor, PacketType::Unsuback)?;
        Ok(Self { packet_id, properties, codes })
    }

    pub(super) fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let v5 = version.is_v5();
        let length = 2 + if v5 { self.properties.written_len() + self.codes.0.len() } else { 0 };
        put_header(out, PacketType::Unsuback.first_byte(), length)?;
        out.extend_from_slice(&self.packet_id.get().to_be_bytes());
        if v5 {
            self.properties.write(out);
            out.extend_from_slice(self.codes.0);
        }
        Ok(())
    }
}
