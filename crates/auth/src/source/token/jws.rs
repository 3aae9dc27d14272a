//! The envelope of a token: JWS in compact form (RFC 7515 §3.1), with a signature of one of our keys.

use base64::Engine as _;
use serde_json::{Map, Value};

use super::{
    TOKEN_BYTES_MAX,
    key::{Algorithm, BASE64URL, Key},
};
use crate::refused::Refused;

/// Signatures that are tried when the token does not name its key: each costs about a tenth of a millisecond.
const TRIES_MAX: usize = 4;

/// The claims of a token whose signature is good, and the stamp of the key that signed it.
pub(super) fn verified(token: &str, keys: &[Key]) -> Result<(Map<String, Value>, u64), Refused> {
    let Parts { signed, header, payload, signature } = Parts::of(token)?;
    let algorithm = header.get("alg").and_then(Value::as_str).and_then(Algorithm::named).ok_or(Refused::Credentials)?;
    // RFC 7515 §4.1.11: an extension that must be understood is not; RFC 7797's `b64` would be one.
    if header.contains_key("crit") {
        return Err(Refused::Credentials);
    }
    let named = header.get("kid").map(|kid| kid.as_str().ok_or(MALFORMED)).transpose()?;
    let signature = BASE64URL.decode(signature).map_err(|_| MALFORMED)?;
    let mut candidates = keys.iter().filter(|key| key.algorithm() == algorithm && key.may_be(named)).take(TRIES_MAX);
    let key = candidates.find(|key| key.verifies(signed.as_bytes(), &signature)).ok_or(Refused::Credentials)?;
    Ok((object(payload)?, key.stamp()))
}

/// The claims of a well-formed token, of which nothing is verified.
pub(super) fn unverified(token: &str) -> Option<Map<String, Value>> {
    let Parts { header, payload, signature, .. } = Parts::of(token).ok()?;
    header.get("alg").and_then(Value::as_str)?;
    BASE64URL.decode(signature).ok()?;
    object(payload).ok()
}

/// The parts of a token in compact form.
struct Parts<'a> {
    /// Header and payload as they are signed.
    signed: &'a str,
    header: Map<String, Value>,
    payload: &'a str,
    signature: &'a str,
}

impl<'a> Parts<'a> {
    fn of(token: &'a str) -> Result<Self, Refused> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Refused::Malformed("the token is too long"));
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(MALFORMED)?;
        let (header, payload) =
            signed.split_once('.').filter(|(_, payload)| !payload.contains('.')).ok_or(MALFORMED)?;
        Ok(Self { signed, header: object(header)?, payload, signature })
    }
}

const MALFORMED: Refused = Refused::Malformed("not a signed token in compact form");

fn object(part: &str) -> Result<Map<String, Value>, Refused> {
    let json = BASE64URL.decode(part).map_err(|_| MALFORMED)?;
    serde_json::from_slice(&json).map_err(|_| MALFORMED)
}
