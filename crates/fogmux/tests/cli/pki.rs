//! `fogmux pki`: what it refuses, and what it leaves as it was then.

use std::fs;
use std::path::Path;

use crate::support::{Done, run};

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
