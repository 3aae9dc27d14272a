//! `fogmux check` refuses what a reload refuses, also in files of the data directory that no key names: `systemctl
//! reload` runs one before the other.

use std::fs;
use std::path::Path;

use crate::support::{Gateway, fogmux, run};

/// Files of the data directory, and texts that a reload refuses.
const REFUSED: [(&str, &str); 7] = [
    ("acl.toml", "garbage"),
    ("acl.toml", "[[allow]]\nusers = [\"anna\"]\nread = [\"a/#/b\"]\n"),
    ("users.toml", "[users.anna]\npassword = 1\n"),
    ("psk.toml", "garbage"),
    ("certificates.toml", "[[certificate]]\nwho = 1\n"),
    ("pki/ca.pem", "garbage"),
    ("pki/crl.pem", "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n"),
];

/// Checks an empty configuration with a data directory, as the arguments name it.
fn check(file: &Path, data: &Path) -> (i32, String) {
    let path = |path: &Path| path.to_str().expect("a plain path").to_owned();
    let done = run(&["check", "--data", &path(data), &path(file)]);
    // As the unit runs it.
    let as_unit = fogmux(&["check", &path(file)]).env("STATE_DIRECTORY", data).output().expect("it runs");
    assert_eq!(as_unit.status.code(), Some(done.code), "as the unit: {}", done.stdout);
    (done.code, done.stdout)
}

#[test]
fn what_a_reload_refuses_in_the_data_directory_check_refuses() {
    let home = tempfile::tempdir().expect("a directory");
    let (data, file) = (home.path().join("data"), home.path().join("fogmux.toml"));
    fs::write(&file, "").expect("written");
    assert_eq!(check(&file, &data).0, 0, "there is no data directory yet");
    let gateway = Gateway::start(&data, &["-c", file.to_str().expect("a plain path")]);
    // A list of revocations.
    for words in [["pki", "client", "lamp"], ["pki", "revoke", "lamp"]] {
        let done = run(&[&words[..], &["--data", data.to_str().expect("a plain path")]].concat());
        assert_eq!(done.code, 0, "{words:?}: {}", done.stderr);
    }
    assert_eq!(check(&file, &data), (0, format!("{}: valid\n", file.display())));
    let refused = "nothing was reloaded";
    for (times, (name, text)) in (1..).zip(REFUSED) {
        let (file_of_data, before) = (data.join(name), fs::read(data.join(name)).ok());
        fs::write(&file_of_data, text).expect("written");
        let (code, told) = check(&file, &data);
        assert!(code == 78 && told.contains(name), "{name} is {code}: {told}");
        gateway.hang_up();
        gateway.wait_for_log_times(refused, times);
        match before {
            Some(before) => fs::write(&file_of_data, before).expect("written"),
            None => fs::remove_file(&file_of_data).expect("removed"),
        }
        assert_eq!(check(&file, &data).0, 0, "{name} is as before");
    }
    // A file that is gone is refused, too, and so is one that is none.
    let users = data.join("users.toml");
    let before = fs::read(&users).expect("users");
    fs::remove_file(&users).expect("removed");
    let (code, told) = check(&file, &data);
    assert!(code == 78 && told.contains("users.toml"), "{code}: {told}");
    gateway.hang_up();
    gateway.wait_for_log_times(refused, REFUSED.len() + 1);
    fs::create_dir(&users).expect("a directory");
    assert_eq!(check(&file, &data).0, 78, "a directory");
    fs::remove_dir(&users).expect("removed");
    fs::write(&users, before).expect("written");
    assert_eq!(check(&file, &data).0, 0);
    gateway.hang_up();
    gateway.wait_for_log("users, rules and certificates are read again");
    assert_eq!(gateway.stop(), 0);
}

/// To open a FIFO takes until somebody writes to it: it is looked at first.
#[test]
fn a_fifo_in_the_data_directory_holds_check_up_nowhere() {
    let home = tempfile::tempdir().expect("a directory");
    let (data, file) = (home.path().join("data"), home.path().join("fogmux.toml"));
    fs::write(&file, "").expect("written");
    assert_eq!(Gateway::start(&data, &["-c", file.to_str().expect("a plain path")]).stop(), 0);
    fs::create_dir_all(data.join("oscore/aiocoap")).expect("a directory");
    for name in ["acl.toml", "oscore/lamp.toml", "oscore/lamp.conf", "files-in-use", "oscore/aiocoap/secret.json"] {
        let fifo = data.join(name);
        if name.contains("aiocoap") {
            // A directory is a context of aiocoap's if it has one of the two files.
            fs::write(data.join("oscore/aiocoap/settings.json"), "{}").expect("written");
        }
        let before = fs::read(&fifo).ok();
        let _ = fs::remove_file(&fifo);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
            .expect("a FIFO");
        let (code, told) = check(&file, &data);
        assert!(code != 0 && told.contains("is no regular file"), "{name} is {code}: {told}");
        fs::remove_file(&fifo).expect("removed");
        before.into_iter().for_each(|before| fs::write(&fifo, before).expect("written"));
    }
}

/// A file of rules that is refused has never been in force: the gateway does not miss it when it is gone, whatever
/// other files are read meanwhile.
#[test]
fn a_file_that_was_refused_is_not_missed() {
    let home = tempfile::tempdir().expect("a directory");
    let (data, file) = (home.path().join("data"), home.path().join("fogmux.toml"));
    fs::write(&file, "").expect("written");
    let gateway = Gateway::start(&data, &["-c", file.to_str().expect("a plain path")]);
    fs::write(data.join("acl.toml"), "garbage").expect("written");
    gateway.wait_for_log("users, rules and keys stay as they were");
    for words in [["pki", "client", "lamp"], ["pki", "revoke", "lamp"]] {
        let done = run(&[&words[..], &["--data", data.to_str().expect("a plain path")]].concat());
        assert_eq!(done.code, 0, "{words:?}: {}", done.stderr);
    }
    gateway.wait_for_log("certificates and revocations are read again");
    fs::remove_file(data.join("acl.toml")).expect("removed");
    assert_eq!(check(&file, &data).0, 0, "it is as before");
    gateway.hang_up();
    gateway.wait_for_log("configuration, users, rules and certificates are read again");
    assert_eq!(gateway.stop(), 0);
}
