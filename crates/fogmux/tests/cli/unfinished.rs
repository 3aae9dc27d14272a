//! `fogmux backup` and `fogmux restore` that a signal ends: what they have written until then has all keys.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Gateway, fogmux, run, signal};

/// The data directory of a gateway, and a backup of it.
fn backed_up(home: &Path) -> (PathBuf, PathBuf) {
    let (data, file) = (home.join("data"), home.join("b.tar"));
    Gateway::start(&data, &[]).stop();
    let done =
        run(&["backup", "--data", data.to_str().expect("it can be done"), file.to_str().expect("it can be done")]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    (data, file)
}

fn wait_for(what: impl Fn() -> bool) {
    let begun = Instant::now();
    while !what() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it is not there");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Ends a child by a signal; its exit code.
fn end(mut child: Child, name: &str) -> Option<i32> {
    signal(child.id(), name);
    child.wait().expect("it can be done").code()
}

#[test]
fn a_backup_that_is_ended_leaves_nothing_and_one_that_is_killed_is_named() {
    let home = tempfile::tempdir().expect("it can be done");
    let (data, _) = backed_up(home.path());
    let partial = home.path().join("night.tar.partial");
    let night = home.path().join("night.tar");
    // It waits for whoever changes the authority.
    let lock = File::create(data.join("pki/ca.pem.lock")).expect("it can be done");
    lock.lock().expect("it can be done");
    let begin = || {
        let child = fogmux(&[
            "backup",
            "--data",
            data.to_str().expect("it can be done"),
            night.to_str().expect("it can be done"),
        ])
        .spawn()
        .expect("it can be done");
        wait_for(|| partial.exists());
        child
    };
    for (name, code) in [("TERM", 143), ("INT", 130), ("HUP", 129)] {
        // The signal may come before the name is known to be removed by it.
        let child = begin();
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!((end(child, name), partial.exists()), (Some(code), false), "SIG{name}");
    }
    let killed = begin();
    end(killed, "KILL");
    assert!(partial.exists());
    let running = fogmux(&[
        "backup",
        "--data",
        data.to_str().expect("it can be done"),
        home.path().join("c.tar").to_str().expect("it can be done"),
    ])
    .spawn()
    .expect("it can be done");
    wait_for(|| home.path().join("c.tar.partial").exists());
    drop(lock);
    assert!(running.wait_with_output().expect("it can be done").status.success());
    let next = run(&[
        "backup",
        "--data",
        data.to_str().expect("it can be done"),
        home.path().join("d.tar").to_str().expect("it can be done"),
    ]);
    assert!(next.stderr.contains("night.tar.partial: left by a backup that was ended"), "{}", next.stderr);
    assert_eq!(next.stderr.matches("left by").count(), 1, "{}", next.stderr);
}

#[test]
fn a_restore_that_is_ended_leaves_nothing_and_one_that_is_killed_is_named() {
    let home = tempfile::tempdir().expect("it can be done");
    let (_, file) = backed_up(home.path());
    let archive = fs::read(&file).expect("it can be done");
    let to = home.path().join("to/data");
    let left = || {
        let entries = fs::read_dir(home.path().join("to")).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).find(|path| path.to_string_lossy().contains(".fogmux-restore-"))
    };
    let begin = || {
        let mut restore = fogmux(&["restore", "--data", to.to_str().expect("it can be done"), "-"]);
        let mut child = restore.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it can be done");
        // The rest never comes.
        let mut input = child.stdin.take().expect("it can be done");
        input.write_all(&archive[..archive.len() / 2]).expect("it can be done");
        wait_for(|| left().is_some_and(|left| left.join("pki").exists()));
        (child, input)
    };
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let (child, _input) = begin();
        assert_eq!((end(child, name), left()), (Some(code), None), "SIG{name}");
    }
    let (child, _input) = begin();
    end(child, "KILL");
    let name = left().expect("it can be done").display().to_string();
    let doctor = run(&["doctor", "--data", to.to_str().expect("it can be done")]);
    assert!(doctor.stdout.contains(&format!("{name}: left by `fogmux restore`")), "{}", doctor.stdout);
    let next =
        run(&["restore", "--data", to.to_str().expect("it can be done"), file.to_str().expect("it can be done")]);
    assert!(next.code == 0 && next.stderr.contains(&format!("{name}: left by a restore")), "{}", next.stderr);
}

/// A gateway that has just been started has its store, and not yet the socket of its control.
#[test]
fn a_backup_waits_for_a_gateway_that_is_starting() {
    let home = tempfile::tempdir().expect("a directory");
    let (data, file) = (home.path().join("data"), home.path().join("backup.tar"));
    let gateway = Gateway::start(&data, &[]);
    let (socket, away) = (data.join("control"), home.path().join("away"));
    fs::rename(&socket, &away).expect("a socket");
    let back = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(1));
        fs::rename(&away, &socket).expect("renamed");
    });
    let [data, file] = [&data, &file].map(|path| path.to_str().expect("a plain path"));
    let done = run(&["backup", "--data", data, file]);
    back.join().expect("it is back");
    assert!(done.code == 0 && done.stdout.contains("of the running gateway"), "{}: {}", done.code, done.stderr);
    assert_eq!(gateway.stop(), 0);
}
