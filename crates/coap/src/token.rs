//! Tokens (RFC 7252 §5.3.1): nought to eight bytes that a client chooses and a server repeats.

use std::fmt;

/// The longest token (RFC 7252 §3: lengths 9 to 15 are reserved).
pub const TOKEN_BYTES_MAX: usize = 8;

/// A token, held inline.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Token {
    bytes: [u8; TOKEN_BYTES_MAX],
    length: u8,
}

impl Token {
    /// The token of no bytes.
    pub const EMPTY: Self = Self { bytes: [0; TOKEN_BYTES_MAX], length: 0 };

    /// A token of up to eight bytes; `None` when there are more.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut token = Self { bytes: [0; TOKEN_BYTES_MAX], length: u8::try_from(bytes.len()).ok()? };
        token.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(token)
    }

    /// A token of eight bytes from a number, which should come from a secure source (RFC 7252 §5.3.1).
    #[must_use]
    pub const fn from_u64(number: u64) -> Self {
        Self { bytes: number.to_be_bytes(), length: 8 }
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or(&[])
    }

    /// The same bytes with zeros behind them.
    pub(crate) const fn padded(&self) -> [u8; TOKEN_BYTES_MAX] {
        self.bytes
    }

    /// How many bytes, 0 to 8.
    #[must_use]
    pub const fn length(&self) -> u8 {
        self.length
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
