//! Files that hold secrets: made with mode 0600, and changed under a lock beside them.

use std::{
    fs::{File, OpenOptions},
    io,
    path::{Path, PathBuf},
};

/// Reads a text file; `None` where nothing has its name. A link to a file that is not there is an error: what it leads
/// to may refuse somebody, and may only not be mounted yet.
pub(crate) fn read(path: &Path) -> io::Result<Option<String>> {
    match fogmux_file::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => match std::fs::symlink_metadata(path) {
            Ok(_) => Err(io::Error::new(io::ErrorKind::NotFound, "it is a link to a file that does not exist")),
            Err(_) => Ok(None),
        },
        read => read.map(Some),
    }
}

/// Creates an empty file of mode 0600, in place of one that was left under the name.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    owner_only(File::options().write(true).create_new(true)).open(path)
}

/// The directory of a file.
pub(crate) fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Waits until nobody else changes the file. Released when dropped.
pub(crate) fn lock(path: &Path) -> io::Result<File> {
    let lock = lock_file(path)?;
    lock.lock()?;
    Ok(lock)
}

/// Takes the lock if nobody has it, else fails with [`io::ErrorKind::WouldBlock`].
pub(crate) fn try_lock(path: &Path) -> io::Result<File> {
    let lock = lock_file(path)?;
    lock.try_lock()?;
    Ok(lock)
}

fn lock_file(path: &Path) -> io::Result<File> {
    let beside = sibling(path, ".lock");
    let lock = match owner_only(File::options().write(true).create_new(true)).open(&beside) {
        Ok(made) => {
            inherit(&made, path)?;
            made
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => File::options().write(true).open(&beside)?,
        Err(error) => return Err(error),
    };
    Ok(lock)
}

/// Gives a file that root created to the owner and group of the file that it is for, or else of the directory. Uses the
/// descriptor of the new file, so that no link can redirect the change.
#[cfg(unix)]
pub(crate) fn inherit(made: &File, path: &Path) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, fchown};
    let before = std::fs::symlink_metadata(path).or_else(|_| std::fs::metadata(directory(path)))?;
    let own = made.metadata()?;
    if (before.uid(), before.gid()) == (own.uid(), own.gid()) {
        return Ok(());
    }
    match fchown(made, Some(before.uid()), Some(before.gid())) {
        Err(error) if error.kind() != io::ErrorKind::PermissionDenied => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(not(unix))]
pub(crate) fn inherit(_: &File, _: &Path) -> io::Result<()> {
    Ok(())
}

/// Warns about a file with secrets that others can read.
pub(crate) fn warn_if_open(path: &Path) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(path).map_or(0, |metadata| metadata.permissions().mode());
        if mode & 0o077 != 0 {
            tracing::warn!(file = %path.display(), "others can read or write this file of secrets; chmod 600 it");
        }
    }
    #[cfg(not(unix))]
    let _ = path;
}

/// The file beside this one whose name has a suffix more.
pub(crate) fn sibling(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(unix)]
fn owner_only(options: &mut OpenOptions) -> &mut OpenOptions {
    use std::os::unix::fs::OpenOptionsExt as _;
    options.mode(0o600)
}

#[cfg(not(unix))]
fn owner_only(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, chown};

    use super::*;

    /// Says nothing but as root, who alone may give files away.
    #[test]
    fn what_root_writes_belongs_to_whose_directory_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("users.toml");
        if chown(directory.path(), Some(54_321), Some(54_322)).is_err() {
            return;
        }
        let owner = |path: &Path| {
            let found = std::fs::metadata(path).unwrap();
            (found.uid(), found.gid())
        };
        drop(lock(&path).unwrap());
        drop(lock(&path).unwrap());
        crate::edit::replace_file(&path, b"").unwrap();
        assert_eq!((owner(&path), owner(&sibling(&path, ".lock"))), ((54_321, 54_322), (54_321, 54_322)));
        // Of the user already, and of another group.
        let of_group = directory.path().join("psk.toml");
        chown(directory.path(), Some(std::fs::metadata("/proc/self").unwrap().uid()), Some(54_322)).unwrap();
        crate::edit::replace_file(&of_group, b"").unwrap();
        assert_eq!(std::fs::metadata(&of_group).unwrap().gid(), 54_322);
    }
}
