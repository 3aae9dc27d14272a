//! The header of a record (RFC 9147 §4) while it is put together: what the tag covers.

use crate::wire::OTHERS_MAX;

/// Bytes of the longest header: identifiers of others have up to [`OTHERS_MAX`] bytes.
const HEADER_MAX: usize = 5 + OTHERS_MAX;

/// A header of a record, on its way to where it is needed.
pub(super) struct Header {
    bytes: [u8; HEADER_MAX],
    len: usize,
}

impl Default for Header {
    fn default() -> Self {
        Self { bytes: [0; HEADER_MAX], len: 0 }
    }
}

impl Header {
    pub(super) fn push(&mut self, more: &[u8]) {
        self.bytes.iter_mut().skip(self.len).zip(more).for_each(|(to, from)| *to = *from);
        self.len += more.len();
    }
}

impl AsRef<[u8]> for Header {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}
