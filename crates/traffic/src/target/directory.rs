//! Temporary directories that nobody else reads, and that do not outlive their process: what a killed one left is
//! removed by the next.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use fogmux_net::channel::hex;
use rustix::fs::{FlockOperation, flock};

use super::TargetError;
use super::home::secret;

const PREFIX: &str = "fogmux-bench-";
/// Below the directory; locked for as long as its process lives.
const LOCK: &str = "lock";

/// A directory of this process, removed when this is dropped.
#[derive(Debug)]
pub(crate) struct PrivateDirectory {
    path: PathBuf,
    _lock: File,
}

impl PrivateDirectory {
    /// Makes one below the system's temporary directory, and removes those of processes that are gone.
    pub(crate) fn new() -> Result<Self, TargetError> {
        Self::below(&std::env::temp_dir())
    }

    fn below(parent: &Path) -> Result<Self, TargetError> {
        remove_leftovers(parent);
        let path = parent.join(format!("{PREFIX}{}", hex(&secret(8)?)));
        let failed = |error| TargetError::Io(path.display().to_string(), error);
        DirBuilder::new().mode(0o700).create(&path).map_err(failed)?;
        let lock = File::create_new(path.join(LOCK)).map_err(failed)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| failed(error.into()))?;
        Ok(Self { path, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        // It holds secrets that nobody needs any more. If it cannot be removed there is nobody to tell.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes directories of this user whose lock nobody holds. A process identifier would not do: the temporary directory
/// may be shared with another container, where it means another process.
fn remove_leftovers(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) && is_left(&entry.path()).unwrap_or(false) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether a directory is one of ours, and of a process that is gone. One without a lock may be about to get it.
fn is_left(path: &Path) -> io::Result<bool> {
    let found = fs::symlink_metadata(path)?;
    if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() {
        return Ok(false);
    }
    let lock = File::open(path.join(LOCK))?;
    Ok(flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_left_is_removed_and_nothing_else() {
        let parent = tempfile::tempdir().unwrap();
        let alive = PrivateDirectory::below(parent.path()).unwrap();
        fs::write(alive.path().join("secret"), "x").unwrap();
        // A process that is killed leaves its directory, without a lock that anybody holds.
        let left = parent.path().join(format!("{PREFIX}0123456789abcdef"));
        fs::create_dir(&left).unwrap();
        fs::write(left.join(LOCK), "").unwrap();
        let foreign = parent.path().join("fogmux-other");
        let unlocked = parent.path().join(format!("{PREFIX}fedcba9876543210"));
        for path in [&foreign, &unlocked] {
            fs::create_dir(path).unwrap();
        }
        std::os::unix::fs::symlink(&foreign, parent.path().join(format!("{PREFIX}link"))).unwrap();
        let next = PrivateDirectory::below(parent.path()).unwrap();
        assert!(!left.exists());
        assert!(alive.path().join("secret").exists() && foreign.exists() && unlocked.exists());
        assert_eq!(fs::metadata(next.path()).unwrap().mode() & 0o777, 0o700);
        let path = next.path().to_owned();
        drop(next);
        assert!(!path.exists());
    }
}
