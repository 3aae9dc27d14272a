//! Files that can be read without waiting for anybody and without filling the memory.

use std::io;
use std::path::Path;

/// The largest file that is read whole: far above any of users, rules, keys or certificates.
const BYTES_MAX: u64 = 64 << 20;

/// Looks at a file without opening it. To open a FIFO takes until somebody writes to it.
///
/// # Errors
/// It is no regular file, or too large, or cannot be looked at.
pub(crate) fn check(file: &Path) -> io::Result<()> {
    let found = std::fs::metadata(file)?;
    if found.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !found.is_file() {
        return Err(io::Error::other("is no regular file"));
    }
    if found.len() > BYTES_MAX {
        return Err(io::Error::other(format!("has {} MiB, more than {}", found.len() >> 20, BYTES_MAX >> 20)));
    }
    Ok(())
}

/// The same for a file that need not be there, or that this process may not look at: who reads it is told that.
///
/// # Errors
/// It is there, and is no regular file or too large.
pub(crate) fn check_if_there(file: &Path) -> io::Result<()> {
    match check(file) {
        Err(error) if error.kind() == io::ErrorKind::Other || error.kind() == io::ErrorKind::IsADirectory => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
