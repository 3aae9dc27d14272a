//! Users as administrators see them, without secrets, and the lock of their file.

use std::{io, ops::Bound, path::Path, sync::Arc};

use super::Users;
use crate::private_file;

/// A user without secrets.
#[derive(Clone, Copy, Debug)]
pub struct Account<'a> {
    /// The name.
    pub name: &'a str,
    /// The groups.
    pub groups: &'a [Arc<str>],
    /// Whether there is a password.
    pub has_password: bool,
    /// Whether there are keys for SCRAM.
    pub has_scram: bool,
    /// Whether the user is shut out.
    pub disabled: bool,
}

/// The lock of a users file that every command takes which changes it. Released when dropped.
#[derive(Debug)]
pub struct UsersLock {
    _file: std::fs::File,
}

impl UsersLock {
    /// Takes it if nobody has it.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if somebody has it, or it cannot be made.
    pub fn try_take(path: &Path) -> io::Result<Self> {
        private_file::try_lock(path).map(|file| Self { _file: file })
    }
}

impl Users {
    /// The users whose names come after `after`, in their order.
    pub fn accounts(&self, after: Option<&str>) -> impl Iterator<Item = Account<'_>> {
        let first = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_name.range::<str, _>((first, Bound::Unbounded)).map(|(name, user)| Account {
            name,
            groups: &user.principal.groups,
            has_password: user.password.is_some(),
            has_scram: user.scram_sha_256.is_some() || user.scram_sha_1.is_some(),
            disabled: user.disabled,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_go_on_behind_a_name_whether_there_is_one_or_not() {
        let mut users = Users::default();
        users.set_password("b", b"secret").unwrap();
        users.enrol("a", &["g"]).unwrap();
        users.enrol("c", &[]).unwrap();
        users.set_disabled("c", true).unwrap();
        let after = |after| users.accounts(after).map(|account| account.name).collect::<Vec<_>>();
        assert_eq!(
            (after(None), after(Some("a")), after(Some("bb"))),
            (vec!["a", "b", "c"], vec!["b", "c"], vec!["c"])
        );
        let facts = users.accounts(None).map(|one| (one.has_password, one.has_scram, one.disabled, one.groups.len()));
        let expected = [(false, false, false, 1), (true, true, false, 0), (false, false, true, 0)];
        assert_eq!(facts.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_lock_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("users.toml");
        let held = UsersLock::try_take(&path).unwrap();
        assert_eq!(UsersLock::try_take(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(held);
        UsersLock::try_take(&path).unwrap();
    }
}
