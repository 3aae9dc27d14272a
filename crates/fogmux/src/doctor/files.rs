//! The modes and owners of the data directory and of files with secrets.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::Subject;
use super::finding::{Report, printable};
use crate::backup::restore;
use crate::modes;
use crate::modes::quoted;

pub(super) fn examine(subject: &Subject<'_>, report: &mut Report) {
    let Subject { config, directory, .. } = subject;
    left(directory, report);
    if !directory.is_dir() {
        return;
    }
    match modes::open(config, directory) {
        Some(open) => {
            let text = format!("{} and {} more: others may access what is secret", shown(&open.first), open.count - 1);
            report.problem("files-open", text, open.mend);
        }
        None => report.ok("files-open", "the data directory is closed to others"),
    }
    let named =
        [&config.tls.key_file, &config.auth.psk_file, &config.auth.users_file, &config.auth.admin_password_file];
    for file in named.into_iter().flatten() {
        // A group may be the way by which a service reads a key; everybody never is.
        if std::fs::metadata(file).is_ok_and(|found| found.mode() & 0o007 != 0) {
            let text = format!("{}: everybody may access it", file.display());
            report.problem("files-open", text, format!("chmod o= {}", quoted(file)));
        }
    }
    owners(directory, report);
}

/// Directories that a killed restore has left: they have all keys of a gateway, where nobody looks.
fn left(directory: &Path, report: &mut Report) {
    for path in restore::abandoned_beside(directory) {
        let text = format!("{}: left by `fogmux restore`, which was ended; it has keys", shown(&path));
        report.warning("files-left", text, format!("rm -r {}", quoted(&path)));
    }
}

/// A name that whoever may write to the directory has chosen.
fn shown(file: &Path) -> String {
    printable(&file.display().to_string())
}

/// Files that another user has made, mostly root, are ones that the gateway cannot write or read.
fn owners(directory: &Path, report: &mut Report) {
    let Ok(owner) = std::fs::metadata(directory).map(|found| found.uid()) else { return };
    let foreign = |found: &std::fs::Metadata| found.uid() != owner;
    match modes::find(directory, &foreign) {
        Some(file) => {
            let text = format!("{} belongs to another user than {}", shown(&file), directory.display());
            let mend = format!("chown -R --reference={0} {0}", quoted(directory));
            report.problem("files-owner", text, mend);
        }
        None => report.ok("files-owner", "all files belong to the owner of the data directory"),
    }
}
