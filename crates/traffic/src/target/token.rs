//! A bearer token, and the key by which the gateway believes it: what an issuer of tokens would have made.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fogmux_net::channel::Zeroizing;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::json;
use sha2::Sha256;

/// Longer than any experiment.
const GOOD_FOR: Duration = Duration::from_secs(30 * 86_400);

/// A token for a user (RFC 7519), by HS256 (RFC 7518 §3.2). `key` is the text of the gateway's `auth.token.key_file`.
pub(super) fn made(key: &str, user: &str, now: SystemTime) -> Zeroizing<String> {
    let expires = (now + GOOD_FOR).duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let part = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed =
        format!("{}.{}", part(json!({"alg": "HS256", "typ": "JWT"})), part(json!({"sub": user, "exp": expires})));
    #[expect(clippy::expect_used, reason = "HMAC takes keys of any length (RFC 2104 §3)")]
    let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).expect("any length");
    mac.update(signed.as_bytes());
    Zeroizing::new(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_three_parts_and_another_key_another_signature() {
        let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let (first, second) = (made("one", "bench", now), made("two", "bench", now));
        let (head, signature) = first.rsplit_once('.').unwrap();
        assert_eq!(head.split('.').count(), 2);
        assert!(second.starts_with(head) && !second.ends_with(signature));
    }
}
