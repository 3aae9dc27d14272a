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

/// Warns about a file with secrets that others than this process can read or write.
pub(crate) fn warn_if_open(path: &Path) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let Ok(found) = std::fs::metadata(path) else { return };
        let found = Ownership { owner: found.uid(), group: found.gid(), mode: found.mode() };
        if let Some((who, mend)) = found.open_to(&Reader::this()) {
            tracing::warn!(file = %path.display(), "{who} can access this file of secrets; close it with: {mend}");
        }
    }
    #[cfg(not(unix))]
    let _ = path;
}

/// The owner, the group and the mode of a file.
#[cfg(unix)]
struct Ownership {
    owner: u32,
    group: u32,
    mode: u32,
}

/// The user and the groups of a process.
#[cfg(unix)]
struct Reader {
    user: u32,
    group: u32,
    more_groups: Vec<u32>,
}

#[cfg(unix)]
impl Reader {
    fn this() -> Self {
        use rustix::process::{getegid, geteuid, getgroups};
        let more_groups = getgroups().unwrap_or_default().into_iter().map(rustix::process::Gid::as_raw).collect();
        Self { user: geteuid().as_raw(), group: getegid().as_raw(), more_groups }
    }
}

#[cfg(unix)]
impl Ownership {
    /// Returns who else can access the file, and the command that ends this and leaves the reader its access. A file
    /// may be root's and be read by its group, if that is the reader's (mode 640).
    fn open_to(&self, reader: &Reader) -> Option<(&'static str, String)> {
        let Reader { user, group, more_groups } = reader;
        let is_own_group = self.group == *group || more_groups.contains(&self.group);
        let is_for_group = self.mode & 0o070 != 0;
        let who = if self.mode & 0o007 != 0 {
            "everybody"
        } else if is_for_group && !is_own_group {
            "another group"
        } else if ![0, *user].contains(&self.owner) && *user != 0 {
            "its owner, another user,"
        } else {
            return None;
        };
        let mend = if self.owner == *user || *user == 0 {
            // The owner needs no group, and root none of either.
            if is_own_group && is_for_group { "chmod o= FILE" } else { "chmod 600 FILE" }.to_owned()
        } else if self.owner == 0 && is_own_group && self.mode & 0o040 != 0 {
            "chmod o= FILE".to_owned()
        } else {
            format!("chown root:{group} FILE && chmod 640 FILE")
        };
        Some((who, mend))
    }
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

    #[test]
    fn a_file_that_is_read_by_the_group_of_the_process_is_not_open() {
        let service = || Reader { user: 990, group: 991, more_groups: vec![992] };
        let root = || Reader { user: 0, group: 0, more_groups: Vec::new() };
        let open = |owner: u32, group: u32, mode: u32, reader: Reader| {
            Ownership { owner, group, mode: 0o100_000 | mode }.open_to(&reader)
        };
        for (owner, group, mode) in
            [(990, 991, 0o600), (990, 991, 0o640), (0, 991, 0o640), (0, 992, 0o440), (990, 50, 0o600)]
        {
            assert_eq!(open(owner, group, mode, service()), None, "{owner}:{group} {mode:o}");
        }
        assert_eq!(open(990, 991, 0o640, root()).map(|(who, _)| who), Some("another group"));
        assert_eq!(open(990, 991, 0o600, root()), None, "root does what the owner does");
        let chown = "chown root:991 FILE && chmod 640 FILE";
        for ((owner, group, mode), expected) in [
            ((990, 991, 0o644), ("everybody", "chmod o= FILE")),
            ((990, 50, 0o604), ("everybody", "chmod 600 FILE")),
            ((0, 991, 0o644), ("everybody", "chmod o= FILE")),
            // It would not be readable any more.
            ((0, 0, 0o644), ("everybody", chown)),
            ((0, 50, 0o644), ("everybody", chown)),
            ((990, 50, 0o640), ("another group", "chmod 600 FILE")),
            ((1000, 991, 0o640), ("its owner, another user,", chown)),
        ] {
            let (who, mend) = open(owner, group, mode, service()).unwrap();
            assert_eq!((who, &*mend), expected, "{owner}:{group} {mode:o}");
        }
    }

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
