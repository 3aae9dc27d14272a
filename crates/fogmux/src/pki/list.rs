//! `fogmux pki list`: all certificates with validity and revocation.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fogmux_net::ClientCertificate;
use fogmux_net::pki::{self, Revocations};
use serde_json::json;

use super::{CLIENTS, directory, failed};
use crate::cli::PkiList;
use crate::exit::Failure;
use crate::output::say;

/// Prints the list.
pub(crate) fn run(arguments: &PkiList) -> Result<(), Failure> {
    let directory = directory(&arguments.files)?;
    let revocations = Revocations::load(&directory.join("crl.pem")).map_err(failed)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut listed = Vec::new();
    for file in certificates(&directory).into_iter().chain(certificates(&directory.join(CLIENTS))) {
        // A revocation list ends in .pem as well.
        let Ok(found) = pki::inspect_all(&file) else { continue };
        // In a rollover there are two authorities; what follows in other files is of the chain of the first.
        let count = if file.ends_with("ca.pem") { found.len() } else { 1 };
        listed.extend(found.into_iter().take(count).map(|found| entry(&file, found, &revocations, now)));
    }
    if arguments.json {
        let list = listed.iter().map(|(file, name, serial, state, days)| {
            json!({"file": file, "name": name, "serial": serial, "state": state, "days": days})
        });
        return say!("{}\n", serde_json::Value::from_iter(list));
    }
    for (file, name, serial, state, days) in listed {
        say!("{state:<8} {days:>5} days  {serial:<40}  {name:<24} {}\n", file.display())?;
    }
    Ok(())
}

/// The file, the name, the serial number, the state and the days that are left.
type Entry = (PathBuf, String, Box<str>, &'static str, u64);

fn entry(file: &Path, found: ClientCertificate, revocations: &Revocations, now: Duration) -> Entry {
    let not_after = Duration::from_secs(found.not_after_unix_s);
    let state = match () {
        () if revocations.contains(&found.serial) => "revoked",
        () if not_after < now => "expired",
        () => "good",
    };
    let days = not_after.saturating_sub(now).as_secs() / 86_400;
    let name = found.common_name.as_deref().unwrap_or_default().to_owned();
    (file.to_owned(), name, found.serial, state, days)
}

fn certificates(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "pem"));
    files.sort();
    files
}
