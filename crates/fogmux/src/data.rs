//! The data directory and the locations of files in it.

use std::path::{Path, PathBuf};

use crate::exit::{Failure, Status};

/// The gateway's own authority and certificate, below the data directory.
pub(crate) const PKI: &str = "pki";
/// The certificate of the gateway's own authority, below the data directory.
pub(crate) const AUTHORITY: &str = "pki/ca.pem";
/// The revocation list of the gateway's own authority, below the data directory.
pub(crate) const REVOCATIONS: &str = "pki/crl.pem";
/// Users, below the data directory.
pub(crate) const USERS: &str = "users.toml";
/// Directory of the store.
pub(crate) const STORE: &str = "store";
/// Pre-shared keys, below the data directory.
pub(crate) const PSK: &str = "psk.toml";
/// The mapping of certificates to users, below the data directory.
pub(crate) const CERTIFICATES: &str = "certificates.toml";
/// OSCORE contexts and their sequence numbers, below the data directory.
pub(crate) const OSCORE: &str = "oscore";
/// The account, the certificate and the state of an ACME server, below the data directory.
pub(crate) const ACME: &str = "acme";
/// Access rules, below the data directory.
pub(crate) const ACL: &str = "acl.toml";
/// Measurements and their results, below the data directory.
pub(crate) const BENCH: &str = "bench";
/// The files of links to other brokers, below the data directory.
pub(crate) const LINKS: &str = "links";
/// The end of the names of those that tell which session a link has.
pub(crate) const LINK_SESSION: &str = ".session";
/// The files that must not be gone at the next start, below the data directory.
pub(crate) const IN_USE: &str = "files-in-use";

/// Returns the directory named on the command line, or the default.
pub(crate) fn directory(named: Option<&Path>) -> Result<PathBuf, Failure> {
    named.map_or_else(default_directory, |named| Ok(named.to_owned()))
}

/// Returns systemd's `STATE_DIRECTORY`, else `fogmux` in `$XDG_STATE_HOME` or `~/.local/state`.
pub(crate) fn default_directory() -> Result<PathBuf, Failure> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // systemd may pass several, separated by colons (systemd.exec(5)); the first is used.
    if let Some(state) = std::env::var_os("STATE_DIRECTORY").filter(|value| !value.is_empty()) {
        let first = state.to_string_lossy().split(':').next().map(PathBuf::from);
        return first.ok_or_else(|| Failure::new(Status::Config, "STATE_DIRECTORY is empty"));
    }
    // The XDG base directory specification: relative values are to be ignored.
    if let Some(state) = variable("XDG_STATE_HOME").filter(|path| path.is_absolute()) {
        return Ok(state.join("fogmux"));
    }
    match variable("HOME") {
        Some(home) => Ok(home.join(".local/state/fogmux")),
        None => Err(Failure::new(Status::Usage, "HOME is not set; name the data directory with --data DIR")),
    }
}

/// Returns the file if it exists. A link exists even if it leads nowhere: what refuses access may only not be mounted
/// yet. An error other than "not found" is returned.
pub(crate) fn found(file: PathBuf) -> Result<Option<PathBuf>, Failure> {
    match std::fs::symlink_metadata(&file) {
        Ok(_) => Ok(Some(file)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::io(file.display(), &error)),
    }
}

/// Refuses what is no file where the files of the gateway's own authority are: to open a FIFO takes until somebody
/// writes to it.
pub(crate) fn check_authority(directory: &Path) -> Result<(), Failure> {
    let files = std::fs::read_dir(directory.join(PKI)).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_read = |file: &PathBuf| file.extension().is_some_and(|ending| ending == "pem" || ending == "key");
    for file in files.filter(is_read) {
        match fogmux_file::check_if_there(&file) {
            // A directory is refused by who reads it.
            Err(error) if error.kind() != std::io::ErrorKind::IsADirectory => {
                return Err(Failure::new(Status::Config, format!("{}: {error}", file.display())));
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// Writes a file that only its owner can read, replacing any previous one; as root for the owner of the directory.
pub(crate) fn write_private(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut open = std::fs::File::options().write(true).create_new(true).mode(0o600).open(file)?;
    fogmux_net::pki::inherit(&open, file)?;
    open.write_all(bytes)?;
    open.sync_all()
}

/// Writes a file as [`write_private`] does, and renames it into place: after a power cut it has the old text or the
/// new, and so it has if the disk is full.
pub(crate) fn replace_private(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let beside = file.with_extension("new");
    write_private(&beside, bytes).and_then(|()| std::fs::rename(&beside, file)).inspect_err(|_| {
        let _ = std::fs::remove_file(&beside);
    })?;
    std::fs::File::open(file.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// Creates the directory with its parents, accessible only to its owner; as root for the owner of the directory above.
pub(crate) fn create(directory: &Path) -> Result<(), Failure> {
    make(directory).map_err(|error| Failure::io(directory.display(), &error))
}

/// Keeps other gateways from a data directory for as long as the file is open, also those that have their stores
/// elsewhere: they would renew its keys and take away its control socket. `None` where a directory cannot be locked.
pub(crate) fn lock(directory: &Path) -> Result<Option<std::fs::File>, Failure> {
    let Ok(open) = std::fs::File::open(directory) else { return Ok(None) };
    match open.try_lock() {
        Ok(()) => Ok(Some(open)),
        Err(std::fs::TryLockError::WouldBlock) => {
            let text = format!("{}: another gateway uses this data directory", directory.display());
            Err(Failure::new(Status::Unavailable, text))
        }
        // NFS locks only what is open for writing.
        Err(std::fs::TryLockError::Error(_)) => Ok(None),
    }
}

/// As [`create`], for a caller that can continue without it.
pub(crate) fn make(directory: &Path) -> std::io::Result<()> {
    fogmux_net::pki::make_directory(directory)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, chown};

    use super::*;

    /// Has an effect only as root, because only root may change the owner of files.
    #[test]
    fn what_root_writes_belongs_to_whose_directory_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a");
        if chown(directory.path(), Some(54_321), Some(54_322)).is_ok() {
            write_private(&file, b"secret").unwrap();
            write_private(&file, b"another").unwrap();
            assert_eq!(std::fs::metadata(&file).unwrap().uid(), 54_321);
        }
    }
}
