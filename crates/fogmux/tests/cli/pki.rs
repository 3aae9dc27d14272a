//! `fogmux pki`: what it refuses, and what it leaves as it was then.

use std::fs;
use std::path::Path;

use crate::support::{Done, Gateway, fogmux, run};

fn pki(data: &Path, words: &[&str]) -> Done {
    run(&[&["pki"], words, &["--data", data.to_str().expect("a plain path")]].concat())
}

#[test]
fn a_name_that_cannot_be_in_a_certificate_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    for name in [
        "https://fog.example",
        "fog.example:8883",
        "g\u{e4}rten.local",
        "*.x.example",
        "300.1.1.1",
        "192.0.2.0/24",
        "a,b",
        "not a name",
        "fog.example..",
        "",
    ] {
        let done = pki(&data, &["server", "fog.example", name]);
        assert_eq!(done.code, 64, "{name}: {}{}", done.stdout, done.stderr);
        assert!(done.stderr.contains(&format!("{name:?}")), "{name}: {}", done.stderr);
        assert!(!data.exists(), "{name}: nothing is made");
    }
    let done = pki(&data, &["server", "fog.example.", "192.0.2.7"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let again = pki(&data, &["server", "fog.example"]);
    assert!(again.code == 0 && again.stderr.contains("covers these names"), "{}", again.stderr);
}

#[test]
fn days_that_no_certificate_can_have_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let out = directory.path().join("other");
    let out = out.to_str().unwrap();
    for days in ["0", "36501", "2915000", "4294967295"] {
        for words in [&["client", "pump", "--days", days][..], &["server", "a.example", "--out", out, "--days", days]] {
            let done = pki(&data, words);
            assert_eq!(done.code, 64, "{words:?}: {}", done.stderr);
        }
    }
    assert!(!data.exists());
    assert_eq!(pki(&data, &["client", "pump", "--days", "36500"]).code, 0);
}

#[test]
fn a_key_that_can_be_guessed_is_refused_and_one_in_a_file_is_warned_of() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    for key in ["", "0", "00", "000102030405060708090a0b0c0d0e"] {
        let done = pki(&data, &["psk", "meter", "--key", key]);
        assert_eq!(done.code, 64, "{key}: {}", done.stderr);
        assert!(!data.join("psk.toml").exists() && !data.join("users.toml").exists(), "{key}: nothing is made");
    }
    let long = "000102030405060708090a0b0c0d0e0f";
    assert_eq!(pki(&data, &["psk", "meter", "--key", long]).code, 0);
    fs::write(data.join("psk.toml"), "[[psk]]\nidentity = \"lamp\"\nkey = \"c0ffee\"\n").unwrap();
    let gateway = Gateway::start(&data, &[]);
    gateway.wait_for_log("psk.toml: the key is shorter than 16 bytes");
    assert!(gateway.log().contains("lamp") && !gateway.log().contains("c0ffee"), "{}", gateway.log());
}

#[test]
fn a_renewal_says_that_there_was_none() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let done = pki(&data, &["client", "--renew", "pmup"]);
    assert!(done.code == 0 && done.stderr.contains("no certificate of a client \"pmup\""), "{}", done.stderr);
    assert_eq!(pki(&data, &["client", "pump"]).code, 0);
    let done = pki(&data, &["client", "--renew", "pump"]);
    assert!(done.code == 0 && !done.stderr.contains("no certificate"), "{}", done.stderr);
}

#[test]
fn a_context_that_is_refused_leaves_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let nowhere = directory.path().join("none/lamp.toml");
    for (words, code) in [
        (&["oscore", "lamp", "--format", "aiocoap"][..], 64),
        (&["oscore", "no/name"], 64),
        (&["oscore", "lamp", "--algorithm", "what"], 64),
        (&["oscore", "lamp", "--out", nowhere.to_str().unwrap()], 74),
    ] {
        assert_eq!(pki(&data, words).code, code, "{words:?}");
        let left = fs::read_dir(data.join("oscore")).map_or(0, Iterator::count);
        assert_eq!(left, 0, "{words:?}");
    }
}

/// A context file that a full disk or the end of a process left empty keeps nobody else out.
#[test]
fn a_gateway_starts_and_reloads_without_a_context_file_that_is_damaged() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    fs::create_dir(&data).unwrap();
    assert_eq!(pki(&data, &["oscore", "good"]).code, 0);
    let bad = data.join("oscore/lamp.toml");
    fs::write(&bad, "").unwrap();
    let (config, at) = (directory.path().join("fogmux.toml"), data.to_str().unwrap());
    fs::write(&config, "").unwrap();
    let config = config.to_str().unwrap();
    // As the unit runs it before a reload, and for whoever mends files.
    let check = |flags: &[&str]| run(&[&["check", config, "--data", at], flags].concat());
    let (reload, strict) = (check(&["--reload"]), check(&[]));
    assert!(
        reload.code == 0 && reload.stdout.contains("warning: ") && reload.stdout.contains("lamp.toml"),
        "{}",
        reload.stdout
    );
    assert!(strict.code == 78 && strict.stdout.contains("lamp.toml"), "{}", strict.stdout);
    let doctor = run(&["doctor", "--config", config, "--data", at]);
    assert!(doctor.code == 78 && doctor.stdout.contains("lamp.toml"), "{}", doctor.stdout);
    let gateway = Gateway::start(&data, &[]);
    gateway.wait_for_log("lamp.toml: ");
    gateway.wait_for_log("this OSCORE context is not in use");
    gateway.hang_up();
    gateway.wait_for_log_times("this OSCORE context is not in use", 2);
    gateway.wait_for_log("configuration, users, rules and certificates are read again");
    assert_eq!(gateway.stop(), 0);
    // Of two with one identity no one is the right one, for a reload as well.
    let twin = data.join("oscore/twin.toml");
    fs::copy(data.join("oscore/good.toml"), &twin).unwrap();
    assert_eq!(check(&["--reload"]).code, 78);
    fs::remove_file(&twin).unwrap();
    let refused = pki(&data, &["oscore", "other"]);
    assert!(refused.code == 78 && refused.stderr.contains("lamp.toml"), "{} {}", refused.code, refused.stderr);
}

/// The key signs again only in two years, and has to be mended before.
#[test]
fn an_authority_that_cannot_sign_is_told_at_the_start_and_ends_no_gateway() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    assert_eq!(Gateway::start(&data, &[]).stop(), 0);
    let key = data.join("pki/ca.key");
    // Of another name than the certificate has: it would be made anew.
    let name = ["--set", "xmpp.domain=new.example"];
    let good = fs::read(&key).unwrap();
    for damage in [Some(&b""[..]), Some(b"\xff\xfe"), None] {
        match damage {
            Some(bytes) => fs::write(&key, bytes).unwrap(),
            None => fs::remove_file(&key).unwrap(),
        }
        let gateway = Gateway::start(&data, &name);
        gateway.wait_for_log("; the old one is used");
        gateway.wait_for_log("cannot be renewed, and nothing can be issued or revoked");
        assert!(gateway.log().contains("ca.key"), "{}", gateway.log());
        assert_eq!(gateway.stop(), 0);
    }
    fs::write(&key, good).unwrap();
    let gateway = Gateway::start(&data, &name);
    assert!(!gateway.log().contains("cannot be renewed"), "{}", gateway.log());
    assert_eq!(gateway.stop(), 0);
}

/// systemd does not start again what ends with 78, and would try for ever what ends with 74.
#[test]
fn files_of_the_authority_that_are_damaged_end_a_start_as_they_end_a_check() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    assert_eq!(Gateway::start(&data, &[]).stop(), 0);
    let (at, config) = (data.to_str().unwrap(), directory.path().join("fogmux.toml"));
    fs::write(&config, "").unwrap();
    let file = |name: &str| data.join("pki").join(name);
    let codes = || {
        let config = config.to_str().unwrap();
        let check = run(&["check", config, "--data", at]).code;
        let serve = fogmux(&["serve", "--free-ports", "-c", config, "--data", at]).output().unwrap();
        (check, serve.status.code(), String::from_utf8_lossy(&serve.stderr).into_owned())
    };
    for (name, damage) in [("ca.pem", Some("")), ("ca.pem", Some("what")), ("ca.pem", None)] {
        let good = fs::read(file(name)).unwrap();
        match damage {
            Some(text) => fs::write(file(name), text).unwrap(),
            None => fs::remove_file(file(name)).unwrap(),
        }
        let (check, serve, said) = codes();
        assert_eq!((check, serve), (78, Some(78)), "{name} {damage:?}: {said}");
        fs::write(file(name), good).unwrap();
    }
    let good = fs::read(file("server.key")).unwrap();
    fs::remove_file(file("server.key")).unwrap();
    fs::create_dir(file("server.key")).unwrap();
    let (check, serve, said) = codes();
    assert_eq!((check, serve), (78, Some(78)), "{said}");
    fs::remove_dir(file("server.key")).unwrap();
    fs::write(file("server.key"), good).unwrap();
    assert_eq!(Gateway::start(&data, &[]).stop(), 0);
}
