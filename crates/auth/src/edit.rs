//! Files of users, keys and rules that are changed while the gateway runs, by it or by a command: written anew beside
//! the file and renamed over it, with its mode and owner kept; by the gateway only if nobody has changed it since it
//! was read.

use std::{
    fs::{File, Metadata},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use crate::private_file;

/// A file as it was read, to be changed.
#[derive(Debug)]
pub struct Original {
    /// Without symbolic links, which stay as they are.
    path: PathBuf,
    /// The bytes, and the metadata; nothing if there is no file.
    read: Option<(Vec<u8>, Metadata)>,
}

/// Why a file was not changed.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// It cannot be changed by this process.
    #[error("{}: {reason}", .file.display())]
    Unchangeable {
        /// The file.
        file: PathBuf,
        /// The reason.
        reason: String,
    },
    /// It was changed by others since it was read.
    #[error("the file was changed meanwhile")]
    Changed,
}

impl Original {
    /// Reads a file of up to `bytes_max` bytes, which need not exist.
    ///
    /// # Errors
    /// It cannot be read, is too large, or is no regular file.
    pub fn read(path: &Path, bytes_max: u64) -> Result<Self, EditError> {
        let path = match path.canonicalize() {
            Ok(path) => path,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // A link that leads nowhere is not replaced by a file.
                if path.symlink_metadata().is_ok() {
                    return Err(unchangeable(path, "a symbolic link that leads nowhere"));
                }
                return Ok(Self { path: path.to_owned(), read: None });
            }
            Err(error) => return Err(unchangeable(path, error)),
        };
        let metadata = path.metadata().map_err(|error| unchangeable(&path, error))?;
        if !metadata.is_file() {
            return Err(unchangeable(&path, "not a regular file"));
        }
        if metadata.len() > bytes_max {
            return Err(unchangeable(&path, format!("larger than {bytes_max} bytes")));
        }
        let bytes = fogmux_file::read(&path).map_err(|error| unchangeable(&path, error))?;
        Ok(Self { path, read: Some((bytes, metadata)) })
    }

    /// Its bytes; none if there is no file.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.read.as_ref().map_or(&[], |(bytes, _)| bytes)
    }

    /// Whether there is a file.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.read.is_some()
    }

    /// Its path, without symbolic links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a file can be written in its place: one is made beside it, and removed.
    ///
    /// # Errors
    /// [`EditError::Unchangeable`] with the reason.
    pub fn check(&self) -> Result<(), EditError> {
        self.beside().map(drop)
    }

    /// Replaces the file: a new one beside it, with its mode and owner, synced and renamed over it. One that is made
    /// can be read by its owner only.
    ///
    /// # Errors
    /// The file is as it was. [`EditError::Changed`] if it is not what was read.
    pub fn replace(&self, bytes: &[u8]) -> Result<(), EditError> {
        let failed = |error: io::Error| unchangeable(&self.path, error);
        let mut made = self.beside()?;
        made.write(bytes).map_err(failed)?;
        // As late as can be. What others write between this and the next line is lost; `passwd` holds the lock.
        let now = match fogmux_file::read(&self.path) {
            Ok(now) => Some(now),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        if now.as_deref() != self.read.as_ref().map(|(bytes, _)| bytes.as_slice()) {
            return Err(EditError::Changed);
        }
        made.put_in_place(&self.path).map_err(failed)
    }

    fn beside(&self) -> Result<Beside, EditError> {
        let before = self.read.as_ref().map(|(_, metadata)| metadata);
        Beside::make(&self.path, before, ".edit").map_err(|error| unchangeable(&self.path, error))
    }
}

/// Replaces a file, or makes it, as [`Original::replace`] does, whatever is in it: for commands. One that is made can
/// be read by its owner only, and belongs to the owner of its directory if root makes it.
///
/// # Errors
/// The file is as it was.
pub fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = match path.canonicalize() {
        Ok(path) => path,
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.symlink_metadata().is_err() => path.to_owned(),
        Err(error) => return Err(error),
    };
    let before = match path.metadata() {
        Ok(before) if before.is_file() => Some(before),
        Ok(_) => return Err(io::Error::other("not a regular file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let mut made = Beside::make(&path, before.as_ref(), ".new")?;
    made.write(bytes)?;
    made.put_in_place(&path)
}

/// A file beside another, with its owner and mode, that is to take its place. Dropped before that, it is removed.
#[derive(Debug)]
struct Beside {
    open: File,
    temporary: PathBuf,
}

impl Beside {
    fn make(path: &Path, before: Option<&Metadata>, suffix: &str) -> io::Result<Self> {
        let temporary = private_file::sibling(path, suffix);
        let made = Self { open: private_file::create(&temporary)?, temporary };
        match before {
            Some(before) => keep(&made.open, before)
                .map_err(|error| io::Error::new(error.kind(), format!("its owner cannot be kept: {error}")))?,
            None => private_file::inherit(&made.open, path)?,
        }
        Ok(made)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.open.write_all(bytes)?;
        self.open.sync_all()
    }

    fn put_in_place(self, path: &Path) -> io::Result<()> {
        std::fs::rename(&self.temporary, path)?;
        // The change is made. Whether it survives a power cut at this moment is another matter.
        if let Err(error) = File::open(private_file::directory(path)).and_then(|directory| directory.sync_all()) {
            tracing::warn!(%error, file = %path.display(), "the directory of a file that was changed cannot be synced");
        }
        Ok(())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // Once it is in place, nothing has this name.
        let _ = std::fs::remove_file(&self.temporary);
    }
}

fn unchangeable(file: &Path, reason: impl ToString) -> EditError {
    EditError::Unchangeable { file: file.into(), reason: reason.to_string() }
}

/// Gives a new file the owner and the mode of another one.
#[cfg(unix)]
fn keep(made: &File, before: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, fchown};
    let own = made.metadata()?;
    if (own.uid(), own.gid()) != (before.uid(), before.gid()) {
        fchown(made, Some(before.uid()), Some(before.gid()))?;
    }
    // After the owner: a change of that takes bits away.
    made.set_permissions(before.permissions())
}

#[cfg(not(unix))]
fn keep(_: &File, _: &Metadata) -> io::Result<()> {
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};

    use super::*;

    const MAX: u64 = 1000;

    #[test]
    fn mode_owner_and_links_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("acl.toml"), directory.path().join("link"));
        std::fs::write(&path, "one").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        // Says nothing but as root, who alone may give files away.
        let given = chown(&path, Some(54_321), Some(54_322)).is_ok();
        symlink("acl.toml", &link).unwrap();
        let original = Original::read(&link, MAX).unwrap();
        original.check().unwrap();
        original.replace(b"two").unwrap();
        let found = std::fs::metadata(&path).unwrap();
        assert_eq!((std::fs::read(&path).unwrap().as_slice(), found.mode() & 0o7777), (&b"two"[..], 0o640));
        assert!(!given || (found.uid(), found.gid()) == (54_321, 54_322));
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2, "nothing is left beside it");
    }

    /// A gateway with its own user may read them by their group.
    #[test]
    fn commands_keep_mode_owner_and_links_too() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("users.toml"), directory.path().join("link"));
        let psks = directory.path().join("psk.toml");
        for file in [&path, &psks] {
            std::fs::write(file, "").unwrap();
            std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o640)).unwrap();
        }
        let own = std::fs::metadata(&path).unwrap().uid();
        // Of another group only, then of another user as well. Says nothing but as root.
        for owner in [(own, 54_322), (54_321, 54_323)] {
            let given = [&path, &psks].map(|file| chown(file, Some(owner.0), Some(owner.1)).is_ok());
            let _ = symlink("users.toml", &link);
            crate::Users::update(&link, |users| users.enrol("alice", &[])).unwrap();
            crate::Psks::update(&psks, |psks| psks.set(b"meter", &[7; 16], None)).unwrap();
            replace_file(&path, &std::fs::read(&path).unwrap()).unwrap();
            for (file, given) in [&path, &psks].into_iter().zip(given) {
                let found = std::fs::metadata(file).unwrap();
                assert_eq!(found.mode() & 0o7777, 0o640, "{}", file.display());
                assert!(!given || (found.uid(), found.gid()) == owner, "{}", file.display());
            }
            assert!(link.symlink_metadata().unwrap().is_symlink());
            assert!(crate::Users::load(&path).unwrap().contains("alice"));
        }
    }

    #[test]
    fn what_is_made_is_for_its_owner_and_a_link_to_nowhere_stays() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("acl.toml"), directory.path().join("link"));
        replace_file(&path, b"one").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        symlink("nowhere", &link).unwrap();
        replace_file(&link, b"two").unwrap_err();
        assert!(link.symlink_metadata().unwrap().is_symlink());
        replace_file(directory.path(), b"two").unwrap_err();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2, "nothing is left beside it");
    }

    #[test]
    fn a_file_that_others_changed_made_or_removed_stays_as_they_left_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("acl.toml");
        let none = Original::read(&path, MAX).unwrap();
        assert!(!none.exists() && none.bytes().is_empty());
        std::fs::write(&path, "one").unwrap();
        assert!(matches!(none.replace(b"mine"), Err(EditError::Changed)));
        let one = Original::read(&path, MAX).unwrap();
        std::fs::write(&path, "two").unwrap();
        assert!(matches!(one.replace(b"mine"), Err(EditError::Changed)));
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        let two = Original::read(&path, MAX).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(two.replace(b"mine"), Err(EditError::Changed)));
        assert!(!path.exists());
        Original::read(&path, MAX).unwrap().replace(b"mine").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600, "one that is made");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_cannot_be_changed_says_why() {
        let directory = tempfile::tempdir().unwrap();
        let why = |path: &Path| match Original::read(path, MAX).and_then(|original| original.check()) {
            Err(error) => error.to_string(),
            Ok(()) => String::new(),
        };
        assert!(why(directory.path()).ends_with("not a regular file"));
        let (large, dangling) = (directory.path().join("large"), directory.path().join("dangling"));
        std::fs::write(&large, [b'x'; 1001]).unwrap();
        assert!(why(&large).ends_with("larger than 1000 bytes"));
        symlink("nowhere", &dangling).unwrap();
        assert!(why(&dangling).ends_with("a symbolic link that leads nowhere"));
        assert!(why(&directory.path().join("none/acl.toml")).contains("No such file"), "no directory");
        // Root's own files are below /proc for nobody to replace.
        assert!(!why(Path::new("/proc/self/comm")).is_empty(), "a file system that takes no files");
    }
}
