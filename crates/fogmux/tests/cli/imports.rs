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

/// As the stock file of Debian has it.
#[test]
fn files_of_an_include_dir_are_imported_as_lines_of_the_main_file() {
    let home = tempfile::tempdir().expect("a directory");
    let (conf_d, data) = (home.path().join("conf.d"), home.path().join("data"));
    let at = |name: &str| home.path().join(name).to_str().expect("a plain path").to_owned();
    fs::create_dir_all(conf_d.join("deeper")).expect("made");
    fs::write(at("acl"), "user bob\ntopic read a/#\n").expect("written");
    fs::write(at("psk"), "meter:00112233445566778899aabbccddeeff\n").expect("written");
    let conf = |name: &str, text: &str| fs::write(conf_d.join(name), text).expect("written");
    fs::write(
        at("mosquitto.conf"),
        format!("connection up\naddress 10.0.0.1\ntopic # out\ninclude_dir {}\n", at("conf.d")),
    )
    .expect("written");
    conf("b.conf", &format!("acl_file {}\nconnection up\naddress 10.0.0.2\ntopic # out\n", at("acl")));
    // No line of the bridge before it; and the second of its kind.
    conf(
        "c.conf",
        &format!("clientid x\npsk_file {}\nacl_file /none\ninclude_dir {}\n", at("psk"), at("conf.d/deeper")),
    );
    conf("left.bak", "password_file /none\n");
    conf("deeper/d.conf", "password_file /none\n");
    let (main, links) = (at("mosquitto.conf"), at("links.toml"));
    let arguments =
        ["import", "mosquitto", "--links", &links, "--replace", "--data", data.to_str().expect("a plain path"), &main];
    let done = run(&arguments);
    assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
    for said in [
        "c.conf:1: left out: clientid",
        "c.conf:3: left out: another file was named before",
        "c.conf: left out: its include_dir is ignored",
        "1 rules imported",
        "1 pre-shared keys imported",
        "2 links imported",
    ] {
        assert!(done.stdout.contains(said), "{said}: {}", done.stdout);
    }
    let links = fs::read_to_string(&links).expect("written");
    assert!(links.contains("[links.up]") && links.contains("[links.up-2]"), "{links}");
    // A file that cannot be read is not left out.
    rustix::fs::mkfifoat(rustix::fs::CWD, conf_d.join("e.conf"), rustix::fs::Mode::RUSR).expect("made");
    let done = run(&arguments);
    assert!(done.code == 74 && done.stderr.contains("conf.d/e.conf"), "{}{}", done.stdout, done.stderr);
    fs::remove_dir_all(&conf_d).expect("removed");
    let done = run(&arguments);
    assert!(done.code == 74 && done.stderr.contains("/conf.d: "), "{}{}", done.stdout, done.stderr);
}

#[test]
fn a_key_without_a_file_is_named_with_its_line() {
    let home = tempfile::tempdir().expect("a directory");
    let (file, data) = (home.path().join("mosquitto.conf"), home.path().join("data"));
    let [named, data] = [&file, &data].map(|path| path.to_str().expect("a plain path"));
    for key in ["password_file", "acl_file", "psk_file", "include_dir"] {
        fs::write(&file, format!("# a comment\n{key} \n")).expect("written");
        let done = run(&["import", "mosquitto", "--data", data, named]);
        assert_eq!(done.code, 65, "{key}: {}{}", done.stdout, done.stderr);
        assert!(done.stderr.contains(&format!("mosquitto.conf:2: {key} has no value")), "{}", done.stderr);
    }
}

/// A file with a fault ends the import before the others have any effect: rules without users shut everybody out.
#[test]
fn an_import_that_fails_leaves_nothing_behind() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| home.path().join(name).to_str().expect("a plain path").to_owned();
    let data = at("data");
    fs::create_dir(&data).expect("a directory");
    let write = |name: &str, text: &str| fs::write(at(name), text).expect("a file");
    write("acl", "user alice\ntopic read a/#\n");
    write("passwords", "bob:plain\n");
    write("bridge.conf", "connection up\naddress 127.0.0.1\ntopic a/# out\n");
    write("m.conf", &format!("acl_file {}\npassword_file {}\ninclude_dir {}\n", at("acl"), at("passwords"), at("no")));
    fs::create_dir(at("no")).expect("a directory");
    let (links, conf) = (at("links.toml"), at("m.conf"));
    for words in [
        vec!["import", "mosquitto", "--data", &data, "--links", &links, &conf],
        vec!["import", "mosquitto", "--data", &data, "--passwords", &at("passwords")],
    ] {
        assert_eq!(run(&words).code, 65, "{words:?}");
        let left: Vec<_> = fs::read_dir(&data).expect("a directory").collect();
        assert!(left.is_empty() && !home.path().join("links.toml").exists(), "{words:?}: {left:?}");
    }
    write("acl", "user alice\ntopic read a/#\nUser bob\ntopic readwrite secret/#\n");
    let done = run(&["import", "mosquitto", "--data", &data, "--acl", &at("acl")]);
    assert!(done.code == 65 && done.stderr.contains("line 3"), "{}: {}", done.code, done.stderr);
}

/// A users file that is there before the first start keeps it from adding an administrator.
#[test]
fn a_first_start_without_an_administrator_says_so() {
    let home = tempfile::tempdir().expect("a directory");
    let data = home.path().join("data");
    let named = data.to_str().expect("a plain path");
    let done = run_with(&["passwd", "--data", named, "alice"], "secret\n");
    assert_eq!(done.code, 0, "{}", done.stderr);
    let gateway = crate::support::Gateway::start(&data, &[]);
    gateway.wait_for_log("has no admin, whom `fogmux passwd admin` adds");
    assert_eq!(gateway.stop(), 0);
}
