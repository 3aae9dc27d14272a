//! Commands that a signal ends: they leave nothing behind, because their unfinished files have all keys.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

use crate::client::runtime;
use crate::exit::Failure;

/// Files and directories to be removed.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Attempts to remove a directory that the command is still writing to, and the time between them.
const ATTEMPTS: usize = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// Has SIGINT, SIGTERM and SIGHUP remove what is unfinished before they end the process, with the exit code that a
/// shell reports for the signal.
pub(crate) fn listen() -> Result<(), Failure> {
    let (tell, listening) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = match runtime() {
            Ok(runtime) => runtime,
            Err(failure) => return drop(tell.send(Err(failure))),
        };
        runtime.block_on(async {
            let open = [Signal::INT, Signal::TERM, Signal::HUP].map(|one| signal(SignalKind::from_raw(one.as_raw())));
            let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hang_up)] = open else {
                let error = std::io::Error::other("cannot be listened to");
                return drop(tell.send(Err(Failure::io("signals", &error))));
            };
            let _ = tell.send(Ok(()));
            let ended = tokio::select! {
                _ = interrupt.recv() => Signal::INT,
                _ = terminate.recv() => Signal::TERM,
                _ = hang_up.recv() => Signal::HUP,
            };
            // Until the end of the process: nothing is finished any more, and the command says nothing.
            let unfinished = hold();
            unfinished.iter().for_each(|path| remove(path));
            std::process::exit(128 + ended.as_raw());
        });
    });
    listening.recv().unwrap_or(Ok(()))
}

/// Adds a file or directory. It is to be known before there is a secret in it.
pub(crate) fn add(path: &Path) {
    hold().push(path.to_owned());
}

/// Waits for a removal, which ends the process; none begins while the result is kept.
pub(crate) fn hold() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn remove(path: &Path) {
    for _ in 0..ATTEMPTS {
        let is_directory = fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
        match if is_directory { fs::remove_dir_all(path) } else { fs::remove_file(path) } {
            Ok(()) => return,
            Err(error) if error.kind() == ErrorKind::NotFound => return,
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
    eprintln!("fogmux: {}: cannot be removed; it has keys", path.display());
}
