//! Detects changed keys, certificates, revocation lists, users and rules, and applies them: changes by `fogmux pki`,
//! `passwd` or a tool that renews certificates take effect within seconds, without dropping connections.
//!
//! Files are checked, and read only when they differ and have been unchanged since the previous check. Files that
//! cannot be used, or are missing, change nothing, are read again at each check, and are reported once for each error.
//!
//! A change has the same effects by whatever way it comes in: the checks, SIGHUP and the administration API all put it
//! in place by [`Watch::put_in_place`], [`Watch::put_certificates_in_place`] and [`oscore::put_in_place`].

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fogmux_auth::{Rules, Sources};
use fogmux_net::{ClientTrust, Stamp, TlsConfig, TlsError};

use super::looked::Looked;
use crate::admin_password;
use crate::compose::Running;
use crate::config::Config;
use crate::data;
use crate::exit::{Failure, Status};
use crate::home::{self, Home};
use crate::kept::Kept;
use crate::oscore;

/// The interval of the checks; a change takes effect after two of them.
pub(super) const LOOK: Duration = Duration::from_secs(1);

/// The state of several files.
type Stamps = Vec<(PathBuf, Stamp)>;

/// The state of the files when they were last read.
pub(super) struct Watch {
    certificates: Looked<Stamps>,
    /// `None` if the files cannot be checked.
    rules: Looked<Option<Stamps>>,
    /// `None` if the files cannot be checked.
    contexts: Looked<Option<Stamps>>,
    kept: Kept,
    /// Whether the next start knows `kept`.
    is_saved: bool,
}

impl Watch {
    /// Starts watching. The watched files are to be read after this, so that no change in between is missed.
    pub(super) fn new(config: &Config, home: &Home) -> Self {
        let certificates = Looked::new(certificates(home));
        let (rules, contexts) = (Looked::new(stamp(config, home)), Looked::new(contexts(config, home)));
        let kept = kept_now(config, home);
        Self { certificates, rules, contexts, kept, is_saved: true }
    }

    /// Starts again, without forgetting files that must not disappear.
    pub(super) fn anew(&self, config: &Config, home: &Home) -> Self {
        Self { kept: self.kept, is_saved: self.is_saved, ..Self::new(config, home) }
    }

    /// Has the next start know the files that exist now. A disk that takes nothing keeps no gateway from running; the
    /// next check tries again.
    pub(super) fn remember(&mut self, home: &Home) {
        let saved = self.kept.save(&home.directory);
        let was_saved = std::mem::replace(&mut self.is_saved, saved.is_ok());
        if let Err(error) = saved
            && was_saved
        {
            let file = home.directory.join(data::IN_USE);
            tracing::warn!(%error, "{}: cannot be written; the next start would miss no file", file.display());
        }
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
        self.keep(kept_now(config, home).but_lists(), home);
        running.authority.replace(rules);
        admin_password::look(&running.authority, &home.directory);
        running.gateway.shared.bus.invalidate();
        running.gateway.shared.refusals.forget();
    }

    /// Reads certificates, keys and revocation lists, and ends the connections of certificates that are revoked by now
    /// if that is configured. If it fails, the next check tries again.
    ///
    /// Handshakes put a list in place as well, so connections are ended even if something else cannot be read.
    pub(super) fn put_certificates_in_place(
        &mut self,
        running: &Running,
        config: &Config,
        home: &Home,
    ) -> Result<(), TlsError> {
        let Some(tls) = running.gateway.tls() else { return Ok(()) };
        let read = tls.reload();
        // Rules beside it may be refused.
        self.keep(kept_now(config, home).only_lists(), home);
        let cut = tls.clients().filter(|_| tls.cuts_revoked()).map_or(0, ClientTrust::cut_revoked);
        if cut > 0 {
            // This check also ends DTLS sessions, which may be at rest for hours.
            running.authority.look_again();
            tracing::info!(count = cut, "connections are cut, their certificates have been revoked");
        }
        read
    }

    /// Notes files that must not disappear from now on: those that are in force.
    fn keep(&mut self, in_force: Kept, home: &Home) {
        let kept = self.kept.and(in_force);
        if kept != self.kept {
            self.kept = kept;
            self.remember(home);
        }
    }

    /// Has the certificates read at the next check, because they could not be used. Returns whether that is news.
    pub(super) fn fail_certificates(&mut self, error: &TlsError) -> bool {
        self.certificates.fail(&error.to_string())
    }

    /// Has the OSCORE contexts read at the next check, because they could not be used. Returns whether that is news.
    pub(super) fn fail_contexts(&mut self, failure: &Failure) -> bool {
        self.contexts.fail(&oscore::not_in_use(failure))
    }

    /// Refuses what was read while a file was being written. The certificate of the gateway may be: reading it makes it
    /// anew where the configuration has another name for it.
    pub(super) fn unchanged(&self, config: &Config, home: &Home) -> Result<(), Failure> {
        if self.are_rules_quiet(config, home) {
            return Ok(());
        }
        Err(Failure::new(Status::Config, "users, rules or keys have changed while they were read"))
    }

    /// Returns whether no file has changed since this was made.
    pub(super) fn is_quiet(&self, config: &Config, home: &Home) -> bool {
        self.are_rules_quiet(config, home) && self.certificates.is_quiet(&certificates(home))
    }

    fn are_rules_quiet(&self, config: &Config, home: &Home) -> bool {
        self.rules.is_quiet(&stamp(config, home)) && self.contexts.is_quiet(&contexts(config, home))
    }

    /// Checks the files of users, rules and keys, and applies changes.
    pub(super) fn look(&mut self, running: &Running, config: &Config, home: &Home) {
        if !self.is_saved {
            self.remember(home);
        }
        self.look_at_rules(running, config, home);
        self.look_at_contexts(running, config, home);
    }

    /// Checks the files of certificates and revocation lists, and applies changes. Returns whether those that are on
    /// the disk are in force.
    pub(super) fn look_at_certificates(&mut self, running: &Running, config: &Config, home: &Home) -> bool {
        let before = certificates(home);
        if !self.certificates.settled(&before) {
            return self.certificates.is(&before);
        }
        match self.put_certificates_in_place(running, config, home) {
            Ok(()) => {
                tracing::info!("certificates and revocations are read again");
                self.certificates.apply(before);
                true
            }
            Err(error) => {
                if self.fail_certificates(&error) {
                    tracing::error!(%error, "certificates and revocations stay as they were");
                }
                false
            }
        }
    }

    fn look_at_rules(&mut self, running: &Running, config: &Config, home: &Home) {
        let before = stamp(config, home);
        if !self.rules.settled(&before) {
            return;
        }
        let fresh = self.rules(config, home);
        if !self.rules.read(&before, stamp(config, home)) {
            return;
        }
        match fresh {
            Ok(rules) => {
                self.put_in_place(running, rules, config, home);
                self.rules.apply(before);
                tracing::info!("users, rules and keys are read again");
            }
            Err(failure) => {
                let why = failure.message().unwrap_or_default();
                if self.rules.fail(&why) {
                    tracing::error!("users, rules and keys stay as they were: {why}");
                }
            }
        }
    }

    fn look_at_contexts(&mut self, running: &Running, config: &Config, home: &Home) {
        let (before, keyring) = (contexts(config, home), &running.contexts);
        let is_changed = self.contexts.settled(&before);
        if !(is_changed || self.contexts.is(&before) && keyring.can_go_on()) {
            return;
        }
        let fresh = oscore::read_usable(keyring, config, &home.directory);
        if !self.contexts.read(&before, contexts(config, home)) {
            return;
        }
        match fresh.and_then(|fresh| oscore::put_in_place(keyring, fresh, &home.directory)) {
            Ok(()) => {
                self.contexts.apply(before);
                tracing::info!("OSCORE contexts are read again");
            }
            Err(failure) => {
                if self.fail_contexts(&failure) {
                    tracing::error!("{}", oscore::not_in_use(&failure));
                }
            }
        }
    }
}

fn kept_now(config: &Config, home: &Home) -> Kept {
    sources(config, home).map(|sources| Kept::of(&sources, &home::lists(config, &home.directory))).unwrap_or_default()
}

/// Returns the state of the files of certificates, keys and revocation lists.
fn certificates(home: &Home) -> Stamps {
    home.tls
        .iter()
        .flat_map(TlsConfig::files)
        .map(|file| (Stamp::of(&file), file))
        .map(|(stamp, file)| (file, stamp))
        .collect()
}

fn sources(config: &Config, home: &Home) -> Option<Sources> {
    home::sources(config, Some(&home.directory)).ok()
}

/// Returns the state of the files of users, rules and keys.
fn stamp(config: &Config, home: &Home) -> Option<Stamps> {
    sources(config, home).map(|sources| sources.files().map(|file| (file.to_owned(), Stamp::of(file))).collect())
}

/// Returns the state of the OSCORE contexts' files.
fn contexts(config: &Config, home: &Home) -> Option<Stamps> {
    contexts_in(&oscore::directory(config, &home.directory))
}

/// Includes files one level below, for aiocoap's directories; excludes the journal, which the gateway writes.
fn contexts_in(directory: &Path) -> Option<Stamps> {
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
