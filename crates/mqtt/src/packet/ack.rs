//! PUBACK, PUBREC, PUBREL and PUBCOMP (§3.4 to §3.7): one shape.

use super::{PacketType, put_header};
use crate::cursor::Cursor;
use crate::property::{Place, Properties};
use crate::{DecodeError, EncodeError, PacketId, ReasonCode, Version};

/// A step in the exchange of a QoS 1 or 2 message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ack<'a> {
    /// The message.
    pub packet_id: PacketId,
    /// Success before version 5.
    pub reason: ReasonCode,
    /// Version 5 only.
    pub properties: Properties<'a>,
}

impl<'a> Ack<'a> {
    /// Success, without properties.
    #[must_use]
    pub const fn success(packet_id: PacketId) -> Self {
        Self::with_reason(packet_id, ReasonCode::SUCCESS)
    }

    /// Without properties.
    #[must_use]
    pub const fn with_reason(packet_id: PacketId, reason: ReasonCode) -> Self {
        Self { packet_id, reason, properties: Properties::NONE }
    }

    #[inline]
    pub(super) fn decode(mut cursor: Cursor<'a>, kind: PacketType, version: Version) -> Result<Self, DecodeError> {
        let packet_id = cursor.packet_id()?;
        if cursor.is_empty() {
            return Ok(Self::success(packet_id));
        }
        if !version.is_v5() {
            return Err(DecodeError::TrailingBytes);
        }
        let code = cursor.u8()?;
        let reason = ReasonCode(code);
        if !reason.allowed_in(kind) {
            return Err(DecodeError::Reason { packet: kind, code });
        }
        // §3.4.2.2.1: with a Remaining Length below 4 there is no Property Length.
        let properties = if cursor.is_empty() { Properties::NONE } else { Properties::read(&mut cursor, place(kind))? };
        cursor.finish()?;
        Ok(Self { packet_id, reason, properties })
    }

    /// Appends the packet as `kind`, one of the four.
    ///
    /// # Errors
    /// When the properties are too long; without any it cannot fail.
    #[inline]
    pub fn encode(&self, kind: PacketType, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let [high, low] = self.packet_id.get().to_be_bytes();
        let first = kind.first_byte();
        if !version.is_v5() || (self.reason == ReasonCode::SUCCESS && self.properties.is_empty()) {
            out.extend_from_slice(&[first, 2, high, low]);
        } else if self.properties.is_empty() {
            out.extend_from_slice(&[first, 3, high, low, self.reason.0]);
        } else {
            put_header(out, first, 3 + self.properties.written_len())?;
            out.extend_from_slice(&[high, low, self.reason.0]);
            self.properties.write(out);
        }
        Ok(())
    }
}

const fn place(kind: PacketType) -> Place {
    match kind {
        PacketType::Pubrec => Place::Pubrec,
        PacketType::Pubrel => Place::Pubrel,
        PacketType::Pubcomp => Place::Pubcomp,
        PacketType::Puback
        | PacketType::Connect
        | PacketType::Connack
        | PacketType::Publish
        | PacketType::Subscribe
        | PacketType::Suback
        | PacketType::Unsubscribe
        | PacketType::Unsuback
        | PacketType::Pingreq
        | PacketType::Pingresp
        | PacketType::Disconnect
        | PacketType::Auth => Place::Puback,
    }
}
