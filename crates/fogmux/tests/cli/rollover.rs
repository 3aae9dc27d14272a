//! `fogmux pki rollover`, and `fogmux backup` beside it.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{Done, fogmux, run};

/// A data directory with the authority of a gateway.
struct Place {
    home: tempfile::TempDir,
    data: PathBuf,
}

impl Place {
    fn new() -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let data = home.path().join("data");
        let place = Self { home, data };
        place.pki(&["server", "fog.example"], 0);
        place
    }

    fn pki(&self, words: &[&str], code: i32) -> Done {
        let done = run(&[&["pki"], words, &["--data", named(&self.data)]].concat());
        assert_eq!(done.code, code, "{words:?}: {} {}", done.stdout, done.stderr);
        done
    }
}

fn named(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// `sysexits.h`: EX_UNAVAILABLE.
const UNAVAILABLE: i32 = 69;

#[test]
fn a_client_whose_certificate_was_written_elsewhere_is_not_locked_out() {
    let place = Place::new();
    let elsewhere = place.home.path().join("pump-7");
    place.pki(&["client", "pump-7", "--out", named(&elsewhere)], 0);
    assert!(place.pki(&["list"], 0).stdout.contains("pump-7"));
    place.pki(&["rollover", "begin"], 0);
    assert!(place.pki(&["rollover", "switch"], 0).stdout.contains("pump-7"));
    let refused = place.pki(&["rollover", "finish", "--replaced"], UNAVAILABLE);
    assert!(
        refused.stderr.contains("whose only certificate") && refused.stderr.contains("pump-7"),
        "{}",
        refused.stderr
    );
    place.pki(&["client", "pump-7", "--renew", "--out", named(&elsewhere)], 0);
    let refused = place.pki(&["rollover", "finish"], UNAVAILABLE);
    assert!(refused.stderr.contains("--replaced") && refused.stderr.contains("pump-7"), "{}", refused.stderr);
    place.pki(&["rollover", "finish", "--replaced"], 0);
    // Both of them, by its name.
    assert_eq!(place.pki(&["revoke", "pump-7"], 0).stderr.matches("is revoked").count(), 2);
}

/// Whether somebody waits for the lock of a file.
fn is_waited_for(file: &File) -> bool {
    let inode = format!(":{} ", file.metadata().expect("it is open").ino());
    let locks = fs::read_to_string("/proc/locks").expect("Linux");
    locks.lines().any(|line| line.contains("->") && line.contains(&inode))
}

#[test]
fn a_backup_that_waits_for_a_step_of_a_rollover_has_the_files_of_that_step() {
    let place = Place::new();
    let directory = place.data.join("pki");
    let lock = File::create(directory.join("ca.pem.lock")).unwrap();
    lock.lock().unwrap();
    let archive = place.home.path().join("backup.tar");
    let words = ["backup", named(&archive), "--data", named(&place.data)];
    let backup = fogmux(&words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    while !is_waited_for(&lock) {
        assert!(begun.elapsed() < Duration::from_secs(60), "the backup does not wait for the lock");
        std::thread::sleep(Duration::from_millis(20));
    }
    fs::write(directory.join("ca-next.key"), "made by the step").unwrap();
    lock.unlock().unwrap();
    let done = backup.wait_with_output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let archive = fs::read(archive).unwrap();
    assert!(archive.windows(16).any(|part| part == b"made by the step"), "ca-next.key is missing");
}
