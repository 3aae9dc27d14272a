//! Damaged files of a data directory: where `fogmux serve` refuses to start, `fogmux check` refuses as well, and where
//! `fogmux check` refuses, `fogmux doctor` has a problem.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::doctor::LISTENERS;
use crate::support::{Gateway, fogmux, run, signal};

/// The files of a gateway that has been in use.
const FILES: [&str; 11] = [
    "users.toml",
    "acl.toml",
    "psk.toml",
    "certificates.toml",
    "files-in-use",
    "oscore/sensor.toml",
    "pki/ca.pem",
    "pki/ca.key",
    "pki/crl.pem",
    "pki/server.pem",
    "pki/server.key",
];

type Damage = fn(&Path);

const DAMAGES: [(&str, Damage); 4] = [
    ("gone", |file| fs::remove_file(file).expect("it can be done")),
    ("empty", |file| fs::write(file, "").expect("it can be done")),
    ("garbage", |file| fs::write(file, "\u{1}garbage = [\n").expect("it can be done")),
    ("a directory", |file| {
        fs::remove_file(file).expect("it can be done");
        fs::create_dir(file).expect("it can be done");
    }),
];

#[test]
fn what_keeps_a_gateway_from_starting_is_found_by_check_and_by_doctor() {
    let home = tempfile::tempdir().expect("it can be done");
    let (used, data) = (home.path().join("used"), home.path().join("data"));
    fs::write(home.path().join("fogmux.toml"), "").expect("it can be done");
    used_gateway(&used);
    assert_eq!(verdicts(&used, home.path()), (None, 0, 0), "what is not damaged");
    let mut wrong = Vec::new();
    for file in FILES {
        for (how, damage) in DAMAGES {
            copy(&used, &data);
            damage(&data.join(file));
            let (serve, check, doctor) = verdicts(&data, home.path());
            if serve.is_some() && (check, doctor) != (78, 78) || check != 0 && doctor == 0 {
                wrong.push(format!("{file} {how}: serve {serve:?}, check {check}, doctor {doctor}"));
            }
            // A start heals these, but something has damaged them.
            if file == "pki/server.key" && how != "a directory" && doctor != 69 {
                wrong.push(format!("{file} {how}: doctor {doctor}"));
            }
            // A start does not need it, but the next renewal does.
            if file == "pki/ca.key" && (check, doctor == 0) != (78, false) {
                wrong.push(format!("{file} {how}: check {check}, doctor {doctor}"));
            }
            fs::remove_dir_all(&data).expect("it can be done");
        }
    }
    copy(&used, &data);
    fs::copy(data.join("oscore/sensor.toml"), data.join("oscore/twin.toml")).expect("it can be done");
    let twins = verdicts(&data, home.path());
    if twins != (Some(78), 78, 78) {
        wrong.push(format!("two contexts with the same identifiers: {twins:?}"));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A FIFO whose other end nobody opens, and a device without an end, where files are read.
#[test]
fn what_is_no_file_is_refused_and_not_waited_for() {
    let home = tempfile::tempdir().expect("it can be done");
    let (used, data, file) = (home.path().join("used"), home.path().join("data"), home.path().join("fogmux.toml"));
    fs::write(&file, "").expect("it can be done");
    used_gateway(&used);
    let kinds: [(&str, Damage); 2] = [
        ("a FIFO", |file| {
            let done = Command::new("mkfifo").arg(file).status().expect("mkfifo is there");
            assert!(done.success());
        }),
        ("a device", |file| std::os::unix::fs::symlink("/dev/zero", file).expect("it can be done")),
    ];
    for name in FILES {
        for (how, make) in kinds {
            copy(&used, &data);
            fs::remove_file(data.join(name)).expect("it can be done");
            make(&data.join(name));
            let (serve, check, doctor) = verdicts(&data, home.path());
            // One context that gives none is left out.
            let is_refused = matches!(serve, Some(74 | 78)) || serve.is_none() && name.starts_with("oscore/");
            assert!(is_refused && (check, doctor) == (78, 78), "{name} is {how}: {serve:?}, {check}, {doctor}");
            fs::remove_dir_all(&data).expect("it can be done");
        }
    }
    fs::create_dir(home.path().join("conf.d")).expect("it can be done");
    let more = home.path().join("conf.d/more.toml");
    for (how, make) in kinds {
        make(&more);
        assert_eq!(verdicts(&used, home.path()), (Some(78), 78, 78), "a file of conf.d is {how}");
        fs::remove_file(&more).expect("it can be done");
    }
}

#[test]
fn a_fifo_in_place_of_a_watched_file_stops_no_running_gateway() {
    let home = tempfile::tempdir().expect("it can be done");
    let data = home.path().join("data");
    used_gateway(&data);
    let gateway = Gateway::start(&data, &[]);
    for name in ["acl.toml", "psk.toml", "users.toml"] {
        fs::remove_file(data.join(name)).expect("it can be done");
        let done = Command::new("mkfifo").arg(data.join(name)).status().expect("mkfifo is there");
        assert!(done.success());
        gateway.wait_for_log(&format!("{name}: cannot be read: is no regular file"));
        fs::remove_file(data.join(name)).expect("it can be done");
        fs::write(data.join(name), "").expect("it can be done");
    }
    gateway.hang_up();
    gateway.wait_for_log("nothing was reloaded");
    assert_eq!(gateway.stop(), 0);
}

/// Makes the data directory of a gateway that has run with all files that it must not miss.
fn used_gateway(data: &Path) {
    Gateway::start(data, &[]).stop();
    let text = data.to_str().expect("it can be done");
    for arguments in [&["pki", "client", "device"][..], &["pki", "revoke", "device"], &["pki", "psk", "sensor"]] {
        let done = run(&[arguments, &["--data", text]].concat());
        assert_eq!(done.code, 0, "{arguments:?}: {}", done.stderr);
    }
    let out = data.parent().expect("it can be done").join("device");
    let done = run(&["pki", "oscore", "sensor", "--data", text, "--out", out.to_str().expect("it can be done")]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    fs::write(data.join("acl.toml"), "[[allow]]\nuser = \"admin\"\nboth = [\"#\"]\n").expect("it can be done");
    fs::write(data.join("certificates.toml"), "# nobody\n").expect("it can be done");
    Gateway::start(data, &[]).stop();
    fs::remove_file(data.join("test.log")).expect("it can be done");
    fs::remove_file(data.join("admin-password")).expect("it can be done");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(data, open).expect("it can be done");
    let in_use = fs::read_to_string(data.join("files-in-use")).expect("it can be done");
    assert_eq!(in_use.lines().count(), 6, "{in_use}");
}

fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-rp").args([from, to]).status().expect("cp is there");
    assert!(done.success());
}

/// The exit codes of serve, if it refuses to start, of check and of doctor.
fn verdicts(data: &Path, home: &Path) -> (Option<i32>, i32, i32) {
    let (data, file) = (data.to_str().expect("it can be done"), home.join("fogmux.toml"));
    let file = file.to_str().expect("it can be done");
    let code = |arguments: &[&str]| bounded(arguments).output().expect("sh is there").status.code().unwrap_or(-1);
    let check = code(&["check", file, "--data", data]);
    let set = LISTENERS.map(|name| format!("listeners.{name}.address = \"127.0.0.1:0\"\n")).concat();
    let free = home.join("free.toml");
    fs::write(&free, set).expect("it can be done");
    let doctor = code(&["doctor", "--config", free.to_str().expect("it can be done"), "--data", data]);
    let mut serve = bounded(&["serve", "--free-ports", "--json", "--config", file, "--data", data]);
    let mut serve = serve.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("sh is there");
    // The banner, or the end.
    let mut line = String::new();
    let stdout = serve.stdout.take().expect("piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).expect("read");
    if !line.is_empty() {
        signal(serve.id(), "TERM");
        serve.wait().expect("a child");
        return (None, check, doctor);
    }
    (serve.wait().expect("a child").code(), check, doctor)
}

/// The binary for at most a minute, with at most 8 GB of addresses.
fn bounded(arguments: &[&str]) -> Command {
    let plain = fogmux(arguments);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v 8000000; exec timeout 60 \"$0\" \"$@\""]).arg(plain.get_program()).args(arguments);
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}
