//! The state of ACME that a restart must not forget: a gateway that is restarted again and again would use up what the
//! server allows in an hour.

use std::io::{self, ErrorKind};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::data;

/// Attempts so far, and the times of the next. All times are in seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct State {
    /// The server, the challenge and the names that it is about: others begin anew.
    pub(crate) subject: String,
    /// Attempts that have failed since the last success.
    pub(crate) failures: u32,
    /// Orders that were begun since then, those included that ended with the gateway.
    pub(crate) begun: u32,
    pub(crate) last_failure: Option<Failure>,
    /// No attempt before this.
    pub(crate) next_unix_s: u64,
    /// No attempt before this, by the server's word (`Retry-After`).
    pub(crate) asked_unix_s: u64,
    /// When the certificate is renewed; 0 for the usual part of its lifetime.
    pub(crate) renew_unix_s: u64,
    /// When the server is asked for a better time (RFC 9773); 0 for never.
    pub(crate) ask_unix_s: u64,
}

/// An attempt that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) unix_s: u64,
    pub(crate) reason: String,
    /// The type of the server's problem (RFC 8555 §6.7) without its prefix, or one of those below; `None` if the server
    /// has not answered.
    pub(crate) problem: Option<String>,
}

/// Problems that are no types of RFC 8555, which have no spaces.
impl Failure {
    /// The server refuses the external account that was shown.
    pub(crate) const EXTERNAL_ACCOUNT: &str = "external account refused";
    /// The file of the external account's key cannot be used.
    pub(crate) const KEY_FILE: &str = "external account key file";
}

impl State {
    /// Reads the file; the beginning if there is none.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    pub(crate) fn read(file: &Path) -> io::Result<Self> {
        match fogmux_file::read(file) {
            Ok(text) => serde_json::from_slice(&text).map_err(io::Error::from),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Replaces the file, in a directory that is made if it is the first.
    pub(super) fn write(&self, file: &Path) -> io::Result<()> {
        file.parent().map_or(Ok(()), data::make)?;
        data::replace_private(file, &serde_json::to_vec_pretty(self)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_state_is_written_before_anything_else_of_acme() {
        let data = tempfile::tempdir().unwrap();
        let file = crate::acme::files(data.path()).state;
        let state = State { begun: 1, ..State::default() };
        state.write(&file).unwrap();
        assert_eq!(State::read(&file).unwrap(), state);
    }
}
