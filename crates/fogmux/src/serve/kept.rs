//! Files that must not disappear while the gateway runs. At the start, no file of rules means no rules, and no users
//! file no users. Later it means that the file is being written or was removed by mistake, which must not open access.
//! Only a restart accepts the absence.

use std::path::Path;

use fogmux_auth::Sources;

use crate::exit::{Failure, Status};

/// The files that existed when rules were last read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kept {
    users: bool,
    acl: bool,
    psk: bool,
    certificates: bool,
}

impl Kept {
    /// Returns the files that exist now.
    pub(super) fn of(sources: &Sources) -> Self {
        let there = |file: Option<&Path>| file.is_some_and(|file| file.exists());
        Self {
            users: sources.users.as_deref().is_some_and(says_something),
            acl: there(sources.acl.as_deref()),
            psk: there(sources.psk.as_deref()),
            certificates: sources.certificates.as_deref().is_some_and(says_something),
        }
    }

    /// Returns the union of both.
    pub(super) fn and(self, others: Self) -> Self {
        Self {
            users: self.users || others.users,
            acl: self.acl || others.acl,
            psk: self.psk || others.psk,
            certificates: self.certificates || others.certificates,
        }
    }

    /// Refuses to continue without files that existed.
    ///
    /// Users and certificates refuse by entries, so an empty file is equivalent to none; empty rules and keys admit
    /// nobody and are accepted.
    pub(super) fn check(self, sources: &Sources) -> Result<(), Failure> {
        let now = Self::of(sources);
        let files = [
            (self.users && !now.users, sources.users.as_deref(), "users"),
            (self.acl && !now.acl, sources.acl.as_deref(), "access rules"),
            (self.psk && !now.psk, sources.psk.as_deref(), "pre-shared keys"),
            (self.certificates && !now.certificates, sources.certificates.as_deref(), "rules for certificates"),
        ];
        let lost: Vec<_> = files.iter().filter(|(lost, ..)| *lost).map(|(_, file, what)| gone(*file, what)).collect();
        if lost.is_empty() { Ok(()) } else { Err(Failure::new(Status::Config, lost.join("\n"))) }
    }
}

fn gone(file: Option<&Path>, what: &str) -> String {
    let file = file.map(|file| format!("{}: ", file.display())).unwrap_or_default();
    format!("{file}the {what} are gone; the previous ones stay in force until a restart")
}

/// Returns whether a file contains anything but white space; a comment is enough. An unreadable file counts as present:
/// loading it reports the error.
fn says_something(file: &Path) -> bool {
    match std::fs::read(file) {
        Ok(bytes) => !bytes.trim_ascii().is_empty(),
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_and_is_gone_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| Some(directory.path().join(name));
        let names = ["users.toml", "acl.toml", "psk.toml", "certificates.toml"];
        let all = || Sources {
            users: path("users.toml"),
            acl: path("acl.toml").filter(|file| file.exists()),
            psk: path("psk.toml"),
            certificates: path("certificates.toml"),
            ..Sources::default()
        };
        Kept::of(&all()).check(&all()).expect("nothing was there");
        for name in names {
            std::fs::write(directory.path().join(name), "# nothing\n").unwrap();
        }
        let kept = Kept::of(&all());
        kept.check(&all()).expect("all is there");
        for name in names {
            let file = directory.path().join(name);
            std::fs::remove_file(&file).unwrap();
            assert!(kept.check(&all()).is_err(), "{name} is gone");
            std::fs::write(&file, "\n").unwrap();
            let refuses_by_entries = ["users.toml", "certificates.toml"].contains(&name);
            assert_eq!(kept.check(&all()).is_err(), refuses_by_entries, "{name} is empty");
            assert_eq!(kept.and(Kept::of(&all())), kept, "what was there once is not forgotten");
            std::fs::write(&file, "# nothing\n").unwrap();
        }
        kept.check(&all()).expect("all is there again");
    }
}
