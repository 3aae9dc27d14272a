//! OSCORE contexts on the disk of a gateway: their location, and their activation.

#[cfg(not(feature = "coap"))]
mod absent;

use std::path::{Path, PathBuf};

#[cfg(feature = "coap")]
pub(crate) use fogmux_gateway::coap::oscore::{BackedUp, Fresh, Keyring};
#[cfg(feature = "coap")]
use fogmux_gateway::coap::oscore::{KeyringError, journal_path, note_restored, reserved_below};

#[cfg(not(feature = "coap"))]
pub(crate) use self::absent::{BackedUp, Fresh, Keyring};
#[cfg(not(feature = "coap"))]
use self::absent::{KeyringError, journal_path, note_restored, reserved_below};
use crate::config::Config;
use crate::exit::{Failure, Status};
use crate::{data, disk};

/// Returns the directory of contexts: the configured one, or the default in the data directory.
pub(crate) fn directory(config: &Config, data: &Path) -> PathBuf {
    config.coap.oscore.directory.clone().unwrap_or_else(|| data.join(data::OSCORE))
}

/// Reads contexts that are to be activated, without changing anything. A file that gives none is left out, so that one
/// device without OSCORE does not take it from all others.
pub(crate) fn read_usable(keyring: &Keyring, config: &Config, data: &Path) -> Result<Fresh, Failure> {
    keyring.read_usable(&directory(config, data)).map_err(refused)
}

/// Activates the contexts that were read, and logs what was left out. If that fails, removed contexts are deactivated
/// nevertheless.
pub(crate) fn put_in_place(keyring: &Keyring, fresh: Fresh, data: &Path) -> Result<(), Failure> {
    for problem in fresh.left_out() {
        tracing::error!("{problem}; this OSCORE context is not in use");
    }
    let made = data::create(&data.join(data::OSCORE));
    if !fresh.is_empty() {
        made?;
    }
    keyring.replace(fresh, &journal_path(data)).map_err(|error| match error.is_of_disk() {
        true => disk::failure(error.to_string()),
        false => Failure::new(Status::IoErr, error),
    })
}

/// Notes in a data directory that comes from a backup that its contexts were used, however new they are: requests that
/// were recorded since must not be accepted again. Their sequence numbers begin beyond those of the backup.
pub(crate) fn restored(data: &Path, backup: BackedUp) -> std::io::Result<()> {
    data::make(&data.join(data::OSCORE))?;
    note_restored(&journal_path(data), backup)
}

/// Returns the sequence number from which on no context has reserved any, for a backup of the data directory.
pub(crate) fn reserved(data: &Path) -> Result<u64, Failure> {
    let journal = journal_path(data);
    reserved_below(&journal).map_err(|error| Failure::io(journal.display(), &error))
}

/// Returns the log line for a failed [`put_in_place`].
pub(crate) fn not_in_use(failure: &Failure) -> String {
    format!("new OSCORE contexts are not in use: {}", failure.message().unwrap_or_default())
}

fn refused(error: KeyringError) -> Failure {
    Failure::new(Status::Config, error)
}
