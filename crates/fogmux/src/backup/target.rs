//! The file of a backup. It has a temporary name until it is whole, and never takes the place of another.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, OFlags, RenameFlags};

use crate::exit::{Failure, Status};
use crate::interrupted;

/// The file of a backup under a temporary name, which is removed unless it is put in place. It is locked meanwhile, so
/// that another backup to the same name does not take it for abandoned.
pub(super) struct Target {
    pub(super) file: File,
    temporary: tempfile::TempPath,
    path: PathBuf,
}

impl Target {
    /// Never overwrites anything: a backup is what is left when something else was.
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        if fs::symlink_metadata(path).is_ok() {
            return Err(Failure::new(Status::IoErr, format!("{} exists, and is not overwritten", path.display())));
        }
        let temporary = partial(path);
        let failed = |error: io::Error| Failure::io(temporary.display(), &error);
        remove_abandoned(&temporary).map_err(failed)?.then_some(()).ok_or_else(|| taken(path))?;
        let file = File::options().write(true).create_new(true).mode(0o600).open(&temporary).map_err(failed)?;
        // Another one may have taken it for abandoned until now.
        if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) || !is_at(&file, &temporary) {
            return Err(taken(path));
        }
        interrupted::add(&temporary);
        let temporary =
            tempfile::TempPath::try_from_path(temporary).map_err(|error| Failure::io(path.display(), &error))?;
        Ok(Self { file, temporary, path: path.to_owned() })
    }

    pub(super) fn put_in_place(self) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::io(self.path.display(), &error);
        self.file.sync_all().map_err(failed)?;
        if !is_at(&self.file, &self.temporary) {
            let text = format!("{}: somebody has removed it", self.temporary.display());
            // A file that has the name now is not ours to remove.
            let _ = self.temporary.keep();
            return Err(Failure::new(Status::IoErr, text));
        }
        rename(&self.temporary, &self.path).map_err(failed)?;
        let _ = self.temporary.keep();
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed)
    }
}

/// The end of the temporary name.
const PARTIAL: &str = ".partial";

fn partial(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(PARTIAL);
    name.into()
}

/// Returns the unfinished files beside a backup, with the same extension, that nobody is writing.
pub(super) fn abandoned_beside(path: &Path) -> Vec<PathBuf> {
    let beside = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let files = fs::read_dir(beside).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_unfinished = |file: &PathBuf| {
        let of = file.with_extension("");
        partial(&of) == *file && of.extension() == path.extension()
    };
    let is_left = |file: &PathBuf| open_old(file).is_ok_and(|old| !is_written(&old));
    let mut found: Vec<_> = files.filter(is_unfinished).filter(is_left).collect();
    found.sort();
    found
}

fn open_old(temporary: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    File::options().read(true).custom_flags(flags.bits().cast_signed()).open(temporary)
}

/// Returns whether a backup holds the file.
fn is_written(file: &File) -> bool {
    matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}

fn taken(path: &Path) -> Failure {
    Failure::new(Status::Unavailable, format!("another backup to {} is under way", path.display()))
}

/// Removes the file of a backup that was ended. `false`: it is still being written.
fn remove_abandoned(temporary: &Path) -> io::Result<bool> {
    let old = match open_old(temporary) {
        Ok(old) => Some(old),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        // A link.
        Err(_) => None,
    };
    if old.as_ref().is_some_and(is_written) {
        return Ok(false);
    }
    match fs::remove_file(temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(true),
    }
}

/// Returns whether a name is still that of an open file.
fn is_at(file: &File, path: &Path) -> bool {
    let same = |(a, b): (fs::Metadata, fs::Metadata)| (a.dev(), a.ino()) == (b.dev(), b.ino());
    file.metadata().ok().zip(fs::symlink_metadata(path).ok()).is_some_and(same)
}

/// Gives a file another name, which nothing may have.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // NFS, 9p and many file systems of FUSE cannot do that.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS | rustix::io::Errno::NOTSUP) => {
            rename_by_link(from, to)
        }
        done => Ok(done?),
    }
}

/// The same by a second name, which a file system that has none of them refuses; then it is looked at before.
fn rename_by_link(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        Err(_) if fs::symlink_metadata(to).is_ok() => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => fs::rename(from, to),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn two_backups_to_one_name_do_not_mix() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("b.tar");
        let mut first = Target::create(&path).unwrap();
        first.file.write_all(b"first").unwrap();
        assert_eq!(Target::create(&path).err().unwrap().status, Status::Unavailable);
        first.put_in_place().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(Target::create(&path).err().unwrap().status, Status::IoErr, "it exists");
    }

    #[test]
    fn what_was_abandoned_is_removed_whatever_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let (path, partial) = (directory.path().join("b.tar"), directory.path().join("b.tar.partial"));
        let other = directory.path().join("other");
        fs::write(&other, "precious").unwrap();
        let make: [&dyn Fn(); 3] = [
            &|| fs::write(&partial, "old").unwrap(),
            &|| std::os::unix::fs::symlink(&other, &partial).unwrap(),
            &|| rustix::fs::mkfifoat(CWD, &partial, rustix::fs::Mode::RUSR).unwrap(),
        ];
        for make in make {
            make();
            let mut target = Target::create(&path).unwrap();
            target.file.write_all(b"new").unwrap();
            drop(target);
            assert!(!partial.exists() && fs::symlink_metadata(&partial).is_err());
        }
        assert_eq!(fs::read(&other).unwrap(), b"precious");
        let mut target = Target::create(&path).unwrap();
        target.file.write_all(b"ours").unwrap();
        fs::remove_file(&partial).unwrap();
        fs::write(&partial, "somebody else's").unwrap();
        assert!(target.put_in_place().is_err() && !path.exists());
        assert!(partial.exists(), "what is not ours stays");
    }

    #[test]
    fn a_file_system_without_renames_that_replace_nothing_has_the_same_outcome() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        for rename in [rename, rename_by_link] {
            fs::write(&from, "new").unwrap();
            rename(&from, &to).unwrap();
            assert!(!from.exists());
            fs::write(&from, "newer").unwrap();
            assert_eq!(rename(&from, &to).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(fs::read(&to).unwrap(), b"new");
            fs::remove_file(&to).unwrap();
        }
    }
}
