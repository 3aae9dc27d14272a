//! The opening handshake (RFC 6455 §4) and its form over HTTP/2 (RFC 8441 §5).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{CONNECTION, HeaderMap, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE};
use sha1::{Digest as _, Sha1};

use crate::problem::{Kind, Problem};

/// The version of RFC 6455 §4.1.
pub const VERSION: &str = "13";
/// RFC 6455 §1.3.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Why a request opens no WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It does not ask for one.
    #[error("the request is no WebSocket handshake")]
    NotAHandshake,
    /// Another version: 426 with `Sec-WebSocket-Version: 13` (§4.2.2).
    #[error("the WebSocket version is 13")]
    Version,
    /// `Sec-WebSocket-Key` is not sixteen bytes of base64 (§4.2.1).
    #[error("Sec-WebSocket-Key is not sixteen bytes of base64")]
    Key,
}

impl Refused {
    /// The answer to give.
    #[must_use]
    pub fn problem(self) -> Problem<'static> {
        let kind = match self {
            Self::NotAHandshake | Self::Version => Kind::UpgradeRequired,
            Self::Key => Kind::BadRequest,
        };
        Problem::new(kind).detail(self.to_string())
    }
}

/// Whether an HTTP/1.1 request asks for a WebSocket.
#[must_use]
pub fn is_upgrade(headers: &HeaderMap) -> bool {
    has_token(headers, &CONNECTION, "upgrade") && has_token(headers, &UPGRADE, "websocket")
}

/// Checks an HTTP/1.1 handshake and gives the value of `Sec-WebSocket-Accept` (§4.2.2).
pub fn accept(headers: &HeaderMap) -> Result<String, Refused> {
    if !is_upgrade(headers) {
        return Err(Refused::NotAHandshake);
    }
    check_version(headers)?;
    let key = headers.get(SEC_WEBSOCKET_KEY).ok_or(Refused::Key)?.as_bytes().trim_ascii();
    match STANDARD.decode(key) {
        Ok(nonce) if nonce.len() == 16 => Ok(accept_key(key)),
        Ok(_) | Err(_) => Err(Refused::Key),
    }
}

/// Checks the version alone: all that an extended CONNECT has of it (RFC 8441 §5).
pub fn check_version(headers: &HeaderMap) -> Result<(), Refused> {
    match headers.get(SEC_WEBSOCKET_VERSION) {
        Some(version) if version.as_bytes().trim_ascii() == VERSION.as_bytes() => Ok(()),
        Some(_) | None => Err(Refused::Version),
    }
}

/// `Sec-WebSocket-Accept` of a key.
#[must_use]
pub fn accept_key(key: &[u8]) -> String {
    let mut hash = Sha1::new();
    hash.update(key);
    hash.update(GUID);
    STANDARD.encode(hash.finalize())
}

/// The first of the client's subprotocols that we know (§4.2.2: at most one, out of the client's list).
#[must_use]
pub fn subprotocol(headers: &HeaderMap, known: &[&'static str]) -> Option<&'static str> {
    headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .find_map(|offer| known.iter().find(|name| **name == offer.trim()).copied())
}

fn has_token(headers: &HeaderMap, name: &http::HeaderName, token: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .any(|part| part.trim().eq_ignore_ascii_case(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn s1_3_the_example_of_the_standard() {
        assert_eq!(accept_key(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn s4_2_1_what_a_handshake_needs() {
        let good = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "WebSocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        assert!(accept(&headers(&good)).is_ok());
        assert_eq!(accept(&headers(&good[1..])), Err(Refused::NotAHandshake));
        let mut old = good;
        old[2].1 = "8";
        assert_eq!(accept(&headers(&old)), Err(Refused::Version));
        let mut short = good;
        short[3].1 = "AAAA";
        assert_eq!(accept(&headers(&short)), Err(Refused::Key));
    }

    #[test]
    fn s4_2_2_one_of_the_clients_subprotocols() {
        let map = headers(&[("sec-websocket-protocol", "amqp, mqtt")]);
        assert_eq!(subprotocol(&map, &["mqtt", "mqttv3.1"]), Some("mqtt"));
        assert_eq!(subprotocol(&map, &["MQTT"]), None);
    }
}
