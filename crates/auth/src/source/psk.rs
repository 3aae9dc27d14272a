//! Pre-shared keys of TLS and DTLS (RFC 4279, RFC 8446 §4.2.11): the keys, and whose they are.
//!
//! ```toml
//! [[psk]]
//! identity = "sensor-1"       # or identity_hex, when it is no text
//! key = "6b6579…"             # hexadecimal
//! user = "sensor-1"           # left out: the identity
//! ```
//!
//! An identity that is not there gets a key that nobody has, the same one every time (RFC 4279 §2 allows it): the
//! handshake fails as it does with a wrong key, and does not tell which identities exist.

use std::{collections::BTreeMap, fmt::Write as _, hash::BuildHasher as _, io, path::Path, sync::LazyLock};

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use foldhash::quality::RandomState;
use toml::{Spanned, de::DeValue};
use zeroize::Zeroizing;

use super::{Credential, Grant, Source, SourceKind, Verified, certificate, vouched};
use crate::{
    edit::replace_file,
    principal::Principal,
    private_file,
    problem::{Problems, Review},
    random::random,
    refused::Refused,
    scram::ScramHash,
    users::{UserError, Users, checked_user, quoted},
};

/// RFC 4279 §5.3 asks for keys of up to 64 bytes and identities of up to 128; both may be longer.
const KEY_BYTES_MAX: usize = 256;
const IDENTITY_BYTES_MAX: usize = 1024;
/// RFC 9257 §6: a key should have at least 128 bits of entropy.
const KEY_BYTES_ADVISED: usize = 16;

/// The keys by identity.
#[derive(Clone)]
pub struct Psks {
    by_identity: BTreeMap<Box<[u8]>, Psk>,
    /// Makes the keys of identities that do not exist.
    decoy_secret: [u8; 32],
}

#[derive(Clone)]
struct Psk {
    key: Zeroizing<Vec<u8>>,
    /// The identity when nothing else was said.
    user: Option<Box<str>>,
}

/// A key for a handshake.
pub struct PskSecret {
    /// The key.
    pub key: Zeroizing<Vec<u8>>,
    /// Tells it from other keys, within this process. It goes with whatever the handshake makes, and
    /// [`Authority::psk`](crate::Authority::psk) takes it together with the identity.
    pub mark: u64,
}

impl std::fmt::Debug for PskSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PskSecret").finish_non_exhaustive()
    }
}

impl Default for Psks {
    fn default() -> Self {
        Self { by_identity: BTreeMap::new(), decoy_secret: random() }
    }
}

impl std::fmt::Debug for Psks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Psks").field("identities", &self.by_identity.len()).finish_non_exhaustive()
    }
}

impl Psks {
    /// Reads a key file; one that does not exist holds no keys.
    ///
    /// # Errors
    /// Everything that is wrong with it, with its lines and without its keys.
    pub fn load(path: &Path) -> Result<Self, Problems> {
        match private_file::read(path) {
            Ok(Some(text)) => {
                private_file::warn_if_open(path);
                let psks = Self::parse(path, &text)?;
                psks.warn_of_short_keys(path);
                Ok(psks)
            }
            Ok(None) => Ok(Self::default()),
            Err(error) => Err(Problems::of_file(path, format!("cannot be read: {error}"))),
        }
    }

    /// Reads the text of a key file; `path` is only named in problems.
    ///
    /// # Errors
    /// Everything that is wrong with it, with its lines.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Problems> {
        let mut review = Review::new(path, text);
        let table = review.parse();
        let mut psks = Self::default();
        for (key, value) in &table {
            match (key.get_ref().as_ref(), value.get_ref()) {
                ("psk", DeValue::Array(list)) => {
                    for entry in list.iter() {
                        read_entry(&mut review, &mut psks, entry);
                    }
                }
                ("psk", _) => review.report(value.span(), "write [[psk]], with two brackets"),
                (other, _) => review.report(key.span(), format!("unknown key {other:?}; known: [[psk]]")),
            }
        }
        review.problems.unless_any(psks)
    }

    /// Writes the file anew, with its owner and mode; one that is made is for its owner only.
    ///
    /// # Errors
    /// The directory or disk does not allow it.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        replace_file(path, self.to_text().as_bytes())
    }

    /// Loads, changes and saves under a lock file, so that two commands at once lose nothing.
    ///
    /// # Errors
    /// The file is broken, the change fails, or the disk does not allow it; then nothing was written.
    pub fn update<T>(path: &Path, change: impl FnOnce(&mut Self) -> Result<T, UserError>) -> Result<T, UserError> {
        let _lock = private_file::lock(path)?;
        let mut psks = Self::load(path)?;
        let changed = change(&mut psks)?;
        psks.save(path)?;
        Ok(changed)
    }

    /// Adds or replaces a key. The user is the identity when left out, which then has to be text.
    ///
    /// # Errors
    /// Identity, key or user cannot be used.
    pub fn set(&mut self, identity: &[u8], key: &[u8], user: Option<&str>) -> Result<(), UserError> {
        let name = user.or_else(|| std::str::from_utf8(identity).ok()).ok_or(UserError::Name)?;
        let name = checked_user(name)?;
        let sizes = (1..=IDENTITY_BYTES_MAX).contains(&identity.len()) && (1..=KEY_BYTES_MAX).contains(&key.len());
        if !sizes {
            return Err(UserError::Psk);
        }
        let user = Some(name).filter(|name| name.as_bytes() != identity).map(Into::into);
        self.by_identity.insert(identity.into(), Psk { key: Zeroizing::new(key.to_vec()), user });
        Ok(())
    }

    /// Whether an identity has the key with this mark.
    pub(crate) fn holds(&self, identity: &[u8], mark: u64) -> bool {
        self.by_identity.get(identity).is_some_and(|psk| mark_of(&psk.key) == mark)
    }

    /// Removes a key; whether there was one.
    pub fn remove(&mut self, identity: &[u8]) -> bool {
        self.by_identity.remove(identity).is_some()
    }

    /// Whether there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_identity.is_empty()
    }

    /// The identities whose keys have less than 128 bits (RFC 9257 §6), in order. With one recorded handshake such a
    /// key can be looked for without asking the gateway, where no back-off holds.
    pub fn short_keys(&self) -> impl Iterator<Item = &[u8]> {
        let short = self.by_identity.iter().filter(|(_, psk)| psk.key.len() < KEY_BYTES_ADVISED);
        short.map(|(identity, _)| &**identity)
    }

    fn warn_of_short_keys(&self, path: &Path) {
        for identity in self.short_keys() {
            let (identity, file) = (String::from_utf8_lossy(identity), path.display());
            tracing::warn!(
                ?identity,
                "{file}: the key is shorter than 16 bytes (RFC 9257 §6); `fogmux pki psk` makes one"
            );
        }
    }

    /// The identities with their users, in order.
    pub fn identities(&self) -> impl Iterator<Item = (&[u8], &str)> {
        self.by_identity.iter().map(|(identity, psk)| (&**identity, psk.user(identity)))
    }

    /// The key for a handshake: a made-up one for an identity that is not there; nothing where there are no keys at
    /// all.
    #[must_use]
    pub fn secret(&self, identity: &[u8]) -> Option<PskSecret> {
        if self.by_identity.is_empty() || identity.len() > IDENTITY_BYTES_MAX {
            return None;
        }
        let made_up = || ScramHash::Sha256.hmac(&self.decoy_secret, &[identity]).as_slice().to_vec();
        let known = self.by_identity.get(identity);
        let key = known.map_or_else(|| Zeroizing::new(made_up()), |psk| psk.key.clone());
        Some(PskSecret { mark: mark_of(&key), key })
    }

    fn to_text(&self) -> String {
        let mut text = String::from("# Pre-shared keys, written by `fogmux pki psk`. Comments are not kept.\n");
        for (identity, psk) in &self.by_identity {
            let named = match std::str::from_utf8(identity) {
                Ok(name) if !name.chars().any(char::is_control) => format!("identity = {}", quoted(name)),
                Ok(_) | Err(_) => format!("identity_hex = \"{}\"", HEXLOWER.encode(identity)),
            };
            // Writing to a String cannot fail.
            let _ = write!(text, "\n[[psk]]\n{named}\nkey = \"{}\"\n", HEXLOWER.encode(&psk.key));
            if let Some(user) = &psk.user {
                let _ = writeln!(text, "user = {}", quoted(user));
            }
        }
        text
    }
}

/// Tells a key from others. Keyed by the process: of no use to whoever reads it in a dump.
fn mark_of(key: &Zeroizing<Vec<u8>>) -> u64 {
    static KEYED: LazyLock<RandomState> = LazyLock::new(RandomState::default);
    KEYED.hash_one(key.as_slice())
}

impl Psk {
    fn user<'a>(&'a self, identity: &'a [u8]) -> &'a str {
        self.user.as_deref().or_else(|| std::str::from_utf8(identity).ok()).unwrap_or_default()
    }
}

impl Source for Psks {
    fn kind(&self) -> SourceKind {
        SourceKind::Psk
    }

    fn judge(&self, credential: &Credential<'_>, users: &Users) -> Option<Result<Verified, Refused>> {
        match credential {
            Credential::Psk { identity, mark } => {
                let known = self.by_identity.get(*identity).map(|psk| (psk, mark_of(&psk.key)));
                let known = known.filter(|(_, present)| mark.is_none_or(|mark| mark == *present));
                Some(known.ok_or(Refused::Credentials).and_then(|(psk, present)| {
                    let owner = vouched(users, SourceKind::Psk, psk.user(identity), Grant::default())?;
                    Ok(owner.proven_by(present).into())
                }))
            }
            Credential::Certificate(_) | Credential::Oscore(_) | Credential::Token { .. } => None,
        }
    }

    /// Whether any of the user's keys is still there.
    fn admits(&self, principal: &Principal, _: &Users) -> bool {
        self.identities().any(|(_, user)| {
            *user == *principal.name || checked_user(user).is_ok_and(|prepared| *prepared == *principal.name)
        })
    }
}

fn read_entry(review: &mut Review<'_>, psks: &mut Psks, entry: &Spanned<DeValue<'_>>) {
    let Some(table) = entry.get_ref().as_table() else {
        return review.report(entry.span(), "expected a table");
    };
    let (mut identity, mut key, mut user) = (None, None, None);
    let hex = |text: Option<&str>| HEXLOWER_PERMISSIVE.decode(text?.as_bytes()).ok();
    for (name, value) in table {
        let text = value.get_ref().as_str();
        let span = value.span();
        match name.get_ref().as_ref() {
            "identity" => identity = text.map(|text| text.as_bytes().to_vec()),
            "identity_hex" => identity = hex(text),
            "key" => match hex(text).filter(|key| (1..=KEY_BYTES_MAX).contains(&key.len())) {
                Some(bytes) => key = Some(Zeroizing::new(bytes)),
                None => review.report(span, "key: expected 2 to 512 hexadecimal digits"),
            },
            "user" => user = certificate::user(review, "user", value),
            other => {
                let message = format!("unknown key {other:?}; known: identity, identity_hex, key, user");
                review.report(name.span(), message);
            }
        }
    }
    let identity = identity.filter(|identity| (1..=IDENTITY_BYTES_MAX).contains(&identity.len()));
    let Some(identity) = identity else {
        return review.report(entry.span(), "expected identity = \"…\" or identity_hex = \"…\", 1 to 1024 bytes");
    };
    let Some(key) = key else {
        if !table.contains_key("key") {
            review.report(entry.span(), "expected key = \"…\"");
        }
        return;
    };
    if psks.by_identity.contains_key(&*identity) {
        return review.report(entry.span(), "the identity has a key already");
    }
    if let Err(error) = psks.set(&identity, &key, user.as_deref()) {
        review.report(entry.span(), format!("the identity cannot be a user's name: {error}; add user = \"…\""));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_the_file_and_an_unknown_identity_gets_a_lasting_decoy() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("psk.toml");
        Psks::update(&path, |psks| {
            psks.set(b"sensor-1", b"secret key", None)?;
            psks.set(b"\xff\x00", b"\x01\x02", Some("alice"))
        })
        .unwrap();
        let psks = Psks::load(&path).unwrap();
        let secret = |identity: &[u8]| psks.secret(identity).unwrap().key;
        assert_eq!(*secret(b"sensor-1"), *b"secret key");
        assert_eq!(*secret(b"\xff\x00"), *b"\x01\x02");
        assert_eq!(secret(b"other"), secret(b"other"));
        assert_ne!(secret(b"other"), secret(b"others"));
        assert!(Psks::default().secret(b"other").is_none());
        let users = Users::default();
        let judge = |identity: &[u8]| psks.judge(&Credential::Psk { identity, mark: None }, &users).unwrap();
        assert_eq!(&*judge(b"sensor-1").unwrap().principal.name, "sensor-1");
        let alice = judge(b"\xff\x00").unwrap().principal;
        assert_eq!((&*alice.name, alice.source), ("alice", SourceKind::Psk));
        assert_eq!(judge(b"other"), Err(Refused::Credentials));
        assert!(psks.admits(&alice, &users) && !Psks::default().admits(&alice, &users));
        assert!(!format!("{psks:?}").contains("secret"));
    }

    #[test]
    fn a_key_that_was_looked_up_is_nobodys_once_its_identity_has_another() {
        let (mut psks, users) = (Psks::default(), Users::default());
        psks.set(b"dev", b"first key", None).unwrap();
        let first = psks.secret(b"dev").unwrap().mark;
        let decoy = psks.secret(b"new").unwrap().mark;
        let judge = |psks: &Psks, identity: &[u8], mark| {
            let judged = psks.judge(&Credential::Psk { identity, mark: Some(mark) }, &users).unwrap();
            assert_eq!(judged.is_ok(), psks.holds(identity, mark));
            judged.is_ok()
        };
        assert!(judge(&psks, b"dev", first) && !judge(&psks, b"new", decoy));
        psks.set(b"dev", b"second key", None).unwrap();
        psks.set(b"new", b"a key of its own", None).unwrap();
        assert!(!judge(&psks, b"dev", first) && !judge(&psks, b"new", decoy));
        psks.set(b"dev", b"first key", None).unwrap();
        assert!(judge(&psks, b"dev", first), "the same key again");
        psks.remove(b"dev");
        assert!(!judge(&psks, b"dev", first));
    }

    #[test]
    fn all_problems_are_reported_with_their_lines_and_without_keys() {
        let text = "[[psk]]\nidentity = \"a\"\nkey = \"00zz\"\n[[psk]]\nkey = \"00\"\n[[psk]]\nidentity = \"b\"\n\
                    [[psk]]\nidentity_hex = \"ff\"\nkey = \"00\"\n[[psk]]\nidentity = \"c\"\nkey = \"00\"\nage = 1\n\
                    [[psk]]\nidentity = \"c\"\nkey = \"00\"\n[keys]\n";
        let problems = Psks::parse(Path::new("psk.toml"), text).unwrap_err();
        let mut lines: Vec<usize> = problems.0.iter().map(|problem| problem.line).collect();
        lines.sort_unstable();
        assert_eq!(lines, [3, 4, 6, 8, 14, 15, 18], "{problems}");
        assert!(!problems.to_string().contains("00zz"));
    }
}
