//! The lines of the README that people copy, typed as they stand there.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::Path;
use std::process::Stdio;

use crate::support::{Done, Gateway, fogmux, run};

/// Each line of a section that is a command of ours, without its comment.
fn commands(section: &str) -> Vec<Vec<String>> {
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md")).unwrap();
    let text = readme.split("\n## ").find(|part| part.starts_with(section)).unwrap();
    let typed = text.lines().filter_map(|line| line.strip_prefix("    fogmux "));
    typed.map(|line| line.split(" #").next().unwrap().split_whitespace().map(str::to_owned).collect()).collect()
}

/// As a shell would: in that directory, with `> FILE` at the end.
fn typed(home: &Path, words: &[String]) -> Done {
    let (words, file) = match words {
        [words @ .., arrow, file] if arrow == ">" => (words, Some(file)),
        words => (words, None),
    };
    let arguments: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut child = fogmux(&arguments)
        .env("XDG_STATE_HOME", home)
        .current_dir(home)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A password, for the one that asks; the others may be gone already.
    let _ = std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"secret\n");
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if let Some(file) = file {
        std::fs::write(home.join(file), &output.stdout).unwrap();
    }
    Done { code: output.status.code().unwrap_or(-1), stdout: text(&output.stdout), stderr: text(&output.stderr) }
}

#[test]
fn the_commands_of_the_credentials_section_work() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    let gateway = Gateway::start(&home.join("fogmux"), &[]);
    let local = gateway.url("coap", "");
    assert_eq!(run(&["pub", "-r", &gateway.url("coap", "room/temperature"), "21.5"]).code, 0);
    // Another broker's files, for the line that takes them over.
    let hash =
        "$6$ep2ynmhUMT//sR7p$3bmTwYdRx5CnO/cfpldDIMaofZaN0du8dXfjYSE88ulhlNxRGdaKLMLxtPOjaTs7Ojo3gXIws5dLllnZFwRpzw==";
    for (name, text) in [
        ("passwd", format!("bob:{hash}\n")),
        ("acl", "user bob\ntopic read room/#\n".to_owned()),
        ("psk", "meter-4:00112233445566778899aabbccddeeff\n".to_owned()),
    ] {
        std::fs::write(home.join(name), text).unwrap();
    }
    let lines = commands("Credentials");
    assert!(lines.len() >= 7, "{lines:?}");
    for line in lines {
        let words: Vec<String> = line.iter().map(|word| word.replace("coap://127.0.0.1/", &local)).collect();
        if words.first().is_some_and(|word| word == "get") {
            gateway.wait_for_log("OSCORE contexts are read again");
        }
        let done = typed(home, &words);
        assert_eq!(done.code, 0, "{line:?}: {}{}", done.stdout, done.stderr);
        if words.first().is_some_and(|word| word == "get") {
            assert_eq!(done.stdout, "21.5");
        }
    }
    let data = home.join("fogmux");
    for (file, text) in
        [("users.toml", "alice"), ("users.toml", "bob"), ("psk.toml", "meter-3"), ("psk.toml", "meter-4")]
    {
        assert!(std::fs::read_to_string(data.join(file)).unwrap().contains(text), "{file}: {text}");
    }
    assert!(data.join("pki/clients/pump-7.pem").exists() && data.join("pki/crl.pem").exists());
    assert_eq!(gateway.stop(), 0);
}
