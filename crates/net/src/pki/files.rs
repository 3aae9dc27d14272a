//! Files of a PKI: written whole or not at all, private ones for their owner only.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use zeroize::Zeroizing;

use super::PkiError;

/// Makes a directory into which only its owner looks.
pub(super) fn create(directory: &Path) -> Result<(), PkiError> {
    make_directory(directory).map_err(|source| PkiError::Io { file: directory.into(), source })
}

/// Makes a directory with its parents, into which only their owner looks, and has their names on the disk. What root
/// makes belongs to the owner of the directory above, as files do ([`inherit`]).
///
/// # Errors
///
/// Of the file system.
pub fn make_directory(directory: &Path) -> io::Result<()> {
    let mut missing: Vec<&Path> = directory.ancestors().take_while(|path| !path.exists()).collect();
    // The ancestor of a relative path that has no name is the current directory.
    missing.retain(|path| !path.as_os_str().is_empty());
    for path in missing.into_iter().rev() {
        let mut builder = fs::DirBuilder::new();
        // Another process may have made it meanwhile.
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(path)?;
        #[cfg(unix)]
        inherit_directory(path)?;
        match synchronise_names(path) {
            // Above, others may permit to make something, and not to look.
            Err(error) if error.kind() != io::ErrorKind::PermissionDenied => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// Has the name of a file or directory on the disk, and what else was changed in the directory that it is in. To
/// synchronise a file does not do that (fsync(2)).
fn synchronise_names(file: &Path) -> io::Result<()> {
    fs::File::open(directory_of(file))?.sync_all()
}

fn directory_of(file: &Path) -> &Path {
    file.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(unix)]
fn inherit_directory(made: &Path) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, lchown};
    let (above, own) = (fs::metadata(directory_of(made))?, fs::symlink_metadata(made)?);
    if (above.uid(), above.gid()) == (own.uid(), own.gid()) {
        return Ok(());
    }
    match lchown(made, Some(above.uid()), Some(above.gid())) {
        // Only root may give something away.
        Err(error) if error.kind() != io::ErrorKind::PermissionDenied => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[derive(Clone, Copy)]
pub(super) enum Access {
    Owner,
    Everybody,
}

/// Writes a file as a whole or not at all; a private one is never readable by others, not even for a moment.
pub(super) fn write(file: &Path, text: &str, access: Access) -> Result<(), PkiError> {
    stage(file, text, access)?;
    put_in_place(file)
}

/// The file that takes the place of another once it is whole.
pub(super) fn staged(file: &Path) -> PathBuf {
    file.with_added_extension("new")
}

/// Gives a staged file its name, and has that on the disk.
pub(super) fn put_in_place(file: &Path) -> Result<(), PkiError> {
    let named =
        interruption::point().and_then(|()| fs::rename(staged(file), file)).and_then(|()| synchronise_names(file));
    named.map_err(|source| PkiError::Io { file: file.into(), source })
}

/// Copies a file that is there to one with `.old` at the end of its name, for its owner. One that cannot be read gets
/// that name.
pub(super) fn keep_copy(file: &Path) -> Result<(), PkiError> {
    let old = file.with_added_extension("old");
    match fogmux_file::read_to_string(file).map(Zeroizing::new) {
        Ok(text) => write(&old, &text, Access::Owner),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(_) => rename(file, &old),
    }
}

/// Gives a file another name in its directory, in place of what has that name, and has that on the disk.
pub(super) fn rename(file: &Path, name: &Path) -> Result<(), PkiError> {
    let renamed = interruption::point().and_then(|()| fs::rename(file, name)).and_then(|()| synchronise_names(name));
    renamed.map_err(|source| PkiError::Io { file: file.into(), source })
}

/// Removes a file, and has that on the disk.
pub(super) fn remove(file: &Path) -> Result<(), PkiError> {
    let removed = interruption::point().and_then(|()| fs::remove_file(file)).and_then(|()| synchronise_names(file));
    removed.map_err(|source| PkiError::Io { file: file.into(), source })
}

/// Writes a file under the name of [`staged`] ones, and has it on the disk with that name.
pub(super) fn stage(file: &Path, text: &str, access: Access) -> Result<(), PkiError> {
    let temporary = staged(file);
    let attempt = || {
        interruption::point()?;
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut options = fs::File::options();
        options.write(true).create_new(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt as _;
            options.mode(match access {
                Access::Owner => 0o600,
                Access::Everybody => 0o644,
            });
        }
        let mut open = options.open(&temporary)?;
        #[cfg(unix)]
        inherit(&open, file)?;
        interruption::point()?;
        open.write_all(text.as_bytes())?;
        open.sync_all()?;
        synchronise_names(&temporary)
    };
    attempt().map_err(|source| PkiError::Io { file: file.into(), source })
}

/// Gives a file that root created to the owner and group of the file that it replaces, or else of the directory. Uses
/// the descriptor of the new file, so that no link can redirect the change.
///
/// # Errors
/// The directory does not exist, or the system refuses for a reason other than missing permission.
#[cfg(unix)]
pub fn inherit(made: &fs::File, file: &Path) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, fchown};
    let own = made.metadata()?;
    // Where the file was made in its place there is nothing that it replaces.
    let replaced = fs::symlink_metadata(file).ok().filter(|found| (found.dev(), found.ino()) != (own.dev(), own.ino()));
    let before = replaced.map_or_else(|| fs::metadata(directory_of(file)), Ok)?;
    if (before.uid(), before.gid()) == (own.uid(), own.gid()) {
        return Ok(());
    }
    match fchown(made, Some(before.uid()), Some(before.gid())) {
        Err(error) if error.kind() != io::ErrorKind::PermissionDenied => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Waits until nobody else changes the file. Released when dropped.
pub(super) fn lock(file: &Path) -> Result<fs::File, PkiError> {
    let beside = file.with_added_extension("lock");
    let mut options = fs::File::options();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let attempt = || {
        let lock = match options.clone().create_new(true).open(&beside) {
            Ok(made) => {
                #[cfg(unix)]
                inherit(&made, file)?;
                made
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => options.open(&beside)?,
            Err(error) => return Err(error),
        };
        lock.lock()?;
        Ok(lock)
    };
    attempt().map_err(|source| PkiError::Io { file: beside.clone(), source })
}

/// Where tests interrupt what is done to files.
#[cfg(not(test))]
mod interruption {
    #[expect(clippy::unnecessary_wraps, reason = "in tests it fails")]
    pub(super) const fn point() -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod interruption {
    use std::{cell::Cell, io};

    thread_local! {
        static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
    }

    /// Lets so many operations of this thread through, and fails those that follow; `None` ends that.
    pub(in crate::pki) fn after(operations: Option<usize>) {
        LEFT.set(operations);
    }

    pub(super) fn point() -> io::Result<()> {
        match LEFT.get() {
            None => Ok(()),
            Some(0) => Err(io::Error::other("interrupted")),
            Some(left) => {
                LEFT.set(Some(left - 1));
                Ok(())
            }
        }
    }
}
