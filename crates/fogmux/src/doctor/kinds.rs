//! Whether what is to be read are files: an examination must end, and must not fill the memory.

use std::path::{Path, PathBuf};

use super::finding::{Report, printable};
use crate::modes::quoted;
use crate::{admin_password, data, pki};

/// Files that cannot be examined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Unreadable {
    /// The configuration.
    pub(super) configuration: bool,
    /// Something in the data directory that is examined.
    pub(super) data: bool,
}

/// Looks at everything that has a fixed place.
pub(super) fn examine(config: Option<&Path>, directory: &Path, report: &mut Report) -> Unreadable {
    let beside = config.map(|file| file.parent().unwrap_or(Path::new("")).join("conf.d"));
    let more = beside.iter().flat_map(|directory| inside(directory));
    let more = more.filter(|file| file.extension().is_some_and(|extension| extension == "toml"));
    let configuration = config.map(Path::to_owned).into_iter().chain(more);
    let named = [data::USERS, data::ACL, data::PSK, data::CERTIFICATES, admin_password::FILE];
    // The gateway reads nothing in the directory in which `fogmux pki client` puts what devices get.
    let issued = directory.join(data::PKI).join(pki::CLIENTS);
    let made = [data::PKI, data::ACME].into_iter().flat_map(|name| inside(&directory.join(name)));
    let made = made.filter(|file| *file != issued || !file.is_dir());
    let of_data = named.map(|name| directory.join(name)).into_iter().chain(made);
    let mut any = |files: &mut dyn Iterator<Item = PathBuf>| files.filter(|file| is_strange(file, report)).count() > 0;
    Unreadable { configuration: any(&mut configuration.into_iter()), data: any(&mut of_data.into_iter()) }
}

/// Reports a file that cannot be read as one.
pub(super) fn is_strange(file: &Path, report: &mut Report) -> bool {
    let Err(error) = fogmux_file::check_if_there(file) else { return false };
    let text = format!("{} {error}, so what depends on it is not examined", printable(&file.display().to_string()));
    report.problem("files-kind", text, format!("ls -l {}", quoted(file)));
    true
}

fn inside(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> =
        std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_no_file_is_reported_and_never_opened() {
        let home = tempfile::tempdir().unwrap();
        let examined = |name: &str| {
            let mut report = Report::default();
            let found = examine(Some(&home.path().join("fogmux.toml")), home.path(), &mut report);
            (found, report.0.iter().filter(|finding| finding.text.contains(name)).count())
        };
        assert_eq!(examined(""), (Unreadable::default(), 0));
        for directory in ["pki", "conf.d", "pki/clients"] {
            std::fs::create_dir(home.path().join(directory)).unwrap();
        }
        assert_eq!(examined(""), (Unreadable::default(), 0), "the directory of `fogmux pki client` is examined");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        for name in ["fogmux.toml", "conf.d/a.toml", "users.toml", "acl.toml", "psk.toml", "pki/server.pem"] {
            let file = home.path().join(name);
            rustix::fs::mkfifoat(rustix::fs::CWD, &file, mode).unwrap();
            let (found, count) = examined(name);
            assert_eq!((found.configuration != found.data, count), (true, 1), "{name}: {found:?}");
            std::fs::remove_file(&file).unwrap();
        }
        std::fs::File::create(home.path().join("users.toml")).unwrap().set_len(10 << 30).unwrap();
        assert_eq!(examined("10240 MiB"), (Unreadable { configuration: false, data: true }, 1));
    }
}
