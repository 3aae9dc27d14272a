//! The files of a backup besides the store's.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::control;
use crate::config::Config;
use crate::data;
use crate::exit::{Failure, Status};

/// A file and its name in the archive.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) path: PathBuf,
    /// Whether a link is followed: where the operator names it, and not in a directory that others may write to.
    follow: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Members {
    pub(super) files: Vec<Member>,
    /// The places of files outside the data directory, by the key that names them.
    pub(super) named: BTreeMap<String, PathBuf>,
    /// Links, sockets and devices, and stores that are not the gateway's: they are left out.
    pub(super) skipped: Vec<PathBuf>,
}

/// Files of OSCORE contexts that belong to a run of a gateway.
///
/// The sequence numbers are left out on purpose. A gateway that is restored must not believe what it had seen and used
/// by then: without them it begins above any number that was used, and has each client prove that its request is new
/// (RFC 8613 appendix B.1). The manifest says how far numbers were reserved by then.
const OF_A_RUN: [&str; 2] = ["journal", "journal.lock"];

/// Certificates, keys and revocation lists have less.
const AT_ONCE_BYTES_MAX: u64 = 4 << 20;

/// A file or directory, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity(u64, u64);

impl Identity {
    fn of(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|found| Self(found.dev(), found.ino()))
    }
}

/// The places that are not copied as they are. They are known by what they are: the configuration may call them by
/// other names than those that lead to them from the data directory.
#[derive(Debug)]
struct LeftOut {
    /// The store, which the gateway copies.
    store: Option<Identity>,
    /// The place of the store that is used if the configuration names none. What is in it otherwise is an old one.
    usual_store: PathBuf,
    oscore: Option<Identity>,
    /// Which session at another broker goes with the session of a link here. The restored one is older: packet
    /// identifiers would mean other messages, so the link has to begin a new one (ADR 0077).
    links: PathBuf,
    control: PathBuf,
    /// Measurements of this machine, which change while one is made.
    measurements: PathBuf,
}

/// Finds them.
pub(super) fn find(config: &Config, file: Option<&Path>, directory: &Path) -> Result<Members, Failure> {
    let mut members = Members::default();
    let usual_store = directory.join(data::STORE);
    let left_out = LeftOut {
        store: Identity::of(config.store.path.as_ref().unwrap_or(&usual_store)),
        usual_store,
        // Wherever the contexts are.
        oscore: Identity::of(&directory.join(data::OSCORE)),
        links: directory.join(data::LINKS),
        control: directory.join(control::NAME),
        measurements: directory.join(data::BENCH),
    };
    members.walk("data", directory, &left_out)?;
    if let Some(file) = file {
        members.add("config/fogmux.toml".to_owned(), file.to_owned(), true);
        let beside = file.parent().unwrap_or(Path::new("")).join("conf.d");
        if beside.is_dir() {
            members.walk("config/conf.d", &beside, &left_out)?;
        }
    }
    for (key, path) in named(config) {
        let Some(path) = path else { continue };
        let path = std::path::absolute(path).map_err(|error| Failure::io(path.display(), &error))?;
        if is_walked(&path, directory) || !path.exists() {
            continue;
        }
        if path.is_dir() {
            members.walk(&format!("named/{key}"), &path, &left_out)?;
        } else {
            members.add(format!("named/{key}"), path.clone(), true);
        }
        members.named.insert(key, path);
    }
    Ok(members)
}

impl Members {
    /// Reads the files of the authority, which belong together: the caller holds their lock since before they were
    /// listed.
    pub(super) fn read_at_once(&self, directory: &Path) -> Result<BTreeMap<String, Vec<u8>>, Failure> {
        let mut read = BTreeMap::new();
        for member in self.files.iter().filter(|member| member.path.parent() == Some(directory)) {
            let mut content = Vec::new();
            match member.open().and_then(|(file, _)| file.take(AT_ONCE_BYTES_MAX).read_to_end(&mut content)) {
                Ok(bytes) if (bytes as u64) < AT_ONCE_BYTES_MAX => drop(read.insert(member.name.clone(), content)),
                // It is copied with the others.
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(Failure::io(member.path.display(), &error)),
            }
        }
        Ok(read)
    }
}

/// Returns whether a file is one of the data directory, whatever either is called. A link that leads out of it is not.
fn is_walked(path: &Path, directory: &Path) -> bool {
    let is_link = std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    !is_link && is_inside(path, directory)
}

/// Returns whether a file is below a directory, or would be if it were created, by whatever names.
pub(super) fn is_inside(path: &Path, directory: &Path) -> bool {
    let Ok(directory) = directory.canonicalize() else { return false };
    let above = |path: &Path| path.parent().filter(|parent| !parent.as_os_str().is_empty()).map(Path::to_owned);
    let real = path.canonicalize().or_else(|_| above(path).unwrap_or_else(|| ".".into()).canonicalize());
    real.is_ok_and(|real| real.starts_with(directory))
}

/// Every file that the configuration may name.
fn named(config: &Config) -> Vec<(String, Option<&Path>)> {
    let (auth, tls) = (&config.auth, &config.tls);
    let token = &auth.token.settings;
    let all = [
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
        ("acme.ca_file", config.acme.ca_file.as_deref()),
        ("acme.external_account_key_file", config.acme.external_account_key_file.as_deref()),
        ("coap.oscore.directory", config.coap.oscore.directory.as_deref()),
    ];
    let all = all.into_iter().map(|(key, path)| (key.to_owned(), path));
    all.chain(config.links.files()).collect()
}

impl Member {
    /// Opens it for reading, with its length. What has become something else than a file since it was found is refused:
    /// whoever may write to the directory may put a link or a FIFO in its place.
    pub(super) fn open(&self) -> io::Result<(File, u64)> {
        let follow = if self.follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | follow;
        let file = File::from(rustix::fs::open(&self.path, flags, Mode::empty())?);
        let found = file.metadata()?;
        if found.is_file() { Ok((file, found.len())) } else { Err(io::Error::other("is no regular file")) }
    }
}

impl Members {
    fn add(&mut self, name: String, path: PathBuf, follow: bool) {
        self.files.push(Member { name, path, follow });
    }

    /// Adds the regular files below a directory, in order of their names.
    fn walk(&mut self, name: &str, directory: &Path, left_out: &LeftOut) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::io(directory.display(), &error);
        let mut entries: Vec<_> =
            std::fs::read_dir(directory).map_err(failed)?.collect::<Result<_, _>>().map_err(failed)?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        let of_a_run = left_out.oscore.is_some() && Identity::of(directory) == left_out.oscore;
        for entry in entries {
            let path = entry.path();
            let Some(own) = entry.file_name().to_str().map(str::to_owned) else {
                return Err(Failure::new(Status::DataErr, format!("{}: its name is not UTF-8", path.display())));
            };
            let of_a_session = directory == left_out.links && own.ends_with(data::LINK_SESSION);
            let of_a_run = of_a_session || of_a_run && OF_A_RUN.contains(&&*own);
            if path == left_out.control || path == left_out.measurements || of_a_run {
                continue;
            }
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_dir() {
                if left_out.store.is_some() && Identity::of(&path) == left_out.store {
                    continue;
                }
                if path == left_out.usual_store {
                    self.skipped.push(path);
                    continue;
                }
                self.walk(&format!("{name}/{own}"), &path, left_out)?;
            } else if kind.is_file() {
                self.add(format!("{name}/{own}"), path, false);
            } else {
                self.skipped.push(path);
            }
        }
        Ok(())
    }
}
