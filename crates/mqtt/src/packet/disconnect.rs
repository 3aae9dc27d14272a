//! DISCONNECT and AUTH (§3.14, §3.15): a reason code and properties, both of which may be left out.

use super::{PacketType, put_header};
use crate::cursor::Cursor;
use crate::property::{Place, Properties, Property};
use crate::{DecodeError, EncodeError, ReasonCode, Version};

/// The end of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Disconnect<'a> {
    /// Normal disconnection before version 5.
    pub reason: ReasonCode,
    /// Version 5 only.
    pub properties: Properties<'a>,
}

impl<'a> Disconnect<'a> {
    /// Without properties.
    #[must_use]
    pub const fn with_reason(reason: ReasonCode) -> Self {
        Self { reason, properties: Properties::NONE }
    }

    pub(super) fn decode(cursor: Cursor<'a>, version: Version) -> Result<Self, DecodeError> {
        if !version.is_v5() {
            cursor.finish()?;
            return Ok(Self::with_reason(ReasonCode::SUCCESS));
        }
        let (reason, properties) = decode(cursor, PacketType::Disconnect, Place::Disconnect)?;
        Ok(Self { reason, properties })
    }

    pub(super) fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if version.is_v5() {
            encode(PacketType::Disconnect, self.reason, self.properties, out)
        } else {
            put_header(out, PacketType::Disconnect.first_byte(), 0)
        }
    }
}

/// A step of extended authentication (§4.12).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Auth<'a> {
    /// Success, Continue authentication or Re-authenticate.
    pub reason: ReasonCode,
    /// The method and its data.
    pub properties: Properties<'a>,
}

impl<'a> Auth<'a> {
    pub(super) fn decode(cursor: Cursor<'a>) -> Result<Self, DecodeError> {
        let (reason, properties) = decode(cursor, PacketType::Auth, Place::Auth)?;
        let mut methods = properties.iter().filter(|property| matches!(property, Property::AuthenticationMethod(_)));
        // §3.15.2.2.2: it may not be omitted. §3.15.2.1 lets Success omit everything.
        if reason != ReasonCode::SUCCESS && methods.next().is_none() {
            return Err(DecodeError::AuthenticationMethod);
        }
        Ok(Self { reason, properties })
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode(PacketType::Auth, self.reason, self.properties, out)
    }
}

fn decode(mut cursor: Cursor<'_>, kind: PacketType, place: Place) -> Result<(ReasonCode, Properties<'_>), DecodeError> {
    if cursor.is_empty() {
        return Ok((ReasonCode::SUCCESS, Properties::NONE));
    }
    let code = cursor.u8()?;
    let reason = ReasonCode(code);
    if !reason.allowed_in(kind) {
        return Err(DecodeError::Reason { packet: kind, code });
    }
    let properties = if cursor.is_empty() { Properties::NONE } else { Properties::read(&mut cursor, place)? };
    cursor.finish()?;
    Ok((reason, properties))
}

fn encode(
    kind: PacketType,
    reason: ReasonCode,
    properties: Properties<'_>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    if !properties.is_empty() {
        put_header(out, kind.first_byte(), 1 + properties.written_len())?;
        out.push(reason.0);
        properties.write(out);
    } else if reason == ReasonCode::SUCCESS {
        put_header(out, kind.first_byte(), 0)?;
    } else {
        put_header(out, kind.first_byte(), 1)?;
        out.push(reason.0);
    }
    Ok(())
}
