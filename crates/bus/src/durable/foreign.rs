//! Records of a later release: what can be known of them without being able to read them.
//!
//! In every version a record begins in the same way, so that an earlier release can tell what belongs together: the
//! version, then of a session its flags and first record, of anything else of a session the number of that, and of a
//! delivery the number of its message (ADR 0042).

use bytes::Bytes;

use super::{
    bytes::Cursor,
    record::{CONTINUES, DELIVERY, MESSAGE, RecordId, SESSION},
};

/// The part of a record that all versions have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// A session, by its first record.
    Session(RecordId),
    /// A message.
    Message,
    /// Something of a session, with its message if it is a delivery.
    Part(RecordId, Option<RecordId>),
    /// It is too short for one.
    Unknown,
}

impl Head {
    pub(super) fn of(id: RecordId, kind: u8, bytes: Bytes) -> Self {
        let mut cursor = Cursor(bytes);
        Self::read(id, kind, &mut cursor).unwrap_or(Self::Unknown)
    }

    fn read(id: RecordId, kind: u8, cursor: &mut Cursor) -> Option<Self> {
        let _version = cursor.u8().ok()?;
        Some(match kind {
            MESSAGE => Self::Message,
            SESSION => {
                let flags = cursor.u8().ok()?;
                let first = RecordId(cursor.u64().ok()?);
                Self::Session(if flags & CONTINUES == 0 { id } else { first })
            }
            _ => {
                let session = RecordId(cursor.u64().ok()?);
                let message = if kind == DELIVERY { Some(RecordId(cursor.u64().ok()?)) } else { None };
                Self::Part(session, message)
            }
        })
    }
}
