//! Devices that have a key only: their groups, and keys that systemd passes.

use std::path::Path;

use crate::support::{Gateway, fogmux, run};

const RULES: &str = "[[allow]]\ngroup = \"sensors\"\nwrite = [\"devices/%u/#\"]\n";

fn named(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

#[test]
fn a_rule_for_a_group_applies_to_a_device_with_any_kind_of_key() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let _ = std::fs::create_dir(&data);
    std::fs::write(data.join("acl.toml"), RULES).unwrap();
    let gateway = Gateway::start(&data, &[]);
    let device = directory.path().join("lamp.toml");
    let (at, device) = (named(&data), named(&device));
    let made = run(&["pki", "psk", "meter", "--group", "sensors", "--data", at]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let key = made.stdout.trim_end().strip_prefix("meter:").unwrap().to_owned();
    for words in [
        &["pki", "oscore", "lamp", "--group", "sensors", "--out", device, "--data", at][..],
        &["pki", "client", "pump", "--group", "sensors", "--group", "plant", "--data", at],
        &["pki", "psk", "stranger", "--data", at],
    ] {
        let made = run(words);
        assert_eq!(made.code, 0, "{words:?}: {}", made.stderr);
    }
    let certificate = format!("cert:{}", named(&data.join("pki/clients/pump.pem")));
    for (who, name, code) in [
        ("psk:meter", "meter", 0),
        ("oscore:lamp", "lamp", 0),
        (certificate.as_str(), "pump", 0),
        ("psk:stranger", "stranger", 77),
    ] {
        let tested = run(&["acl", "test", who, "write", &format!("devices/{name}/x"), "--data", at]);
        assert_eq!(tested.code, code, "{who}: {} {}", tested.stdout, tested.stderr);
    }
    // The gateway that runs reads the files again within seconds.
    let url = gateway.url("coaps", "devices/meter/x");
    let publish = || run(&["pub", "--psk-id", "meter", "--psk", &key, &url, "1"]);
    let begun = std::time::Instant::now();
    loop {
        let sent = publish();
        if sent.code == 0 {
            break;
        }
        assert!(begun.elapsed() < std::time::Duration::from_secs(60), "{}", sent.stderr);
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    // A user without a password has no login with one, not even an empty one.
    let http = gateway.url("http", "devices/meter/x");
    let mut command = fogmux(&["pub", "--user", "meter", "--password", "", &http, "1"]);
    assert!(!command.output().unwrap().status.success());
    assert_eq!(gateway.stop(), 0);
}

#[test]
fn files_may_be_credentials_of_systemd() {
    let directory = tempfile::tempdir().unwrap();
    let credentials = directory.path().join("credentials");
    std::fs::create_dir(&credentials).unwrap();
    let base = credentials.join("tls");
    let data = directory.path().join("data");
    let made = run(&["pki", "server", "fog.example", "--out", named(&base), "--data", named(&data)]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let config = directory.path().join("fogmux.toml");
    let text =
        "[tls]\ncertificate_file = \"$CREDENTIALS_DIRECTORY/tls.pem\"\nkey_file = \"$CREDENTIALS_DIRECTORY/tls.key\"\n";
    std::fs::write(&config, text).unwrap();
    let check = |value: &Path| {
        let mut command = fogmux(&["check", named(&config)]);
        command.env("CREDENTIALS_DIRECTORY", value).output().unwrap().status.code()
    };
    assert_eq!(check(&credentials), Some(0));
    assert_eq!(check(directory.path()), Some(78));
}
