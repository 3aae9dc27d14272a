//! The administration API beside living connections: the end of one, by each door's own means.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::{mqtt, tcp, tls, xmpp};
use serde_json::Value;

use super::ask;

const PATIENCE: Duration = Duration::from_secs(20);

fn get(http: SocketAddr, path: &str) -> Result<Value> {
    let answer = ask(http, &format!("GET /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no body")?;
    ensure!(head.starts_with("HTTP/1.1 200"), "{answer}");
    Ok(serde_json::from_str(body)?)
}

fn remove(http: SocketAddr, id: u64) -> Result<()> {
    let head = format!("DELETE /api/v1/clients/{id} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let answer = ask(http, &head)?;
    ensure!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    Ok(())
}

/// The connections of a page.
fn on(page: &Value) -> Result<&[Value]> {
    Ok(page.get("clients").and_then(Value::as_array).context("no list")?)
}

/// The numbers of the connections of a door.
fn listed(http: SocketAddr, door: &str) -> Result<Vec<u64>> {
    let page = get(http, "clients?limit=1000")?;
    let of_door = on(&page)?.iter().filter(|client| client.get("door").is_some_and(|said| said == door));
    Ok(of_door.filter_map(|client| client.get("id")?.as_u64()).collect())
}

/// Disconnects the only connection of a door.
fn disconnect(http: SocketAddr, door: &str) -> Result<()> {
    match *listed(http, door)? {
        [id] => remove(http, id),
        ref ids => bail!("{door}: {ids:?}"),
    }
}

fn none_left(http: SocketAddr) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    while !on(&get(http, "clients")?)?.is_empty() {
        ensure!(Instant::now() < until, "{}", get(http, "clients")?);
        std::thread::yield_now();
    }
    Ok(())
}

/// Each door says it in its own words, and a client that takes nothing goes as well.
pub(super) fn disconnected() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let (http, port) = (gateway.address("http")?, gateway.address("mqtt")?);
    let mut five = mqtt::Connection::open(port, 5, "five")?;
    disconnect(http, "mqtt")?;
    let (first, body) = five.read()?;
    ensure!(first == 0xe0 && body.first() == Some(&0x98), "{first:x} {body:?}");
    let mut four = mqtt::Connection::open(port, 4, "four")?;
    disconnect(http, "mqtt")?;
    ensure!(four.read().is_err(), "a client of 3.1.1 is told by the end of the connection only");
    let mut session = xmpp::Session::anonymous(&tls::config(gateway.ca())?, gateway.address("xmpps")?)?;
    disconnect(http, "xmpp")?;
    let said = session.until("</stream:stream>")?;
    ensure!(said.contains("policy-violation"), "{said}");
    drop(session);
    let mut events = tcp::connect(http)?;
    events.write_all(b"GET /subscribe?filter=x HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut buffer = [0; 4096];
    ensure!(events.read(&mut buffer)? > 0, "no stream");
    disconnect(http, "http")?;
    while events.read(&mut buffer)? > 0 {}
    none_left(http)?;
    gateway.check_alive()?;
    Ok(String::new())
}

/// The list is right while connections come and go, and pages do not hold messages up.
pub(super) fn many() -> Result<String> {
    const CLIENTS: usize = 500;
    let mut gateway = Gateway::start(&[])?;
    let (http, port) = (gateway.address("http")?, gateway.address("mqtt")?);
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        clients.push(mqtt::Connection::open(port, 5, &format!("c{number}"))?);
    }
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = get(http, &format!("clients?limit=97{after}"))?;
        let names = on(&page)?.iter().filter_map(|client| client.get("client")?.as_str());
        seen.extend(names.map(str::to_owned));
        let Some(next) = page.get("next").and_then(Value::as_str) else { break };
        after = format!("&after={next}");
    }
    ensure!(seen == (0..CLIENTS).map(|number| format!("c{number}")).collect::<Vec<_>>(), "{seen:?}");
    for id in listed(http, "mqtt")?.into_iter().step_by(2) {
        remove(http, id)?;
    }
    for (number, client) in clients.iter_mut().enumerate() {
        if number % 2 == 0 {
            let (first, body) = client.read()?;
            ensure!(first == 0xe0 && body.first() == Some(&0x98), "{first:x} {body:?}");
        } else {
            client.subscribe(1, &["a"], 0)?;
        }
    }
    drop(clients);
    none_left(http)?;
    gateway.check_alive()?;
    Ok(format!("{CLIENTS} clients"))
}
