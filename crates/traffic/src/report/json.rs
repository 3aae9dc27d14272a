//! JSON: everything that was counted, with whole histograms. The keys are those of [`crate::outcome`]; they are only
//! added to, so that a report of today is read by the versions to come.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::command;
use crate::outcome::Report;

/// The format that is written, and the newest that is read.
pub const VERSION: u32 = 1;

/// Why a file is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// It is something else.
    #[error("{}: no report of `fogmux bench`: {source}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The place and the fault.
        source: serde_json::Error,
    },
    /// A later fogmux has written it.
    #[error("{}: format {version} is newer than {VERSION}, the newest that this version reads", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        version: u32,
    },
}

/// Writes a report.
///
/// # Errors
/// The file cannot be written.
pub fn write(report: &Report, path: &Path) -> io::Result<()> {
    let mut text = serde_json::to_string(report)?;
    text.push('\n');
    super::write_private(path, &text)
}

/// Reads a report.
///
/// # Errors
/// It cannot be read, or is none.
pub fn read(path: &Path) -> Result<Report, ReadError> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let text = fs::read_to_string(path).map_err(|source| ReadError::File { path: path.to_owned(), source })?;
    let content = |source| ReadError::Content { path: path.to_owned(), source };
    // First, since the rest of a later format may be anything.
    let Version { version } = serde_json::from_str(&text).map_err(content)?;
    if version > VERSION {
        return Err(ReadError::Newer { path: path.to_owned(), version });
    }
    let mut report: Report = serde_json::from_str(&text).map_err(content)?;
    report.command = command::redacted(&report.command);
    Ok(report)
}
