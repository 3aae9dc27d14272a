//! Reading the bytes of records, whatever they are.

use bytes::Bytes;

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The kind is none of a session's.
    #[error("no record of a session has the kind {0}")]
    Kind(u8),
    /// Written by another release.
    #[error("record version {0} is not known")]
    Version(u8),
    /// It ends within a field.
    #[error("the record ends too early")]
    Truncated,
    /// It goes on behind its last field.
    #[error("the record has {0} bytes too many")]
    Trailing(usize),
    /// A field has a value that no release writes.
    #[error("the record's {0} is impossible")]
    Impossible(&'static str),
    /// A field that may be there once is there twice.
    #[error("the record's {0} is there twice")]
    Repeated(&'static str),
    /// A field that must be there is not.
    #[error("the record has no {0}")]
    Missing(&'static str),
}

/// The bytes that are left to read.
pub(super) struct Cursor(pub(super) Bytes);

impl Cursor {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let head = *self.0.first_chunk::<N>().ok_or(RecordError::Truncated)?;
        drop(self.0.split_to(N));
        Ok(head)
    }

    pub(super) fn u8(&mut self) -> Result<u8, RecordError> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, RecordError> {
        self.take().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, RecordError> {
        self.take().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, RecordError> {
        self.take().map(u64::from_le_bytes)
    }

    /// Reads bytes behind their length. They share the record's allocation.
    pub(super) fn counted(&mut self) -> Result<Bytes, RecordError> {
        let length = usize::try_from(self.u32()?).map_err(|_| RecordError::Truncated)?;
        if length > self.0.len() {
            return Err(RecordError::Truncated);
        }
        Ok(self.0.split_to(length))
    }

    /// Checks that nothing is left.
    pub(super) fn end(self) -> Result<(), RecordError> {
        if self.0.is_empty() { Ok(()) } else { Err(RecordError::Trailing(self.0.len())) }
    }
}

/// Text, or the name of the field that is none.
pub(super) fn text<'a>(bytes: &'a Bytes, name: &'static str) -> Result<&'a str, RecordError> {
    std::str::from_utf8(bytes).map_err(|_| RecordError::Impossible(name))
}

/// Appends bytes behind their length. Nothing that the gateway holds has 4 GiB; a longer value would be cut there.
pub(super) fn put_counted(out: &mut Vec<u8>, value: &[u8]) {
    let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(value.get(..length as usize).unwrap_or(value));
}
