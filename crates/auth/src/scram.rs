//! SCRAM: the keys a server keeps, and the cryptography both sides share. RFC 5802, RFC 7677.
//!
//! No socket, clock or randomness: nonces and salts are arguments.

mod client;
mod message;
mod server;

pub use client::{ClientBinding, SaltedPassword, ScramClient, ScramClientError};
pub use message::ScramError;
pub(crate) use message::decode_name;
pub(crate) use server::Binding;
pub use server::{AwaitingClientFinal, ChannelBinding, ClientFirst};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha1::Sha1;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::prepare::prepare_text;

/// RFC 7677 §4 asks for at least 15 000 for SCRAM-SHA-256; the client pays for them, and clients here are small.
pub(crate) const ITERATIONS: u32 = 15_000;
/// RFC 5802 §5.1: not below 4096. The upper bound keeps a hostile peer or file from buying hours of work.
pub(crate) const ITERATIONS_RANGE: std::ops::RangeInclusive<u32> = 4096..=10_000_000;
pub(crate) const SALT_BYTES: usize = 16;
const SALT_BYTES_MAX: usize = 256;

/// The hash a SCRAM mechanism is built on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScramHash {
    /// SCRAM-SHA-1, for older clients only.
    Sha1,
    /// SCRAM-SHA-256.
    Sha256,
}

/// An output of the hash: 20 or 32 bytes.
#[derive(Clone, Copy)]
pub(crate) struct Output {
    bytes: [u8; 32],
    len: usize,
}

impl Output {
    fn new(of: &[u8]) -> Self {
        let mut bytes = [0; 32];
        let len = of.len().min(32);
        for (to, from) in bytes.iter_mut().zip(of) {
            *to = *from;
        }
        Self { bytes, len }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&self.bytes)
    }

    /// The output, zero-padded to 32 bytes.
    pub(crate) fn bytes(&self) -> [u8; 32] {
        self.bytes
    }

    fn xor(&self, other: &[u8]) -> Self {
        let mut out = *self;
        for (to, from) in out.bytes.iter_mut().zip(other) {
            *to ^= from;
        }
        out
    }

    pub(crate) fn is(&self, other: &[u8]) -> bool {
        self.as_slice().ct_eq(other).into()
    }
}

impl ScramHash {
    /// The name of the mechanism, without `-PLUS`.
    #[must_use]
    pub const fn mechanism(self) -> &'static str {
        match self {
            Self::Sha1 => "SCRAM-SHA-1",
            Self::Sha256 => "SCRAM-SHA-256",
        }
    }

    const fn output_bytes(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    fn digest(self, of: &[u8]) -> Output {
        match self {
            Self::Sha1 => Output::new(&Sha1::digest(of)),
            Self::Sha256 => Output::new(&Sha256::digest(of)),
        }
    }

    pub(crate) fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Output {
        let mut keyed = Keyed::new(self, key);
        for part in parts {
            keyed.update(part);
        }
        keyed.finish()
    }

    /// `Hi(str, salt, i)`: PBKDF2 with an output of one block (RFC 5802 §2.2).
    fn salted_password(self, password: &[u8], salt: &[u8], iterations: u32) -> Output {
        let keyed = Keyed::new(self, password);
        let mut first = keyed.clone();
        first.update(salt);
        first.update(&1_u32.to_be_bytes());
        let mut round = first.finish();
        let mut sum = round;
        for _ in 1..iterations {
            let mut next = keyed.clone();
            next.update(round.as_slice());
            round = next.finish();
            sum = sum.xor(round.as_slice());
        }
        sum
    }
}

/// An HMAC whose key schedule is done once.
#[derive(Clone)]
enum Keyed {
    Sha1(Hmac<Sha1>),
    Sha256(Hmac<Sha256>),
}

impl Keyed {
    fn new(hash: ScramHash, key: &[u8]) -> Self {
        match hash {
            ScramHash::Sha1 => Self::Sha1(Hmac::new_from_slice(key).expect("HMAC takes keys of any length")),
            ScramHash::Sha256 => Self::Sha256(Hmac::new_from_slice(key).expect("HMAC takes keys of any length")),
        }
    }

    fn update(&mut self, data: &[u8]) {
        match self {
            Self::Sha1(mac) => mac.update(data),
            Self::Sha256(mac) => mac.update(data),
        }
    }

    fn finish(self) -> Output {
        match self {
            Self::Sha1(mac) => Output::new(&mac.finalize().into_bytes()),
            Self::Sha256(mac) => Output::new(&mac.finalize().into_bytes()),
        }
    }
}

/// The record that a server keeps of a password for one SCRAM mechanism: enough to check a proof, not enough to make
/// one.
#[derive(Clone)]
pub struct ScramKeys {
    pub(crate) hash: ScramHash,
    pub(crate) iterations: u32,
    pub(crate) salt: Box<[u8]>,
    pub(crate) stored_key: Output,
    pub(crate) server_key: Output,
    /// Whether this is a real user's; proofs for made-up keys always fail.
    pub(crate) real: bool,
}

impl ScramKeys {
    /// Derives the keys. Blocks for the time of `iterations` HMACs. Nothing when SASLprep prohibits the password.
    #[must_use]
    pub fn derive(hash: ScramHash, password: &str, salt: &[u8], iterations: u32) -> Option<Self> {
        let prepared = prepare_text(password)?;
        let salted = hash.salted_password(prepared.as_bytes(), salt, iterations);
        let client_key = hash.hmac(salted.as_slice(), &[b"Client Key"]);
        Some(Self {
            hash,
            iterations,
            salt: salt.into(),
            stored_key: hash.digest(client_key.as_slice()),
            server_key: hash.hmac(salted.as_slice(), &[b"Server Key"]),
            real: true,
        })
    }

    /// Keys for a user who is not there: always the same salt for the same name, never a matching proof (RFC 5802 §9
    /// leaves user enumeration to the server).
    pub(crate) fn decoy(hash: ScramHash, secret: &[u8], user: &str) -> Self {
        let derive = |what: &str| hash.hmac(secret, &[what.as_bytes(), b"\0", user.as_bytes()]);
        let salt = ScramHash::Sha256.hmac(secret, &[b"salt", hash.mechanism().as_bytes(), b"\0", user.as_bytes()]);
        Self {
            hash,
            iterations: ITERATIONS,
            salt: salt.as_slice().iter().copied().take(SALT_BYTES).collect(),
            stored_key: derive("stored key"),
            server_key: derive("server key"),
            real: false,
        }
    }

    /// `iterations:salt:StoredKey:ServerKey`, the last three in base64: the form of the users file.
    pub(crate) fn to_text(&self) -> String {
        let encode = |bytes: &[u8]| STANDARD.encode(bytes);
        format!(
            "{}:{}:{}:{}",
            self.iterations,
            encode(&self.salt),
            encode(self.stored_key.as_slice()),
            encode(self.server_key.as_slice())
        )
    }

    /// The inverse of [`Self::to_text`].
    pub(crate) fn parse(hash: ScramHash, text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let iterations = parts.next()?.parse().ok().filter(|count| ITERATIONS_RANGE.contains(count))?;
        let mut bytes = || parts.next().and_then(|part| STANDARD.decode(part).ok());
        let salt = bytes().filter(|salt| (1..=SALT_BYTES_MAX).contains(&salt.len()))?;
        let stored = bytes().filter(|key| key.len() == hash.output_bytes())?;
        let server = bytes().filter(|key| key.len() == hash.output_bytes())?;
        if parts.next().is_some() {
            return None;
        }
        Some(Self {
            hash,
            iterations,
            salt: salt.into(),
            stored_key: Output::new(&stored),
            server_key: Output::new(&server),
            real: true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_the_file_and_broken_ones_do_not_parse() {
        for hash in [ScramHash::Sha1, ScramHash::Sha256] {
            let keys = ScramKeys::derive(hash, "pencil", b"salt salt salt 1", 4096).unwrap();
            let text = keys.to_text();
            assert_eq!(ScramKeys::parse(hash, &text).unwrap().to_text(), text);
            for cut in 0..text.len() {
                let shorter = &text[..cut];
                assert!(ScramKeys::parse(hash, shorter).is_none(), "{shorter}");
            }
            assert!(ScramKeys::parse(hash, &format!("{text}:x")).is_none());
        }
        let sha1 = ScramKeys::derive(ScramHash::Sha1, "pencil", b"salt", 4096).unwrap().to_text();
        assert!(ScramKeys::parse(ScramHash::Sha256, &sha1).is_none());
        assert!(ScramKeys::parse(ScramHash::Sha1, &sha1.replacen("4096", "1", 1)).is_none());
    }

    #[test]
    fn s5_1_pbkdf2_agrees_with_rfc_6070() {
        let out = ScramHash::Sha1.salted_password(b"password", b"salt", 2);
        assert_eq!(out.as_slice()[..4], [0xea, 0x6c, 0x01, 0x4d]);
    }
}
