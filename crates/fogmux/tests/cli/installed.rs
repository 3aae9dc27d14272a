//! Commands change the files of the gateway that is meant: of the installed service, of this container, or the user's
//! own. A directory stands for the root of the system.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::support::fogmux;

/// Any user but root and the one of the tests.
const SERVICE_USER: u32 = 54_321;
/// nobody.
const STRANGER: u32 = 65_534;

/// A system with the home of a user.
struct System {
    root: TempDir,
}

impl System {
    /// Without fogmux.
    fn new() -> Self {
        Self { root: tempfile::tempdir().expect("a system of files") }
    }

    /// With fogmux as a service that has been started before.
    fn with_service(config: &str) -> Self {
        let system = Self::new();
        fs::create_dir_all(system.path("etc/fogmux")).expect("a system of files");
        fs::write(system.path("etc/fogmux/fogmux.toml"), config).expect("a system of files");
        fs::create_dir_all(system.state()).expect("a system of files");
        system
    }

    fn path(&self, below: &str) -> PathBuf {
        self.root.path().join(below)
    }

    fn state(&self) -> PathBuf {
        self.path("var/lib/fogmux")
    }

    fn own(&self) -> PathBuf {
        self.path("home/fogmux")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = fogmux(words);
        command.arg("--root").arg(self.root.path()).env("XDG_STATE_HOME", self.path("home"));
        command
    }

    /// Runs a command, and returns its code and what it says.
    fn run(&self, words: &[&str]) -> (i32, String) {
        end(&mut self.command(words))
    }
}

/// Runs the command to its end, with a password as its input.
fn end(command: &mut Command) -> (i32, String) {
    let (read, mut written) = std::io::pipe().expect("a system of files");
    written.write_all(b"a password\n").expect("a system of files");
    drop(written);
    let done = command.stdin(read).output().expect("a system of files");
    (done.status.code().unwrap_or(-1), String::from_utf8_lossy(&done.stderr).into_owned())
}

/// All files and directories below.
fn below(directory: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).expect("a system of files") {
        let path = entry.expect("a system of files").path();
        if path.is_dir() {
            all.extend(below(&path));
        }
        all.push(path);
    }
    all
}

#[test]
fn without_a_service_a_user_changes_a_gateway_of_his_own() {
    let system = System::new();
    let (code, said) = system.run(&["pki", "psk", "meter"]);
    assert_eq!(code, 0, "{said}");
    assert!(system.own().join("psk.toml").is_file());
}

#[test]
fn with_a_service_every_command_changes_the_files_of_the_service_and_they_belong_to_its_user() {
    let system = System::with_service("");
    let is_root = chown(system.state(), Some(SERVICE_USER), Some(SERVICE_USER)).is_ok();
    let psk = system.path("psk");
    fs::write(&psk, "other:0123456789abcdef0123456789abcdef\n").unwrap();
    let device = system.path("device.toml");
    let commands: [(&[&str], &str); 7] = [
        (&["passwd", "ada"], "users.toml"),
        (&["pki", "init"], "pki/ca.pem"),
        (&["pki", "server", "fog.example"], "pki/server.pem"),
        (&["pki", "client", "pump"], "pki/clients/pump.pem"),
        (&["pki", "psk", "meter"], "psk.toml"),
        (&["pki", "oscore", "lamp", "--out", device.to_str().unwrap()], "oscore/lamp.toml"),
        (&["import", "mosquitto", "--psk", psk.to_str().unwrap(), "--replace"], "psk.toml"),
    ];
    for (words, file) in commands {
        let (code, said) = system.run(words);
        assert_eq!(code, 0, "{words:?}: {said}");
        assert!(system.state().join(file).is_file(), "{words:?}: {said}");
    }
    let (code, said) = system.run(&["pki", "revoke", "pump"]);
    assert_eq!(code, 0, "{said}");
    let (code, said) = system.run(&["pki", "list"]);
    assert_eq!(code, 0, "{said}");
    assert!(!system.own().exists(), "nothing is written at home");
    for path in below(&system.state()) {
        let found = fs::metadata(&path).unwrap();
        assert!(!is_root || found.uid() == SERVICE_USER, "{} belongs to {}", path.display(), found.uid());
    }
}

#[test]
fn the_configuration_of_the_service_names_its_files() {
    let system = System::with_service("");
    let users = system.path("etc/fogmux/users.toml");
    let config = format!("[auth]\nusers_file = {users:?}\n");
    fs::write(system.path("etc/fogmux/fogmux.toml"), config).unwrap();
    assert_eq!(system.run(&["passwd", "ada"]).0, 0);
    assert!(users.is_file());
    assert!(!system.state().join("users.toml").exists());
    // The service's directory, by its name, has the service's configuration.
    assert_eq!(system.run(&["passwd", "bob", "--data", system.state().to_str().unwrap()]).0, 0);
    assert!(fs::read_to_string(&users).unwrap().contains("bob"));
}

#[test]
fn the_unit_alone_is_a_service_as_well() {
    let system = System::new();
    fs::create_dir_all(system.path("usr/lib/systemd/system")).unwrap();
    fs::write(system.path("usr/lib/systemd/system/fogmux.service"), "").unwrap();
    fs::create_dir_all(system.state()).unwrap();
    assert_eq!(system.run(&["passwd", "ada"]).0, 0);
    assert!(system.state().join("users.toml").is_file());
}

#[test]
fn a_service_that_was_never_started_is_refused_with_the_choices() {
    let system = System::with_service("");
    fs::remove_dir(system.state()).unwrap();
    let (code, said) = system.run(&["passwd", "ada"]);
    assert_eq!(code, 64, "{said}");
    assert!(said.contains("systemctl start fogmux") && said.contains("--data DIR"), "{said}");
    assert!(!system.state().exists() && !system.own().exists());
}

#[test]
fn a_service_and_a_gateway_of_ones_own_are_refused_with_both_names() {
    let system = System::with_service("");
    fs::create_dir_all(system.own()).unwrap();
    let (state, own) = (system.state(), system.own());
    let (code, said) = system.run(&["passwd", "ada"]);
    assert_eq!(code, 64, "{said}");
    for directory in [&state, &own] {
        assert!(said.contains(&format!("--data {}", directory.display())), "{said}");
    }
    // Each choice is taken, and so is the configuration's name.
    for directory in [&state, &own] {
        let named = directory.to_str().unwrap();
        assert_eq!(system.run(&["passwd", "ada", "--data", named]).0, 0);
        fs::remove_file(directory.join("users.toml")).unwrap();
    }
    let config = system.path("etc/fogmux/fogmux.toml");
    assert_eq!(system.run(&["passwd", "ada", "-c", config.to_str().unwrap()]).0, 0);
    assert!(state.join("users.toml").is_file());
}

#[test]
fn who_may_not_write_there_is_told_to_use_sudo() {
    let system = System::with_service("");
    fs::set_permissions(system.state(), fs::Permissions::from_mode(0o500)).unwrap();
    let is_root = fs::metadata(system.root.path()).unwrap().uid() == 0;
    let mut command = system.command(&["passwd", "ada"]);
    if is_root {
        fs::set_permissions(system.root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        command.uid(STRANGER);
    }
    let (code, said) = end(&mut command);
    assert_eq!(code, 77, "{said}");
    assert!(said.contains("sudo") && said.contains("--data DIR"), "{said}");
}

#[test]
fn in_a_container_its_directory_and_configuration_are_meant() {
    let system = System::with_service("");
    let volume = system.path("data");
    fs::create_dir_all(&volume).unwrap();
    fs::create_dir_all(system.own()).unwrap();
    let (code, said) = end(system.command(&["passwd", "ada"]).env("STATE_DIRECTORY", &volume));
    assert_eq!(code, 0, "{said}");
    assert!(volume.join("users.toml").is_file());
    let config = system.path("etc/fogmux/fogmux.toml");
    let named = ["passwd", "bob", "-c", config.to_str().unwrap()];
    assert_eq!(end(system.command(&named).env("STATE_DIRECTORY", &volume)).0, 0);
    assert!(fs::read_to_string(volume.join("users.toml")).unwrap().contains("bob"));
    fs::write(system.path("etc/fogmux/fogmux.toml"), "[auth]\nusers_file = 1\n").unwrap();
    assert_eq!(end(system.command(&["passwd", "ada"]).env("STATE_DIRECTORY", &volume)).0, 78);
}
