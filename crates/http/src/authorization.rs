//! The `Authorization` field with the Basic scheme (RFC 7617).

use std::fmt;

use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Longest credentials that are looked at, encoded. Longer ones are wrong ones.
pub const ENCODED_BYTES_MAX: usize = 2048;

/// The challenge of a 401 (RFC 7617 §2, §2.1).
pub const CHALLENGE: &str = "Basic realm=\"fogmux\", charset=\"UTF-8\"";

/// RFC 7235 §2.1's `token68` leaves the padding open; clients do too.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A name and a password. `Debug` shows the name only.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user-id, which has no colon.
    pub user: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Why an `Authorization` says nothing usable. All of them are answered with 401 and the challenge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// Another scheme than Basic.
    #[error("the scheme is not Basic")]
    Scheme,
    /// Not base64 of UTF-8 with a colon.
    #[error("the credentials are malformed")]
    Malformed,
}

/// Reads the field's value.
pub fn parse(value: &[u8]) -> Result<Credentials, Unusable> {
    let value = value.trim_ascii();
    let at = value.iter().position(|&byte| byte == b' ').ok_or(Unusable::Scheme)?;
    let (scheme, encoded) = value.split_at_checked(at).ok_or(Unusable::Scheme)?;
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return Err(Unusable::Scheme);
    }
    let encoded = encoded.trim_ascii();
    if encoded.len() > ENCODED_BYTES_MAX {
        return Err(Unusable::Malformed);
    }
    let decoded = BASE64.decode(encoded).map_err(|_| Unusable::Malformed)?;
    let text = String::from_utf8(decoded).map_err(|_| Unusable::Malformed)?;
    // RFC 7617 §2: the first colon ends the user-id; control characters are not allowed.
    if text.chars().any(char::is_control) {
        return Err(Unusable::Malformed);
    }
    let (user, password) = text.split_once(':').ok_or(Unusable::Malformed)?;
    Ok(Credentials { user: user.to_owned(), password: password.to_owned() })
}

/// Builds the field's value, for a client.
#[must_use]
pub fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", BASE64.encode(format!("{user}:{password}")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn s2_the_example_of_the_standard() {
        let credentials = parse(b"Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==").unwrap();
        assert_eq!((credentials.user.as_str(), credentials.password.as_str()), ("Aladdin", "open sesame"));
        assert_eq!(parse(b"basic  dGVzdDoxMjPCow").unwrap().password, "123\u{a3}");
        assert!(!format!("{credentials:?}").contains("sesame"));
    }

    #[test]
    fn what_is_no_basic_is_refused() {
        assert_eq!(parse(b"Bearer abc"), Err(Unusable::Scheme));
        assert_eq!(parse(b"Basic"), Err(Unusable::Scheme));
        assert_eq!(parse(b"Basic bm9jb2xvbg=="), Err(Unusable::Malformed));
        assert_eq!(parse(b"Basic ****"), Err(Unusable::Malformed));
    }

    proptest! {
        #[test]
        fn credentials_round_trip(user in "[^:\\p{Cc}]{0,20}", password in "\\P{Cc}{0,20}") {
            prop_assert_eq!(parse(basic(&user, &password).as_bytes()), Ok(Credentials { user, password }));
        }

        #[test]
        fn any_bytes_are_answered(value in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = parse(&value);
        }
    }
}
