//! Modes of the data directory and its files, which should be accessible to their owner only.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::data;

/// The number of files checked, because a store may be large.
const FILES_MAX: usize = 10_000;
/// The permission bits of group and others.
const OTHERS: u32 = 0o077;

/// Makes files that this process creates accessible to their owner only, in any directory.
pub(crate) fn restrict() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(OTHERS));
}

/// Warns of a directory, files of secrets and files of the store that others can access, with the command that corrects
/// it.
pub(crate) fn warn_of_open(config: &Config, directory: &Path) {
    let Some(Open { first, count, mend }) = open(config, directory) else { return };
    tracing::warn!(
        first = %first.display(), count,
        "other users can read the data directory; close it with: {mend}"
    );
}

/// Directories and files that others can access.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) first: PathBuf,
    pub(crate) count: usize,
    /// The command that closes them.
    pub(crate) mend: String,
}

/// Finds the data directory, files of secrets and files of the store that others can access.
pub(crate) fn open(config: &Config, directory: &Path) -> Option<Open> {
    let store = config.store.path.clone().unwrap_or_else(|| directory.join("store"));
    let mut left = FILES_MAX;
    let mut open = Vec::new();
    open.extend(Some(directory.to_owned()).filter(|directory| is_open(directory)));
    for name in [data::USERS, data::PSK, data::OSCORE, data::PKI, data::ACME, data::LINKS, crate::admin_password::FILE]
    {
        let is_open = |path: &Path| {
            let is_by_group = || std::fs::symlink_metadata(path).is_ok_and(|found| is_by_group(&found, directory));
            is_secret(path) && is_open(path) && !is_by_group()
        };
        walk(&directory.join(name), &is_open, &mut left, &mut open);
    }
    walk(&store, &is_open, &mut left, &mut open);
    let first = open.first()?.clone();
    let mut places = quoted(directory);
    if !store.starts_with(directory) {
        places = format!("{places} {}", quoted(&store));
    }
    let owner = std::fs::metadata(directory).map_or(0, |found| found.uid());
    let is_foreign = |path: &PathBuf| std::fs::symlink_metadata(path).is_ok_and(|found| found.uid() != owner);
    let mend = if open.iter().any(is_foreign) {
        // Closed alone, they would be closed to the gateway.
        format!("chown -R --reference={0} {places} && chmod -R go= {places}", quoted(directory))
    } else if find(directory, &|found| is_by_group(found, directory)).is_some() {
        // Those that the gateway reads by its group stay as they are.
        format!("find {places} -user {owner} -exec chmod go= {{}} +")
    } else {
        format!("chmod -R go= {places}")
    };
    Some(Open { first, count: open.len(), mend })
}

/// The first file of a directory, itself included, that is as asked for. Links are not followed.
pub(crate) fn find(directory: &Path, wanted: &dyn Fn(&std::fs::Metadata) -> bool) -> Option<PathBuf> {
    let mut left = FILES_MAX;
    let mut all = Vec::new();
    walk(directory, &|path| std::fs::symlink_metadata(path).is_ok_and(|found| wanted(&found)), &mut left, &mut all);
    all.into_iter().next()
}

/// Certificates and revocation lists are public.
fn is_secret(file: &Path) -> bool {
    !matches!(file.extension().and_then(|name| name.to_str()), Some("pem" | "crt"))
}

/// Whether a file is another user's, root's mostly, and the owner of the data directory reads it by the group: then it
/// cannot change it, and nobody else can read it (mode 640).
fn is_by_group(found: &std::fs::Metadata, directory: &Path) -> bool {
    let is_closed = found.is_file() && found.permissions().mode() & 0o037 == 0;
    is_closed && std::fs::metadata(directory).is_ok_and(|of| of.uid() != found.uid() && of.gid() == found.gid())
}

fn is_open(path: &Path) -> bool {
    let is_open = |found: &std::fs::Metadata| !found.is_symlink() && found.permissions().mode() & OTHERS != 0;
    std::fs::symlink_metadata(path).is_ok_and(|found| is_open(&found))
}

fn walk(path: &Path, counts: &dyn Fn(&Path) -> bool, left: &mut usize, found: &mut Vec<PathBuf>) {
    if *left == 0 {
        return;
    }
    *left -= 1;
    if counts(path) {
        found.push(path.to_owned());
    }
    // Links are not followed, because they may be circular.
    if std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
            walk(&entry.path(), counts, left, found);
        }
    }
}

/// Quotes a path for a shell, where it needs that.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_can_reach_is_found_and_certificates_are_no_secret() {
        let home = tempfile::tempdir().unwrap();
        let file = |name: &str, mode| {
            let path = home.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "x").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        file("a/ca.pem", 0o644);
        file("a/b/server.key", 0o640);
        file("a/b/other.key", 0o600);
        let mut open = Vec::new();
        let secret = |path: &Path| is_secret(path) && path.is_file() && is_open(path);
        walk(&home.path().join("a"), &secret, &mut 100, &mut open);
        assert_eq!(open, [home.path().join("a/b/server.key")]);
        let mut left = 2;
        walk(&home.path().join("a"), &is_secret, &mut left, &mut open);
        assert_eq!(left, 0);
        assert_eq!(quoted(Path::new("/a b/c'd")), "'/a b/c'\\''d'");
        assert_eq!(quoted(Path::new("/a/b-1.toml")), "/a/b-1.toml");
    }

    /// Says nothing but as root, who alone may give files away.
    #[test]
    fn a_file_that_the_gateway_reads_by_its_group_is_not_open_and_stays_so() {
        use std::os::unix::fs::chown;
        let home = tempfile::tempdir().unwrap();
        if chown(home.path(), Some(54_321), Some(54_322)).is_err() {
            return;
        }
        std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let file = |name: &str, owner, mode| {
            let path = home.path().join(name);
            std::fs::write(&path, "x").unwrap();
            chown(&path, Some(owner), Some(54_322)).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let config = Config::default();
        file(data::USERS, 0, 0o640);
        assert!(open(&config, home.path()).is_none());
        file(data::PSK, 54_321, 0o644);
        let found = open(&config, home.path()).unwrap();
        assert_eq!((found.first, found.count), (home.path().join(data::PSK), 1));
        let done = std::process::Command::new("sh").args(["-c", &found.mend]).status().unwrap();
        assert!(done.success() && open(&config, home.path()).is_none(), "{}", found.mend);
        let mode = |name| std::fs::metadata(home.path().join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(data::USERS), mode(data::PSK)), (0o640, 0o600));
        for (owner, mode) in [(0, 0o644), (0, 0o660), (54_321, 0o640)] {
            file(data::USERS, owner, mode);
            let found = open(&config, home.path()).unwrap();
            let done = std::process::Command::new("sh").args(["-c", &found.mend]).status().unwrap();
            assert!(done.success() && open(&config, home.path()).is_none(), "{}", found.mend);
            let users = std::fs::metadata(home.path().join(data::USERS)).unwrap();
            assert_eq!((users.uid(), users.permissions().mode() & 0o777), (54_321, 0o600), "{owner} {mode:o}");
        }
    }
}
