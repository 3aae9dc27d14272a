//! The log of a gateway: its forms, and its bounds under hostile clients.

use std::fs::File;
use std::io::{Read as _, Write as _};
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
    let mut stream = TcpStream::connect(gateway.address("http")).expect("the gateway runs");
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
    let wrong: &[u8] = b"GET /topics/a HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Basic YTpi\r\n\r\n";
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
