//! The gateway's own authority as those see it who look at certificates: when it ends, and whether another is about to
//! take its place.

use std::{
    path::Path,
    sync::{PoisonError, RwLock},
};

use crate::{
    dates::{self, Dates},
    pki::Rollover,
};

/// The authority, or both in a rollover, as they were read last.
#[derive(Debug)]
pub(crate) struct OwnAuthority {
    file: Box<Path>,
    read: RwLock<Read>,
}

#[derive(Clone, Debug, Default)]
struct Read {
    dates: Vec<Dates>,
    rollover: Option<Rollover>,
}

impl OwnAuthority {
    /// Reads the file of its certificate and, in the same directory, how far a rollover is.
    pub(crate) fn open(file: &Path) -> Self {
        let own = Self { file: file.into(), read: RwLock::default() };
        own.reload();
        own
    }

    /// Reads the files again. No handshake needs them: where one cannot be read, what was read before stays.
    pub(crate) fn reload(&self) {
        let Ok(dates) = dates::dates(&self.file) else { return };
        let directory = self.file.parent().unwrap_or(Path::new("."));
        match Rollover::of(directory) {
            Ok(rollover) => *self.read.write().unwrap_or_else(PoisonError::into_inner) = Read { dates, rollover },
            Err(error) => tracing::warn!(%error, "whether a rollover of the authority is under way cannot be told"),
        }
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// When the certificates in the file are valid, in its order.
    pub(crate) fn dates(&self) -> Vec<Dates> {
        self.read.read().unwrap_or_else(PoisonError::into_inner).dates.clone()
    }

    pub(crate) fn rollover(&self) -> Option<Rollover> {
        self.read.read().unwrap_or_else(PoisonError::into_inner).rollover.clone()
    }
}
