//! The users file: who may log in, and what is kept of their passwords. Never a plain password.
//!
//! `fogmux passwd` rewrites the file as a whole (mode 0600, atomically), so comments in it do not last.

mod account;
mod file;

use std::{
    collections::BTreeMap,
    hash::{BuildHasher as _, RandomState},
    io,
    path::Path,
    sync::{Arc, LazyLock},
};

use zeroize::Zeroizing;

pub use account::{Account, UsersLock};

use crate::{
    edit::replace_file,
    password::{HashedPassword, PasswordError, Scratch, StoredPassword},
    prepare::prepare_text,
    principal::{ANONYMOUS, LINK, Principal},
    private_file,
    problem::Problems,
    random::random,
    scram::{ScramHash, ScramKeys},
};

pub(crate) const USER_BYTES_MAX: usize = 255;

/// Everybody who has credentials.
#[derive(Clone)]
pub struct Users {
    by_name: BTreeMap<Arc<str>, Arc<User>>,
    /// Makes the salts of users who do not exist; kept so that they stay the same after a restart.
    pub(crate) decoy_secret: [u8; 32],
}

/// One user's credentials.
#[derive(Clone)]
pub(crate) struct User {
    pub(crate) principal: Principal,
    pub(crate) password: Option<StoredPassword>,
    pub(crate) scram_sha_256: Option<ScramKeys>,
    pub(crate) scram_sha_1: Option<ScramKeys>,
    pub(crate) disabled: bool,
}

impl User {
    pub(crate) fn scram(&self, hash: ScramHash) -> Option<&ScramKeys> {
        match hash {
            ScramHash::Sha1 => self.scram_sha_1.as_ref(),
            ScramHash::Sha256 => self.scram_sha_256.as_ref(),
        }
    }

    /// Whether nothing about the user has changed. The principal holds a mark of all the secrets.
    fn is_same(&self, other: &Self) -> bool {
        self.principal == other.principal && self.disabled == other.disabled
    }

    /// Tells this password from the next one. Keyed by the process: of no use to whoever reads it in a dump.
    fn password_mark(&self) -> u64 {
        static KEYED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let stored = self.password.as_ref().map(|stored| Zeroizing::new(stored.to_text()));
        let text = |keys: &Option<ScramKeys>| keys.as_ref().map(|keys| Zeroizing::new(keys.to_text()));
        let (sha_256, sha_1) = (text(&self.scram_sha_256), text(&self.scram_sha_1));
        KEYED.hash_one((stored.as_deref(), sha_256.as_deref(), sha_1.as_deref()))
    }
}

impl Default for Users {
    fn default() -> Self {
        Self { by_name: BTreeMap::new(), decoy_secret: random() }
    }
}

impl Users {
    /// Reads a users file. A file that does not exist holds no users; one that cannot be read is a problem.
    ///
    /// # Errors
    /// Everything that is wrong with the file, with its lines.
    pub fn load(path: &Path) -> Result<Self, Problems> {
        match private_file::read(path) {
            Ok(Some(text)) => {
                private_file::warn_if_open(path);
                file::parse(path, &text)
            }
            Ok(None) => Ok(Self::default()),
            Err(error) => Err(Problems::of_file(path, format!("cannot be read: {error}"))),
        }
    }

    /// Reads the text of a users file; `path` is only named in problems.
    ///
    /// # Errors
    /// Everything that is wrong with it, with its lines.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Problems> {
        file::parse(path, text)
    }

    /// Writes the file anew, with its owner and mode: a temporary file beside it, synced, renamed over it.
    ///
    /// # Errors
    /// The directory or disk does not allow it.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        replace_file(path, file::write(self).as_bytes())
    }

    /// Loads, changes and saves under a lock file, so that two commands at once lose nothing.
    ///
    /// # Errors
    /// The file is broken, the change fails, or the disk does not allow it; then nothing was written.
    pub fn update<T>(path: &Path, change: impl FnOnce(&mut Self) -> Result<T, UserError>) -> Result<T, UserError> {
        let _lock = private_file::lock(path)?;
        let mut users = Self::load(path)?;
        let changed = change(&mut users)?;
        users.save(path)?;
        Ok(changed)
    }

    /// Adds a user or changes a password; groups stay. Blocks for about as long as a login costs.
    ///
    /// # Errors
    /// The name or password cannot be used.
    pub fn set_password(&mut self, name: &str, password: &[u8]) -> Result<(), UserError> {
        checked_user(name)?;
        self.set_hashed(name, HashedPassword::of(password, &mut Scratch::new())?)
    }

    /// Adds a user or changes a password that was hashed before; groups stay.
    ///
    /// # Errors
    /// The name cannot be used.
    pub fn set_hashed(&mut self, name: &str, hashed: HashedPassword) -> Result<(), UserError> {
        let name = checked_user(name)?;
        let known = self.by_name.get(name.as_str());
        let user = User {
            principal: known.map_or_else(|| Principal::user(&name, []), |user| user.principal.clone()),
            password: Some(hashed.stored),
            scram_sha_256: hashed.scram_sha_256,
            scram_sha_1: hashed.scram_sha_1,
            disabled: known.is_some_and(|user| user.disabled),
        };
        self.insert(user);
        Ok(())
    }

    /// Puts a user into exactly these groups.
    ///
    /// # Errors
    /// There is no such user, or a group's name cannot be used.
    pub fn set_groups(&mut self, name: &str, groups: &[&str]) -> Result<(), UserError> {
        let known = self.by_name.get(name).ok_or(UserError::Unknown)?;
        let groups = groups.iter().map(|group| checked_name(group).map(Arc::from)).collect::<Result<Vec<_>, _>>()?;
        let user = User { principal: Principal::user(name, groups), ..(**known).clone() };
        self.insert(user);
        Ok(())
    }

    /// Puts a user into exactly these groups, and adds one without a password if there is none, for a device that has
    /// another credential.
    ///
    /// # Errors
    /// A name cannot be used.
    pub fn enrol(&mut self, name: &str, groups: &[&str]) -> Result<(), UserError> {
        let name = checked_user(name)?;
        if !self.contains(&name) {
            self.insert(User {
                principal: Principal::user(&name, []),
                password: None,
                scram_sha_256: None,
                scram_sha_1: None,
                disabled: false,
            });
        }
        self.set_groups(&name, groups)
    }

    /// Adds a user with a password hash that another broker made: mosquitto's `$6$…` and `$7$…`, or an argon2id PHC
    /// string. There are no SCRAM keys then.
    ///
    /// # Errors
    /// The name or the hash cannot be used.
    pub fn set_hash(&mut self, name: &str, hash: &str) -> Result<(), UserError> {
        let name = checked_user(name)?;
        let known = self.by_name.get(name.as_str());
        let user = User {
            principal: known.map_or_else(|| Principal::user(&name, []), |user| user.principal.clone()),
            password: Some(StoredPassword::parse(hash)?),
            scram_sha_256: None,
            scram_sha_1: None,
            disabled: known.is_some_and(|user| user.disabled),
        };
        self.insert(user);
        Ok(())
    }

    /// Shuts a user out or lets it in again, by whatever credential it comes.
    ///
    /// # Errors
    /// There is no such user.
    pub fn set_disabled(&mut self, name: &str, disabled: bool) -> Result<(), UserError> {
        let known = self.by_name.get(name).ok_or(UserError::Unknown)?;
        self.insert(User { disabled, ..(**known).clone() });
        Ok(())
    }

    /// Whether a user of that name is shut out.
    #[must_use]
    pub fn is_disabled(&self, name: &str) -> bool {
        prepared_name(name).and_then(|name| self.get(&name)).is_some_and(|user| user.disabled)
    }

    /// Whether there is a user of that name.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Removes a user; whether there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        self.by_name.remove(name).is_some()
    }

    /// All users in the order of their names.
    pub fn principals(&self) -> impl Iterator<Item = &Principal> {
        self.by_name.values().map(|user| &user.principal)
    }

    /// The text of the file.
    #[must_use]
    pub fn to_text(&self) -> String {
        file::write(self)
    }

    /// Whether nobody has credentials yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<User>> {
        self.by_name.get(name)
    }

    /// Keeps the users of `before` that are the same here, so that what is remembered of them stays true.
    pub(crate) fn keep_unchanged(&mut self, before: &Self) {
        for (name, user) in &mut self.by_name {
            if let Some(known) = before.by_name.get(name).filter(|known| known.is_same(user)) {
                *user = Arc::clone(known);
            }
        }
    }

    pub(crate) fn insert(&mut self, mut user: User) {
        user.principal = user.principal.clone().proven_by(user.password_mark());
        self.by_name.insert(Arc::clone(&user.principal.name), Arc::new(user));
    }
}

/// Why credentials cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// The name cannot be one of a user or group.
    #[error("a name has 1 to 255 bytes, no control characters, and is not \"{ANONYMOUS}\"")]
    Name,
    /// The name is that of a link to another broker.
    #[error("names that begin with \"{LINK}\" are those of links to other brokers")]
    Link,
    /// There is no such user.
    #[error("there is no such user")]
    Unknown,
    /// The pre-shared key cannot be used.
    #[error("a key has 1 to 256 bytes, an identity 1 to 1024")]
    Psk,
    /// The password cannot be used.
    #[error(transparent)]
    Password(#[from] PasswordError),
    /// The file that is there is broken.
    #[error(transparent)]
    File(#[from] Problems),
    /// The file cannot be written.
    #[error("the users file cannot be written: {0}")]
    Io(#[from] io::Error),
}

/// The form in which a name is kept and compared (SASLprep, RFC 4013); nothing when it cannot be a user's.
#[must_use]
pub fn prepared_name(name: &str) -> Option<String> {
    checked_user(name).ok()
}

/// The prepared form of a user's name. Those of links are theirs alone: a user of such a name would have their rules.
pub(crate) fn checked_user(name: &str) -> Result<String, UserError> {
    let prepared = checked_name(name)?;
    if prepared.starts_with(LINK) { Err(UserError::Link) } else { Ok(prepared) }
}

/// The prepared form of the name of a user, a group or a link, when it can be one.
pub(crate) fn checked_name(name: &str) -> Result<String, UserError> {
    let prepared = prepare_text(name).ok_or(UserError::Name)?;
    let usable = (1..=USER_BYTES_MAX).contains(&prepared.len())
        && !prepared.chars().any(char::is_control)
        // RFC 8265 §3.1: a space stands between parts of a name only. Nobody sees it elsewhere.
        && prepared.trim_matches(' ') == prepared
        && prepared != ANONYMOUS;
    if usable { Ok(prepared.into_owned()) } else { Err(UserError::Name) }
}

/// A TOML basic string. Names hold no control characters, so two escapes are enough.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_survives_the_file_which_is_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("users.toml");
        Users::update(&path, |users| users.set_password("alice", b"secret")).unwrap();
        Users::update(&path, |users| users.set_groups("alice", &["b", "a"])).unwrap();
        Users::update(&path, |users| users.set_password("b\"o\\b =[x]", b"other")).unwrap();
        Users::update(&path, |users| users.set_password("alice", b"changed")).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains("changed"));
        let users = Users::load(&path).unwrap();
        let alice = users.get("alice").unwrap();
        assert_eq!(alice.principal.groups.iter().map(|group| &**group).collect::<Vec<_>>(), ["a", "b"]);
        assert!(alice.password.as_ref().unwrap().matches(b"changed", &mut Scratch::new()).unwrap());
        assert!(alice.scram_sha_1.is_some() && alice.scram_sha_256.is_some());
        assert_eq!(users.principals().count(), 2);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_broken_file_is_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("users.toml");
        std::fs::write(&path, "users = 1\n").unwrap();
        assert!(Users::update(&path, |users| users.set_password("a", b"b")).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "users = 1\n");
    }

    #[test]
    fn a_new_password_lets_nobody_in_who_was_shut_out() {
        let mut users = Users::default();
        users.set_password("alice", b"secret").unwrap();
        users.set_disabled("alice", true).unwrap();
        users.set_password("alice", b"changed").unwrap();
        assert!(users.is_disabled("alice") && users.is_disabled("al\u{ad}ice") && !users.is_disabled("bob"));
    }

    #[test]
    fn names_that_cannot_be_users() {
        let mut users = Users::default();
        for name in ["", "anonymous", "a\nb", "a\0", &"x".repeat(256)] {
            assert!(matches!(users.set_password(name, b"x"), Err(UserError::Name)), "{name:?}");
        }
        assert!(matches!(users.set_password("a", b""), Err(UserError::Password(PasswordError::Length))));
        assert!(matches!(users.set_groups("nobody", &[]), Err(UserError::Unknown)));
        assert!(matches!(users.set_disabled("nobody", true), Err(UserError::Unknown)));
    }
    #[test]
    fn a_name_neither_begins_nor_ends_with_a_space() {
        // RFC 4013 §2.1 maps the spaces of other scripts to this one.
        for space in [' ', '\u{a0}', '\u{2003}', '\u{3000}'] {
            assert_eq!(prepared_name(&format!("ada{space}king")).as_deref(), Some("ada king"), "{space:?}");
            for name in [format!("{space}ada"), format!("ada{space}"), format!("{space}")] {
                assert_eq!(prepared_name(&name), None, "{name:?}");
            }
        }
    }
}
