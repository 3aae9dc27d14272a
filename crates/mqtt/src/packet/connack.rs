//! CONNACK (§3.2).

use super::{PacketType, put_header};
use crate::cursor::Cursor;
use crate::property::{Place, Properties};
use crate::{DecodeError, EncodeError, ReasonCode, Version};

/// The server's answer to CONNECT.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Connack<'a> {
    /// The server still has the client's session (§3.2.2.1.1); there was no such flag in 3.1.
    pub session_present: bool,
    /// The answer, also where the wire has a return code of 3.1.1.
    pub reason: ReasonCode,
    /// Version 5 only.
    pub properties: Properties<'a>,
}

impl<'a> Connack<'a> {
    pub(super) fn decode(mut cursor: Cursor<'a>, version: Version) -> Result<Self, DecodeError> {
        let flags = cursor.u8()?;
        let code = cursor.u8()?;
        let refused = DecodeError::Reason { packet: PacketType::Connack, code };
        let (reason, properties) = if version.is_v5() {
            let reason =
                Some(ReasonCode(code)).filter(|reason| reason.allowed_in(PacketType::Connack)).ok_or(refused)?;
            (reason, Properties::read(&mut cursor, Place::Connack)?)
        } else {
            (ReasonCode::from_connack_v3(code).ok_or(refused)?, Properties::NONE)
        };
        cursor.finish()?;
        // In 3.1 the byte is reserved and not used.
        let flags = if version == Version::V31 { 0 } else { flags };
        if flags & 0xFE != 0 {
            return Err(DecodeError::ConnackFlags);
        }
        if flags != 0 && reason.is_error() {
            return Err(DecodeError::SessionPresentOnFailure);
        }
        Ok(Self { session_present: flags != 0, reason, properties })
    }

    pub(super) fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let session = u8::from(self.session_present && version != Version::V31);
        let first = PacketType::Connack.first_byte();
        if version.is_v5() {
            put_header(out, first, 2 + self.properties.written_len())?;
            out.extend_from_slice(&[session, self.reason.0]);
            self.properties.write(out);
        } else {
            // Where 3.1.1 has no return code a caller should close without CONNACK; "unavailable" is the nearest.
            put_header(out, first, 2)?;
            out.extend_from_slice(&[session, self.reason.connack_v3().unwrap_or(3)]);
        }
        Ok(())
    }
}
