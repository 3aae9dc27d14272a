//! A directory beside the target, which takes its name when it is whole.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, StatxAttributes, StatxFlags};

use super::super::tar::malformed;
use crate::data;
use crate::exit::{Failure, Status};
use crate::interrupted;

/// The beginning of the temporary name.
const PREFIX: &str = ".fogmux-restore-";

/// A directory that is filled beside the one whose place it takes.
pub(super) struct Stage {
    temporary: tempfile::TempDir,
    pub(super) target: PathBuf,
    /// Shows other processes that it is being filled, while it is open.
    _lock: Option<File>,
    /// The user and group that its files belong to.
    owner: (u32, u32),
}

impl Stage {
    /// For a directory that does not exist, or is empty.
    pub(super) fn beside(target: &Path) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::io(target.display(), &error);
        let mut target = std::path::absolute(target).map_err(failed)?;
        if fs::symlink_metadata(&target).is_ok_and(|found| found.is_symlink()) {
            // The place that it leads to takes the name there.
            target = target.canonicalize().map_err(failed)?;
        }
        match fs::read_dir(&target).map(Iterator::count) {
            Ok(0) if is_mount_point(&target) => {
                let text = format!("{}: a mount point cannot be replaced; name a directory in it", target.display());
                return Err(Failure::new(Status::IoErr, text));
            }
            Ok(0) => {}
            Ok(_) => {
                let text = format!("{} is not empty; nothing is restored over what is there", target.display());
                return Err(Failure::new(Status::IoErr, text));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let parent = target.parent().unwrap_or(Path::new("/"));
        data::create(parent)?;
        // Root restores for the user whose directory it is.
        let of = if target.exists() { &target } else { parent };
        let owner = fs::metadata(of).map(|found| (found.uid(), found.gid())).map_err(failed)?;
        // As the gateway makes it: others do not even see the names.
        let private = fs::Permissions::from_mode(0o700);
        let mut builder = tempfile::Builder::new();
        let temporary = builder.prefix(PREFIX).permissions(private).tempdir_in(parent).map_err(failed)?;
        interrupted::add(temporary.path());
        // Where directories cannot be locked, a warning too many is said.
        let lock = File::open(temporary.path()).ok().filter(|open| open.try_lock().is_ok());
        Ok(Self { temporary, target, _lock: lock, owner })
    }

    /// Gives everything to its owner, the directory above it all last. Until then it is root's: an earlier owner could
    /// put a link where root writes next.
    pub(super) fn give(&self) -> io::Result<()> {
        if !rustix::process::geteuid().is_root() {
            return Ok(());
        }
        let mut found = vec![self.temporary.path().to_owned()];
        let mut at = 0;
        while let Some(path) = found.get(at).cloned() {
            at += 1;
            if fs::symlink_metadata(&path)?.is_dir() {
                for entry in fs::read_dir(&path)? {
                    found.push(entry?.path());
                }
            }
        }
        let (user, group) = self.owner;
        found.iter().rev().try_for_each(|path| std::os::unix::fs::lchown(path, Some(user), Some(group)))
    }

    pub(super) fn create(&self, path: &Path) -> io::Result<File> {
        let mut directory = self.temporary.path().to_owned();
        for part in path.parent().into_iter().flat_map(Path::components) {
            directory.push(part);
            match fs::DirBuilder::new().mode(0o700).create(&directory) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        let path = self.temporary.path().join(path);
        let taken = [io::ErrorKind::AlreadyExists, io::ErrorKind::NotADirectory];
        let made = File::options().write(true).create_new(true).mode(0o600).open(&path);
        made.map_err(|error| match taken.contains(&error.kind()) {
            true => malformed("two files have one place"),
            false => error,
        })
    }

    /// The directory that is filled.
    pub(super) fn path(&self) -> &Path {
        self.temporary.path()
    }

    pub(super) fn put_in_place(self) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::io(self.target.display(), &error);
        self.give().map_err(failed)?;
        synchronise(self.temporary.path()).map_err(failed)?;
        match fs::remove_dir(&self.target) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
        fs::rename(self.temporary.path(), &self.target).map_err(failed)?;
        // It has another name now, so there is nothing to remove.
        let _ = self.temporary.keep();
        let parent = self.target.parent().unwrap_or(Path::new("/"));
        File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed)
    }
}

/// Returns the directories beside another one that restorations were filling which were ended.
pub(crate) fn abandoned_beside(target: &Path) -> Vec<PathBuf> {
    let Some(parent) = std::path::absolute(target).ok().and_then(|target| Some(target.parent()?.to_owned())) else {
        return Vec::new();
    };
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().as_bytes().starts_with(PREFIX.as_bytes()));
    let is_left = |path: &PathBuf| {
        let is_directory = fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
        let is_filled = File::open(path).is_ok_and(|open| matches!(open.try_lock(), Err(TryLockError::WouldBlock)));
        is_directory && !is_filled
    };
    let mut found: Vec<_> = named.map(|entry| entry.path()).filter(is_left).collect();
    found.sort();
    found
}

/// Returns whether a file system is mounted at a directory, which then cannot be renamed or removed.
fn is_mount_point(directory: &Path) -> bool {
    let found = rustix::fs::statx(rustix::fs::CWD, directory, AtFlags::empty(), StatxFlags::empty());
    found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Has the names of files on the disk.
fn synchronise(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            synchronise(&entry.path())?;
        }
    }
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The directory is given away when nothing more is written to it. Has an effect only as root.
    #[test]
    fn what_is_being_restored_is_its_owners_only_when_it_is_whole() {
        let parent = tempfile::tempdir().unwrap();
        let target = parent.path().join("data");
        fs::create_dir(&target).unwrap();
        if std::os::unix::fs::chown(&target, Some(54_321), Some(54_322)).is_err() {
            return;
        }
        let stage = Stage::beside(&target).unwrap();
        stage.create(Path::new("pki/ca.key")).unwrap();
        let owner = |path: &Path| fs::symlink_metadata(path).unwrap().uid();
        let temporary = stage.temporary.path().to_owned();
        for path in ["", "pki", "pki/ca.key"] {
            assert_eq!(owner(&temporary.join(path)), 0, "{path:?} is given away too early");
        }
        stage.put_in_place().unwrap();
        for path in ["", "pki", "pki/ca.key"] {
            assert_eq!(owner(&target.join(path)), 54_321, "{path:?}");
        }
    }

    #[test]
    fn a_link_to_an_empty_directory_stays_a_link() {
        let parent = tempfile::tempdir().unwrap();
        let (real, link) = (parent.path().join("real"), parent.path().join("link"));
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert!(Stage::beside(&link).is_err(), "it leads nowhere");
        fs::create_dir(&real).unwrap();
        let stage = Stage::beside(&link).unwrap();
        stage.create(Path::new("a")).unwrap();
        stage.put_in_place().unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink() && link.join("a").exists());
        assert!(is_mount_point(Path::new("/proc")) && !is_mount_point(&real));
    }
}
