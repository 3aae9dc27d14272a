//! The first file of a backup: what it is.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::members::Members;
use super::tar::malformed;

/// Its name.
pub(super) const NAME: &str = "fogmux-backup.json";
/// The format that this release writes. One that is higher is refused.
const FORMAT: u32 = 1;

/// The description of a backup.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Manifest {
    format: u32,
    /// The release that wrote it.
    pub(super) fogmux: String,
    /// When, in seconds since 1970.
    pub(super) unix_s: u64,
    /// No OSCORE context had a sequence number reserved from here on.
    #[serde(default)]
    pub(super) oscore_below: u64,
    /// Where files outside the data directory were, by the key that names them.
    pub(super) named: BTreeMap<String, PathBuf>,
}

impl Manifest {
    pub(super) fn new(members: &Members, oscore_below: u64) -> Self {
        let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let fogmux = env!("CARGO_PKG_VERSION").to_owned();
        Self { format: FORMAT, fogmux, unix_s, oscore_below, named: members.named.clone() }
    }

    pub(super) fn to_json(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec_pretty(self).unwrap_or_default();
        text.push(b'\n');
        text
    }

    /// Reads it, if this release can read the backup.
    pub(super) fn parse(text: &[u8]) -> std::io::Result<Self> {
        let found: Self = serde_json::from_slice(text).map_err(|error| malformed(&format!("{NAME}: {error}")))?;
        if found.format > FORMAT {
            let why = format!("it was written by a later release, {}, in format {}", found.fogmux, found.format);
            return Err(malformed(&why));
        }
        Ok(found)
    }
}
