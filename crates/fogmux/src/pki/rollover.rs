//! `fogmux pki rollover`: another authority takes the place of the present one while both are trusted.
//!
//! Each step says where the rollover is and what to do next; repeated, it changes nothing and says that again.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fogmux_net::ClientCertificate;
use fogmux_net::pki::rollover::{self, Phase};
use fogmux_net::pki::{self, Authority, Revocations, Rollover};
use fogmux_net::validity::Days;

use super::{CLIENTS, directory, failed};
use crate::cli::{Files, PkiRollover, PkiRolloverFinish, PkiRolloverStep};
use crate::data;
use crate::exit::{Failure, Status};
use crate::installed;
use crate::output::say;

/// Names that a message lists; the rest is counted.
const NAMED: usize = 20;

/// Runs the subcommand.
pub(super) fn run(command: &PkiRollover) -> Result<(), Failure> {
    let now = SystemTime::now();
    match command {
        PkiRollover::Begin(arguments) => {
            let directory = directory(&arguments.files)?;
            let found = rollover::begin(&directory, arguments.key.kind(), now).map_err(failed)?;
            say(&directory, &found)?;
            warn_of_others(&arguments.files, &found)
        }
        PkiRollover::Switch(PkiRolloverStep { files }) => {
            let directory = directory(files)?;
            let found = rollover::switch(&directory, now).map_err(failed)?;
            say(&directory, &found)
        }
        PkiRollover::Finish(arguments) => finish(arguments, now),
        PkiRollover::Status(PkiRolloverStep { files }) => {
            let directory = directory(files)?;
            match Rollover::of(&directory).map_err(failed)? {
                Some(found) => say(&directory, &found),
                None => none(&directory),
            }
        }
    }
}

/// Warns if the gateway verifies clients by a file that has the old authority, and not the new one.
fn warn_of_others(files: &Files, Rollover { old, new, .. }: &Rollover) -> Result<(), Failure> {
    let config = installed::find(files)?.config;
    let Some(believed) = config.tls.client_ca_file else { return Ok(()) };
    let all = pki::dates(&believed).unwrap_or_default();
    let knows = |subject: &str| all.iter().any(|one| one.subject == subject);
    if knows(&old.subject) && !knows(&new.subject) {
        eprintln!(
            "warning: tls.client_ca_file: {} does not have {}, so the gateway refuses certificates by it; add it",
            believed.display(),
            new.subject
        );
    }
    Ok(())
}

fn none(directory: &Path) -> Result<(), Failure> {
    let file = directory.join("ca.pem");
    let dates = pki::dates(&file).map_err(|error| failed(error.into()))?;
    let ends = dates.iter().map(|dates| authority(&dates.subject, dates.not_after_unix_s));
    let ends: Vec<_> = ends.collect();
    say!("no rollover is under way; {} has {}\n", file.display(), ends.join(" and "))
}

/// Ends a rollover, unless devices are known that would be locked out.
fn finish(arguments: &PkiRolloverFinish, now: SystemTime) -> Result<(), Failure> {
    let directory = directory(&arguments.files)?;
    let found = Rollover::of(&directory).map_err(failed)?;
    if let Some(found) = found.filter(|found| found.phase == Phase::Switched) {
        let Standing { old, replaced } = standing(&directory, &found)?;
        let mut why = Vec::new();
        if !old.is_empty() && !arguments.force {
            why.push(format!(
                "clients whose only certificate is by {}: {}; `fogmux pki client NAME --renew` gives each another, \
                 `fogmux pki revoke NAME` ends it",
                found.old.subject,
                listed(&old)
            ));
        }
        if !replaced.is_empty() && !arguments.force && !arguments.replaced {
            why.push(format!(
                "clients that have another certificate by now, and may still show that by {}: {}; --replaced goes on \
                 when they have taken the new one",
                found.old.subject,
                listed(&replaced)
            ));
        }
        if !why.is_empty() {
            why.push("--force locks them all out".to_owned());
            return Err(Failure::new(Status::Unavailable, why.join("\n")));
        }
    }
    if !rollover::finish(&directory, now).map_err(failed)? {
        return none(&directory);
    }
    say!(
        "finished: {} has one authority again, and certificates by the one before are refused\nnext: give devices this \
         file when there is an occasion; those that trust both work on\n",
        directory.join("ca.pem").display()
    )
}

/// Says where a rollover is, what is next and whom it is about.
fn say(directory: &Path, Rollover { phase, old, new }: &Rollover) -> Result<(), Failure> {
    let file = directory.join("ca.pem");
    let file = file.display();
    let (before, after) =
        (authority(&old.subject, old.not_after_unix_s), authority(&new.subject, new.not_after_unix_s));
    match phase {
        Phase::Begun => say!(
            "begun: {before} and {after} are both trusted; the gateway still shows a certificate by the first, new \
             clients get theirs by the second\nnext: give every device {file}, which has both, and where it has a \
             certificate, another (fogmux pki client NAME --renew); then `fogmux pki rollover switch`\n"
        )?,
        Phase::Switched => say!(
            "switched: all certificates are by {after}; {before} is still trusted, and devices that know nothing but \
             it do not connect\nnext: when no device needs the old one any more, `fogmux pki rollover finish`; new \
             devices get {file}\n"
        )?,
    }
    let found = Rollover { phase: *phase, old: old.clone(), new: new.clone() };
    let Standing { old, replaced } = standing(directory, &found)?;
    if !old.is_empty() {
        say!("clients whose only certificate is by the old authority: {}\n", listed(&old))?;
    }
    if !replaced.is_empty() {
        say!("clients that may still show one by the old authority: {}\n", listed(&replaced))?;
    }
    Ok(())
}

fn authority(subject: &str, not_after_unix_s: u64) -> String {
    match not_after_unix_s.checked_sub(since_1970().as_secs()) {
        Some(left) => format!("{subject} (ends in {})", Days(left)),
        None => format!("{subject} (has ended)"),
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Clients with a certificate by the old authority that is neither expired nor revoked.
#[derive(Debug, Default)]
struct Standing {
    /// They have no other.
    old: Vec<String>,
    /// They were given one by the new authority since.
    replaced: Vec<String>,
}

/// Finds them among the certificates that are kept in the directory.
fn standing(directory: &Path, found: &Rollover) -> Result<Standing, Failure> {
    let lists = Revocations::load(&directory.join("crl.pem")).map_err(failed)?;
    let now = since_1970().as_secs();
    let counts = |one: &ClientCertificate| one.not_after_unix_s >= now && !lists.contains(&one.serial);
    let of = |subject: &str| {
        let all = certificates(&directory.join(CLIENTS))?.into_iter();
        let ours = all.filter(|(_, one)| *one.issuer == *subject && counts(one));
        let mut names: Vec<String> = ours.map(|(name, _)| name).collect();
        names.dedup();
        Ok::<_, Failure>(names)
    };
    let (old, new) = (of(&found.old.subject)?, of(&found.new.subject)?);
    let (replaced, old) = old.into_iter().partition(|name| new.contains(name));
    Ok(Standing { old, replaced })
}

/// The certificates of clients with the names of their files, `NAME.pem` or `NAME.SERIAL.pem`.
fn certificates(clients: &Path) -> Result<Vec<(String, ClientCertificate)>, Failure> {
    let Some(clients) = data::found(clients.to_owned())? else { return Ok(Vec::new()) };
    let io = |error| Failure::io(clients.display(), &error);
    let mut found = Vec::new();
    for entry in fs::read_dir(&clients).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".pem")) else { continue };
        let Ok(one) = pki::inspect(&path) else { continue };
        let name = name.strip_suffix(&format!(".{}", one.serial)).unwrap_or(name).to_owned();
        found.push((name, one));
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(found)
}

fn listed(names: &[String]) -> String {
    let (shown, rest) = names.split_at(names.len().min(NAMED));
    match rest.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Returns the authorities on whose revocation lists a certificate belongs: its issuer's, or all where that is unknown.
pub(super) fn that_signed(
    directory: &Path,
    certificate: Option<&ClientCertificate>,
) -> Result<Vec<Authority>, Failure> {
    let mut all = Authority::all(directory).map_err(failed)?;
    if let Some(certificate) = certificate
        && all.iter().any(|authority| authority.has_signed(certificate))
    {
        all.retain(|authority| authority.has_signed(certificate));
    }
    Ok(all)
}
