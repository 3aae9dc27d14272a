//! Requests that take long, and streams that come back: what they get is what a fresh request would get.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::{tcp, users};

use super::{PATIENCE, secrets};

const RULES: &str = "[[allow]]\nuser = \"ada\"\nboth = [\"#\"]\n\n[[allow]]\nuser = \"admin\"\nboth = [\"#\"]\n";
const DENIED: &str = "[[deny]]\nuser = \"ada\"\nboth = [\"secret/#\"]\n\n";
const READ_AGAIN: &str = "users, rules and keys are read again";

pub(super) fn slow_bodies() -> Result<String> {
    let mut gateway = users::gateway(&[], &["ada", "bob"], &[("acl.toml", RULES)])?;
    let http = gateway.address("http")?;
    let begin = |request: &str| -> Result<TcpStream> {
        let mut stream = tcp::connect(http)?;
        let (line, fields) = request.split_once('\n').context("no fields")?;
        let user = users::authorization("ada");
        write!(
            stream,
            "{line} HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n{user}{}\r\n\r\n",
            fields.replace('\n', "\r\n")
        )?;
        // Said when the body is asked for, after the head was judged (RFC 9110 §10.1.1).
        read_until(&mut stream, "100 Continue\r\n\r\n")?;
        stream.write_all(b"{\"topic\":")?;
        Ok(stream)
    };
    let mut put = begin("PUT /topics/secret/a\nContent-Length: 12")?;
    let mut batch = begin("POST /publish\nContent-Type: application/x-ndjson\nContent-Length: 38")?;
    fs::write(gateway.data().join("acl.toml"), format!("{DENIED}{RULES}"))?;
    gateway.wait_log(READ_AGAIN, PATIENCE)?;
    put.write_all(b"1 }")?;
    ensure!(status(&mut put)? == 403, "a PUT that was let in before its topic was denied");
    batch.write_all(b"\"secret/a\",\"payload\":\"stolen\"}")?;
    ensure!(status(&mut batch)? == 200);
    ensure!(users::http(http, "admin", "GET", "/topics/secret/a", b"")? != 200, "something was published");
    gateway.check_alive()?;
    Ok(String::new())
}

pub(super) fn long_polls() -> Result<String> {
    let mut gateway = users::gateway(
        &[],
        &["ada", "bob"],
        &[("acl.toml", &format!("{RULES}\n[[allow]]\nuser = \"bob\"\nboth = [\"#\"]\n"))],
    )?;
    let http = gateway.address("http")?;
    ensure!(users::http(http, "bob", "PUT", "/topics/secret/a", b"old")? == 201);
    let tag = etag(http)?;
    let mut polls = Vec::new();
    for wait in [4, 5] {
        let mut poll = tcp::connect(http)?;
        let user = users::authorization("ada");
        let fields = format!("Host: localhost\r\n{user}If-None-Match: {tag}\r\n");
        write!(poll, "GET /topics/secret/a?wait={wait} HTTP/1.1\r\n{fields}\r\n")?;
        polls.push(poll);
    }
    fs::write(
        gateway.data().join("acl.toml"),
        format!("{DENIED}{RULES}\n[[allow]]\nuser = \"bob\"\nboth = [\"#\"]\n"),
    )?;
    gateway.wait_log(READ_AGAIN, PATIENCE)?;
    ensure!(users::http(http, "bob", "PUT", "/topics/secret/a", b"new")? == 204);
    for poll in &mut polls {
        let status = status(poll)?;
        ensure!(status == 403, "{status} for a topic that was denied meanwhile");
    }
    gateway.check_alive()?;
    Ok(String::new())
}

/// A change over the administration API whose body takes long.
pub(super) fn slow_change() -> Result<String> {
    const BODY: &[u8] = b"{\"password\":\"a-long-enough-one\"}";
    const ADMIN: &str = "\n[[allow]]\nuser = \"admin\"\nboth = [\"$fogmux/admin\"]\n";
    let administers = RULES.replacen("\"#\"", "\"#\", \"$fogmux/admin\"", 1) + ADMIN;
    let mut gateway = users::gateway(&["auth.api_changes=true"], &["ada", "admin"], &[("acl.toml", &administers)])?;
    let http = gateway.address("http")?;
    let begin = |name: &str| -> Result<TcpStream> {
        let mut stream = tcp::connect(http)?;
        let (user, length) = (users::authorization("ada"), BODY.len());
        let fields = format!("Content-Type: application/json\r\nContent-Length: {length}\r\nExpect: 100-continue\r\n");
        write!(stream, "PUT /api/v1/users/{name} HTTP/1.1\r\nHost: localhost\r\n{user}{fields}\r\n")?;
        read_until(&mut stream, "100 Continue\r\n\r\n")?;
        Ok(stream)
    };
    let mut before = begin("bob")?;
    before.write_all(BODY)?;
    ensure!(status(&mut before)? == 201, "a change that the rules allow");
    let mut late = begin("eve")?;
    let (first, rest) = BODY.split_at(5);
    late.write_all(first)?;
    fs::write(gateway.data().join("acl.toml"), format!("{RULES}{ADMIN}"))?;
    gateway.wait_log(READ_AGAIN, PATIENCE)?;
    late.write_all(rest)?;
    ensure!(status(&mut late)? == 403, "a change whose right was withdrawn before its end");
    let added = fs::read_to_string(gateway.data().join("users.toml"))?;
    ensure!(added.contains("bob") && !added.contains("eve"), "{added}");
    gateway.check_alive()?;
    Ok(String::new())
}

pub(super) fn resumed_streams() -> Result<String> {
    const KEY: &[u8] = b"0123456789abcdef0123456789abcdef";
    let home = tempfile::tempdir()?;
    let file = home.path().join("key");
    fs::write(&file, KEY)?;
    let setting = format!("auth.token.key_file={}", serde_json::Value::from(file.display().to_string()));
    let rules = "[[allow]]\ngroup = \"ops\"\nboth = [\"#\"]\n\n[[allow]]\nuser = \"device\"\nread = [\"public/#\"]\n";
    let mut gateway = Gateway::start_furnished(&[&setting], &[("acl.toml", rules)])?;
    let http = gateway.address("http")?;
    let token = |groups: &str| secrets::token_with("", KEY, &format!(r#","groups":[{groups}]"#));
    let (large, small) = (token("\"ops\"")?, token("")?);
    let mut first = follow(http, &large, None)?;
    put(http, &large, "public/a", "1")?;
    let text = read_until(&mut first, "\"public/a\"")?;
    let id = text.lines().rev().find_map(|line| line.strip_prefix("id:")).context("no id")?.trim().to_owned();
    drop(first);
    let mut second = follow(http, &small, Some(&id))?;
    put(http, &large, "secret/a", "2")?;
    put(http, &large, "public/a", "3")?;
    // A fresh stream begins with what is retained; the last value is the one that ends the test.
    let seen = read_until(&mut second, "\"payload\":\"3\"")?;
    ensure!(!seen.contains("secret/a"), "the stream goes on with the rights of another token: {seen}");
    gateway.check_alive()?;
    Ok(String::new())
}

fn follow(http: SocketAddr, token: &str, last: Option<&str>) -> Result<TcpStream> {
    let mut stream = tcp::connect(http)?;
    let last = last.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
    let fields = format!("Host: localhost\r\nAccept: text/event-stream\r\nAuthorization: Bearer {token}\r\n{last}");
    write!(stream, "GET /subscribe?filter=%23 HTTP/1.1\r\n{fields}\r\n")?;
    read_until(&mut stream, "\r\n\r\n")?;
    Ok(stream)
}

fn put(http: SocketAddr, token: &str, topic: &str, payload: &str) -> Result<()> {
    let fields = format!("Authorization: Bearer {token}\r\n");
    let status = users::http_with(http, &fields, "PUT", &format!("/topics/{topic}"), payload.as_bytes())?;
    ensure!(status == 201 || status == 204, "PUT {topic}: {status}");
    Ok(())
}

/// Reads up to `end`, and returns all of it. The keep-alives of an event stream do not make it wait for longer.
pub(super) fn read_until(stream: &mut TcpStream, end: &str) -> Result<String> {
    let deadline = Instant::now() + PATIENCE;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut bytes = Vec::new();
    while !String::from_utf8_lossy(&bytes).contains(end) {
        let mut buffer = [0; 4096];
        let count = stream.read(&mut buffer).with_context(|| String::from_utf8_lossy(&bytes).into_owned())?;
        ensure!(count > 0, "ended: {}", String::from_utf8_lossy(&bytes));
        ensure!(Instant::now() < deadline, "no {end}: {}", String::from_utf8_lossy(&bytes));
        bytes.extend(buffer.get(..count).unwrap_or_default());
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The status of the answer that comes next.
fn status(stream: &mut TcpStream) -> Result<u16> {
    let head = read_until(stream, "\r\n")?;
    head.get(9..12).context("a short answer")?.parse().context("a status")
}

fn etag(http: SocketAddr) -> Result<String> {
    let user = users::authorization("ada");
    let request = format!("GET /topics/secret/a HTTP/1.1\r\nHost: localhost\r\n{user}Connection: close\r\n\r\n");
    let answer = String::from_utf8_lossy(&tcp::ask(http, request.as_bytes())?).into_owned();
    let field = answer.lines().find(|line| line.to_ascii_lowercase().starts_with("etag:")).context("no ETag")?;
    Ok(field.split_once(':').context("no value")?.1.trim().to_owned())
}
