//! The meaning of errors for the data: whether they are damaged, or the system refuses to read or write them.

use std::{
    any::Any,
    fs::{self, File},
    io::{self, Read as _},
    path::Path,
};

use super::OpenError;

/// Why a tree was not opened.
#[derive(Debug)]
pub(super) enum Fault {
    /// The operator can remove the cause, which says nothing about the data.
    Error(OpenError),
    /// The data fail their checks.
    Damage(String),
}

impl From<OpenError> for Fault {
    fn from(error: OpenError) -> Self {
        Self::Error(error)
    }
}

/// The end of an attempt that failed: an error, or a panic.
pub(super) type Failed = Result<fjall::Error, Box<dyn Any + Send>>;

/// Whether an error means that the disk is full, read-only or failing, as opposed to a missing permission or a wrong
/// path.
#[must_use]
pub fn is_unwritable(error: &io::Error) -> bool {
    const EIO: i32 = 5;
    let kinds = [io::ErrorKind::QuotaExceeded, io::ErrorKind::ReadOnlyFilesystem, io::ErrorKind::StorageFull];
    kinds.contains(&error.kind()) || error.raw_os_error() == Some(EIO)
}

/// Judges how an attempt failed.
pub(super) fn judge(path: &Path, failed: Failed) -> Fault {
    match failed {
        Err(_) => Fault::Damage("the database panicked".to_owned()),
        Ok(fjall::Error::Locked) => Fault::Error(OpenError::InUse(path.to_owned())),
        Ok(fjall::Error::Io(source) | fjall::Error::Storage(fjall::LsmError::Io(source))) => of_io(path, source),
        Ok(error) => Fault::Damage(error.to_string()),
    }
}

/// Judges a failed read or write.
pub(super) fn of_io(path: &Path, error: io::Error) -> Fault {
    if is_damage(&error) { Fault::Damage(error.to_string()) } else { Fault::Error(OpenError::io(path)(error)) }
}

/// Whether an error comes from what the files say, or from one that is missing: those that are listed. Any other is the
/// system's.
fn is_damage(error: &io::Error) -> bool {
    const EOVERFLOW: i32 = 75;
    let kinds = [
        io::ErrorKind::AlreadyExists,
        io::ErrorKind::InvalidData,
        // An offset that no file has.
        io::ErrorKind::InvalidInput,
        io::ErrorKind::IsADirectory,
        io::ErrorKind::NotADirectory,
        io::ErrorKind::NotFound,
        io::ErrorKind::Other,
        io::ErrorKind::UnexpectedEof,
    ];
    kinds.contains(&error.kind()) || error.raw_os_error() == Some(EOVERFLOW)
}

/// Reads every file of a store to its end.
pub(super) fn check_readable(directory: &Path) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                directories.push(entry.path());
            } else if kind.is_file() {
                let mut file = File::open(entry.path())?;
                while file.read(&mut buffer)? > 0 {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    // The numbers of Linux: ENOSPC, EROFS, EDQUOT, EIO, EACCES, EPERM, EMFILE, ENFILE, ENOMEM, EAGAIN, EINTR, EBUSY,
    // ENXIO, ENODEV, ETIMEDOUT, ESTALE, EREMOTEIO, EFBIG, ENOTCONN, ETXTBSY.
    const OF_THE_SYSTEM: [i32; 20] = [28, 30, 122, 5, 13, 1, 24, 23, 12, 11, 4, 16, 6, 19, 110, 116, 121, 27, 107, 26];

    #[test]
    fn no_error_of_the_system_is_damage() {
        for code in OF_THE_SYSTEM {
            let made: [fn(io::Error) -> fjall::Error; 2] =
                [fjall::Error::Io, |error| fjall::Error::Storage(fjall::LsmError::Io(error))];
            for error in made.map(|made| made(io::Error::from_raw_os_error(code))) {
                let fault = judge(Path::new("store"), Ok(error));
                assert!(matches!(fault, Fault::Error(OpenError::Io { .. })), "{code}: {fault:?}");
            }
            // As a library passes it on, with a path.
            let error = io::Error::from_raw_os_error(code);
            let wrapped = io::Error::new(error.kind(), error);
            assert!(!is_damage(&wrapped), "{code}: {wrapped}");
        }
    }

    #[test]
    fn files_that_end_early_or_are_missing_are_damage() {
        for kind in [io::ErrorKind::UnexpectedEof, io::ErrorKind::NotFound, io::ErrorKind::InvalidData] {
            assert!(is_damage(&kind.into()), "{kind}");
        }
        assert!(is_damage(&io::Error::from_raw_os_error(2)), "ENOENT");
    }
}
