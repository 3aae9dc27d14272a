//! Stored passwords: argon2id in PHC form, and the preparation that every mechanism shares.
//!
//! Mosquitto's hashes are verified as well, so that its users can be imported; none is made here ([`imported`]). A
//! plain password lives only in the arguments of these functions. RFC 9106 (Argon2), RFC 4013 (SASLprep).

mod imported;
mod scratch;

use std::borrow::Cow;

use argon2::{Algorithm, Argon2, Params, PasswordHash, Version};
use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};

use imported::Imported;
pub use scratch::Scratch;

use crate::{
    prepare::prepare_text,
    random::random,
    scram::{ITERATIONS, SALT_BYTES as SCRAM_SALT_BYTES, ScramHash, ScramKeys},
};

/// Memory per hash. The leanest of the parameter sets OWASP calls equal (7 MiB, 5 passes, 1 lane): a Pi with 512 MiB
/// can afford a few at once, and one takes well under a tenth of a second there.
const MEMORY_KIB: u32 = 7 * 1024;
const PASSES: u32 = 5;
const LANES: u32 = 1;
const OUTPUT_BYTES: usize = 32;
const SALT_BYTES: usize = 16;

/// The largest parameters that a users file may ask for, so that a file made elsewhere cannot stall the gateway.
const MEMORY_KIB_MAX: u32 = 256 * 1024;
const PASSES_MAX: u32 = 64;
const LANES_MAX: u32 = 16;

/// Longer passwords are refused before any work is done for them.
pub(crate) const PASSWORD_BYTES_MAX: usize = 1024;

/// A hash whose parameters are within the limits.
#[derive(Clone)]
pub(crate) enum StoredPassword {
    /// An argon2id hash in PHC string form.
    Argon2id(PasswordHash),
    /// From mosquitto.
    Imported(Imported),
}

impl StoredPassword {
    /// Hashes a password under a fresh salt. Slow on purpose; never call it on an I/O thread.
    pub(crate) fn hash(password: &[u8], scratch: &mut Scratch) -> Result<Self, PasswordError> {
        let mut salt = [0; SALT_BYTES];
        getrandom::fill(&mut salt).map_err(|_| PasswordError::NoRandomness)?;
        let params = Params::new(MEMORY_KIB, PASSES, LANES, Some(OUTPUT_BYTES)).map_err(|_| PasswordError::Unusable)?;
        let hasher = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        let mut output = [0; OUTPUT_BYTES];
        scratch.hash(&hasher, &prepare_password(password), &salt, &mut output)?;
        Ok(Self::of_today(salt, output))
    }

    /// A hash with the current parameters and this output. If the output is random, no password matches it.
    pub(crate) fn of_today(salt: [u8; SALT_BYTES], output: [u8; OUTPUT_BYTES]) -> Self {
        let encode = |bytes: &[u8]| STANDARD_NO_PAD.encode(bytes);
        let text = format!("$argon2id$v=19$m={MEMORY_KIB},t={PASSES},p={LANES}${}${}", encode(&salt), encode(&output));
        Self::Argon2id(PasswordHash::new(&text).expect("the form of PHC strings"))
    }

    /// Parses what [`Self::to_text`] wrote: an argon2id PHC string within the limits, or a hash of Mosquitto's.
    pub(crate) fn parse(text: &str) -> Result<Self, PasswordError> {
        if text.starts_with("$6$") || text.starts_with("$7$") {
            return Imported::parse(text).map(Self::Imported);
        }
        let phc = PasswordHash::new(text).map_err(|_| PasswordError::NotPhc)?;
        if phc.algorithm.as_str() != "argon2id" || phc.salt.is_none() || phc.hash.is_none() {
            return Err(PasswordError::NotPhc);
        }
        let params = Params::try_from(&phc).map_err(|_| PasswordError::NotPhc)?;
        if params.m_cost() > MEMORY_KIB_MAX || params.t_cost() > PASSES_MAX || params.p_cost() > LANES_MAX {
            return Err(PasswordError::TooCostly);
        }
        Ok(Self::Argon2id(phc))
    }

    pub(crate) fn to_text(&self) -> String {
        match self {
            Self::Argon2id(phc) => phc.to_string(),
            Self::Imported(imported) => imported.to_text(),
        }
    }

    /// Whether it costs as much as the hashes made here.
    pub(crate) const fn is_argon2id(&self) -> bool {
        match self {
            Self::Argon2id(_) => true,
            Self::Imported(_) => false,
        }
    }

    /// Whether `password` matches. Blocks; takes the same time for every password.
    ///
    /// # Errors
    /// [`PasswordError::NoMemory`], or a stored hash that cannot be computed.
    pub(crate) fn matches(&self, password: &[u8], scratch: &mut Scratch) -> Result<bool, PasswordError> {
        match self {
            Self::Argon2id(phc) => scratch.matches(phc, &prepare_password(password)),
            // Mosquitto does not prepare passwords.
            Self::Imported(imported) => Ok(imported.matches(password)),
        }
    }
}

/// The stored form of a password: a hash, and keys for SCRAM.
#[derive(Clone)]
pub struct HashedPassword {
    pub(crate) stored: StoredPassword,
    pub(crate) scram_sha_256: Option<ScramKeys>,
    pub(crate) scram_sha_1: Option<ScramKeys>,
}

impl HashedPassword {
    /// Hashes a password. Blocks for about as long as a login costs. There are no keys for SCRAM if the password is one
    /// that SASLprep prohibits (binary, control characters).
    ///
    /// # Errors
    /// It cannot be used, or there is no memory for it.
    pub fn of(password: &[u8], scratch: &mut Scratch) -> Result<Self, PasswordError> {
        if password.is_empty() || password.len() > PASSWORD_BYTES_MAX {
            return Err(PasswordError::Length);
        }
        let text = std::str::from_utf8(password).ok();
        let keys =
            |hash| text.and_then(|text| ScramKeys::derive(hash, text, &random::<SCRAM_SALT_BYTES>(), ITERATIONS));
        Ok(Self {
            stored: StoredPassword::hash(password, scratch)?,
            scram_sha_256: keys(ScramHash::Sha256),
            scram_sha_1: keys(ScramHash::Sha1),
        })
    }
}

impl std::fmt::Debug for HashedPassword {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HashedPassword").finish_non_exhaustive()
    }
}

/// Why a password cannot be stored or a stored one cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PasswordError {
    /// Not `$argon2id$…`, nor one of mosquitto's.
    #[error("not a password hash; `fogmux passwd` makes one (plain passwords are never accepted here)")]
    NotPhc,
    /// Parameters beyond what a gateway should spend.
    #[error("a hash that costs too much: above m=262144, t=64, p=16, or 10000000 iterations")]
    TooCostly,
    /// Empty or longer than 1024 bytes.
    #[error("a password has 1 to 1024 bytes")]
    Length,
    /// The operating system gave no random numbers.
    #[error("the operating system gave no random numbers")]
    NoRandomness,
    /// There is no memory to hash it.
    #[error("there is no memory to hash the password")]
    NoMemory,
    /// The hash function refused, which the fixed parameters rule out.
    #[error("the password cannot be hashed")]
    Unusable,
}

/// The form that every mechanism compares: SASLprep (RFC 4013) if the password is such text, otherwise the bytes as
/// they are, because MQTT passwords are binary data ([MQTT-3.1.3.6]).
pub(crate) fn prepare_password(password: &[u8]) -> Cow<'_, [u8]> {
    match std::str::from_utf8(password).map(prepare_text) {
        Ok(Some(Cow::Borrowed(text))) => Cow::Borrowed(text.as_bytes()),
        Ok(Some(Cow::Owned(text))) => Cow::Owned(text.into_bytes()),
        Ok(None) | Err(_) => Cow::Borrowed(password),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_verifies_its_password_and_no_other_and_survives_the_file() {
        let mut scratch = Scratch::new();
        let stored = StoredPassword::hash(b"correct horse", &mut scratch).unwrap();
        let phc = stored.to_text();
        assert!(phc.starts_with("$argon2id$v=19$m=7168,t=5,p=1$"), "{phc}");
        let again = StoredPassword::parse(&phc).unwrap();
        for (password, expected) in [("correct horse", true), ("correct horsf", false), ("", false)] {
            assert_eq!(again.matches(password.as_bytes(), &mut scratch), Ok(expected), "{password:?}");
        }
    }

    #[test]
    fn passwords_are_prepared_and_binary_ones_are_left_alone() {
        // RFC 4013 §3: SOFT HYPHEN maps to nothing, U+2168 is "IX" after NFKC.
        assert_eq!(&*prepare_password("I\u{AD}X".as_bytes()), b"IX");
        assert_eq!(&*prepare_password("\u{2168}".as_bytes()), b"IX");
        assert_eq!(&*prepare_password(b"\xff\x00"), b"\xff\x00");
        let mut scratch = Scratch::new();
        let stored = StoredPassword::hash("\u{2168}".as_bytes(), &mut scratch).unwrap();
        assert_eq!(stored.matches(b"IX", &mut scratch), Ok(true));
    }

    #[test]
    fn plain_passwords_other_algorithms_and_absurd_parameters_are_refused() {
        assert_eq!(StoredPassword::parse("secret").err(), Some(PasswordError::NotPhc));
        assert_eq!(
            StoredPassword::parse("$argon2i$v=19$m=7168,t=5,p=1$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaA").err(),
            Some(PasswordError::NotPhc)
        );
        assert_eq!(
            StoredPassword::parse("$argon2id$v=19$m=4000000,t=5,p=1$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaA").err(),
            Some(PasswordError::TooCostly)
        );
    }
}
