//! The administration of MQTT sessions: who holds one, connected or absent, and the end of one, which lasts.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::mqtt::{self, Connection, V5};
use serde_json::{Value, json};

use super::ask;

/// Sends a request without a body, and returns status and document.
fn request(http: SocketAddr, method: &str, path: &str) -> Result<(u16, Value)> {
    let head = format!("{method} /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let answer = ask(http, &head)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no body")?;
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    Ok((status, if body.is_empty() { Value::Null } else { serde_json::from_str(body)? }))
}

fn get(http: SocketAddr, path: &str) -> Result<Value> {
    let (status, document) = request(http, "GET", path)?;
    ensure!(status == 200, "{path}: {status} {document}");
    Ok(document)
}

/// The session of a client, as the list has it.
fn of(http: SocketAddr, client: &str) -> Result<Value> {
    let page = get(http, "sessions?limit=1000")?;
    let all = page.get("sessions").and_then(Value::as_array).context("no list")?;
    Ok(all.iter().find(|one| one.get("client").is_some_and(|name| name == client)).cloned().unwrap_or_default())
}

fn number(session: &Value) -> Result<u64> {
    session.get("id").and_then(Value::as_u64).with_context(|| format!("no session: {session}"))
}

fn start(data: &Path) -> Result<Gateway> {
    Gateway::start_as(Plan { data: Some(data), ..Plan::default() })
}

/// Waits until the gateway has noticed that a client left.
fn absent(http: SocketAddr, client: &str) -> Result<Value> {
    let end = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        let session = of(http, client)?;
        if session.get("connected") == Some(&json!(false)) {
            return Ok(session);
        }
        ensure!(std::time::Instant::now() < end, "{session}");
        std::thread::yield_now();
    }
}

/// Both kinds are listed with what they hold, and are forgotten for good, also by the store.
pub(super) fn ended() -> Result<String> {
    let home = tempfile::tempdir()?;
    let data = home.path().join("data");
    std::fs::create_dir(&data)?;
    let gateway = start(&data)?;
    let (http, port) = (gateway.address("http")?, gateway.address("mqtt")?);
    let (mut present, _) = Connection::resume(port, "present", 3600, false)?;
    present.subscribe(1, &["a/+", "$share/g/b", "a/#"], 1)?;
    let (mut away, _) = Connection::resume(port, "away", 3600, false)?;
    away.subscribe(1, &["a/+"], 1)?;
    drop(away);
    let session = absent(http, "away")?;
    ensure!(session.get("expires_seconds").and_then(Value::as_u64).is_some_and(|left| left <= 3600), "{session}");
    let mut writer = Connection::open(port, V5, "writer")?;
    for id in [1, 2, 3] {
        writer.stream.write_all(&mqtt::publish(V5, b"a/b", b"12345", 1, false, id))?;
        ensure!(writer.read()?.0 == 0x40, "PUBACK");
    }
    let session = of(http, "away")?;
    ensure!(session.get("queued") == Some(&json!(3)) && session.get("stored") == Some(&json!("disk")), "{session}");
    ensure!(session.get("queued_bytes").and_then(Value::as_u64).is_some_and(|bytes| bytes >= 15), "{session}");
    let session = of(http, "writer")?;
    ensure!(session.get("transient") == Some(&json!(true)), "{session}");
    ensure!(session.get("stored") == Some(&json!("memory")), "{session}");
    let session = of(http, "present")?;
    ensure!(session.get("inflight") == Some(&json!(3)) && session.get("connected") == Some(&json!(true)), "{session}");
    ensure!(session.get("subscriptions") == Some(&json!(3)), "{session}");
    let present_id = number(&session)?;
    let first = get(http, &format!("sessions/{present_id}/subscriptions?limit=2"))?;
    ensure!(first == json!({"subscriptions": ["$share/g/b", "a/#"], "next": "a/#"}), "{first}");
    let rest = get(http, &format!("sessions/{present_id}/subscriptions?limit=2&after=a/%23"))?;
    ensure!(rest == json!({"subscriptions": ["a/+"]}), "{rest}");
    for (client, id) in [("present", present_id), ("away", number(&of(http, "away")?)?)] {
        ensure!(request(http, "DELETE", &format!("sessions/{id}"))?.0 == 204, "{client}");
        ensure!(request(http, "DELETE", &format!("sessions/{id}"))?.0 == 404, "{client} again");
        ensure!(request(http, "GET", &format!("sessions/{id}/subscriptions"))?.0 == 404, "{client}");
        ensure!(of(http, client)?.is_null(), "{client} is listed");
    }
    loop {
        let (first, body) = present.read()?;
        if first == 0xe0 {
            ensure!(body.first() == Some(&0x98), "{body:?}");
            break;
        }
        ensure!(first & 0xf0 == 0x30, "{first:#x} {body:?}");
    }
    gateway.wait_metric("fogmux_bus_subscriptions", Duration::from_secs(20), |left| left == 0.0)?;
    let log = gateway.log();
    ensure!(log.contains("session ended") && log.contains("client=\"away\""), "{log}");
    // Killed: 204 was not said before the store had forgotten it.
    drop(gateway);
    let gateway = start(&data)?;
    ensure!(of(gateway.address("http")?, "away")?.is_null(), "it is back");
    for client in ["present", "away"] {
        let (_, found) = Connection::resume(gateway.address("mqtt")?, client, 3600, false)?;
        ensure!(!found, "{client} goes on");
    }
    Ok(String::new())
}

/// A list of many sessions has each once, page by page, while their clients come and go.
pub(super) fn many() -> Result<String> {
    const SESSIONS: usize = 200;
    let mut gateway = Gateway::start(&[])?;
    let (http, port) = (gateway.address("http")?, gateway.address("mqtt")?);
    for number in 0..SESSIONS {
        Connection::resume(port, &format!("s{number}"), 3600, false)?;
    }
    let (mut seen, mut after, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let page = get(http, &format!("sessions?limit=37{after}"))?;
        let all = page.get("sessions").and_then(Value::as_array).context("no list")?;
        ensure!(all.len() <= 37, "{} on a page", all.len());
        seen.extend(all.iter().filter_map(|one| one.get("client")?.as_str()).map(str::to_owned));
        pages += 1;
        // One that was seen comes back, and one that was not: both keep their places.
        drop(Connection::resume(port, "s3", 3600, false)?);
        drop(Connection::resume(port, "s199", 3600, false)?);
        let Some(next) = page.get("next").and_then(Value::as_str) else { break };
        after = format!("&after={next}");
    }
    ensure!(seen == (0..SESSIONS).map(|number| format!("s{number}")).collect::<Vec<_>>(), "{seen:?}");
    gateway.check_alive()?;
    Ok(format!("{SESSIONS} sessions on {pages} pages"))
}
