//! `fogmux pki`: what it refuses, and what it leaves as it was then.

use std::fs;
use std::path::Path;

use crate::support::{Done, Gateway, run};

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
    let gateway = Gateway::start(&data, &[]);
    gateway.wait_for_log("lamp.toml: ");
    gateway.wait_for_log("this OSCORE context is not in use");
    gateway.hang_up();
    gateway.wait_for_log_times("this OSCORE context is not in use", 2);
    gateway.wait_for_log("configuration, users, rules and certificates are read again");
    assert_eq!(gateway.stop(), 0);
    let refused = pki(&data, &["oscore", "other"]);
    assert!(refused.code == 78 && refused.stderr.contains("lamp.toml"), "{} {}", refused.code, refused.stderr);
}
