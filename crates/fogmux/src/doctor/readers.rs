//! The files outside the data directory that the configuration names: whether the user of the gateway may read them.
//! `fogmux doctor` is mostly root, who may read everything.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::Subject;
use super::finding::{Report, printable};
use super::machine::Machine;
use crate::modes::quoted;

/// The user as whom a gateway runs.
#[derive(Debug, PartialEq, Eq)]
struct Reader {
    uid: u32,
    groups: Vec<u32>,
    /// Those of a process that runs; a unit may give it more groups than the system's files tell.
    is_certain: bool,
}

/// Whether a user may do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum May {
    Yes,
    /// With a group that the user may not have.
    Perhaps,
    No,
}

pub(super) fn examine(subject: &Subject<'_>, report: &mut Report) {
    let Some(reader) = reader(subject) else { return };
    // Root may read everything.
    for file in named(subject).iter().filter(|file| reader.uid != 0 && !file.starts_with(&subject.directory)) {
        let Some((obstacle, may)) = obstacle(&reader, file) else { continue };
        let shown = printable(&file.display().to_string());
        let of = if obstacle == *file { String::new() } else { format!(" ({} is closed)", obstacle.display()) };
        let mend = format!("ls -ld {} {}", quoted(&obstacle), quoted(file));
        match may {
            May::Yes => {}
            May::Perhaps => {
                let text = format!("{shown}: user {} of the gateway reads it only with its group{of}", reader.uid);
                report.warning("files-owner", text, mend);
            }
            May::No => {
                let text = format!("{shown}: user {} of the gateway may not read it{of}", reader.uid);
                report.problem("files-owner", text, mend);
            }
        }
    }
}

/// The files that the configuration names, and that of the configuration itself.
fn named(subject: &Subject<'_>) -> Vec<PathBuf> {
    let (auth, tls) = (&subject.config.auth, &subject.config.tls);
    let token = auth.token.settings();
    let mut files: Vec<PathBuf> = [
        &tls.certificate_file,
        &tls.key_file,
        &tls.client_ca_file,
        &tls.crl_file,
        &auth.acl_file,
        &auth.users_file,
        &auth.psk_file,
        &auth.certificates_file,
        &token.jwks_file,
        &token.key_file,
    ]
    .into_iter()
    .flatten()
    .cloned()
    .collect();
    files.extend(subject.config_file.map(Path::to_owned));
    files.retain(|file| file.exists());
    files
}

/// Returns the user of the running gateway, else the one to whom the data directory belongs.
fn reader(subject: &Subject<'_>) -> Option<Reader> {
    let machine = subject.machine;
    let running = subject.running.as_ref().and_then(|process| of_process(machine, process.pid));
    running.or_else(|| {
        let found = std::fs::metadata(&subject.directory).ok()?;
        Some(of_system(machine, found.uid(), found.gid()))
    })
}

/// The effective user, and all groups, of a process (proc_pid_status(5)).
fn of_process(machine: &Machine, pid: u32) -> Option<Reader> {
    let status = machine.text(format!("proc/{pid}/status"))?;
    let numbers = |key: &str| -> Option<Vec<u32>> {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        Some(line.split_whitespace().filter_map(|number| number.parse().ok()).collect())
    };
    let (uid, gid) = (*numbers("Uid:")?.get(1)?, *numbers("Gid:")?.get(1)?);
    let groups = numbers("Groups:")?.into_iter().chain([gid]).collect();
    Some(Reader { uid, groups, is_certain: true })
}

/// A user with the groups that the files of the system give it.
fn of_system(machine: &Machine, uid: u32, gid: u32) -> Reader {
    let text = |file| machine.text(file).unwrap_or_default();
    let (users, all) = (text("etc/passwd"), text("etc/group"));
    let fields = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
    let user = users.lines().map(fields).find(|user| user.get(2).is_some_and(|id| *id == uid.to_string()));
    let has_user = |group: &[String]| {
        let name = user.as_ref().and_then(|user| user.first());
        name.is_some_and(|name| group.get(3).is_some_and(|members| members.split(',').any(|member| member == name)))
    };
    let member = all.lines().map(fields).filter(|group| has_user(group));
    let own = user.as_ref().and_then(|user| user.get(3)?.parse().ok());
    let groups = member.filter_map(|group| group.get(2)?.parse().ok()).chain(own).chain([gid]).collect();
    Reader { uid, groups, is_certain: false }
}

/// The first of a file and the directories above it that the user may not read or search.
fn obstacle(reader: &Reader, file: &Path) -> Option<(PathBuf, May)> {
    const READ: u32 = 0o4;
    const SEARCH: u32 = 0o1;
    // A link is followed.
    let real = file.canonicalize().ok()?;
    let above: Vec<&Path> = real.ancestors().skip(1).collect();
    let path = above.into_iter().rev().map(|directory| (directory, SEARCH)).chain([(real.as_path(), READ)]);
    path.filter_map(|(path, wanted)| {
        let may = may(reader, path, wanted);
        (may != May::Yes).then(|| (if path == real { file } else { path }.to_owned(), may))
    })
    .max_by_key(|(_, may)| *may == May::No)
}

fn may(reader: &Reader, path: &Path, wanted: u32) -> May {
    // Where it cannot be seen, and where an access control list grants more than the mode says (acl(5)), nothing is
    // said.
    let Ok(found) = std::fs::metadata(path) else { return May::Yes };
    if rustix::fs::getxattr(path, "system.posix_acl_access", &mut [0_u8; 0]).is_ok_and(|length| length > 0) {
        return May::Yes;
    }
    let has = |shift: u32| found.mode() >> shift & wanted == wanted;
    match found.uid() == reader.uid {
        true if has(6) => May::Yes,
        true => May::No,
        false if reader.groups.contains(&found.gid()) => {
            if has(3) {
                May::Yes
            } else {
                May::No
            }
        }
        false if has(0) => May::Yes,
        false if has(3) && !reader.is_certain => May::Perhaps,
        false => May::No,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_user_reads_by_owner_by_group_and_through_every_directory() {
        let home = tempfile::tempdir().unwrap();
        let (directory, file) = (home.path().join("etc"), home.path().join("etc/users.toml"));
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(&file, "").unwrap();
        let found = std::fs::metadata(&file).unwrap();
        let other = |groups: Vec<u32>, is_certain| Reader { uid: found.uid() + 1, groups, is_certain };
        let owner = Reader { uid: found.uid(), groups: Vec::new(), is_certain: true };
        let set = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        for (mode, reader, expected) in [
            (0o600, &owner, May::Yes),
            (0o066, &owner, May::No),
            (0o600, &other(Vec::new(), false), May::No),
            (0o640, &other(vec![found.gid()], true), May::Yes),
            (0o640, &other(Vec::new(), false), May::Perhaps),
            (0o640, &other(Vec::new(), true), May::No),
            (0o604, &other(vec![found.gid()], true), May::No),
            (0o604, &other(Vec::new(), true), May::Yes),
        ] {
            set(&file, mode);
            assert_eq!(may(reader, &file, 4), expected, "{mode:o} {reader:?}");
        }
        set(home.path(), 0o711);
        set(&file, 0o644);
        set(&directory, 0o710);
        assert_eq!(obstacle(&other(Vec::new(), true), &file), Some((directory.clone(), May::No)));
        set(&directory, 0o711);
        assert_eq!(obstacle(&other(Vec::new(), true), &file), None);
    }

    #[test]
    fn groups_are_those_of_the_process_or_of_the_system() {
        let root = tempfile::tempdir().unwrap();
        for directory in ["etc", "proc/7"] {
            std::fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        let write = |file: &str, text: &str| std::fs::write(root.path().join(file), text).unwrap();
        write("etc/passwd", "root:x:0:0::/:/bin/sh\nfogmux:x:900:901::/:/bin/false\n");
        write("etc/group", "root:x:0:\nssl-cert:x:110:mail,fogmux\nadm:x:4:mail\n");
        write("proc/7/status", "Name:\tfogmux\nUid:\t900\t900\t900\t900\nGid:\t901\t901\t901\t901\nGroups:\t110 5 \n");
        let machine = Machine::at(root.path());
        let certain = Reader { uid: 900, groups: vec![110, 5, 901], is_certain: true };
        assert_eq!(of_process(&machine, 7), Some(certain));
        assert_eq!(of_system(&machine, 900, 902), Reader { uid: 900, groups: vec![110, 901, 902], is_certain: false });
    }
}
