//! The dates of the certificates and revocation lists that a configuration names. A gateway starts with an expired
//! certificate all the same, because its clock may be wrong; that is why a start does not ask here.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use fogmux_net::pki::{self, Dates};
use fogmux_net::{ListExpiry, Role};

use super::Judged;
use crate::config::{Config, Location, Problem};
use fogmux_net::validity::{Days, Stage, Validity, subject};

/// Judges the files at a moment. Those that cannot be read are left out.
pub(super) fn judge(config: &Config, now: SystemTime) -> Judged {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut judged = Judged::default();
    if let (Some(file), Some(_)) = (&config.tls.certificate_file, &config.tls.key_file) {
        for (index, dates) in pki::dates(file).unwrap_or_default().iter().enumerate() {
            let role = if index == 0 { Role::Server } else { Role::ServerChain };
            judged.certificate("tls.certificate_file", file, role, dates, now);
        }
    }
    if let Some(file) = &config.tls.client_ca_file {
        for dates in pki::dates(file).unwrap_or_default() {
            judged.certificate("tls.client_ca_file", file, Role::ClientAuthority, &dates, now);
        }
    }
    if let Some(file) = &config.tls.crl_file {
        let due = pki::next_updates(file).unwrap_or_default().into_iter().flatten().min();
        if let Some(since) = due.and_then(|due| now.checked_sub(due)).filter(|since| *since > 0) {
            let due = format!("the revocation list has expired: a newer one has been due for {}", Days(since));
            let text = |consequence| format!("{due} (nextUpdate); {consequence}");
            match config.tls.crl_expiry {
                ListExpiry::Warn => judged.warn("tls.crl_file", file, text("it is used all the same (tls.crl_expiry)")),
                ListExpiry::Refuse => {
                    judged.past("tls.crl_file", file, text("certificates of its authority are refused"));
                }
            }
        }
    }
    judged
}

impl Judged {
    fn certificate(&mut self, key: &str, file: &Path, role: Role, dates: &Dates, now: u64) {
        let validity = Validity::at(now, dates);
        let text = format!("{} {validity}", subject(role, dates));
        match (validity.stage, role) {
            (Stage::Good, _) => {}
            (Stage::Expired, Role::Server | Role::ServerByName) => self.past(key, file, text),
            // Clients may know another way to an authority, and other authorities may be in the file.
            (Stage::Expired, Role::ServerChain | Role::ClientAuthority) => self.warn(key, file, text),
            (Stage::Month | Stage::Week | Stage::Early, _) => self.warn(key, file, text),
        }
    }

    fn past(&mut self, key: &str, file: &Path, found: String) {
        let location = Some(Location { file: file.to_owned(), line: 0 });
        self.tolerated.push(Problem { location, key: key.to_owned(), found, accepted: String::new() });
    }

    fn warn(&mut self, key: &str, file: &Path, text: String) {
        self.warnings.push(format!("{key}: {}: {text}", file.display()));
    }
}
