//! OSCORE in a program without the CoAP door: there are no contexts.

use std::path::{Path, PathBuf};

/// No contexts.
#[derive(Debug, Default)]
pub(crate) struct Keyring;

/// Nothing that was read.
pub(crate) struct Fresh;

/// Never happens.
#[derive(Debug, thiserror::Error)]
#[error("there is no CoAP door")]
pub(crate) struct KeyringError;

/// The sequence numbers of a backup.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BackedUp {
    #[expect(dead_code, reason = "the same fields as those of the program with the CoAP door")]
    pub(crate) unix_s: u64,
    #[expect(dead_code, reason = "the same fields as those of the program with the CoAP door")]
    pub(crate) below: u64,
}

impl KeyringError {
    pub(crate) const fn is_of_disk(&self) -> bool {
        false
    }
}

impl Keyring {
    pub(crate) const fn read_usable(&self, _directory: &Path) -> Result<Fresh, KeyringError> {
        Ok(Fresh)
    }

    pub(crate) const fn why_waiting(&self) -> Option<String> {
        None
    }

    pub(crate) const fn can_go_on(&self) -> bool {
        false
    }

    pub(crate) const fn replace(&self, _fresh: Fresh, _journal: &Path) -> Result<(), KeyringError> {
        Ok(())
    }
}

impl Fresh {
    pub(crate) const fn left_out(&self) -> &[String] {
        &[]
    }

    pub(crate) const fn is_empty(&self) -> bool {
        true
    }
}

pub(crate) fn note_restored(_journal: &Path, _backup: BackedUp) -> std::io::Result<()> {
    Ok(())
}

pub(crate) fn reserved_below(_journal: &Path) -> std::io::Result<u64> {
    Ok(0)
}

pub(crate) fn journal_path(data: &Path) -> PathBuf {
    data.to_owned()
}
