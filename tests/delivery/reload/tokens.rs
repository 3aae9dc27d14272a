//! Signed tokens: each key of `[auth.token]`, by the status that a GET over HTTP gets.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::suite::Case;
use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::sign::Signer;
use serde_json::{Value, json};

use super::credentials::private;
use super::{Row, Subject, get, quoted};

pub(super) const TOKENS: Row = Row {
    keys: &[
        "auth.token.jwks_file",
        "auth.token.key_file",
        "auth.token.issuer",
        "auth.token.audience",
        "auth.token.user_claim",
        "auth.token.groups_claim",
        "auth.token.expiry_required",
        "auth.token.leeway",
    ],
    case: Case { name: "reload: each key of auth.token", run: tokens },
};

const OF_SET: &str = "a secret of the set, which is long enough";
const OF_FILE: &str = "a secret of the file, which is long enough";

/// RFC 4648 §5, without padding.
fn base64url(bytes: &[u8]) -> String {
    openssl::base64::encode_block(bytes).replace('+', "-").replace('/', "_").replace('=', "")
}

/// A token of HS256 (RFC 7515 §3.1) as the header of RFC 6750.
fn bearer(secret: &str, claims: &Value) -> Result<String> {
    let header = json!({"alg": "HS256", "kid": "1"}).to_string();
    let text = format!("{}.{}", base64url(header.as_bytes()), base64url(claims.to_string().as_bytes()));
    let key = PKey::hmac(secret.as_bytes())?;
    let mut signer = Signer::new(MessageDigest::sha256(), &key)?;
    signer.update(text.as_bytes())?;
    Ok(format!("Authorization: Bearer {text}.{}\r\n", base64url(&signer.sign_to_vec()?)))
}

fn now_s() -> Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())
}

fn tokens() -> Result<String> {
    let place = tempfile::tempdir()?;
    let (set, file) = (place.path().join("jwks.json"), place.path().join("key"));
    let key = json!({"kty": "oct", "alg": "HS256", "kid": "1", "k": base64url(OF_SET.as_bytes())});
    private(&set, &json!({"keys": [key]}).to_string())?;
    private(&file, &format!("{OF_FILE}\n"))?;
    let rules = "[[allow]]\nuser = \"alice\"\nread = [\"a\"]\n[[allow]]\ngroup = \"ops\"\nread = [\"ops\"]\n";
    let mut subject = Subject::start(&[], &[("acl.toml", rules)])?;
    let end = now_s()? + 3600;
    let at = |topic: &'static str, secret: &'static str, claims: Value| {
        move |gateway: &Gateway| -> Result<u16> { Ok(get(gateway, topic, &bearer(secret, &claims)?)?.0) }
    };
    let alice = json!({"sub": "alice", "exp": end});
    let with = |name: &str, value: Value| {
        let mut claims = alice.clone();
        if let Some(members) = claims.as_object_mut() {
            members.insert(name.to_owned(), value);
        }
        claims
    };
    subject.changes(("auth.token.jwks_file", &quoted(&set)), (401, 404), at("a", OF_SET, alice.clone()))?;
    subject.changes(("auth.token.key_file", &quoted(&file)), (401, 404), at("a", OF_FILE, alice.clone()))?;
    subject.changes(("auth.token.issuer", "\"y\""), (404, 401), at("a", OF_FILE, with("iss", json!("x"))))?;
    subject.set("auth.token.issuer", "\"\"")?;
    let for_us = with("aud", json!("fog"));
    subject.changes(("auth.token.audience", "[\"fog\"]"), (401, 404), at("a", OF_FILE, for_us))?;
    subject.set("auth.token.audience", "[]")?;
    let named = json!({"sub": "bob", "name": "alice", "exp": end});
    subject.changes(("auth.token.user_claim", "\"name\""), (403, 404), at("a", OF_FILE, named))?;
    subject.set("auth.token.user_claim", "\"sub\"")?;
    let grouped = with("roles", json!(["ops"]));
    subject.changes(("auth.token.groups_claim", "\"roles\""), (403, 404), at("ops", OF_FILE, grouped))?;
    let endless = json!({"sub": "alice"});
    subject.changes(("auth.token.expiry_required", "false"), (401, 404), at("a", OF_FILE, endless))?;
    let over = json!({"sub": "alice", "exp": now_s()? - 120});
    subject.changes(("auth.token.leeway", "\"10m\""), (401, 404), at("a", OF_FILE, over))?;
    let forged = at("a", "a secret of nobody that is long enough", alice.clone())(&subject.gateway)?;
    ensure!(forged == 401, "{forged} for a token of nobody");
    Ok(String::new())
}
