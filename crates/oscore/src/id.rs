//! Sender and Recipient IDs (RFC 8613 §3.1): nought to seven bytes, held inline.

use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER_PERMISSIVE;

/// The longest ID: the nonce of 13 bytes less 6 (RFC 8613 §3.3). Algorithms with shorter nonces allow less.
pub(crate) const ID_BYTES_MAX: usize = 7;

/// The ID of one end.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id {
    bytes: [u8; ID_BYTES_MAX],
    length: u8,
}

/// A text that is no ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an ID: 0x and up to seven bytes in hex")]
pub struct NoId;

/// An ID of more than seven bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an OSCORE ID has at most {ID_BYTES_MAX} bytes (RFC 8613 §3.3)")]
pub struct TooLong;

impl Id {
    /// An ID of these bytes; the empty one is as good as any.
    ///
    /// # Errors
    /// When there are more than seven.
    pub fn new(bytes: &[u8]) -> Result<Self, TooLong> {
        let mut id = Self { bytes: [0; ID_BYTES_MAX], length: u8::try_from(bytes.len()).map_err(|_| TooLong)? };
        id.bytes.get_mut(..bytes.len()).ok_or(TooLong)?.copy_from_slice(bytes);
        Ok(id)
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or(&[])
    }

    /// How many bytes.
    #[must_use]
    pub const fn length(&self) -> u8 {
        self.length
    }
}

/// Reads what `Debug` shows.
impl FromStr for Id {
    type Err = NoId;

    fn from_str(text: &str) -> Result<Self, NoId> {
        let bytes = HEXLOWER_PERMISSIVE.decode(text.strip_prefix("0x").ok_or(NoId)?.as_bytes()).map_err(|_| NoId)?;
        Self::new(&bytes).map_err(|_| NoId)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        self.as_slice().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
