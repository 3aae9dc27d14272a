//! `fogmux import mosquitto` of files that have no counterpart here.

use std::fs;

use crate::support::{fogmux, run, run_with};

#[test]
fn a_configuration_of_a_bridge_only_says_how_it_becomes_a_link() {
    let home = tempfile::tempdir().expect("a directory");
    let (file, data) = (home.path().join("mosquitto.conf"), home.path().join("data"));
    fs::write(&file, "# a comment\nconnection up\naddress broker.example:8883\ntopic sensors/# out 1\n")
        .expect("written");
    let [file, data] = [&file, &data].map(|path| path.to_str().expect("a plain path"));
    let done = run(&["import", "mosquitto", "--data", data, file]);
    assert_eq!(done.code, 0, "as of others whose lines are left out: {}", done.stderr);
    for line in ["conf:2: left out: --links FILE writes this bridge as a link", "1 line was left out"] {
        assert!(done.stdout.contains(line), "{line}: {}", done.stdout);
    }
    let json = run(&["import", "mosquitto", "--json", "--data", data, file]);
    let told: serde_json::Value = serde_json::from_str(&json.stdout).expect("JSON");
    assert_eq!((json.code, told["imported"].as_array().map(Vec::len)), (0, Some(0)), "{told}");
    assert_eq!(told["notes"].as_array().map(Vec::len), Some(1), "{told}");
    assert_eq!(run(&["import", "mosquitto", "--data", data]).code, 64, "no file is named");
}

#[test]
fn files_and_input_that_cannot_be_used_are_wrong_data() {
    let home = tempfile::tempdir().expect("a directory");
    let (file, data) = (home.path().join("passwords"), home.path().join("data"));
    let [named, at] = [&file, &data].map(|path| path.to_str().expect("a plain path"));
    let import = || run(&["import", "mosquitto", "--passwords", named, "--data", at]);
    for (bytes, said) in [(&b"alice:secret\nbob\n"[..], "passwords:1: "), (b"al\xffice:$6$x\n", "UTF-8")] {
        fs::write(&file, bytes).expect("written");
        let done = import();
        assert_eq!(done.code, 65, "{}{}", done.stdout, done.stderr);
        assert!(done.stderr.contains(said), "{}", done.stderr);
    }
    let mut passwd = fogmux(&["passwd", "alice", "--data", at]);
    fs::write(&file, b"secr\xffet\n").expect("written");
    let done = passwd.stdin(fs::File::open(&file).expect("opened")).output().expect("it ends");
    assert_eq!(done.status.code(), Some(65), "{}", String::from_utf8_lossy(&done.stderr));
}

/// A gateway with its own user reads them by their group.
#[test]
fn commands_keep_the_mode_of_a_file_and_a_link_to_it() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let home = tempfile::tempdir().expect("a directory");
    let (real, data, acl) = (home.path().join("real"), home.path().join("data"), home.path().join("acl"));
    for directory in [&real, &data] {
        fs::create_dir(directory).expect("made");
    }
    for name in ["users.toml", "psk.toml", "acl.toml"] {
        fs::write(real.join(name), "").expect("written");
        fs::set_permissions(real.join(name), fs::Permissions::from_mode(0o640)).expect("set");
        symlink(real.join(name), data.join(name)).expect("linked");
    }
    fs::write(&acl, "user bob\ntopic read a/#\n").expect("written");
    let [at, acl] = [&data, &acl].map(|path| path.to_str().expect("a plain path"));
    for (words, input) in [
        (&["passwd", "alice", "--data", at][..], "secret\n"),
        (&["pki", "psk", "meter", "--data", at], ""),
        (&["import", "mosquitto", "--acl", acl, "--replace", "--data", at], ""),
    ] {
        let done = run_with(words, input);
        assert_eq!(done.code, 0, "{words:?}: {}", done.stderr);
    }
    for (name, has) in [("users.toml", "alice"), ("psk.toml", "meter"), ("acl.toml", "bob")] {
        assert!(data.join(name).symlink_metadata().expect("there").is_symlink(), "{name}");
        let mode = fs::metadata(real.join(name)).expect("there").permissions().mode();
        assert_eq!(mode & 0o7777, 0o640, "{name}");
        assert!(fs::read_to_string(real.join(name)).expect("read").contains(has), "{name}");
    }
}

#[test]
fn a_test_of_the_rules_tells_a_disabled_user_from_none() {
    let home = tempfile::tempdir().expect("a directory");
    let at = home.path().to_str().expect("a plain path");
    assert_eq!(run_with(&["passwd", "alice", "--data", at], "secret\n").code, 0);
    assert_eq!(run(&["passwd", "--disable", "alice", "--data", at]).code, 0);
    for who in ["alice", "user:alice"] {
        let done = run(&["acl", "test", who, "read", "a", "--data", at]);
        assert_eq!(done.code, 77, "{}{}", done.stdout, done.stderr);
        assert!(done.stdout.contains("the user is disabled"), "{}", done.stdout);
    }
}
