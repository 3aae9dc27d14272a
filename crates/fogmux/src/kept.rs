//! Files that must not disappear. A new gateway without a file of rules has no rules, and without a users file no
//! users. Later their absence means that a file is being written, was removed by mistake, or was lost by the disk,
//! which must not open access (ADR 0061).
//!
//! The data directory has a list of the files that existed, so that a start knows them as well. An administrator who
//! goes on without one on purpose deletes the list before the start.

use std::io;
use std::path::{Path, PathBuf};

use fogmux_auth::Sources;

use crate::config::Config;
use crate::data;
use crate::exit::{Failure, Status};
use crate::home;

const USERS: &str = "users";
const ACL: &str = "access rules";
const PSK: &str = "pre-shared keys";
const CERTIFICATES: &str = "rules for certificates";
const LISTS: &str = "revocation lists";

/// The first line of the list.
const HEAD: &str =
    "# Files that this gateway does not start without. Written by fogmux; delete it to start without one.";

/// The files that existed when rules were last read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    users: bool,
    acl: bool,
    psk: bool,
    certificates: bool,
    /// A running gateway keeps those that it has read; only a start needs the file.
    lists: bool,
}

impl Kept {
    /// Returns the files that exist now for certain.
    pub(crate) fn of(sources: &Sources, lists: &Path) -> Self {
        Self { lists: lists.exists(), ..Self::find(sources, false) }
    }

    /// Returns the files that exist now, and `unknown` for one that cannot be read: one that is wrongly taken to exist
    /// would be missed for ever, and one that is wrongly taken to be lost is named as such, and not with the error that
    /// loading it reports.
    fn find(sources: &Sources, unknown: bool) -> Self {
        let there = |file: Option<&Path>| file.is_some_and(|file| file.exists());
        let says = |file: Option<&Path>| file.is_some_and(|file| says_something(file).unwrap_or(unknown));
        Self {
            users: says(sources.users.as_deref()),
            acl: there(sources.acl.as_deref()),
            psk: there(sources.psk.as_deref()),
            certificates: says(sources.certificates.as_deref()),
            lists: false,
        }
    }

    /// Of these files the revocation lists, which are put in place with the certificates.
    pub(crate) fn only_lists(self) -> Self {
        Self { lists: self.lists, ..Self::default() }
    }

    /// Of these files all others, which are put in place with the rules.
    pub(crate) fn but_lists(self) -> Self {
        Self { lists: false, ..self }
    }

    /// Returns the union of both.
    pub(crate) fn and(self, others: Self) -> Self {
        Self {
            users: self.users || others.users,
            acl: self.acl || others.acl,
            psk: self.psk || others.psk,
            certificates: self.certificates || others.certificates,
            lists: self.lists || others.lists,
        }
    }

    /// Refuses to continue without files that existed.
    ///
    /// Users and certificates refuse by entries, so an empty file is equivalent to none; empty rules and keys admit
    /// nobody and are accepted.
    pub(crate) fn check(self, sources: &Sources) -> Result<(), Failure> {
        let lost = Self { lists: false, ..self }.lost(Self::find(sources, true), sources, Path::new(""), Path::new(""));
        let gone = |(what, file): &(&str, PathBuf)| {
            format!("{}: the {what} are gone; the previous ones stay in force", file.display())
        };
        refuse(&lost.iter().map(gone).collect::<Vec<_>>())
    }

    /// Returns the files that are in `self` and not in `now`. One that `sources` do not name is in `directory`.
    fn lost(self, now: Self, sources: &Sources, lists: &Path, directory: &Path) -> Vec<(&'static str, PathBuf)> {
        let named = |file: &Option<PathBuf>, usual: &str| file.clone().unwrap_or_else(|| directory.join(usual));
        let files = [
            (self.users && !now.users, USERS, named(&sources.users, data::USERS)),
            (self.acl && !now.acl, ACL, named(&sources.acl, data::ACL)),
            (self.psk && !now.psk, PSK, named(&sources.psk, data::PSK)),
            (self.certificates && !now.certificates, CERTIFICATES, named(&sources.certificates, data::CERTIFICATES)),
            (self.lists && !now.lists, LISTS, lists.to_owned()),
        ];
        files.into_iter().filter(|(lost, ..)| *lost).map(|(_, what, file)| (what, file)).collect()
    }

    /// Writes the list for the next start.
    pub(crate) fn save(self, directory: &Path) -> io::Result<()> {
        let (file, text) = (directory.join(data::IN_USE), self.to_text());
        if fogmux_file::read_to_string(&file).is_ok_and(|before| before == text) {
            return Ok(());
        }
        data::replace_private(&file, text.as_bytes())
    }

    fn to_text(self) -> String {
        let Self { users, acl, psk, certificates, lists } = self;
        let all = [(users, USERS), (acl, ACL), (psk, PSK), (certificates, CERTIFICATES), (lists, LISTS)];
        let lines = all.into_iter().filter(|(there, _)| *there).map(|(_, what)| what);
        [HEAD].into_iter().chain(lines).flat_map(|line| [line, "\n"]).collect()
    }

    /// Returns the list of a text; the first line that is none of ours otherwise.
    fn parse(text: &str) -> Result<Self, &str> {
        let mut kept = Self::default();
        if !text.starts_with('#') {
            return Err(text.lines().next().unwrap_or_default());
        }
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            match line {
                USERS => kept.users = true,
                ACL => kept.acl = true,
                PSK => kept.psk = true,
                CERTIFICATES => kept.certificates = true,
                LISTS => kept.lists = true,
                unknown => return Err(unknown),
            }
        }
        Ok(kept)
    }
}

/// Refuses to start without files that were there when the gateway ran last.
pub(crate) fn check_start(config: &Config, directory: &Path) -> Result<(), Failure> {
    let list = directory.join(data::IN_USE);
    let text = match fogmux_file::read_to_string(&list) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Failure::io(list.display(), &error)),
    };
    let kept = Kept::parse(&text).map_err(|line| {
        let why = format!("{}: {line:?} is no line of this file; delete the file to start", list.display());
        Failure::new(Status::Config, why)
    })?;
    let (sources, lists) = (home::sources(config, Some(directory))?, home::lists(config, directory));
    let now = Kept { lists: lists.exists(), ..Kept::find(&sources, true) };
    // A new authority has revoked nothing.
    let has_authority = config.tls.client_ca_file.is_some() || directory.join(data::AUTHORITY).exists();
    let kept = Kept { lists: kept.lists && has_authority, ..kept };
    let gone = |(what, file): &(&str, PathBuf)| {
        format!(
            "{}: the {what} are gone, which this gateway had when it ran last; restore the file, or delete {} to start \
             without it",
            file.display(),
            list.display()
        )
    };
    refuse(&kept.lost(now, &sources, &lists, directory).iter().map(gone).collect::<Vec<_>>())
}

fn refuse(gone: &[String]) -> Result<(), Failure> {
    if gone.is_empty() { Ok(()) } else { Err(Failure::new(Status::Config, gone.join("\n"))) }
}

/// Returns whether a file contains anything but white space; a comment is enough. `None` if it cannot be read.
fn says_something(file: &Path) -> Option<bool> {
    match fogmux_file::read(file) {
        Ok(bytes) => Some(!bytes.trim_ascii().is_empty()),
        Err(error) => (error.kind() == io::ErrorKind::NotFound).then_some(false),
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
        let now = || Kept::find(&all(), false);
        now().check(&all()).expect("nothing was there");
        for name in names {
            std::fs::write(directory.path().join(name), "# nothing\n").unwrap();
        }
        let kept = now();
        kept.check(&all()).expect("all is there");
        for name in names {
            let file = directory.path().join(name);
            std::fs::remove_file(&file).unwrap();
            assert!(kept.check(&all()).is_err(), "{name} is gone");
            std::fs::write(&file, "\n").unwrap();
            let refuses_by_entries = ["users.toml", "certificates.toml"].contains(&name);
            assert_eq!(kept.check(&all()).is_err(), refuses_by_entries, "{name} is empty");
            assert_eq!(kept.and(now()), kept, "what was there once is not forgotten");
            std::fs::write(&file, "# nothing\n").unwrap();
        }
        kept.check(&all()).expect("all is there again");
    }

    #[test]
    fn a_relative_data_directory_is_named_once() {
        let kept = Kept { users: true, acl: true, ..Kept::default() };
        let directory = Path::new("xd/bd");
        let sources = home::sources(&Config::default(), Some(directory)).unwrap();
        let lost = kept.lost(Kept::default(), &sources, Path::new(""), directory);
        let files: Vec<_> = lost.into_iter().map(|(_, file)| file).collect();
        assert_eq!(files, [directory.join("users.toml"), directory.join("acl.toml")]);
    }

    #[test]
    fn a_start_knows_what_was_there_until_the_list_is_deleted() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let start = || check_start(&Config::default(), directory.path()).map_err(|failure| failure.message().unwrap());
        start().unwrap();
        std::fs::create_dir(at(data::PKI)).unwrap();
        for name in [data::USERS, data::ACL, data::PSK, data::CERTIFICATES, data::AUTHORITY, data::REVOCATIONS] {
            std::fs::write(at(name), "# nothing\n").unwrap();
        }
        let sources = home::sources(&Config::default(), Some(directory.path())).unwrap();
        let kept = Kept::of(&sources, &at(data::REVOCATIONS));
        assert_eq!(Kept::parse(&kept.to_text()), Ok(kept));
        kept.save(directory.path()).unwrap();
        start().unwrap();
        for name in [data::USERS, data::ACL, data::PSK, data::CERTIFICATES, data::REVOCATIONS] {
            std::fs::rename(at(name), at("away")).unwrap();
            let said = start().expect_err(name);
            assert!([name, data::IN_USE].iter().all(|name| said.contains(&*at(name).to_string_lossy())), "{said}");
            std::fs::rename(at("away"), at(name)).unwrap();
        }
        // It may have something in it or not: it is not noted, and not missed.
        std::fs::remove_file(at(data::CERTIFICATES)).unwrap();
        std::fs::create_dir(at(data::CERTIFICATES)).unwrap();
        assert!(!Kept::of(&sources, &at(data::REVOCATIONS)).certificates);
        start().unwrap();
        std::fs::remove_file(at(data::ACL)).unwrap();
        for text in ["", "# cut\nacc"] {
            std::fs::write(at(data::IN_USE), text).unwrap();
            start().expect_err("a list that cannot be read");
        }
        std::fs::remove_file(at(data::IN_USE)).unwrap();
        start().unwrap();
    }
}
