//! A fingerprint of a set of keys, which reveals nothing about them. Saved sequence numbers are filed under it, so that
//! they follow the keys and not the name of a file.

use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER_PERMISSIVE;

use crate::derive::{KeyBytes, hmac};

const FINGERPRINT_BYTES: usize = 16;

/// The fingerprint of a Sender Key: 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; FINGERPRINT_BYTES]);

/// A text that is no fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a fingerprint of 32 hexadecimal digits")]
pub struct NoFingerprint;

impl Fingerprint {
    /// The fingerprint of no key.
    pub const NONE: Self = Self([0; FINGERPRINT_BYTES]);
    /// Stands for all keys. As improbable as [`NONE`](Self::NONE) for one of them.
    pub const ALL: Self = Self([0xff; FINGERPRINT_BYTES]);

    pub(crate) fn of(sender_key: &KeyBytes) -> Self {
        let mut bytes = [0; FINGERPRINT_BYTES];
        let code = hmac(sender_key.as_slice(), &[b"fogmux oscore fingerprint"]);
        bytes.iter_mut().zip(code.iter()).for_each(|(to, from)| *to = *from);
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fingerprint {
    type Err = NoFingerprint;

    fn from_str(text: &str) -> Result<Self, NoFingerprint> {
        let bytes = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).map_err(|_| NoFingerprint)?;
        bytes.try_into().map(Self).map_err(|_| NoFingerprint)
    }
}
