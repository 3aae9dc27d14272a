//! `fogmux doctor` about this machine: a gateway that runs, ports that others have, files that others may read.

use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::Value;

use crate::support::{Gateway, run};

/// The listeners that are there without a configuration.
pub(crate) const LISTENERS: [&str; 10] =
    ["mqtt", "mqtts", "coap", "coaps", "coap_tcp", "coaps_tcp", "http", "https", "xmpp", "xmpps"];

/// The exit code, and the findings with their levels and texts.
fn doctor(arguments: &[&str]) -> (i32, Vec<(String, String, String)>) {
    let done = run(&[&["doctor", "--json"], arguments].concat());
    let report: Value = serde_json::from_str(&done.stdout).unwrap_or_else(|_| panic!("{}{}", done.stdout, done.stderr));
    let text = |finding: &Value, key: &str| finding.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let findings = report.get("findings").and_then(Value::as_array).expect("a list").iter();
    (done.code, findings.map(|one| (text(one, "name"), text(one, "level"), text(one, "text"))).collect())
}

fn of<'a>(findings: &'a [(String, String, String)], name: &str) -> Vec<(&'a str, &'a str)> {
    let named = findings.iter().filter(|(finding, ..)| finding == name);
    named.map(|(_, level, text)| (&**level, &**text)).collect()
}

/// A configuration with the addresses at which the gateway listens.
fn configuration(gateway: &Gateway, directory: &Path) -> String {
    let listeners = gateway.banner.get("listeners").and_then(Value::as_object).expect("listeners");
    let sections = listeners.iter().filter_map(|(name, address)| {
        let address = address.as_str()?;
        (name != "http3").then(|| format!("[listeners.{name}]\naddress = \"{address}\"\n"))
    });
    let file = directory.join("fogmux.toml");
    std::fs::write(&file, sections.collect::<String>()).expect("written");
    file.to_str().expect("a plain path").to_owned()
}

#[test]
fn a_running_gateway_and_its_listeners_are_seen() {
    let directory = tempfile::tempdir().unwrap();
    let (data, place) = (directory.path().join("data"), directory.path().join("etc"));
    std::fs::create_dir(&place).unwrap();
    let file = place.join("fogmux.toml");
    let sections = LISTENERS.map(|name| format!("[listeners.{name}]\naddress = \"127.0.0.1:0\"\n"));
    std::fs::write(&file, sections.concat()).expect("written");
    let gateway = Gateway::start_at(&data, &["--config", file.to_str().unwrap()]);
    let file = configuration(&gateway, &place);
    let data = data.to_str().unwrap().to_owned();
    let (code, findings) = doctor(&["--config", &file, "--data", &data]);
    let problems: Vec<_> = findings.iter().filter(|(_, level, _)| level == "problem").collect();
    // The file of the gateway's log is the test's, and open to others.
    let others: Vec<_> = problems.iter().filter(|(name, ..)| name != "files-open").collect();
    assert!(others.is_empty(), "{others:#?}");
    assert_eq!(code, if problems.is_empty() { 0 } else { 69 });
    let pid = of(&findings, "gateway");
    assert!(pid[0].1.contains("runs on this data directory"), "{pid:?}");
    assert_eq!(of(&findings, "gateway-not-ready"), [("ok", "/readyz: ready")]);
    // Ten listeners, and HTTP/3 beside HTTPS.
    let open = of(&findings, "listener");
    assert_eq!(open.iter().filter(|(level, text)| *level == "ok" && text.ends_with(": open")).count(), 11, "{open:#?}");
    assert!(!of(&findings, "certificate").is_empty());

    // Of a listener that was configured later.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    std::fs::write(&file, format!("[listeners.mqtt]\naddress = \"{free}\"\n")).unwrap();
    let (_, findings) = doctor(&["--config", &file, "--data", &data]);
    let mqtt = of(&findings, "listener").into_iter().find(|(_, text)| text.starts_with("listeners.mqtt:"));
    assert!(mqtt.is_some_and(|(level, text)| level == "problem" && text.ends_with("not open")), "{mqtt:?}");

    gateway.stop();
    let (_, findings) = doctor(&["--config", &file, "--data", &data]);
    assert_eq!(of(&findings, "gateway"), [("ok", "no gateway runs on this data directory")]);
}

#[test]
fn a_gateway_that_was_started_at_other_addresses_than_configured_is_no_problem() {
    let directory = tempfile::tempdir().unwrap();
    let (data, file) = (directory.path().join("data"), directory.path().join("fogmux.toml"));
    // Another program has a port that is not used.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    std::fs::write(&file, format!("[listeners.mqtt]\naddress = \"{}\"\n", taken.local_addr().unwrap())).unwrap();
    let (data_text, file) = (data.to_str().unwrap(), file.to_str().unwrap());
    let set = LISTENERS.map(|name| format!("--set=listeners.{name}.address=127.0.0.1:0"));
    let set: Vec<&str> = ["--config", file].into_iter().chain(set.iter().map(String::as_str)).collect();
    for arguments in [&["--config", file, "--free-ports"], &*set] {
        let gateway = Gateway::start_at(&data, arguments);
        let (_, findings) = doctor(&["--config", file, "--data", data_text]);
        let problems = findings.iter().filter(|(name, level, _)| level == "problem" && name != "files-open");
        assert_eq!(problems.collect::<Vec<_>>(), Vec::<&(String, String, String)>::new());
        assert_eq!(of(&findings, "listener").len(), 11, "{findings:#?}");
        gateway.stop();
    }
}

#[test]
fn a_port_of_another_program_is_named_with_that_program() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let (tcp, udp) = (TcpListener::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let file = directory.path().join("fogmux.toml");
    let text = format!(
        "[listeners.mqtt]\naddress = \"{}\"\n[listeners.coap]\naddress = \"{}\"\n[listeners.xmpp]\naddress = \
         \"192.0.2.1:0\"\n[listeners.xmpps]\naddress = \"192.0.2.1:5223\"\n",
        tcp.local_addr().unwrap(),
        udp.local_addr().unwrap()
    );
    std::fs::write(&file, text).unwrap();
    let (code, findings) = doctor(&["--config", file.to_str().unwrap(), "--data", data.to_str().unwrap()]);
    assert_eq!(code, 69);
    let taken = of(&findings, "listener-port");
    let own = format!("taken by process {}, ", std::process::id());
    let by_us = taken.iter().filter(|(level, text)| *level == "problem" && text.contains(&own));
    assert_eq!(by_us.count(), 2, "{taken:#?}");
    assert_eq!(of(&findings, "listener-address").len(), 1, "{findings:#?}");
    assert!(!data.exists(), "nothing is made");
}

#[test]
fn an_invalid_configuration_is_78_and_does_not_hide_the_rest() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("fogmux.toml");
    std::fs::write(&file, "[workers]\ncount = \"many\"\n[mqtt]\nnothing = 1\n").unwrap();
    let arguments = ["--config", file.to_str().unwrap(), "--data", directory.path().to_str().unwrap()];
    let (code, findings) = doctor(&arguments);
    assert_eq!((code, of(&findings, "configuration").len()), (78, 2), "{findings:#?}");
    assert!(!of(&findings, "disk-space").is_empty() && !of(&findings, "clock").is_empty());
    assert_eq!(run(&["doctor", "--config", "/nowhere/fogmux.toml"]).code, 78);
    assert_eq!(run(&["doctor", "--nonsense"]).code, 64);
}

#[test]
fn open_files_past_certificates_and_rules_that_let_nobody_in_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    Gateway::start(&data, &[]).stop();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o700)).unwrap();
    let data_argument = data.to_str().unwrap();
    let key = data.join("pki/server.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    std::fs::remove_file(data.join("test.log")).unwrap();
    std::fs::write(data.join("pki/ca.pem"), "-----BEGIN CERTIFICATE-----\nMAAw\n-----END CERTIFICATE-----\n").unwrap();
    std::fs::write(data.join("acl.toml"), "# [[allow]]\n[[deny]]\nanonymous = true\nboth = [\"#\"]\n").unwrap();
    std::fs::write(data.join("store/losses"), "2026-11-26T00:00:00Z 3 records incomplete\n").unwrap();
    let (code, findings) = doctor(&["--data", data_argument]);
    assert_eq!(code, 78, "a gateway does not start with such an authority");
    let open = of(&findings, "files-open");
    assert!(open.iter().any(|(level, text)| *level == "problem" && text.contains("server.key")), "{open:#?}");
    assert!(of(&findings, "certificate").iter().any(|(level, text)| *level == "problem" && text.contains("ca.pem")));
    assert_eq!(of(&findings, "access").iter().filter(|(level, _)| *level == "problem").count(), 1, "{findings:#?}");
    assert!(of(&findings, "store-losses")[0].1.contains("3 records incomplete"));
}
