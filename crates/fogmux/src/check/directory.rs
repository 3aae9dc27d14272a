//! The files that a reload reads in the data directory because the configuration names no others: users, rules, keys,
//! certificates, revocation lists and OSCORE contexts. Nothing is changed.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use fogmux_auth::{Acl, CertificateRules, Problems as Found, Psks, Users};
use fogmux_net::pki::{self, Rollover};
use fogmux_net::{ClientTrust, Named, TlsConfig};

use super::{Judged, of_file};
use crate::config::{Config, Location, Problem};
use crate::exit::Failure;
use crate::oscore::{self, Keyring};
use crate::{acme, data, home, kept, rollover};

/// The key of the directory of OSCORE contexts.
pub(crate) const OSCORE: &str = "coap.oscore.directory";

/// Judges the files in `directory`. A directory that is closed to this user is not judged: its gateway may read it.
pub(super) fn judge(config: &Config, directory: &Path) -> Judged {
    let mut judged = Judged::default();
    match std::fs::symlink_metadata(directory.join(data::ACL)) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            judged.closed = Some(format!(
                "{} is closed to you, so users, rules, keys, certificates and OSCORE contexts in it are not checked: \
                 use sudo",
                directory.display()
            ));
            return judged;
        }
        Ok(_) | Err(_) => {}
    }
    judged.rules(config, directory);
    judged.certificates(config, directory);
    judged.acme(config, directory);
    judged.contexts(config, directory);
    // Those that must not be gone, for a reload as for a start.
    if let Err(failure) = kept::check_start(config, directory) {
        judged.refuse("auth", &directory.join(data::IN_USE), failure);
    }
    judged
}

impl Judged {
    fn rules(&mut self, config: &Config, directory: &Path) {
        let auth = &config.auth;
        type Load = fn(&Path) -> Result<(), Found>;
        let files: [(&str, &Option<PathBuf>, &str, Load); 4] = [
            ("auth.users_file", &auth.users_file, data::USERS, |file| Users::load(file).map(drop)),
            ("auth.acl_file", &auth.acl_file, data::ACL, |file| Acl::load(file).map(drop)),
            ("auth.psk_file", &auth.psk_file, data::PSK, |file| Psks::load(file).map(drop)),
            ("auth.certificates_file", &auth.certificates_file, data::CERTIFICATES, |file| {
                CertificateRules::load(file).map(drop)
            }),
        ];
        for (key, named, usual, load) in files {
            let file = directory.join(usual);
            // Those that are named are read by their names.
            if named.is_none() && self.is_readable(key, &file) {
                load(&file).unwrap_or_else(|found| self.note(key, found));
            }
        }
    }

    /// OSCORE contexts. A file that gives none is left out by a start and a reload, which have all others.
    fn contexts(&mut self, config: &Config, directory: &Path) {
        let contexts = oscore::directory(config, directory);
        match oscore::read_usable(&Keyring::default(), config, directory) {
            Ok(fresh) => {
                let problem = |found: &String| Problem {
                    location: Some(Location { file: contexts.clone(), line: 0 }),
                    key: OSCORE.to_owned(),
                    found: found.clone(),
                    accepted: String::new(),
                };
                self.tolerated.extend(fresh.left_out().iter().map(problem));
            }
            Err(failure) => self.refuse(OSCORE, &contexts, failure),
        }
    }

    /// The trust in clients, and the gateway's own certificate where a reload does not make it anew.
    fn certificates(&mut self, config: &Config, directory: &Path) {
        let tls = &config.tls;
        let pki = directory.join(data::PKI);
        let [authority, authority_key, certificate, key] =
            ["ca.pem", "ca.key", "server.pem", "server.key"].map(|name| pki.join(name));
        if tls.client_ca_file.is_none() || tls.certificate_file.is_none() {
            // A first start that was interrupted left the certificate under another name.
            let is_interrupted = authority.with_added_extension("new").exists();
            match (authority.exists(), authority_key.exists()) {
                (true, false) => self.note("tls", Found::of_file(&authority_key, "is not there, but ca.pem is")),
                (false, true) if !is_interrupted => {
                    self.note("tls", Found::of_file(&authority, "is not there, but ca.key is"));
                }
                (_, _) => {}
            }
        }
        // Those of a rollover.
        for name in ["ca-next.key", "ca-old.key"] {
            self.is_readable("tls", &pki.join(name));
        }
        if self.problems.is_empty() && authority.exists() {
            self.rollover(&authority);
        }
        if self.problems.is_empty() && authority.exists() && authority_key.exists() {
            self.authority_key(config, &authority_key, TlsConfig::load(&certificate, &key).is_ok());
        }
        let believed = tls.client_ca_file.clone().unwrap_or(authority);
        let lists = home::lists(config, directory);
        let are_named = tls.client_ca_file.is_some() && tls.crl_file.is_some();
        let before = self.problems.len();
        let can_read = self.is_readable("tls.client_ca_file", &believed);
        // There need not be a list.
        self.is_readable("tls.crl_file", &lists);
        if !are_named && can_read && self.problems.len() == before {
            let read = ClientTrust::load_with(&believed, &lists, tls.crl_expiry);
            read.map(drop).unwrap_or_else(|error| self.note("tls", of_file(&believed, error)));
        }
        // A directory in its place is moved away, as everything else that is damaged. A FIFO is not opened.
        if tls.certificate_file.is_none() && !certificate.is_dir() {
            self.is_readable("tls", &certificate);
        }
        // One that is damaged is made anew, one whose key may not be read is not.
        let is_own = tls.certificate_file.is_none() && certificate.exists() && self.is_readable("tls", &key);
        if is_own
            && std::fs::File::open(&key).is_err()
            && let Err(error) = TlsConfig::load(&certificate, &key)
        {
            self.note("tls", of_file(&key, error));
        }
    }

    /// The key of the gateway's own authority, which signs again only when the certificate is renewed or missing.
    fn authority_key(&mut self, config: &Config, file: &Path, has_certificate: bool) {
        if !self.is_readable("tls", file) {
            return;
        }
        let Err(error) = pki::Authority::open(file.parent().unwrap_or(Path::new("."))) else { return };
        let found = Found::of_file(file, error.to_string()).0.into_iter().map(|found| super::problem("tls", found));
        if has_certificate || config.tls.certificate_file.is_some() {
            self.tolerated.extend(found);
        } else {
            self.problems.extend(found);
        }
    }

    /// A rollover of the gateway's own authority that is under way or due.
    fn rollover(&mut self, authority: &Path) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        match Rollover::of(authority.parent().unwrap_or(Path::new("."))) {
            Ok(Some(found)) => self.warnings.push(rollover::said(&found, now)),
            Ok(None) => self.warnings.extend(rollover::due(authority, now)),
            Err(error) => self.note("tls", Found::of_file(authority, error.to_string())),
        }
    }

    /// The certificate of an ACME server.
    fn acme(&mut self, config: &Config, directory: &Path) {
        let file = acme::files(directory).certificate;
        if !config.acme.domains.is_empty() && self.is_readable("acme", &file) {
            Named::read(&file).map(drop).unwrap_or_else(|error| self.note("acme", of_file(&file, error)));
        }
    }

    /// Returns whether a file is there and is one. To open a FIFO may take for ever.
    fn is_readable(&mut self, key: &str, file: &Path) -> bool {
        let there = std::fs::symlink_metadata(file).is_ok();
        let regular =
            fogmux_file::check_if_there(file).map_err(|error| self.note(key, Found::of_file(file, error.to_string())));
        there && regular.is_ok()
    }

    fn note(&mut self, key: &str, found: Found) {
        self.problems.extend(found.0.into_iter().map(|problem| super::problem(key, problem)));
    }

    /// Notes a failure that names its file in its own words.
    fn refuse(&mut self, key: &str, file: &Path, failure: Failure) {
        let location = Location { file: file.to_owned(), line: 0 };
        for found in failure.message().unwrap_or_default().lines().map(str::to_owned) {
            let location = Some(location.clone());
            self.problems.push(Problem { location, key: key.to_owned(), found, accepted: String::new() });
        }
    }
}
