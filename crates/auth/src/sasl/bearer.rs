//! The messages of OAUTHBEARER (RFC 7628): a token in, JSON and a kiss out.

use crate::refused::Refused;

/// Between and after the key-value pairs (RFC 7628 §3.1).
const SEPARATOR: char = '\u{1}';
/// The server's error for a token that it does not take (§3.2.2, with a code of RFC 6750 §3.1).
pub(super) const INVALID_TOKEN: &[u8] = br#"{"status":"invalid_token"}"#;

/// The client's first message.
pub struct Bearer<'a> {
    /// The identity to act as; none for the token's own.
    pub authzid: Option<String>,
    /// The token.
    pub token: &'a str,
}

impl<'a> Bearer<'a> {
    /// Reads `gs2-header kvsep *kvpair kvsep`.
    ///
    /// # Errors
    /// It is not of that grammar, asks for channel binding, or has no bearer token in it.
    pub fn parse(message: &'a [u8]) -> Result<Self, Refused> {
        let malformed = Refused::Malformed("OAUTHBEARER message");
        let text = std::str::from_utf8(message).map_err(|_| malformed)?;
        let (header, pairs) = text.split_once(SEPARATOR).ok_or(malformed)?;
        let mut header = header.split(',');
        let (flag, authzid, rest) = (header.next(), header.next(), header.next());
        match flag {
            Some("n" | "y") if rest == Some("") && header.next().is_none() => {}
            Some(flag) if flag.starts_with("p=") => return Err(Refused::ChannelBinding),
            Some(_) | None => return Err(malformed),
        }
        let authzid = match authzid.unwrap_or_default() {
            "" => None,
            named => {
                let encoded = named.strip_prefix("a=").ok_or(malformed)?;
                Some(crate::scram::decode_name(encoded).map_err(|_| malformed)?)
            }
        };
        let pairs = pairs.strip_suffix("\u{1}\u{1}").ok_or(malformed)?;
        let mut token = None;
        for pair in pairs.split(SEPARATOR) {
            let (key, value) = pair.split_once('=').filter(|(key, _)| is_key(key)).ok_or(malformed)?;
            if key == "auth" && token.replace(value).is_some() {
                return Err(malformed);
            }
        }
        // RFC 7235 §2.1: the scheme's case does not count.
        let (scheme, token) = token.and_then(|value| value.split_once(' ')).ok_or(Refused::Credentials)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(Refused::Credentials);
        }
        Ok(Self { authzid, token: token.trim_matches(' ') })
    }

    /// The message for a client to send.
    #[must_use]
    pub fn encode(token: &str, host: &str, port: u16) -> Vec<u8> {
        format!("n,,{SEPARATOR}host={host}{SEPARATOR}port={port}{SEPARATOR}auth=Bearer {token}{SEPARATOR}{SEPARATOR}")
            .into_bytes()
    }

    /// The answer of a client to a server that told it why not: this, and then the failure comes (§3.2.3).
    pub const KISS: &'static [u8] = b"\x01";
}

fn is_key(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rfc7628_s4_the_examples() {
        let message = b"n,a=user@example.com,\x01host=server.example.com\x01port=143\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01\x01";
        let bearer = Bearer::parse(message).unwrap();
        assert_eq!(bearer.authzid.as_deref(), Some("user@example.com"));
        assert_eq!(bearer.token, "vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==");
        let own = Bearer::encode("abc", "localhost", 5222);
        assert_eq!(own, b"n,,\x01host=localhost\x01port=5222\x01auth=Bearer abc\x01\x01");
        assert_eq!(Bearer::parse(&own).unwrap().token, "abc");
        assert!(Bearer::parse(b"y,,\x01auth=bEARER  abc\x01\x01").is_ok_and(|bearer| bearer.token == "abc"));
    }

    #[test]
    fn what_is_no_message() {
        for (message, refused) in [
            (&b""[..], Refused::Malformed("OAUTHBEARER message")),
            (b"\x01", Refused::Malformed("OAUTHBEARER message")),
            (b"n,,\x01auth=Bearer a\x01", Refused::Malformed("OAUTHBEARER message")),
            (b"n,,auth=Bearer a\x01\x01", Refused::Malformed("OAUTHBEARER message")),
            (b"n,b=x,\x01auth=Bearer a\x01\x01", Refused::Malformed("OAUTHBEARER message")),
            (b"n,,,\x01auth=Bearer a\x01\x01", Refused::Malformed("OAUTHBEARER message")),
            (b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01", Refused::Malformed("OAUTHBEARER message")),
            (b"n,,\x01=x\x01\x01", Refused::Malformed("OAUTHBEARER message")),
            (b"p=tls-exporter,,\x01auth=Bearer a\x01\x01", Refused::ChannelBinding),
            (b"n,,\x01host=a\x01\x01", Refused::Credentials),
            (b"n,,\x01auth=Basic a\x01\x01", Refused::Credentials),
            (b"n,,\x01auth=Bearer\x01\x01", Refused::Credentials),
        ] {
            assert_eq!(Bearer::parse(message).err(), Some(refused), "{:?}", String::from_utf8_lossy(message));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..80), text in "[ny,a=\x01Ber ]{0,40}") {
            let _ = Bearer::parse(&bytes);
            let _ = Bearer::parse(text.as_bytes());
        }

        #[test]
        fn tokens_round_trip(token in "[A-Za-z0-9._~+/-]{1,60}=?") {
            let message = Bearer::encode(&token, "h", 1);
            prop_assert_eq!(Bearer::parse(&message).unwrap().token, token);
        }
    }
}
