//! Certificates, their keys and revocation lists: whether they can be used, and until when.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fogmux_net::pki::Rollover;
use fogmux_net::{ListExpiry, TlsConfig, pki};

use super::Subject;
use super::finding::Report;
use super::gateway::RESTART;
use crate::clock;
use crate::data;
use crate::home;
use crate::modes::quoted;
use crate::rollover;
use fogmux_net::validity::{Days, Stage, Validity};

/// A file of certificates, and what replaces it.
struct Certificate {
    file: PathBuf,
    mend: String,
    /// The command that replaces it if it was made by a clock that was ahead; `None` if it was made elsewhere.
    made_ahead: Option<&'static str>,
}

/// The command that has a running gateway make its certificate anew.
const RELOAD: &str = "systemctl reload fogmux";

pub(super) fn examine(subject: &Subject<'_>, report: &mut Report) {
    let Subject { config, directory, now, .. } = subject;
    let tls = &config.tls;
    let own = directory.join(data::PKI);
    let mut all = Vec::new();
    match (&tls.certificate_file, &tls.key_file) {
        (Some(certificate), Some(key)) => {
            let mend = format!("openssl x509 -noout -pubkey -in {}", quoted(certificate));
            pair(certificate, key, mend, report);
            let mend = format!("have its authority issue a new one, and replace {}", certificate.display());
            all.push(Certificate { file: certificate.clone(), mend, made_ahead: None });
        }
        (Some(_), None) | (None, Some(_)) | (None, None) => {
            // The gateway renews its own at each start.
            let found = std::fs::read_dir(&own).into_iter().flatten().flatten().map(|entry| entry.path());
            let is_server = |file: &Path| {
                let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                name.starts_with("server") && name.ends_with(".pem")
            };
            let mut files: Vec<PathBuf> = found.filter(|file| is_server(file)).collect();
            files.sort();
            for file in &files {
                pair(file, &file.with_extension("key"), RESTART.to_owned(), report);
            }
            let made_ahead = Some(RELOAD);
            all.extend(files.into_iter().map(|file| Certificate { file, mend: RESTART.to_owned(), made_ahead }));
        }
    }
    let of_gateway = directory.join(data::AUTHORITY);
    if let Some(file) = &tls.client_ca_file {
        let mend = format!("openssl x509 -noout -dates -in {}", quoted(file));
        all.push(Certificate { file: file.clone(), mend, made_ahead: None });
    }
    if tls.client_ca_file.is_none() || tls.certificate_file.is_none() {
        let certificate = Certificate { file: of_gateway.clone(), mend: BEGIN.to_owned(), made_ahead: Some(BEGIN) };
        all.push(certificate);
        authority(&of_gateway, *now, report);
    }
    let store = home::store(config, directory);
    for certificate in all.iter().filter(|certificate| certificate.file.exists()) {
        dates(certificate, *now, &store, report);
    }
    let list = tls.crl_file.clone().unwrap_or_else(|| directory.join(data::REVOCATIONS));
    if list.exists() {
        revocations(&list, tls.crl_expiry, *now, report);
    }
}

/// A certificate and its key.
fn pair(certificate: &Path, key: &Path, mend: String, report: &mut Report) {
    match TlsConfig::load(certificate, key) {
        Ok(_) => report.ok("certificate-key", format!("{} fits {}", key.display(), certificate.display())),
        Err(error) => {
            let text = format!("{} with {}: {error}", certificate.display(), key.display());
            report.problem("certificate-key", text, mend);
        }
    }
}

/// The command that replaces the gateway's own authority.
const BEGIN: &str = "fogmux pki rollover begin";

/// The end of the gateway's own authority, and a rollover that is under way.
fn authority(file: &Path, now: Duration, report: &mut Report) {
    let Some(directory) = file.parent().filter(|_| file.exists()) else { return };
    // A key that is not there keeps the gateway from starting, which is said of the configuration.
    if file.with_extension("key").exists()
        && let Err(error) = pki::Authority::open(directory)
    {
        let text = format!("{error}: nothing can be signed, and the gateway's certificate cannot be renewed");
        return report.problem("authority", text, format!("restore {} from a backup", quoted(directory)));
    }
    match Rollover::of(directory) {
        Err(error) => report.problem("authority", error.to_string(), ""),
        Ok(Some(found)) => report.ok("authority", rollover::said(&found, now)),
        Ok(None) => match rollover::due(file, now) {
            Some(text) => report.warning("authority", text, BEGIN),
            None => report.ok("authority", format!("{}: no rollover is due", file.display())),
        },
    }
}

/// The dates of all certificates of a file, of which one is enough to end a handshake.
fn dates(certificate: &Certificate, now: Duration, store: &Path, report: &mut Report) {
    let Certificate { file, mend, made_ahead } = certificate;
    let found = match pki::dates(file) {
        Ok(found) => found,
        Err(error) => return report.problem("certificate", error.to_string(), mend.as_str()),
    };
    for dates in found {
        let validity = Validity::at(now.as_secs(), &dates);
        let text = format!("{}, {}: {validity}", file.display(), dates.subject);
        match validity.stage {
            Stage::Good => report.ok("certificate", text),
            Stage::Month | Stage::Week => report.warning("certificate", text, mend.as_str()),
            Stage::Early => {
                let valid_from = Duration::from_secs(dates.not_before_unix_s);
                match made_ahead.filter(|_| !clock::is_behind(now, valid_from, store)) {
                    Some(mend) => {
                        report.problem("certificate", format!("{text}: made by a clock that was ahead"), mend)
                    }
                    None => report.problem("certificate", text, "timedatectl"),
                }
            }
            Stage::Expired => report.problem("certificate", text, mend.as_str()),
        }
    }
}

fn revocations(file: &Path, expiry: ListExpiry, now: Duration, report: &mut Report) {
    let lists = match pki::next_updates(file) {
        Ok(lists) => lists,
        Err(error) => return report.problem("revocation-list", error.to_string(), ""),
    };
    let now = now.as_secs();
    match lists.into_iter().flatten().min() {
        Some(next) if next < now => {
            let days = Days(now - next);
            let text = format!("{}: a newer one has been due for {days} (nextUpdate)", file.display());
            let mend = format!("replace {}", file.display());
            match expiry {
                ListExpiry::Warn => report.warning("revocation-list", text, mend),
                ListExpiry::Refuse => {
                    let text = format!("{text}; certificates of its authority are refused (tls.crl_expiry)");
                    report.problem("revocation-list", text, mend);
                }
            }
        }
        Some(_) | None => report.ok("revocation-list", format!("{}: up to date", file.display())),
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::super::finding::Level;
    use super::*;
    use fogmux_net::validity::DAY_S;

    #[test]
    fn certificates_are_judged_by_their_dates() {
        let directory = tempfile::tempdir().unwrap();
        let made = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let made_pki = pki::ensure(directory.path(), &["localhost".to_owned()], made).unwrap();
        let certificate =
            Certificate { file: made_pki.certificate, mend: "renew".to_owned(), made_ahead: Some("make anew") };
        let end = pki::dates(&certificate.file).unwrap()[0].not_after_unix_s;
        let judged = |now| {
            let mut report = Report::default();
            dates(&certificate, Duration::from_secs(now), directory.path(), &mut report);
            report
        };
        assert_eq!(judged(end - 31 * DAY_S).worst(), Level::Ok);
        assert_eq!(judged(end - 29 * DAY_S).worst(), Level::Warning);
        assert_eq!(judged(end).worst(), Level::Warning);
        assert_eq!(judged(end + 1).worst(), Level::Problem);
        for (now, expected) in [(1_000_000_000, "timedatectl"), (1_799_900_000, "make anew")] {
            let report = judged(now);
            assert_eq!(report.worst(), Level::Problem, "valid only later");
            assert_eq!(report.json()["findings"][0]["mend"].as_str(), Some(expected), "at {now}");
        }
    }
}
