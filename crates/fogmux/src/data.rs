//! The data directory and what lies where in it.

use std::path::{Path, PathBuf};

use crate::exit::{Failure, Status};

/// Our own authority and certificate, below the data directory.
pub(crate) const PKI: &str = "pki";
/// The certificate of the gateway's own authority, below the data directory.
pub(crate) const AUTHORITY: &str = "pki/ca.pem";
/// Users, below the data directory.
pub(crate) const USERS: &str = "users.toml";
/// Access rules, below the data directory.
pub(crate) const ACL: &str = "acl.toml";

/// The directory that was named, or the default.
pub(crate) fn directory(named: Option<&Path>) -> Result<PathBuf, Failure> {
    named.map_or_else(default_directory, |named| Ok(named.to_owned()))
}

/// systemd's `STATE_DIRECTORY`, else `fogmux` in `$XDG_STATE_HOME` or `~/.local/state`.
pub(crate) fn default_directory() -> Result<PathBuf, Failure> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // systemd may name several, separated by colons (systemd.exec(5)); the first is ours.
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
        None => Err(Failure::new(Status::Usage, "HOME is not set; say where the data goes with --data DIR")),
    }
}

/// Makes the directory with everything above it; only its owner may look inside.
pub(crate) fn create(directory: &Path) -> Result<(), Failure> {
    use std::os::unix::fs::DirBuilderExt as _;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(|error| Failure::io(directory.display(), &error))
}
