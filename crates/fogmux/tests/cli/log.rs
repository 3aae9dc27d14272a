//! The log of a gateway: its forms, and its bounds under hostile clients.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Gateway, fogmux, signal};

/// Connections of each kind of mistake.
const CONNECTIONS: usize = 10_000;
/// Lines of a gateway that starts, reloads and stops, and a few of each kind of mistake every ten seconds.
const LINES_MAX: usize = 300;

/// A TLS ClientHello whose server name is an IP address, which RFC 6066 §3 does not permit.
const ADDRESS_AS_SERVER_NAME: &[u8] = b"\x16\x03\x01\x00\x62\x01\x00\x00\x5e\x03\x03\
    \x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\
    \x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\
    \x00\x00\x02\xc0\x2b\x01\x00\x00\x33\x00\x00\x00\x0e\x00\x0c\x00\x00\x09\x31\x39\x32\x2e\x30\x2e\x32\x2e\x31\
    \x00\x0a\x00\x06\x00\x04\x00\x17\x00\x1d\x00\x0b\x00\x02\x01\x00\x00\x0d\x00\x06\x00\x04\x04\x03\x08\x04\
    \x00\x2b\x00\x03\x02\x03\x03";

/// Sends the bytes, and reads what comes until the gateway closes or has sent something.
fn provoke(address: &str, bytes: &[u8]) {
    let Ok(mut stream) = TcpStream::connect(address) else { return };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
    let _ = stream.write_all(bytes);
    let _ = stream.read(&mut [0; 512]);
}

fn metric(gateway: &Gateway, name: &str) -> u64 {
    metric_at(gateway.address("http"), name)
}

fn metric_at(http: &str, name: &str) -> u64 {
    let mut stream = TcpStream::connect(http).expect("the gateway runs");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("it is open");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name}: {text}"));
    line.rsplit(' ').next().and_then(|count| count.parse().ok()).expect("a number")
}

#[test]
fn hostile_clients_cause_few_lines_and_hide_none_of_others() {
    let directory = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(directory.path(), &[]);
    let wrong: &[u8] =
        b"GET /topics/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Basic YTpi\r\n\r\n";
    let mistakes: [(&str, &[u8]); 8] = [
        ("mqtts", ADDRESS_AS_SERVER_NAME),
        ("https", ADDRESS_AS_SERVER_NAME),
        ("xmpps", b"no TLS at all, but a line of text\r\n\r\n"),
        ("mqtt", b"\x10\x0c\0\x04MQTX\x04\x02\0\x3c\0\0"),
        ("coap_tcp", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
        ("xmpp", b"<?xml version='1.0'?><a></b>"),
        ("http", b"\0\x01\x02 nonsense\r\n\r\n"),
        ("http", wrong),
    ];
    std::thread::scope(|scope| {
        for (listener, bytes) in mistakes {
            let address = gateway.address(listener);
            scope.spawn(move || (0..CONNECTIONS).for_each(|_| provoke(address, bytes)));
        }
        let coap = gateway.address("coap");
        scope.spawn(move || {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
            (0..CONNECTIONS).for_each(|_| _ = socket.send_to(b"\x4f\x01\0\x01\xf0", coap));
        });
        // An administrator's reloads meanwhile are logged.
        for times in 1..=3 {
            gateway.hang_up();
            gateway.wait_for_log_times("configuration, users, rules and certificates are read again", times);
        }
    });
    let lines = gateway.log().lines().count();
    assert!(lines < LINES_MAX, "{lines} lines:\n{}", gateway.log());
    assert!(gateway.log().contains("login refused"), "the first are logged");
    let refused = metric(&gateway, "fogmux_logins_unlogged_total");
    assert!(refused > CONNECTIONS as u64 / 2, "only {refused} counted");
    let _ = metric(&gateway, "fogmux_log_lines_unlogged_total");
    assert_eq!(gateway.stop(), 0);
}

#[test]
fn a_line_of_json_is_an_object_whatever_a_peer_says() {
    let directory = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(directory.path(), &["--set", "log.format=json"]);
    // A user name with quotes, a line break and DEL.
    let name = b"a\"\n\x7f\\";
    let mut connect = b"\x10\x1a\0\x04MQTT\x04\xc2\0\x3c\0\0\0\x05".to_vec();
    connect.extend_from_slice(name);
    connect.extend_from_slice(b"\0\x05wrong");
    connect[1] = u8::try_from(connect.len() - 2).unwrap();
    provoke(gateway.address("mqtt"), &connect);
    gateway.wait_for_log("login refused");
    for line in gateway.log().lines() {
        let object: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for key in ["time", "level", "target", "message"] {
            assert!(object.get(key).is_some_and(serde_json::Value::is_string), "{key}: {line}");
        }
        if object["message"] == "login refused" {
            assert_eq!((&object["level"], &object["target"]), (&"warn".into(), &"fogmux::audit".into()), "{line}");
            assert_eq!((&object["peer"], &object["door"]), (&"127.0.0.1".into(), &"mqtt".into()), "{line}");
            assert!(object["port"].is_u64(), "{line}");
        }
    }
    assert_eq!(gateway.stop(), 0);
}

/// Runs a gateway to its end, as systemd does: `JOURNAL_STREAM` names a file, and standard error is one.
fn log_with_journal(is_journal: bool, arguments: &[&str]) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("log");
    let file = File::create(&path).expect("a file");
    let other = File::open("/dev/null").expect("there is one");
    let found = if is_journal { &file } else { &other }.metadata().expect("it exists");
    let data = directory.path().join("data");
    let mut command: Command = fogmux(&["serve", "--free-ports", "--json", "--data"]);
    command.arg(&data).args(arguments).env("JOURNAL_STREAM", format!("{}:{}", found.dev(), found.ino()));
    let mut child = command.stdout(Stdio::null()).stderr(file).spawn().expect("the binary is built");
    let (begun, read) = (Instant::now(), || std::fs::read_to_string(&path).unwrap_or_default());
    while !read().contains("ready") {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", read());
        std::thread::sleep(Duration::from_millis(10));
    }
    signal(child.id(), "TERM");
    assert!(child.wait().expect("it ends").success());
    read()
}

#[test]
fn lines_for_the_journal_begin_with_their_priority_and_have_no_time() {
    let text = log_with_journal(true, &[]);
    assert!(text.lines().all(|line| line.starts_with('<')), "{text}");
    assert!(text.contains("<6> INFO fogmux::serve::reload: ready"), "{text}");
    let json = log_with_journal(true, &["--set", "log.format=json"]);
    let line = json.lines().find(|line| line.contains("ready")).unwrap();
    let object: serde_json::Value = serde_json::from_str(line.strip_prefix("<6>").unwrap()).unwrap();
    assert_eq!((&object["message"], object.get("time")), (&"ready".into(), None), "{line}");
    let other = log_with_journal(false, &[]);
    assert!(other.lines().all(|line| line.starts_with("20")), "{other}");
}

/// A gateway whose standard error is `stderr`, when it has said where it is.
fn serve(data: &std::path::Path, stderr: Stdio, arguments: &[&str]) -> (std::process::Child, serde_json::Value) {
    let mut command = fogmux(&["serve", "--json", "--free-ports", "--data"]);
    let mut child = command.arg(data).args(arguments).stdout(Stdio::piped()).stderr(stderr).spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a banner");
    (child, serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}")))
}

fn listener(banner: &serde_json::Value, name: &str) -> String {
    let listener = banner.get("listeners").and_then(|listeners| listeners.get(name)).and_then(|name| name.as_str());
    listener.expect("it has one").to_owned()
}

/// Has a gateway log a line for each attempt, until it has lost more than `before`.
fn provoke_until_lost(address: &str, before: u64) -> u64 {
    let wrong = b"GET /topics/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Basic YTpi\r\n\r\n";
    let begun = Instant::now();
    loop {
        (0..500).for_each(|_| provoke(address, wrong));
        let lost = metric_at(address, "fogmux_log_lines_lost_total");
        if lost > before {
            return lost;
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "nothing is lost");
    }
}

/// Lines about every login that is refused.
const ALL_LOGINS: [&str; 4] =
    ["--set", "log.refused_logins_per_minute=1000000", "--set", "log.refused_logins_per_address=1000000"];

#[test]
fn a_log_that_nobody_reads_stops_neither_clients_nor_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let (mut child, banner) = serve(directory.path(), writer.into(), &ALL_LOGINS);
    let http = listener(&banner, "http");
    let lost = provoke_until_lost(&http, 0);
    // Workers answer, a reload is done, and when somebody reads, the log says what is missing.
    signal(child.id(), "HUP");
    while metric_at(&http, "fogmux_reloads_total{outcome=\"applied\"}") == 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut text = Vec::new();
    while !String::from_utf8_lossy(&text).contains(" lines were lost") {
        let mut some = [0; 64 << 10];
        let count = reader.read(&mut some).unwrap();
        assert!(count > 0, "it has ended");
        text.extend_from_slice(&some[..count]);
    }
    let text = String::from_utf8(text).unwrap();
    let said = text.lines().find(|line| line.contains(" lines were lost")).unwrap();
    let said: u64 = said.split("fogmux::log: ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok()).unwrap();
    assert!(said >= lost, "{said} of {lost} are said");
    // Nobody reads what is left. The end does not wait for that.
    let _ = provoke_until_lost(&http, metric_at(&http, "fogmux_log_lines_lost_total"));
    signal(child.id(), "TERM");
    assert!(child.wait().unwrap().success());
}

#[test]
fn lines_that_find_a_full_disk_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let (mut child, banner) = serve(directory.path(), full.into(), &ALL_LOGINS);
    let _ = provoke_until_lost(&listener(&banner, "http"), 0);
    signal(child.id(), "TERM");
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_audit_log_is_written_whatever_the_filter_says() {
    for filter in ["off", "error,fogmux::audit=off"] {
        let directory = tempfile::tempdir().unwrap();
        let gateway = Gateway::start(directory.path(), &["--set", &format!("log.filter={filter:?}")]);
        let wrong =
            b"GET /topics/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Basic YTpi\r\n\r\n";
        provoke(gateway.address("http"), wrong);
        gateway.wait_for_log(" WARN fogmux::audit: login refused");
        // Nothing else has been let in beside it.
        let other = |line: &&str| !line.contains(" fogmux::audit: ");
        assert_eq!(gateway.log().lines().find(other), None, "{filter}");
        assert_eq!(gateway.stop(), 0);
    }
}

#[test]
fn names_of_clients_hide_nothing_in_a_line() {
    let names = ["\u{9b}31m", "\u{202e}gpj.exe\u{2066}", "\u{2028}2026 WARN", "\u{feff}\u{200b}x"];
    for format in ["text", "json"] {
        let directory = tempfile::tempdir().unwrap();
        let format_is = format!("log.format=\"{format}\"");
        let gateway = Gateway::start(directory.path(), &["--set", &format_is, "--set", "log.filter=\"debug\""]);
        for name in names {
            // CONNECT with that client identifier and a keep alive of a second.
            let mut connect = b"\x10\0\0\x04MQTT\x04\x02\0\x01\0".to_vec();
            connect.push(u8::try_from(name.len()).unwrap());
            connect.extend_from_slice(name.as_bytes());
            connect[1] = u8::try_from(connect.len() - 2).unwrap();
            // CSM and Abort with a diagnostic payload (RFC 8323 §5.3, §5.6).
            let mut abort = b"\0\xe1".to_vec();
            let payload = name.len() + 1;
            match payload {
                ..13 => abort.push(u8::try_from(payload << 4).unwrap()),
                _ => abort.extend_from_slice(&[0xd0, u8::try_from(payload - 13).unwrap()]),
            }
            abort.extend_from_slice(b"\xe5\xff");
            abort.extend_from_slice(name.as_bytes());
            provoke(gateway.address("coap_tcp"), &abort);
            let mut stream = TcpStream::connect(gateway.address("mqtt")).unwrap();
            stream.write_all(&connect).unwrap();
            // To the end, which comes when it has kept silent for too long.
            let _ = stream.read_to_end(&mut Vec::new());
        }
        gateway.wait_for_log_times("aborted by the other end", names.len());
        gateway.wait_for_log_times("keep alive exceeded", names.len());
        let hidden = |char: char| {
            char != '\n' && (char.is_control() || "\u{202e}\u{2066}\u{2028}\u{feff}\u{200b}".contains(char))
        };
        assert!(!gateway.log().contains(hidden), "{}", gateway.log());
        if format == "json" {
            let values: Vec<serde_json::Value> =
                gateway.log().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            for name in names {
                assert!(values.iter().any(|value| value["client"] == name), "{name:?} is not what it was");
            }
        }
        assert_eq!(gateway.stop(), 0);
    }
}
