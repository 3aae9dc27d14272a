//! The file with the first password of the administrator, which is deleted when that password is changed: it would be
//! of use only to somebody who looks for one that is used elsewhere too.

use std::io::ErrorKind;
use std::path::Path;

use fogmux_auth::{Authority, Refused, Scratch};
use fogmux_net::channel::Zeroizing;

/// The user that the first start makes.
pub(crate) const ADMIN: &str = "admin";
/// Where its password is left, for its owner only; below the data directory.
pub(crate) const FILE: &str = "admin-password";

/// Deletes the file if its password is no longer the administrator's. One that is disabled for a while keeps it.
pub(crate) fn look(authority: &Authority, directory: &Path) {
    let Ok(text) = std::fs::read_to_string(directory.join(FILE)).map(Zeroizing::new) else { return };
    let password = text.lines().next().unwrap_or_default();
    if authority.rules().users().is_disabled(ADMIN) {
        return;
    }
    if authority.password(ADMIN, password.as_bytes(), &mut Scratch::new()) == Err(Refused::Credentials) {
        delete(directory);
    }
}

/// Deletes the file, if there is one.
pub(crate) fn delete(directory: &Path) {
    let file = directory.join(FILE);
    match std::fs::remove_file(&file) {
        Ok(()) => tracing::info!(file = %file.display(), "deleted: the password in it was changed"),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => tracing::warn!(%error, "{} contains an old password and cannot be deleted", file.display()),
    }
}
