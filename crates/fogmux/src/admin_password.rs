//! The file with the administrator's first password. It is deleted when that password is changed, because an old
//! password helps only an attacker who tries it elsewhere.

use std::io::ErrorKind;
use std::path::Path;

use fogmux_auth::{Authority, Refused, Scratch};
use fogmux_net::channel::Zeroizing;

/// The user that the first start creates.
pub(crate) const ADMIN: &str = "admin";
/// The file of its password below the data directory, readable by its owner only.
pub(crate) const FILE: &str = "admin-password";

/// Deletes the file if its password is no longer the administrator's. A disabled administrator keeps it.
pub(crate) fn look(authority: &Authority, directory: &Path) {
    let Ok(text) = fogmux_file::read_to_string(&directory.join(FILE)).map(Zeroizing::new) else { return };
    let password = text.lines().next().unwrap_or_default();
    if authority.rules().users().is_disabled(ADMIN) {
        return;
    }
    if authority.password(ADMIN, password.as_bytes(), &mut Scratch::new()) == Err(Refused::Credentials) {
        delete(directory);
    }
}

/// Deletes the file if it exists.
pub(crate) fn delete(directory: &Path) {
    let file = directory.join(FILE);
    match std::fs::remove_file(&file) {
        Ok(()) => tracing::info!(file = %file.display(), "deleted: the password in it was changed"),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => tracing::warn!(%error, "{} contains an old password and cannot be deleted", file.display()),
    }
}
