//! Files of users and rules that are changed while the gateway runs: written anew beside the file and renamed over it,
//! with its mode and owner kept, and only if nobody has changed it since it was read.

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
        let made = self.beside()?;
        drop(made);
        let _ = std::fs::remove_file(self.temporary());
        Ok(())
    }

    /// Replaces the file: a new one beside it, with its mode and owner, synced and renamed over it. One that is made
    /// can be read by its owner only.
    ///
    /// # Errors
    /// The file is as it was. [`EditError::Changed`] if it is not what was read.
    pub fn replace(&self, bytes: &[u8]) -> Result<(), EditError> {
        let replaced = self.write(bytes);
        if replaced.is_err() {
            let _ = std::fs::remove_file(self.temporary());
        }
        replaced
    }

    fn write(&self, bytes: &[u8]) -> Result<(), EditError> {
        let failed = |error: io::Error| unchangeable(&self.path, error);
        let mut made = self.beside()?;
        made.write_all(bytes).map_err(failed)?;
        made.sync_all().map_err(failed)?;
        // As late as can be. What others write between this and the next line is lost; `passwd` holds the lock.
        let now = match fogmux_file::read(&self.path) {
            Ok(now) => Some(now),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        if now.as_deref() != self.read.as_ref().map(|(bytes, _)| bytes.as_slice()) {
            return Err(EditError::Changed);
        }
        std::fs::rename(self.temporary(), &self.path).map_err(failed)?;
        // The change is made. Whether it survives a power cut at this moment is another matter.
        if let Err(error) = File::open(private_file::directory(&self.path)).and_then(|directory| directory.sync_all()) {
            tracing::warn!(%error, file = %self.path.display(), "the directory of a file that was changed cannot be synced");
        }
        Ok(())
    }

    /// An empty file beside this one, with its mode and owner.
    fn beside(&self) -> Result<File, EditError> {
        let failed = |error: io::Error| unchangeable(&self.path, error);
        let temporary = self.temporary();
        let made = private_file::create(&temporary).map_err(failed)?;
        let kept = self.read.as_ref().map_or(Ok(()), |(_, metadata)| keep(&made, metadata));
        if let Err(error) = kept {
            let _ = std::fs::remove_file(&temporary);
            return Err(unchangeable(&self.path, format!("its owner cannot be kept: {error}")));
        }
        Ok(made)
    }

    fn temporary(&self) -> PathBuf {
        private_file::sibling(&self.path, ".edit")
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
