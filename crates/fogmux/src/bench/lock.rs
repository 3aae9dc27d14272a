//! The lock on the directory of a report: two measurements would each write a part of what is in it.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::OnceLock;

use crate::exit::{Failure, Status};

/// The directory, locked for as long as this process lives. It leaves no file behind.
static HELD: OnceLock<File> = OnceLock::new();

/// Locks the directory of this process's report, unless it has done so already.
///
/// # Errors
/// Another process has it, or it cannot be opened.
pub(super) fn hold(directory: &Path) -> Result<(), Failure> {
    if HELD.get().is_some() {
        return Ok(());
    }
    let file = locked(directory)?;
    // Another thread would have locked the same directory.
    let _ = HELD.set(file);
    Ok(())
}

fn locked(directory: &Path) -> Result<File, Failure> {
    let file = File::open(directory).map_err(|error| Failure::io(directory.display(), &error))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            let directory = directory.display();
            let why = format!("{directory}: another measurement writes into it; wait for its end, or name another DIR");
            Err(Failure::new(Status::Unavailable, why))
        }
        // Some network file systems lock no directories.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_of_one_measurement_at_a_time() {
        let place = tempfile::tempdir().unwrap();
        let held = locked(place.path()).unwrap();
        let refused = locked(place.path()).unwrap_err();
        assert_eq!(refused.status, Status::Unavailable);
        assert!(refused.message().unwrap_or_default().contains("another measurement writes into it"));
        drop(held);
        assert!(locked(place.path()).is_ok());
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
