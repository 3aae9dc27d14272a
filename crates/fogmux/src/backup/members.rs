//! The files of a backup besides the store's.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::control;
use crate::config::Config;
use crate::data;
use crate::exit::{Failure, Status};

/// A file and its name in the archive.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) path: PathBuf,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Members {
    pub(super) files: Vec<Member>,
    /// The places of files outside the data directory, by the key that names them.
    pub(super) named: BTreeMap<String, PathBuf>,
    /// Links, sockets and devices, which are left out.
    pub(super) skipped: Vec<PathBuf>,
}

/// Files of the data directory that belong to a run of a gateway.
///
/// The sequence numbers of OSCORE are left out on purpose. A gateway that is restored must not believe what it had seen
/// and used by then: without them it begins above any number that was used, by the clock, and has each client prove
/// that its request is new (RFC 8613 appendix B.1).
const LEFT_OUT: [&str; 3] = [control::NAME, "oscore/journal", "oscore/journal.lock"];

/// Finds them.
pub(super) fn find(config: &Config, file: Option<&Path>, directory: &Path) -> Result<Members, Failure> {
    let mut members = Members::default();
    let store = config.store.path.clone().unwrap_or_else(|| directory.join(data::STORE));
    let left_out: Vec<PathBuf> = LEFT_OUT.iter().map(|name| directory.join(name)).chain([store]).collect();
    members.walk("data", directory, &left_out)?;
    if let Some(file) = file {
        members.add("config/fogmux.toml".to_owned(), file.to_owned());
        let beside = file.parent().unwrap_or(Path::new("")).join("conf.d");
        if beside.is_dir() {
            members.walk("config/conf.d", &beside, &[])?;
        }
    }
    for (key, path) in named(config) {
        let Some(path) = path else { continue };
        let path = std::path::absolute(path).map_err(|error| Failure::io(path.display(), &error))?;
        let inside = std::path::absolute(directory).is_ok_and(|directory| path.starts_with(directory));
        if inside || !path.exists() {
            continue;
        }
        if path.is_dir() {
            members.walk(&format!("named/{key}"), &path, &[])?;
        } else {
            members.add(format!("named/{key}"), path.clone());
        }
        members.named.insert(key.to_owned(), path);
    }
    Ok(members)
}

/// Every file that the configuration may name.
fn named(config: &Config) -> Vec<(&'static str, Option<&Path>)> {
    let (auth, tls) = (&config.auth, &config.tls);
    let token = &auth.token.settings;
    vec![
        ("auth.users_file", auth.users_file.as_deref()),
        ("auth.acl_file", auth.acl_file.as_deref()),
        ("auth.admin_password_file", auth.admin_password_file.as_deref()),
        ("auth.psk_file", auth.psk_file.as_deref()),
        ("auth.certificates_file", auth.certificates_file.as_deref()),
        ("auth.token.jwks_file", token.jwks_file.as_deref()),
        ("auth.token.key_file", token.key_file.as_deref()),
        ("auth.callback.ca_file", auth.callback.ca_file.as_deref()),
        ("tls.certificate_file", tls.certificate_file.as_deref()),
        ("tls.key_file", tls.key_file.as_deref()),
        ("tls.client_ca_file", tls.client_ca_file.as_deref()),
        ("tls.crl_file", tls.crl_file.as_deref()),
        ("coap.oscore.directory", config.coap.oscore.directory.as_deref()),
    ]
}

impl Members {
    fn add(&mut self, name: String, path: PathBuf) {
        self.files.push(Member { name, path });
    }

    /// Adds the regular files below a directory, in order of their names.
    fn walk(&mut self, name: &str, directory: &Path, left_out: &[PathBuf]) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::io(directory.display(), &error);
        let mut entries: Vec<_> =
            std::fs::read_dir(directory).map_err(failed)?.collect::<Result<_, _>>().map_err(failed)?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            if left_out.contains(&path) {
                continue;
            }
            let Some(own) = entry.file_name().to_str().map(str::to_owned) else {
                return Err(Failure::new(Status::DataErr, format!("{}: its name is not UTF-8", path.display())));
            };
            let (name, kind) = (format!("{name}/{own}"), entry.file_type().map_err(failed)?);
            if kind.is_dir() {
                self.walk(&name, &path, left_out)?;
            } else if kind.is_file() {
                self.add(name, path);
            } else {
                self.skipped.push(path);
            }
        }
        Ok(())
    }
}
