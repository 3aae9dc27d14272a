//! The version of a file, told without reading it.

use std::{fs, path::Path, time::SystemTime};

/// Attributes that tell one version of a file from the next without reading it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
    inode: u64,
    /// When the inode was changed, seconds and nanoseconds: a file that could not be read may be readable after
    /// `chmod`, and a tool may set the time of modification to what it was.
    changed: (i64, i64),
}

impl Stamp {
    /// Of a file as it is now; of one that is not there, nothing.
    #[must_use]
    pub fn of(file: &Path) -> Self {
        let Ok(found) = fs::metadata(file) else { return Self::default() };
        #[cfg(unix)]
        let (inode, changed) = {
            use std::os::unix::fs::MetadataExt as _;
            (found.ino(), (found.ctime(), found.ctime_nsec()))
        };
        #[cfg(not(unix))]
        let (inode, changed) = (0, (0, 0));
        Self { modified: found.modified().ok(), bytes: found.len(), inode, changed }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn a_stamp_changes_with_the_mode_and_with_a_file_of_the_same_size_and_time() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let (file, other) = (at("a"), at("b"));
        fs::write(&file, "1").unwrap();
        let first = Stamp::of(&file);
        assert_eq!(Stamp::of(&file), first);
        // The time that the file system keeps may be that of the last tick.
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        let second = Stamp::of(&file);
        assert_ne!(second, first);
        fs::write(&other, "2").unwrap();
        let modified = fs::metadata(&file).unwrap().modified().unwrap();
        fs::File::options().write(true).open(&other).unwrap().set_modified(modified).unwrap();
        fs::rename(&other, &file).unwrap();
        assert_ne!(Stamp::of(&file), second);
        fs::remove_file(&file).unwrap();
        assert_eq!(Stamp::of(&file), Stamp::default());
    }
}
