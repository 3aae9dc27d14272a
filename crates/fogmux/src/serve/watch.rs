//! Detects changed keys, certificates, revocation lists, users and rules, and applies them: changes by `fogmux pki`,
//! `passwd` or a tool that renews certificates take effect within seconds, without dropping connections.
//!
//! Files are checked, and read only when they differ and have been unchanged since the previous check. A file that
//! cannot be used, or is missing, changes nothing and is reported once. It is tried again at each check: the reason may
//! be gone without a trace on the file, as with too many open files.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fogmux_auth::{Rules, Sources};
use fogmux_net::{Stamp, TlsConfig, TlsError};

use super::kept::Kept;
use super::looked::Looked;
use crate::admin_password;
use crate::compose::Running;
use crate::config::Config;
use crate::exit::{Failure, Status};
use crate::home::{self, Home};
use crate::oscore;

/// The interval of the checks; a change takes effect after two of them.
pub(super) const LOOK: Duration = Duration::from_secs(1);

/// The state of the files when they were last read.
pub(super) struct Watch {
    certificates: Vec<(PathBuf, Stamp)>,
    /// `None` if the files cannot be checked.
    rules: Looked<Option<Vec<(PathBuf, Stamp)>>>,
    /// `None` if the files cannot be checked.
    contexts: Looked<Option<Vec<(PathBuf, Stamp)>>>,
    kept: Kept,
    /// The last error that was logged of certificates, of rules, and of contexts.
    said: [Option<String>; 3],
}

/// The places in [`Watch::said`].
const CERTIFICATES: usize = 0;
const RULES: usize = 1;
const CONTEXTS: usize = 2;

impl Watch {
    /// Starts watching. The watched files are to be read after this, so that no change in between is missed.
    pub(super) fn new(config: &Config, home: &Home) -> Self {
        let certificates =
            home.tls.iter().flat_map(|tls| tls.files()).map(|file| (file.clone(), Stamp::of(&file))).collect();
        let (rules, contexts) = (Looked::new(stamp(config, home)), Looked::new(contexts(config, home)));
        let kept = sources(config, home).map(|sources| Kept::of(&sources)).unwrap_or_default();
        Self { certificates, rules, contexts, kept, said: Default::default() }
    }

    /// Starts again, without forgetting files that must not disappear.
    pub(super) fn anew(&self, config: &Config, home: &Home) -> Self {
        let fresh = Self::new(config, home);
        Self { kept: self.kept.and(fresh.kept), ..fresh }
    }

    /// Reads users, rules and keys for a running gateway.
    pub(super) fn rules(&self, config: &Config, home: &Home) -> Result<Rules, Failure> {
        self.kept.check(&home::sources(config, Some(&home.directory))?)?;
        home::rules(config, &home.directory)
    }

    /// Refuses to continue without files that existed.
    pub(super) fn check(&self, sources: &Sources) -> Result<(), Failure> {
        self.kept.check(sources)
    }

    /// Puts rules in place that were read from the files, or are in them now.
    pub(super) fn put_in_place(&mut self, running: &Running, rules: Rules, config: &Config, home: &Home) {
        self.kept = self.kept.and(sources(config, home).map(|sources| Kept::of(&sources)).unwrap_or_default());
        running.authority.replace(rules);
        admin_password::look(&running.authority, &home.directory);
        running.gateway.shared.bus.invalidate();
        running.gateway.shared.refusals.forget();
    }

    /// Refuses what was read while a file was being written.
    pub(super) fn unchanged(&self, config: &Config, home: &Home) -> Result<(), Failure> {
        if self.rules.is(&stamp(config, home)) && self.contexts.is(&contexts(config, home)) {
            return Ok(());
        }
        Err(Failure::new(Status::Config, "users, rules or keys have changed while they were read"))
    }

    /// Checks the files of users, rules and keys, and applies changes.
    pub(super) fn look(&mut self, running: &Running, config: &Config, home: &Home) {
        self.look_at_rules(running, config, home);
        self.look_at_contexts(running, config, home);
    }

    /// Checks the files of certificates and revocation lists, and applies changes.
    pub(super) fn look_at_certificates(&mut self, running: &Running, home: &Home) {
        let now: Vec<_> = self.certificates.iter().map(|(file, _)| (file.clone(), Stamp::of(file))).collect();
        let Some(tls) = home.tls.as_ref().filter(|_| now != self.certificates) else { return };
        match read_certificates(running, tls) {
            Ok(()) => {
                self.certificates = now;
                self.worked(CERTIFICATES);
                tracing::info!("certificates and revocations are read again");
            }
            Err(error) => self.failed(CERTIFICATES, format!("certificates and revocations stay as they were: {error}")),
        }
    }

    /// Reports what cannot be used, unless that was said before.
    fn failed(&mut self, place: usize, what: String) {
        if let Some(said) = self.said.get_mut(place).filter(|said| said.as_ref() != Some(&what)) {
            tracing::error!("{what}");
            *said = Some(what);
        }
    }

    fn worked(&mut self, place: usize) {
        if let Some(said) = self.said.get_mut(place) {
            *said = None;
        }
    }

    fn look_at_rules(&mut self, running: &Running, config: &Config, home: &Home) {
        let before = stamp(config, home);
        if !self.rules.settled(&before) {
            return;
        }
        match self.rules(config, home) {
            Ok(rules) => {
                if self.rules.read(before, stamp(config, home)) {
                    self.put_in_place(running, rules, config, home);
                    self.worked(RULES);
                    tracing::info!("users, rules and keys are read again");
                }
            }
            Err(failure) if before == stamp(config, home) => {
                let why = failure.message().unwrap_or_default();
                self.failed(RULES, format!("users, rules and keys stay as they were: {why}"));
            }
            // It was being written.
            Err(_) => {}
        }
    }

    fn look_at_contexts(&mut self, running: &Running, config: &Config, home: &Home) {
        let before = contexts(config, home);
        if !self.contexts.settled(&before) {
            return;
        }
        let keyring = &running.contexts;
        match oscore::read(keyring, config, &home.directory) {
            Ok(fresh) => {
                if !self.contexts.read(before, contexts(config, home)) {
                    return;
                }
                // A context that is gone is out of use all the same.
                match oscore::put_in_place(keyring, fresh, &home.directory) {
                    Ok(()) => {
                        self.worked(CONTEXTS);
                        tracing::info!("OSCORE contexts are read again");
                    }
                    Err(failure) => self.failed(CONTEXTS, oscore::not_in_use(&failure)),
                }
            }
            Err(failure) if before == contexts(config, home) => self.failed(CONTEXTS, oscore::not_in_use(&failure)),
            Err(_) => {}
        }
    }
}

/// Reads certificates and revocation lists again, and cuts the connections that they revoke, on whatever way a change
/// comes in.
pub(super) fn read_certificates(running: &Running, tls: &TlsConfig) -> Result<(), TlsError> {
    let read = tls.reload();
    if let Some(clients) = tls.clients().filter(|_| tls.cuts_revoked()) {
        match clients.cut_revoked() {
            0 => {}
            count => {
                // This check also ends DTLS sessions, which may be at rest for hours.
                running.authority.look_again();
                tracing::info!(count, "connections are cut, their certificates have been revoked");
            }
        }
    }
    read
}

fn sources(config: &Config, home: &Home) -> Option<Sources> {
    home::sources(config, Some(&home.directory)).ok()
}

/// Returns the state of the files of users, rules and keys.
fn stamp(config: &Config, home: &Home) -> Option<Vec<(PathBuf, Stamp)>> {
    sources(config, home).map(|sources| sources.files().map(|file| (file.to_owned(), Stamp::of(file))).collect())
}

/// Returns the state of the OSCORE contexts' files.
fn contexts(config: &Config, home: &Home) -> Option<Vec<(PathBuf, Stamp)>> {
    contexts_in(&oscore::directory(config, &home.directory))
}

/// Includes files one level below, for aiocoap's directories; excludes the journal, which the gateway writes.
fn contexts_in(directory: &Path) -> Option<Vec<(PathBuf, Stamp)>> {
    let mut files = list(directory)?;
    files.retain(|file| {
        let name = file.file_name().unwrap_or_default().as_encoded_bytes();
        !name.starts_with(b".") && !name.starts_with(b"journal")
    });
    let below: Vec<_> = files.iter().filter(|file| file.is_dir()).filter_map(|file| list(file)).flatten().collect();
    files.extend(below);
    files.sort_unstable();
    Some(files.into_iter().map(|file| (Stamp::of(&file), file)).map(|(stamp, file)| (file, stamp)).collect())
}

fn list(directory: &Path) -> Option<Vec<PathBuf>> {
    match fs::read_dir(directory) {
        Ok(entries) => entries.map(|entry| entry.ok().map(|entry| entry.path())).collect(),
        Err(error) => (error.kind() == ErrorKind::NotFound).then(Vec::new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_that_come_change_and_go_are_seen_and_the_journal_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let look = || contexts_in(directory.path()).unwrap();
        assert_eq!(contexts_in(&at("none")), Some(Vec::new()));
        fs::write(at("a.toml"), "1").unwrap();
        fs::create_dir(at("b")).unwrap();
        fs::write(at("b/secret.json"), "{}").unwrap();
        let before = look();
        assert_eq!(before.len(), 3);
        fs::write(at("journal"), "1").unwrap();
        fs::write(at("journal.new"), "1").unwrap();
        assert_eq!(look(), before, "what is ours");
        fs::write(at("b/secret.json"), "{ }").unwrap();
        assert_ne!(look(), before, "below");
        let before = look();
        fs::remove_file(at("a.toml")).unwrap();
        assert_ne!(look(), before, "gone");
    }
}
