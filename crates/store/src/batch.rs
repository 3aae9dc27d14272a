//! Changes of several records that happen together.

use bytes::Bytes;
use fogmux_journal::RecordId;

use crate::kind::Kind;

/// Records to put and to forget. All of it happens or nothing.
///
/// A record is named by the identifier that [`Batch::put`] gives. It is good at once, also in the bytes of other
/// records of the batch. Identifiers ascend, over restarts too, and none is used twice. A record that is forgotten
/// before it was committed is never written.
#[derive(Debug)]
pub struct Batch(pub(crate) fogmux_journal::Batch);

impl Batch {
    /// Puts a record. [`Kind::Retained`] and [`Kind::Door`] belong to the store.
    pub fn put(&mut self, kind: Kind, bytes: impl Into<Bytes>) -> RecordId {
        debug_assert!(!matches!(kind, Kind::Retained | Kind::Door), "they are put by their names");
        self.0.put(kind as u8, bytes)
    }

    pub(crate) fn put_number(&mut self, kind: u8, bytes: impl Into<Bytes>) -> RecordId {
        self.0.put(kind, bytes)
    }

    /// Forgets a record. One that is not there is none to forget.
    pub fn forget(&mut self, id: RecordId) {
        self.0.forget(id);
    }
}
