//! Entity-tags (RFC 7252 §5.10.6): one to eight bytes that name one state of a resource.

use std::fmt;

/// An entity-tag, held inline.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ETag {
    bytes: [u8; 8],
    length: u8,
}

impl ETag {
    /// A tag of one to eight bytes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() {
            return None;
        }
        let mut tag = Self { bytes: [0; 8], length: u8::try_from(bytes.len()).ok()? };
        tag.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(tag)
    }

    /// A tag of eight bytes.
    #[must_use]
    pub const fn from_u64(number: u64) -> Self {
        Self { bytes: number.to_be_bytes(), length: 8 }
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or(&[])
    }

    /// Room for the first byte of an option, and the same bytes with zeros behind them.
    pub(crate) const fn with_room(self) -> [u8; 9] {
        let [a, b, c, d, e, f, g, h] = self.bytes;
        [0, a, b, c, d, e, f, g, h]
    }

    pub(crate) const fn length(self) -> usize {
        self.length as usize
    }
}

impl fmt::Debug for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
