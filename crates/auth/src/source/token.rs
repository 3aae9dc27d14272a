//! Signed tokens (JWT, RFC 7519) as credentials: what the claims of a token come to.
//!
//! The issuer is trusted for names, groups and variables of its tokens, and for nothing else. A token counts only with
//! a signature of a key we hold, under the algorithm of that key – what the token says of its algorithm only has to
//! agree – within its dates and for our audience (RFC 8725 §3.1, §3.8, §3.9).

mod jws;
mod key;

use std::{path::PathBuf, sync::Arc, time::Duration};

use serde_json::{Map, Value};

use super::{Credential, Grant, Source, SourceKind, Variables, Verified, vouched};
use crate::{
    principal::Principal,
    problem::Problems,
    refused::Refused,
    users::{Users, checked_name},
};
use key::Key;

/// Longer tokens are refused before anything is decoded.
pub(crate) const TOKEN_BYTES_MAX: usize = 8 << 10;
/// 2025-01-01. Before it, this machine has not heard of the time yet (a Pi has no battery): no date can be judged.
const CLOCK_IS_SET_UNIX_S: u64 = 1_735_689_600;
/// Values of one claim that are kept for rules.
const VALUES_MAX: usize = 64;
/// Claims that say something about the token rather than about its holder (RFC 7519 §4.1), or differ in each token.
const OF_THE_TOKEN: [&str; 8] = ["iss", "aud", "exp", "nbf", "iat", "jti", "nonce", "sid"];

/// Which tokens are believed, and how they are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenSettings {
    /// A JSON Web Key Set (RFC 7517 §5).
    pub jwks_file: Option<PathBuf>,
    /// A public key in PEM, or the text of a secret for HS256.
    pub key_file: Option<PathBuf>,
    /// The required `iss`, if set.
    pub issuer: Option<String>,
    /// `aud` has to hold one of these. A token with an audience is refused when this is empty.
    pub audience: Vec<String>,
    /// The claim that names the user.
    pub user_claim: String,
    /// The claim that lists groups: an array, or words with spaces between.
    pub groups_claim: String,
    /// Whether a token without `exp` is refused.
    pub expiry_required: bool,
    /// By how much clocks may differ.
    pub leeway: Duration,
}

impl Default for TokenSettings {
    fn default() -> Self {
        Self {
            jwks_file: None,
            key_file: None,
            issuer: None,
            audience: Vec::new(),
            user_claim: "sub".into(),
            groups_claim: "groups".into(),
            expiry_required: true,
            leeway: Duration::from_secs(60),
        }
    }
}

impl TokenSettings {
    /// Whether there are keys, without which no token is believed.
    #[must_use]
    pub fn is_configured(&self) -> bool {
        self.jwks_file.is_some() || self.key_file.is_some()
    }
}

/// Keys and rules for tokens.
#[derive(Default)]
pub struct Tokens {
    keys: Vec<Key>,
    settings: TokenSettings,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens").field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}

impl Tokens {
    /// Reads the keys that the settings name.
    ///
    /// # Errors
    /// A file is missing or holds no usable key.
    pub fn load(settings: &TokenSettings) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let mut keys = Vec::new();
        let mut note = |found: Result<Vec<Key>, Problems>| match found {
            Ok(found) => keys.extend(found),
            Err(found) => problems.0.extend(found.0),
        };
        let read = |path: &PathBuf| {
            fogmux_file::read(path).map_err(|error| Problems::of_file(path, format!("cannot be read: {error}")))
        };
        if let Some(path) = &settings.jwks_file {
            note(read(path).and_then(|text| key::read_set(path, &text)));
        }
        if let Some(path) = &settings.key_file {
            note(read(path).and_then(|text| key::read_one(path, &text).map(|key| vec![key])));
        }
        problems.unless_any(Self { keys, settings: settings.clone() })
    }

    /// With keys from texts instead of files.
    ///
    /// # Errors
    /// The set holds no usable key.
    pub fn with_key_set(settings: TokenSettings, key_set: &[u8]) -> Result<Self, Problems> {
        Ok(Self { keys: key::read_set(std::path::Path::new("jwks"), key_set)?, settings })
    }

    /// Whether any token can be believed.
    #[must_use]
    pub fn is_configured(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Whether the key that signed the token of that principal is still there.
    pub(crate) fn holds_key_of(&self, principal: &Principal) -> bool {
        self.keys.iter().any(|key| key.stamp() == principal.proof)
    }

    fn verify(&self, token: &str, now_unix_s: u64, users: &Users) -> Result<Verified, Refused> {
        let (claims, key) = jws::verified(token, &self.keys)?;
        self.check_dates(&claims, now_unix_s)?;
        self.check_parties(&claims)?;
        let user = claims.get(&*self.settings.user_claim).and_then(Value::as_str).ok_or(Refused::Barred)?;
        let groups = words(claims.get(&*self.settings.groups_claim));
        let groups = groups.iter().filter_map(|group| checked_name(group).ok()).map(Arc::from).collect();
        let variables = Some(self.variables(&claims)).filter(|found| !found.is_empty()).map(Arc::new);
        let grant = Grant { groups, variables };
        let principal = vouched(users, SourceKind::Token, user, grant).map_err(|_| Refused::Barred)?;
        let principal = principal.proven_by(key);
        let expires_unix_s = date(&claims, "exp")?.map(|exp| exp.saturating_add(self.leeway()));
        Ok(Verified { principal, expires_unix_s })
    }

    /// The user that a well-formed token names, for a log: nothing of it is verified.
    pub(crate) fn claimed_user(&self, token: &str) -> Option<String> {
        match jws::unverified(token)?.remove(&*self.settings.user_claim)? {
            Value::String(user) => Some(user),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }

    fn leeway(&self) -> u64 {
        self.settings.leeway.as_secs()
    }

    /// RFC 7519 §4.1.4, §4.1.5: not on or after `exp`, not before `nbf`. A token that was issued in the future is
    /// refused too: our clock is wrong then, and `exp` cannot be judged.
    fn check_dates(&self, claims: &Map<String, Value>, now_unix_s: u64) -> Result<(), Refused> {
        let expired = match date(claims, "exp")? {
            Some(exp) => now_unix_s >= exp.saturating_add(self.leeway()),
            None => self.settings.expiry_required,
        };
        let early = date(claims, "nbf")?.is_some_and(|nbf| now_unix_s.saturating_add(self.leeway()) < nbf);
        let later = date(claims, "iat")?.is_some_and(|iat| now_unix_s.saturating_add(self.leeway()) < iat);
        let unset = now_unix_s < CLOCK_IS_SET_UNIX_S;
        if expired || early || later || unset { Err(Refused::Barred) } else { Ok(()) }
    }

    /// RFC 7519 §4.1.3: a token for others is not for us.
    fn check_parties(&self, claims: &Map<String, Value>) -> Result<(), Refused> {
        let issuer = self.settings.issuer.as_deref();
        let issued = issuer.is_none_or(|issuer| claims.get("iss").and_then(Value::as_str) == Some(issuer));
        let ours = |name: &Value| name.as_str().is_some_and(|name| self.settings.audience.iter().any(|us| us == name));
        let meant = match claims.get("aud") {
            None => self.settings.audience.is_empty(),
            Some(Value::Array(names)) => names.iter().any(ours),
            Some(name) => ours(name),
        };
        if issued && meant { Ok(()) } else { Err(Refused::Barred) }
    }

    /// The claims that rules may use as `%{claim}`.
    fn variables(&self, claims: &Map<String, Value>) -> Variables {
        let about_holder = |name: &str| !OF_THE_TOKEN.contains(&name) && *name != *self.settings.groups_claim;
        let kept = claims.iter().filter(|(name, _)| about_holder(name)).filter_map(|(name, value)| {
            let values: Box<[Box<str>]> = match value {
                Value::String(text) => [text.as_str().into()].into(),
                Value::Number(number) => [number.to_string().into()].into(),
                Value::Array(list) => list.iter().filter_map(Value::as_str).take(VALUES_MAX).map(Box::from).collect(),
                Value::Null | Value::Bool(_) | Value::Object(_) => return None,
            };
            Some((name.as_str().into(), values))
        });
        kept.collect()
    }
}

impl Source for Tokens {
    fn kind(&self) -> SourceKind {
        SourceKind::Token
    }

    fn judge(&self, credential: &Credential<'_>, users: &Users) -> Option<Result<Verified, Refused>> {
        match credential {
            Credential::Token { token, now_unix_s } => Some(self.verify(token, *now_unix_s, users)),
            Credential::Certificate(_) | Credential::Psk { .. } | Credential::Oscore(_) => None,
        }
    }

    /// The sessions of a principal that a token let in stay as long as tokens are taken at all. Connections end with
    /// the key that signed the token, or when the token expires.
    fn admits(&self, _: &Principal, _: &Users) -> bool {
        self.is_configured()
    }
}

/// Whether a password has the form of a token: three parts, of which the first begins as a JSON object in base64url.
#[must_use]
pub fn looks_like_token(password: &[u8]) -> bool {
    // `{"`, and `{` with white space after it.
    (password.starts_with(b"ey") || password.starts_with(b"ew"))
        && password.iter().filter(|byte| **byte == b'.').count() == 2
        && password.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// Bytes of the first part of the shortest token, `{"alg":"none"}` in base64url, less a few.
const HEAD_BYTES: usize = 16;

/// Whether a text that a peer chose holds a token somewhere: with `Bearer ` before it, or a line break behind it. Such
/// a text is not logged.
#[must_use]
pub fn holds_token(text: &str) -> bool {
    let is_of_token = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    // Each byte is looked at a fixed number of times: a client identifier may have 65 535 of them.
    text.as_bytes().split(|byte| !is_of_token(byte)).any(|run| {
        let parts = run.split(|byte| *byte == b'.');
        parts.clone().zip(parts.skip(2)).any(|(head, _)| begins_token(head))
    })
}

/// Whether the end of a part, before its dot, may be the first part of a token.
fn begins_token(part: &[u8]) -> bool {
    let starts = part.get(..(part.len() + 2).saturating_sub(HEAD_BYTES)).unwrap_or_default();
    starts.windows(2).any(|start| matches!(start, b"ey" | b"ew"))
}

/// A NumericDate (RFC 7519 §2): seconds, perhaps with a fraction. Anything else in its place is no token of ours.
fn date(claims: &Map<String, Value>, name: &str) -> Result<Option<u64>, Refused> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    if let Some(whole) = value.as_u64() {
        return Ok(Some(whole));
    }
    match value.as_f64() {
        #[expect(clippy::cast_possible_truncation, reason = "the float is within the range")]
        #[expect(clippy::cast_sign_loss, reason = "the float is not negative")]
        Some(seconds) if (0.0..1e15).contains(&seconds) => Ok(Some(seconds as u64)),
        Some(seconds) if seconds < 0.0 => Ok(Some(0)),
        Some(_) | None => Err(Refused::Barred),
    }
}

/// The words of a claim: an array of strings, or one string with spaces between (as `scope` in RFC 8693 §4.2).
fn words(claim: Option<&Value>) -> Vec<&str> {
    match claim {
        Some(Value::String(text)) => text.split(' ').filter(|word| !word.is_empty()).take(VALUES_MAX).collect(),
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).take(VALUES_MAX).collect(),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
