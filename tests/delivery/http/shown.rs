//! The views of administrators: certificates, refusals, origins of messages, rates by door, and the machine; and that
//! nobody else has them.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::users::{Login, file};
use fogmux_tests::{mqtt, tcp};
use serde_json::{Value, json};

use super::access::{ADMIN, send};

const PATIENCE: Duration = Duration::from_secs(20);
/// Both users may do everything but what is denied, and only the administrator may look. Without the rules for the
/// others, everybody on this machine may, where anonymous clients are admitted.
const RULES: &str = "[[allow]]\nuser = [\"admin\", \"bob\"]\nboth = \"#\"\n[[allow]]\nuser = \"admin\"\n\
                     both = \"$fogmux/admin\"\n[[deny]]\nuser = \"bob\"\nwrite = \"closed/#\"\n\
                     [[deny]]\nuser = \"bob\"\nboth = \"$fogmux/#\"\n[[deny]]\nanonymous = true\nboth = \"$fogmux/#\"\n";

fn start() -> Result<Gateway> {
    let users = file(&["admin", "bob"]);
    Gateway::start_as(Plan { files: &[("users.toml", &users), ("acl.toml", RULES)], ..Plan::default() })
}

fn get(gateway: &Gateway, path: &str) -> Result<Value> {
    let answer = send(gateway, &format!("GET /api/v1/{path}"), ADMIN, "", "")?;
    ensure!(answer.status == 200, "{answer:?}");
    answer.json()
}

fn list<'a>(document: &'a Value, name: &str) -> Result<&'a [Value]> {
    Ok(document.get(name).and_then(Value::as_array).with_context(|| document.to_string())?)
}

fn text<'a>(document: &'a Value, pointer: &str) -> &'a str {
    document.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A value of `/metrics`.
fn metric(gateway: &Gateway, name: &str) -> Result<u64> {
    let answer = send(gateway, "GET /metrics", ADMIN, "", "")?;
    let value = answer.body.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value.with_context(|| format!("no {name}: {}", answer.body))
}

/// Anonymous clients and other users are refused, whatever they ask for.
fn only_administrators(gateway: &Gateway, path: &str) -> Result<()> {
    for (who, status) in [("", 401), ("bob:secret", 403), ("admin:wrong", 401)] {
        let answer = send(gateway, &format!("GET {path}"), who, "", "")?;
        ensure!(answer.status == status, "{path} by {who:?}: {answer:?}");
    }
    Ok(())
}

pub(super) fn certificates() -> Result<String> {
    let mut gateway = start()?;
    only_administrators(&gateway, "/api/v1/certificates")?;
    let answer = send(&gateway, "GET /api/v1/certificates", ADMIN, "", "")?;
    ensure!(!answer.body.contains("key"), "a key is named: {}", answer.body);
    let document = answer.json()?;
    let all = list(&document, "certificates")?;
    let server = all.iter().find(|one| text(one, "/role") == "server").context("no server")?;
    let names = server.get("listeners").and_then(Value::as_array).context("no listeners")?;
    for listener in ["mqtts", "https"] {
        ensure!(names.contains(&json!(listener)), "{server}");
    }
    ensure!(!names.contains(&json!("mqtt")), "{server}");
    let authority = all.iter().find(|one| one.get("own_authority") == Some(&json!(true))).context("no authority")?;
    ensure!(text(server, "/issuer") == text(authority, "/subject"), "{document}");
    ensure!(text(authority, "/file").ends_with("ca.pem"), "{authority}");
    // The same date as in the metrics, and the days that are left until then.
    let unix_s = metric(&gateway, "fogmux_certificate_not_after_seconds{listener=\"mqtts\"}")?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    let days = unix_s.saturating_sub(now) / 86_400;
    let left = server.get("days_left").and_then(Value::as_u64).context("no days")?;
    ensure!(left.abs_diff(days) <= 1 && text(server, "/state") == "good", "{server}, {days}");
    gateway.check_alive()?;
    Ok(String::new())
}

/// Each refusal is told once, with how often it came, and with all that its line of the log has.
pub(super) fn refusals() -> Result<String> {
    let mut gateway = start()?;
    let port = gateway.address("mqtt")?;
    let (mut bob, _, code) = Login { clean: true, ..Login::of("bob", "pump") }.connect(port)?;
    ensure!(code == 0, "{code}");
    for id in 1..=20 {
        bob.stream.write_all(&mqtt::publish(5, b"closed/x", b"1", 1, false, id))?;
        let (first, body) = bob.read()?;
        ensure!(first == 0x40 && body.get(2) == Some(&0x87), "{first:x} {body:?}");
    }
    ensure!(send(&gateway, "GET /topics/x", "mallory:guess", "", "")?.status == 401, "a guess");
    // A token is a secret, wherever it is put.
    let token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJldmUifQ.c2VjcmV0";
    let bearer = format!("Authorization: Bearer {token}\r\n");
    ensure!(send(&gateway, "GET /topics/x", "", &bearer, "")?.status == 401, "a token");
    only_administrators(&gateway, "/api/v1/refusals")?;
    let answer = send(&gateway, "GET /api/v1/refusals", ADMIN, "", "")?;
    ensure!(!answer.body.contains("c2VjcmV0") && !answer.body.contains("guess"), "a secret: {}", answer.body);
    let document = answer.json()?;
    let all = list(&document, "refusals")?;
    let of = |pointer: &str, wanted: &str| {
        let found = all.iter().find(|one| text(one, pointer) == wanted);
        found.with_context(|| format!("no {wanted}: {document}"))
    };
    let action = of("/action/topic", "closed/x")?;
    let said: Vec<_> = ["/kind", "/door", "/client", "/action/identity", "/action/action"]
        .into_iter()
        .map(|pointer| text(action, pointer))
        .collect();
    ensure!(said == ["action", "mqtt", "pump", "bob", "write"], "{action}");
    ensure!(action.get("count") == Some(&json!(20)), "{action}");
    ensure!(
        text(action, "/reason").starts_with("refused by") && text(action, "/action/file").ends_with("acl.toml"),
        "{action}"
    );
    let login = of("/login/claimed", "mallory")?;
    ensure!(text(login, "/kind") == "login" && text(login, "/login/by") == "password", "{login}");
    ensure!(
        text(login, "/reason") == "wrong name or secret" && text(login, "/address").starts_with("127.0.0.1:"),
        "{login}"
    );
    // The rule tester decides the same about the same words.
    let asked = json!({"identity": "bob", "action": "write", "topic": "closed/x", "door": "mqtt", "client": "pump"});
    let decided =
        send(&gateway, "POST /api/v1/rules/test", ADMIN, "Content-Type: application/json\r\n", &asked.to_string())?;
    ensure!(decided.json()?.get("line") == action.pointer("/action/line"), "{decided:?} {action}");
    gateway.check_alive()?;
    Ok(String::new())
}

/// A peer that is refused for thousands of reasons takes no place of another.
pub(super) fn flood_of_refusals() -> Result<String> {
    const FLOOD: u16 = 5_000;
    let mut gateway = start()?;
    ensure!(send(&gateway, "GET /topics/x", "mallory:guess", "", "")?.status == 401, "a guess");
    let (mut bob, ..) = Login { clean: true, ..Login::of("bob", "pump") }.connect(gateway.address("mqtt")?)?;
    let begun = Instant::now();
    for id in 1..=FLOOD {
        let topic = format!("closed/{id}/{}", "x".repeat(200));
        bob.stream.write_all(&mqtt::publish(5, topic.as_bytes(), b"1", 1, false, id))?;
        bob.read()?;
    }
    let took = begun.elapsed();
    let document = get(&gateway, "refusals")?;
    let all = list(&document, "refusals")?;
    ensure!(all.len() <= 256 && document.to_string().len() < 256 << 10, "{} lines", all.len());
    ensure!(all.iter().any(|one| text(one, "/login/claimed") == "mallory"), "the other one is gone");
    let count = |name: &str| all.iter().filter_map(|one| one.get(name)?.as_u64()).sum::<u64>();
    ensure!(all.iter().any(|one| one.pointer("/action/topic_cut") == Some(&json!(true))), "no topic is cut");
    ensure!(count("others") > 0, "{document}");
    gateway.check_alive()?;
    Ok(format!("{} lines after {FLOOD} refusals in {took:?}", all.len()))
}

/// The head and the first event of a stream.
fn first_event(http: SocketAddr, query: &str, who: &str) -> Result<String> {
    let login = openssl::base64::encode_block(who.as_bytes());
    let mut stream = tcp::connect(http)?;
    let head = format!("GET /subscribe?{query} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {login}\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let (mut said, mut buffer, end) = (Vec::new(), [0; 4096], Instant::now() + PATIENCE);
    loop {
        let text = String::from_utf8_lossy(&said).into_owned();
        if text.contains("\"topic\"") || text.starts_with("HTTP/1.1 4") {
            return Ok(text);
        }
        let read = stream.read(&mut buffer)?;
        ensure!(read > 0 && Instant::now() < end, "{text}");
        said.extend(buffer.get(..read).unwrap_or_default());
    }
}

/// A stream names door and publisher to administrators that ask for it, and to nobody else.
pub(super) fn origins() -> Result<String> {
    let mut gateway = start()?;
    let http = gateway.address("http")?;
    let (mut bob, ..) = Login { clean: true, ..Login::of("bob", "pump") }.connect(gateway.address("mqtt")?)?;
    bob.stream.write_all(&mqtt::publish(5, b"a/b", b"1", 1, true, 1))?;
    bob.read()?;
    let told = first_event(http, "origin=true&filter=a/b", ADMIN)?;
    ensure!(told.contains(r#""origin":{"door":"mqtt","publisher":"bob","client":"pump"},"topic":"a/b""#), "{told}");
    for (query, who) in [("filter=a/b", ADMIN), ("filter=a/b", "bob:secret"), ("origin=false&filter=a/b", "bob:secret")]
    {
        let told = first_event(http, query, who)?;
        ensure!(told.contains("\"topic\":\"a/b\"") && !told.contains("pump"), "{told}");
    }
    let told = first_event(http, "origin=true&filter=a/b", "bob:secret")?;
    ensure!(told.starts_with("HTTP/1.1 403") && !told.contains("pump"), "{told}");
    gateway.check_alive()?;
    Ok(String::new())
}

/// A stream with origins ends when its reader is an administrator no more.
pub(super) fn origins_end() -> Result<String> {
    let mut gateway = start()?;
    let mut stream = tcp::connect(gateway.address("http")?)?;
    let login = openssl::base64::encode_block(ADMIN.as_bytes());
    let head = format!(
        "GET /subscribe?origin=true&filter=a HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {login}\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    let mut buffer = [0; 4096];
    ensure!(stream.read(&mut buffer)? > 0, "no stream");
    let without = RULES.replace("both = \"$fogmux/admin\"", "read = \"x\"")
        + "[[deny]]\nuser = \"admin\"\nboth = \"$fogmux/#\"\n";
    std::fs::write(gateway.data().join("acl.toml"), without)?;
    gateway.signal(rustix::process::Signal::HUP)?;
    while stream.read(&mut buffer)? > 0 {}
    gateway.check_alive()?;
    Ok(String::new())
}

/// Messages are counted by the door that they came in by, and deliveries by the pair of doors.
pub(super) fn rates() -> Result<String> {
    let mut gateway = start()?;
    let port = gateway.address("mqtt")?;
    let (mut reader, ..) = Login { clean: true, ..Login::of("admin", "reader") }.connect(port)?;
    reader.subscribe(1, &["a"], 0)?;
    let put = |value: &str| send(&gateway, "PUT /topics/a", ADMIN, "Content-Type: text/plain\r\n", value);
    for value in ["1", "2", "3"] {
        ensure!(put(value)?.status < 300, "not published");
        let (first, _) = reader.read()?;
        ensure!(first >> 4 == 3, "{first:x}");
    }
    let until = Instant::now() + PATIENCE;
    loop {
        let status = get(&gateway, "status")?;
        let doors = list(&status, "doors")?;
        let published = |door: &str| {
            let of = doors.iter().find(|one| text(one, "/door") == door);
            of.and_then(|one| one.get("published")?.as_u64())
        };
        ensure!((published("http"), published("mqtt")) == (Some(3), Some(0)), "{status}");
        let pairs = list(&status, "deliveries")?;
        let pair = pairs.iter().find(|one| (text(one, "/from"), text(one, "/to")) == ("http", "mqtt"));
        if pair.and_then(|pair| pair.get("delivered")?.as_u64()) == Some(3) {
            break;
        }
        ensure!(Instant::now() < until, "{status}");
    }
    ensure!(metric(&gateway, "fogmux_door_published_total{door=\"http\"}")? == 3, "the metrics say otherwise");
    gateway.check_alive()?;
    Ok(String::new())
}

pub(super) fn machine() -> Result<String> {
    let mut gateway = start()?;
    only_administrators(&gateway, "/api/v1/system")?;
    let first = get(&gateway, "system")?;
    let number = |document: &Value, pointer: &str| document.pointer(pointer).and_then(Value::as_f64);
    for pointer in ["/processor/total_ticks", "/processor/count", "/memory/available_bytes", "/disk/total_bytes"] {
        ensure!(number(&first, pointer).is_some_and(|value| value > 0.0), "{pointer}: {first}");
    }
    let again = get(&gateway, "system")?;
    ensure!(number(&again, "/processor/total_ticks") >= number(&first, "/processor/total_ticks"), "{first} {again}");
    ensure!(number(&first, "/memory/available_bytes") <= number(&first, "/memory/total_bytes"), "{first}");
    gateway.check_alive()?;
    Ok(String::new())
}
