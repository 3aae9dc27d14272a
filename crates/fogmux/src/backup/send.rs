//! `POST /api/v1/backup`: the file of `fogmux backup`, made by the gateway itself and sent while it is made.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use fogmux_gateway::administration::{Download, Refusal, Upload, download};
use fogmux_store::JournalStore;

use super::Contents;
use super::control::Copies;
use crate::config::Config;

/// The pieces that are sent.
pub(crate) struct Sent {
    pub(crate) config: Config,
    /// The configuration file; `None` for the built-in defaults.
    pub(crate) file: Option<PathBuf>,
    pub(crate) directory: PathBuf,
    pub(crate) store: JournalStore,
    /// Held while the store is copied, by `fogmux backup` as well.
    pub(crate) copies: Copies,
}

impl Sent {
    /// Begins, in a thread of its own, for it waits for the disk and for the client.
    ///
    /// # Errors
    /// [`Refusal::Full`] if another backup is under way; [`Refusal::Failed`].
    pub(crate) fn begin(self) -> Result<Download, Refusal> {
        let failed = |error: std::io::Error| Refusal::Failed(format!("a backup cannot be made: {error}"));
        let Ok(alone) = Arc::clone(&self.copies).try_lock_owned() else {
            return Err(Refusal::Full("another backup is under way".to_owned()));
        };
        let (upload, begun) = download(name());
        let send = move || {
            self.send(upload);
            drop(alone);
        };
        std::thread::Builder::new().name("backup".to_owned()).spawn(send).map_err(failed)?;
        Ok(begun)
    }

    fn send(self, mut upload: Upload) {
        let name = PathBuf::from("the backup");
        let contents = Contents {
            config: &self.config,
            file: self.file.as_deref(),
            directory: &self.directory,
            store: Some(self.store),
            name: &name,
        };
        match contents.write(&mut upload) {
            Ok(made) => match upload.finish() {
                Ok(bytes) => {
                    for path in &made.skipped {
                        tracing::warn!(file = %path.display(), "left out of a backup: no file and no directory of ours");
                    }
                    let (files, unreadable_blocks) = (made.files, made.unreadable_blocks);
                    tracing::info!(files, bytes, unreadable_blocks, "a backup was sent");
                }
                Err(error) => tracing::warn!(%error, "a backup was not sent to its end"),
            },
            Err(failure) => {
                let why = failure.message().unwrap_or_default();
                tracing::warn!("a backup was not sent to its end: {why}");
            }
        }
    }
}

/// The name that is suggested to the client, with the day by UTC.
fn name() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut time = Vec::new();
    fogmux_http::time::push_rfc3339(since.as_secs().saturating_mul(1000), &mut time);
    let time = String::from_utf8(time).unwrap_or_default();
    format!("fogmux-{}.tar", time.split('T').next().unwrap_or_default())
}
