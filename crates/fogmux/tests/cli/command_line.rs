//! The command line as scripts see it: exit codes, what stands on which stream, and a gateway on free ports.

use crate::support::{Gateway, fogmux, run, run_with, signal};

#[test]
fn no_such_command_and_no_such_flag_are_usage_errors() {
    for arguments in [
        &["frobnicate"][..],
        &["pub"],
        &["serve", "--no-such-flag"],
        &["pub", "mqtt://h", "x"],
        &["get", "gopher://h/t"],
        &["get", "mqtt://h/t", "-P", "secret"],
    ] {
        assert_eq!(run(arguments).code, 64, "{arguments:?}");
    }
    assert_eq!(run(&["--help"]).code, 0);
    assert_eq!(run(&["--version"]).code, 0);
}

#[test]
fn check_reports_every_problem_with_its_line_and_ends_with_78() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("fogmux.toml");
    std::fs::write(&file, "[workers]\ncount = \"many\"\n[listeners.mqtt]\naddress = \"0.0.0.0:1883\"\nprot = 1\n")
        .unwrap();
    let done = run(&["check", file.to_str().unwrap()]);
    assert_eq!(done.code, 78);
    let lines: Vec<_> = done.stdout.lines().collect();
    let name = file.display();
    assert!(lines[0].starts_with(&format!("{name}:2: workers.count:")), "{lines:#?}");
    assert!(lines[1].starts_with(&format!("{name}:4: listeners.mqtt.address:")), "{lines:#?}");
    assert!(lines[2].starts_with(&format!("{name}:5: listeners.mqtt.prot:")), "{lines:#?}");
    assert_eq!(lines.len(), 3);

    let json = run(&["check", "--json", file.to_str().unwrap()]);
    let problems: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((json.code, problems["problems"].as_array().unwrap().len()), (78, 3));
    assert_eq!(problems["problems"][1]["line"], 4);
}

#[test]
fn check_looks_into_the_files_that_the_configuration_names() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("fogmux.toml");
    std::fs::write(
        &file,
        "[auth]\nacl_file = \"rules.toml\"\n[tls]\ncertificate_file = \"c.pem\"\nkey_file = \"c.pem\"\n",
    )
    .unwrap();
    std::fs::write(directory.path().join("rules.toml"), "[[allow]]\nuser = \"alice\"\nraed = [\"#\"]\n").unwrap();
    std::fs::write(directory.path().join("c.pem"), "nothing").unwrap();
    let done = run(&["check", file.to_str().unwrap()]);
    assert_eq!(done.code, 78);
    assert!(done.stdout.contains("rules.toml:3: "), "{}", done.stdout);
    assert!(done.stdout.contains("c.pem: "), "{}", done.stdout);
}

#[test]
fn check_accepts_what_it_prints_as_defaults() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("fogmux.toml");
    let defaults = run(&["check", "--defaults"]);
    assert_eq!(defaults.code, 0);
    std::fs::write(&file, defaults.stdout).unwrap();
    assert_eq!(run(&["check", file.to_str().unwrap()]).code, 0);
    assert_eq!(run(&["check", "/nowhere/fogmux.toml"]).code, 78);
}

#[test]
fn serve_does_not_start_with_an_invalid_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let done = run(&["serve", "--set", "listeners.mqtt.address=0.0.0.0:0", "--data", data.to_str().unwrap()]);
    assert_eq!(done.code, 78);
    assert!(done.stderr.contains("listeners.mqtt.address"), "{}", done.stderr);
    assert!(!data.exists(), "nothing was made for a gateway that does not start");
}

#[test]
fn passwd_takes_the_password_from_standard_input_and_acl_test_knows_the_user_then() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().to_str().unwrap();
    std::fs::write(
        directory.path().join("acl.toml"),
        "[[allow]]\nuser = \"alice\"\nread = [\"sensors/#\"]\nwrite = [\"commands/%u\"]\n",
    )
    .unwrap();
    let nobody = run(&["acl", "test", "--data", data, "alice", "write", "sensors/a"]);
    assert_eq!(nobody.code, 77);
    assert_eq!(
        nobody.stdout,
        "refused: no rule allows it\n\"alice\" is not a user of the file; asked as an identity of a certificate or an \
         OSCORE context\n"
    );
    assert_eq!(run_with(&["passwd", "--data", data, "alice"], "correct horse\n").code, 0);
    let users = std::fs::read_to_string(directory.path().join("users.toml")).unwrap();
    assert!(users.contains("alice") && !users.contains("correct horse"));

    let allowed = run(&["acl", "test", "--data", data, "alice", "read", "sensors/a"]);
    assert_eq!(allowed.code, 0);
    assert!(allowed.stdout.contains("acl.toml:3"), "{}", allowed.stdout);
    assert_eq!(run(&["acl", "test", "--data", data, "alice", "write", "commands/alice"]).code, 0);
    assert_eq!(run(&["acl", "test", "--data", data, "alice", "write", "commands/bob"]).code, 77);
    assert_eq!(run(&["acl", "test", "--data", data, "alice", "read", "#"]).code, 0, "in part");
    assert_eq!(run(&["acl", "test", "--data", data, "alice", "read", "commands/#"]).code, 77);

    let known = run(&["acl", "test", "--data", data, "alice", "write", "sensors/a"]);
    assert_eq!((known.code, &*known.stdout), (77, "refused: no rule allows it\n"));
    assert_eq!(run(&["passwd", "--data", data, "alice", "--disable"]).code, 0);
    let disabled = run(&["acl", "test", "--data", data, "alice", "read", "sensors/a"]);
    assert_eq!((disabled.code, &*disabled.stdout), (77, "refused: the user is disabled\n"));
    assert_eq!(run(&["acl", "test", "--data", data, "a\u{7}", "read", "sensors/a"]).code, 65, "no name");
    assert_eq!(run(&["acl", "test", "--data", data, "anonymous", "--group", "g", "read", "sensors/a"]).code, 65);

    assert_eq!(run(&["passwd", "--data", data, "--delete", "alice"]).code, 0);
    assert_eq!(run(&["passwd", "--data", data, "--delete", "alice"]).code, 65);
    assert_eq!(run_with(&["passwd", "--data", data, "alice"], "\n").code, 65, "an empty password");
}

#[test]
fn nobody_there_is_unavailable() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let schemes =
        ["mqtt", "mqtts", "ws", "wss", "coap+tcp", "coaps+tcp", "coap+ws", "coaps+ws", "http", "https", "xmpp"];
    for scheme in schemes.into_iter().chain(["xmpps", "coap", "coaps"]) {
        let done = run(&["get", "--timeout", "5", &format!("{scheme}://{closed}/t")]);
        assert_eq!(done.code, 69, "{scheme}: {}", done.stderr);
    }
}

#[test]
fn the_first_start_makes_an_authority_and_an_administrator_and_the_second_keeps_them() {
    let directory = tempfile::tempdir().unwrap();
    let first = Gateway::start(directory.path(), &[]);
    let password_file = first.banner["admin"]["password_file"].as_str().unwrap().to_owned();
    let password = std::fs::read_to_string(&password_file).unwrap();
    assert!(password.trim().len() >= 20);
    let url = first.url("http", "a/b");
    let admin = ["-u", "admin", "--password-file", &password_file];
    assert_eq!(run(&[&["pub", "-r", &url, "x"], &admin[..]].concat()).code, 0);
    assert_eq!(run(&["get", "-u", "admin", "-P", "wrong", &url]).code, 77);
    assert_eq!(first.stop(), 0);

    let second = Gateway::start(directory.path(), &[]);
    assert!(second.banner["admin"].is_null());
    let got = run(&["get", &second.url("http", "a/b")]);
    assert_eq!((got.code, got.stdout.as_str()), (0, "x"), "kept over the restart");
    assert_eq!(second.stop(), 0);
}

#[test]
fn a_second_gateway_on_the_same_data_or_port_is_unavailable() {
    let directory = tempfile::tempdir().unwrap();
    let first = Gateway::start(directory.path(), &[]);
    let data = directory.path().to_str().unwrap();
    assert_eq!(run(&["serve", "--free-ports", "--data", data]).code, 69);
    let other = tempfile::tempdir().unwrap();
    let taken = format!("listeners.mqtt.address={}", first.address("mqtt"));
    // A gateway that has no other listener.
    let alone = ["--set", "listeners.defaults.enabled=false", "--set", "listeners.mqtt.enabled=true"];
    let done = run(&[&["serve", "--data", other.path().to_str().unwrap(), "--set", &taken][..], &alone].concat());
    assert_eq!(done.code, 69, "{}", done.stderr);
    assert_eq!(first.stop(), 0);
}

#[test]
fn a_reload_is_all_or_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("fogmux.toml");
    std::fs::write(&file, "").unwrap();
    let gateway = Gateway::start(&directory.path().join("data"), &["-c", file.to_str().unwrap()]);
    // Not where rules are watched for, so that only the reload brings them.
    let rules = directory.path().join("rules.toml");

    std::fs::write(&rules, "[[allow]]\nanonymous = true\nread = [\"open/#\"]\n").unwrap();
    std::fs::write(&file, "[auth]\nacl_file = \"rules.toml\"\n[workers]\ndrain = 3\n").unwrap();
    gateway.hang_up();
    gateway.wait_for_log("nothing was reloaded");
    assert!(gateway.log().contains("fogmux.toml:4: workers.drain"), "{}", gateway.log());
    assert_eq!(run(&["pub", &gateway.url("http", "closed"), "x"]).code, 0, "the old rules stay");

    std::fs::write(&file, "[auth]\nacl_file = \"rules.toml\"\n[workers]\ndrain = \"3s\"\n").unwrap();
    gateway.hang_up();
    gateway.wait_for_log("are read again");
    assert_eq!(run(&["pub", &gateway.url("http", "closed"), "x"]).code, 77, "the new rules hold");
    assert_eq!(gateway.stop(), 0);
}

#[test]
fn access_does_not_open_when_its_files_are_gone() {
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("acl.toml");
    std::fs::write(&rules, "[[allow]]\nanonymous = true\nread = [\"open/#\"]\n").unwrap();
    let gateway = Gateway::start(directory.path(), &[]);
    let closed = || run(&["pub", &gateway.url("http", "closed"), "x"]).code;
    assert_eq!(closed(), 77);

    std::fs::remove_file(&rules).unwrap();
    gateway.wait_for_log("the access rules are gone");
    assert_eq!(closed(), 77, "noticed");
    gateway.hang_up();
    gateway.wait_for_log("nothing was reloaded");
    assert_eq!(closed(), 77, "asked for");

    std::fs::write(directory.path().join("users.toml"), "").unwrap();
    std::fs::write(&rules, "[[allow]]\nanonymous = true\nwrite = [\"closed\"]\n").unwrap();
    gateway.wait_for_log("users.toml: the users are gone");
    assert_eq!(closed(), 77, "no users, no new rules");
    std::fs::write(directory.path().join("users.toml"), "# nobody\n").unwrap();
    gateway.wait_for_log("users, rules and keys are read again");
    assert_eq!(closed(), 0);
    assert_eq!(gateway.stop(), 0);
}

#[test]
fn a_revocation_list_that_is_broken_stops_the_reload_and_one_that_is_gone_stays_in_force() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().to_str().unwrap();
    assert_eq!(Gateway::start(directory.path(), &[]).stop(), 0, "an authority is made");
    assert_eq!(run(&["pki", "client", "--data", data, "lost"]).code, 0);
    assert_eq!(run(&["pki", "revoke", "--data", data, "lost"]).code, 0);
    let gateway = Gateway::start(directory.path(), &[]);
    std::fs::write(directory.path().join("pki/crl.pem"), "no list").unwrap();
    gateway.hang_up();
    gateway.wait_for_log("nothing was reloaded");
    assert!(gateway.log().contains("there is no revocation list in it"), "{}", gateway.log());
    std::fs::remove_file(directory.path().join("pki/crl.pem")).unwrap();
    gateway.hang_up();
    gateway.wait_for_log("configuration, users, rules and certificates are read again");
    gateway.wait_for_log("the revocation list is gone; the one before stays in force");
    assert_eq!(gateway.stop(), 0);
}

#[test]
fn an_oscore_context_comes_and_goes_within_seconds() {
    let directory = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(directory.path(), &[]);
    let (data, out) = (directory.path().to_str().unwrap(), directory.path().join("device.toml"));
    let device = out.to_str().unwrap();
    assert_eq!(run(&["pki", "oscore", "--data", data, "--out", device, "alice"]).code, 0);
    gateway.wait_for_log("OSCORE contexts are read again");
    let url = gateway.url("coap", "t");
    let publish = || run(&["pub", "--timeout", "20", "--oscore", device, &url, "x"]).code;
    assert_eq!(publish(), 0);

    let contexts = std::fs::read_dir(directory.path().join("oscore")).unwrap().flatten().map(|entry| entry.path());
    let made: Vec<_> = contexts.filter(|path| path.extension().is_some_and(|ending| ending == "toml")).collect();
    assert_eq!(made.len(), 1);
    std::fs::remove_file(&made[0]).unwrap();
    gateway.wait_for_log_times("OSCORE contexts are read again", 2);
    assert_ne!(publish(), 0, "the device is lost");
    assert_eq!(gateway.stop(), 0);
}

/// The monotonic clock in microseconds.
fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec * 1_000_000 + now.tv_nsec / 1000).expect("not before the start")
}

#[test]
fn systemd_is_told_when_everything_listens_and_when_it_ends() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    let mut command = fogmux(&[
        "serve",
        "--set",
        "log.filter=error",
        "--free-ports",
        "--json",
        "--data",
        directory.path().to_str().unwrap(),
    ]);
    let mut child = command.env("NOTIFY_SOCKET", &path).stdout(std::process::Stdio::null()).spawn().unwrap();
    let said = || {
        let mut buffer = [0; 256];
        let bytes = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..bytes]).into_owned()
    };
    assert_eq!(said(), "READY=1");
    let acl = directory.path().join("acl.toml");
    for (text, outcome) in [("", "was applied"), ("[[allow", "was refused"), ("", "was applied")] {
        std::fs::write(&acl, text).unwrap();
        let before = monotonic();
        signal(child.id(), "HUP");
        let (reloading, ready) = (said(), said());
        let began = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap_or_else(|| panic!("{reloading}"));
        let began: u64 = began.parse().unwrap();
        assert!((before..=monotonic()).contains(&began), "{before} {began}");
        assert!(ready.starts_with("READY=1\nSTATUS=the last reload ") && ready.contains(outcome), "{ready}");
    }
    signal(child.id(), "TERM");
    assert_eq!(said(), "STOPPING=1");
    assert!(child.wait().unwrap().success());
}

#[test]
fn what_is_not_there_has_one_exit_code_for_each_command() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("none");
    let data = data.to_str().unwrap();
    let file = home.path().join("b.tar");
    assert_eq!(run(&["backup", "--data", data, file.to_str().unwrap()]).code, 66);
    for who in ["cert:/none", "token:/none"] {
        assert_eq!(run(&["acl", "test", "--data", data, who, "read", "a"]).code, 74, "{who}");
    }
}
