//! The `Authorization` field with the Basic (RFC 7617) and Bearer (RFC 6750) schemes, and the challenges for them.

use std::fmt;

use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Longest name and password that are looked at, encoded. Longer ones are wrong ones.
pub const ENCODED_BYTES_MAX: usize = 2048;

/// The challenge of a 401 for a name and a password (RFC 7617 §2, §2.1).
pub const BASIC: &str = "Basic realm=\"fogmux\", charset=\"UTF-8\"";
/// The challenge for a token, when none was shown (RFC 6750 §3).
pub const BEARER: &str = "Bearer realm=\"fogmux\"";
/// The same when one was shown that is not believed (RFC 6750 §3.1).
pub const BEARER_INVALID: &str = "Bearer realm=\"fogmux\", error=\"invalid_token\"";

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

/// The credentials in an `Authorization` field. `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq)]
pub enum Authorization<'a> {
    /// A name and a password.
    Basic(Credentials),
    /// A Bearer token.
    Bearer(&'a str),
}

impl fmt::Debug for Authorization<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Basic(credentials) => credentials.fmt(formatter),
            Self::Bearer(_) => formatter.write_str("Bearer"),
        }
    }
}

/// Why an `Authorization` says nothing usable. All of them are answered with 401 and the challenge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// Another scheme.
    #[error("the scheme is neither Basic nor Bearer")]
    Scheme,
    /// Not base64 of UTF-8 with a colon, or no token.
    #[error("the credentials are malformed")]
    Malformed,
}

/// Reads the field's value.
pub fn parse(value: &[u8]) -> Result<Authorization<'_>, Unusable> {
    let value = value.trim_ascii();
    let at = value.iter().position(|&byte| byte == b' ').ok_or(Unusable::Scheme)?;
    let (scheme, credentials) = value.split_at_checked(at).ok_or(Unusable::Scheme)?;
    let credentials = credentials.trim_ascii();
    if scheme.eq_ignore_ascii_case(b"basic") {
        basic_credentials(credentials).map(Authorization::Basic)
    } else if scheme.eq_ignore_ascii_case(b"bearer") {
        token68(credentials).map(Authorization::Bearer)
    } else {
        Err(Unusable::Scheme)
    }
}

/// RFC 6750 §2.1: `b64token`.
fn token68(token: &[u8]) -> Result<&str, Unusable> {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(byte);
    let text = std::str::from_utf8(token).ok().filter(|text| !text.is_empty() && text.as_bytes().iter().all(allowed));
    text.ok_or(Unusable::Malformed)
}

fn basic_credentials(encoded: &[u8]) -> Result<Credentials, Unusable> {
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

    fn basic_of(value: &[u8]) -> Credentials {
        match parse(value).unwrap() {
            Authorization::Basic(credentials) => credentials,
            Authorization::Bearer(token) => panic!("{token}"),
        }
    }

    #[test]
    fn rfc7617_s2_the_example_of_the_standard() {
        let credentials = basic_of(b"Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert_eq!((credentials.user.as_str(), credentials.password.as_str()), ("Aladdin", "open sesame"));
        assert_eq!(basic_of(b"basic  dGVzdDoxMjPCow").password, "123\u{a3}");
        assert!(!format!("{credentials:?}").contains("sesame"));
    }

    #[test]
    fn rfc6750_s2_1_a_bearer_token() {
        let token = parse(b"bearer mF_9.B5f-4.1JqM").unwrap();
        assert_eq!(token, Authorization::Bearer("mF_9.B5f-4.1JqM"));
        assert_eq!(format!("{token:?}"), "Bearer");
        for wrong in [&b"Bearer "[..], b"Bearer a b", b"Bearer a,b", b"Bearer \xff"] {
            assert!(parse(wrong).is_err());
        }
    }

    #[test]
    fn what_is_neither_is_refused() {
        assert_eq!(parse(b"Negotiate abc"), Err(Unusable::Scheme));
        assert_eq!(parse(b"Basic"), Err(Unusable::Scheme));
        assert_eq!(parse(b"Basic bm9jb2xvbg=="), Err(Unusable::Malformed));
        assert_eq!(parse(b"Basic ****"), Err(Unusable::Malformed));
    }

    proptest! {
        #[test]
        fn credentials_round_trip(user in "[^:\\p{Cc}]{0,20}", password in "\\P{Cc}{0,20}") {
            let value = basic(&user, &password);
            prop_assert_eq!(parse(value.as_bytes()), Ok(Authorization::Basic(Credentials { user, password })));
        }

        #[test]
        fn any_bytes_are_answered(value in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = parse(&value);
        }
    }
}
