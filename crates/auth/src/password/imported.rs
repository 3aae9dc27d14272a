//! Password hashes of `mosquitto_passwd`, verified and never made: `$6$salt$hash`, one SHA-512 over password and salt,
//! and `$7$iterations$salt$hash`, PBKDF2 with HMAC-SHA-512 (RFC 8018 §5.2), all in base64.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha512};
use subtle::ConstantTimeEq as _;

use super::PasswordError;

const ITERATIONS_MAX: u32 = 10_000_000;
const SALT_BYTES_MAX: usize = 256;
/// The output of SHA-512, and one block of PBKDF2.
const OUTPUT_BYTES: usize = 64;

/// A hash as mosquitto writes it.
#[derive(Clone)]
pub(crate) struct Imported {
    /// None for the single SHA-512 of `$6$`.
    iterations: Option<u32>,
    salt: Box<[u8]>,
    output: [u8; OUTPUT_BYTES],
}

impl Imported {
    pub(super) fn parse(text: &str) -> Result<Self, PasswordError> {
        let mut parts = text.split('$').skip(1);
        let iterations = match parts.next() {
            Some("6") => None,
            Some("7") => {
                let count = parts.next().and_then(|count| count.parse().ok()).filter(|count| *count > 0);
                Some(count.ok_or(PasswordError::NotPhc)?)
            }
            Some(_) | None => return Err(PasswordError::NotPhc),
        };
        if iterations.is_some_and(|count| count > ITERATIONS_MAX) {
            return Err(PasswordError::TooCostly);
        }
        let mut bytes = || parts.next().and_then(|part| STANDARD.decode(part).ok()).ok_or(PasswordError::NotPhc);
        let salt = bytes()?;
        let output = bytes()?.try_into().map_err(|_| PasswordError::NotPhc)?;
        if parts.next().is_some() || !(1..=SALT_BYTES_MAX).contains(&salt.len()) {
            return Err(PasswordError::NotPhc);
        }
        Ok(Self { iterations, salt: salt.into(), output })
    }

    pub(super) fn to_text(&self) -> String {
        let (salt, output) = (STANDARD.encode(&self.salt), STANDARD.encode(self.output));
        match self.iterations {
            None => format!("$6${salt}${output}"),
            Some(count) => format!("$7${count}${salt}${output}"),
        }
    }

    pub(super) fn matches(&self, password: &[u8]) -> bool {
        let output: [u8; OUTPUT_BYTES] = match self.iterations {
            None => Sha512::new().chain_update(password).chain_update(&self.salt).finalize().into(),
            Some(iterations) => pbkdf2(password, &self.salt, iterations),
        };
        output.ct_eq(&self.output).into()
    }
}

fn pbkdf2(password: &[u8], salt: &[u8], iterations: u32) -> [u8; OUTPUT_BYTES] {
    let keyed = Hmac::<Sha512>::new_from_slice(password).expect("HMAC takes keys of any length");
    let first = keyed.clone().chain_update(salt).chain_update(1_u32.to_be_bytes());
    let mut round: [u8; OUTPUT_BYTES] = first.finalize().into_bytes().into();
    let mut sum = round;
    for _ in 1..iterations {
        round = keyed.clone().chain_update(round).finalize().into_bytes().into();
        for (to, from) in sum.iter_mut().zip(round) {
            *to ^= from;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    // Written by mosquitto_passwd 2.0 for the password "secret".
    const HASHES: [&str; 2] = [
        "$7$101$Crmx7QrRoGqjVE6Y$Q79G2lGg1cCy76WxrRmLiY4jZEkwRv+kWg0NYjEj87RXFkfGUe1WKprhiKK8eIYstNQr5NAGx0MfPRPzdT4IIQ==",
        "$6$ep2ynmhUMT//sR7p$3bmTwYdRx5CnO/cfpldDIMaofZaN0du8dXfjYSE88ulhlNxRGdaKLMLxtPOjaTs7Ojo3gXIws5dLllnZFwRpzw==",
    ];

    #[test]
    fn mosquittos_hashes_are_verified_and_survive_the_file() {
        for text in HASHES {
            let stored = Imported::parse(text).unwrap();
            assert_eq!(stored.to_text(), text);
            assert!(stored.matches(b"secret"), "{text}");
            assert!(!stored.matches(b"Secret") && !stored.matches(b""));
        }
    }

    #[test]
    fn what_is_no_hash_or_costs_too_much() {
        for text in ["$6$", "$6$$", "$7$1$AA==$AA==", "$7$x$AA==$AA==", "$8$AA==$AA=="] {
            assert_eq!(Imported::parse(text).err(), Some(PasswordError::NotPhc), "{text}");
        }
        let costly = Imported::parse(&format!("$7$4000000000$AA==${}", STANDARD.encode([0; 64])));
        assert_eq!(costly.err(), Some(PasswordError::TooCostly));
    }
}
