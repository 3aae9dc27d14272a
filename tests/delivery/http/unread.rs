//! Answers that clients do not take: all of them together have a bound, also while the clients stay.

use std::io::Write as _;
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::http2::{self, DATA, END_STREAM, RST_STREAM, Windowless};
use fogmux_tests::{tcp, users};

use super::post;

const PATIENCE: Duration = Duration::from_secs(20);
/// Nobody without a name may read or write.
const RULES: &str = "[[allow]]\nuser = \"ada\"\nboth = [\"#\"]\n\n[[allow]]\nuser = \"eve\"\nread = [\"open\"]\n";
/// The bound of the case: eight times a payload of 1 MiB.
const ROOM: &[&str] = &["http.unread_bytes_max=1MiB", "http.batch_bytes_max=1MiB"];
const ROOM_BYTES: u64 = 8 << 20;
/// For connections, streams, what is being answered, and the parts of pages that are in use.
const SLACK_BYTES: u64 = 32 << 20;
const VALUE_BYTES: usize = 1 << 20;
const LINES: usize = 10_000;

fn gateway(settings: &[&str]) -> Result<Gateway> {
    users::gateway(settings, &["ada", "eve"], &[("acl.toml", RULES)])
}

/// The oracle while the clients stay: memory is at most what the gauge says, and the gauge at most the bound.
fn check_held(gateway: &Gateway, idle: u64) -> Result<u64> {
    // Answers that have rested for two seconds give way before the one with the metrics.
    sleep(Duration::from_millis(2500));
    let unread =
        gateway.metrics()?.get("fogmux_http_unread_bytes").map_or(Ok(0), |bytes| format!("{bytes:.0}").parse())?;
    let more = gateway.resident_bytes()?.saturating_sub(idle);
    ensure!(unread <= ROOM_BYTES, "{unread} bytes of answers are held");
    ensure!(more <= unread + SLACK_BYTES, "{} MB more are resident, {unread} bytes are counted", more / 1_000_000);
    Ok(more)
}

/// After the clients have gone: nothing is held.
fn check_gone(gateway: &mut Gateway, idle: u64) -> Result<()> {
    gateway.wait_metric("fogmux_http_unread_bytes", PATIENCE, |bytes| bytes == 0.0)?;
    gateway.settle()?;
    gateway.comes_down(idle + 8_000_000, Instant::now() + PATIENCE)?;
    Ok(())
}

/// A client that has less than others reads and writes as ever.
fn check_others(http: SocketAddr) -> Result<()> {
    for (method, body) in [("PUT", vec![b'a'; 300_000]), ("GET", Vec::new())] {
        let status = users::http(http, "ada", method, "/topics/ada", &body)?;
        ensure!(matches!(status, 200 | 201 | 204), "{method} by another is answered {status}");
    }
    Ok(())
}

pub(super) fn refused_lines() -> Result<String> {
    let gateway = gateway(&[])?;
    let answer = post(gateway.address("http")?, "/publish", &"x\n".repeat(LINES))?;
    let count = answer.lines().filter(|line| line.starts_with("{\"line\":") && line.contains("\"status\":400")).count();
    ensure!(count == LINES, "{count} results");
    ensure!(answer.len() < 400_000, "{} bytes", answer.len());
    Ok(format!("{} bytes", answer.len()))
}

pub(super) fn batches() -> Result<String> {
    let mut gateway = gateway(ROOM)?;
    let (http, idle) = (gateway.address("http")?, gateway.resident_bytes()?);
    let (block, body) = (http2::post("/publish"), "x\n".repeat(LINES));
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut client = Windowless::connect(http)?;
        for _ in 0..80 {
            let stream = client.send(&block, body.as_bytes())?;
            client.answered(stream)?;
        }
        held.push(client);
    }
    let more = check_held(&gateway, idle)?;
    check_others(http)?;
    drop(held);
    check_gone(&mut gateway, idle)?;
    Ok(format!("{} MB more", more / 1_000_000))
}

/// Publishes another value each time, so that none but the latest is retained.
fn put(http: SocketAddr, number: u8) -> Result<()> {
    let status = users::http(http, "ada", "PUT", "/topics/open", &vec![b'a' + number % 26; VALUE_BYTES])?;
    ensure!(matches!(status, 201 | 204), "PUT is answered {status}");
    Ok(())
}

pub(super) fn values() -> Result<String> {
    let mut gateway = gateway(ROOM)?;
    let (http, idle) = (gateway.address("http")?, gateway.resident_bytes()?);
    let authorization = users::authorization("eve");
    let (_, credential) = authorization.trim_end().split_once(": ").unwrap_or_default();
    let block = [http2::get("/topics/open"), http2::literal("authorization", credential)].concat();
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut client = Windowless::connect(http)?;
        for number in 0..40 {
            put(http, number)?;
            let stream = client.send(&block, &[])?;
            // The window is opened for all but the last byte, so that hyper has the answer, and not the client.
            if number % 2 == 0 && client.answered(stream)? == http2::HEADERS {
                client.open(stream, u32::try_from(VALUE_BYTES - 1)?)?;
                client.open(0, u32::try_from(VALUE_BYTES)?)?;
            }
        }
        held.push(client);
    }
    let more = check_held(&gateway, idle)?;
    gateway.wait_metric("fogmux_share_gave_way_total{table=\"http_answers\"}", PATIENCE, |count| count > 0.0)?;
    check_others(http)?;
    drop(held);
    check_gone(&mut gateway, idle)?;
    Ok(format!("{} MB more", more / 1_000_000))
}

pub(super) fn same_value() -> Result<String> {
    const READERS: u8 = 60;
    let mut gateway = Gateway::start(ROOM)?;
    let (http, idle) = (gateway.address("http")?, gateway.resident_bytes()?);
    let status = users::http(http, "", "PUT", "/topics/open", &vec![b'v'; VALUE_BYTES])?;
    ensure!(status == 201, "PUT is answered {status}");
    let mut client = Windowless::connect(http)?;
    let mut streams = Vec::new();
    for _ in 0..READERS {
        let stream = client.send(&http2::get("/topics/open"), &[])?;
        client.answered(stream)?;
        streams.push(stream);
    }
    let bytes = u32::try_from(VALUE_BYTES)?;
    client.open(0, u32::from(READERS) * bytes)?;
    for stream in streams {
        client.open(stream, bytes)?;
        let mut came = 0;
        while came < VALUE_BYTES {
            let (kind, _, id, payload) = client.next_frame()?;
            ensure!(kind != RST_STREAM, "stream {id} is reset");
            came += if kind == DATA && id == stream { payload.len() } else { 0 };
        }
    }
    drop(client);
    check_gone(&mut gateway, idle)?;
    Ok(format!("{READERS} readers"))
}

pub(super) fn values_1() -> Result<String> {
    let mut gateway = gateway(ROOM)?;
    let (http, idle) = (gateway.address("http")?, gateway.resident_bytes()?);
    let request = format!("GET /topics/open HTTP/1.1\r\nHost: localhost\r\n{}\r\n", users::authorization("eve"));
    let mut held = Vec::new();
    for number in 0..80 {
        put(http, number)?;
        let mut stream = tcp::connect_narrow(http, 4096)?;
        // Those that follow hold nothing more.
        stream.write_all(request.repeat(5).as_bytes())?;
        // The value must be the one of now.
        let mut first = [0; 12];
        stream.peek(&mut first)?;
        held.push(stream);
    }
    let more = check_held(&gateway, idle)?;
    check_others(http)?;
    drop(held);
    check_gone(&mut gateway, idle)?;
    Ok(format!("{} MB more", more / 1_000_000))
}

pub(super) fn stalled() -> Result<String> {
    const STEP: u32 = 16 << 10;
    // A stream may take nothing for two seconds.
    let mut gateway =
        Gateway::start(&["http.write_timeout=1s", "http.body_bytes_per_second=64KiB", "http.event_stream_grace=1s"])?;
    let http = gateway.address("http")?;
    let status = users::http(http, "", "PUT", "/topics/open", &[b'v'; 10 * STEP as usize])?;
    ensure!(status == 201, "PUT is answered {status}");
    let mut client = Windowless::connect(http)?;
    for path in ["/healthz", "/topics/open", "/subscribe?filter=open"] {
        let stream = client.send(&http2::get(path), &[])?;
        client.until(stream, &[RST_STREAM])?;
    }
    let slow = client.send(&http2::get("/topics/open"), &[])?;
    client.open(0, 20 * STEP)?;
    let began = Instant::now();
    for _ in 0..10 {
        sleep(Duration::from_millis(700));
        client.open(slow, STEP)?;
    }
    loop {
        let (kind, flags) = client.until(slow, &[DATA, RST_STREAM])?;
        ensure!(kind == DATA, "a slow stream is reset");
        if flags & END_STREAM != 0 {
            break;
        }
    }
    drop(client);
    gateway.settle()?;
    Ok(format!("the slow one took {:.1?}", began.elapsed()))
}
