//! Event streams: any number of messages, of any size, at any pace, over every version, and again after a break.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::{mqtt, tcp};
use serde_json::Value;

use super::reader::{FORMS, Form, Reader, VIAS, Via};
use super::{ask, post, retain};

const PATIENCE: Duration = Duration::from_secs(20);
/// Streams end soon after their readers.
const GRACE: &str = "http.event_stream_grace=1s";
/// Bytes by which the resident set may stay above that of an idle gateway.
const RESIDENT_SLACK: u64 = 8 << 20;

fn text<'v>(event: &'v Value, member: &str) -> &'v str {
    event.get(member).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn retained() -> Result<String> {
    let mut gateway = Gateway::start(&[GRACE])?;
    let http = gateway.address("http")?;
    for count in [0, 1, 2, 97, 1_000, 5_000] {
        let prefix = format!("kept{count}");
        retain(http, &prefix, count, "")?;
        for via in VIAS {
            for form in FORMS {
                // Each combination once with every small number, and the large ones in turn.
                if count == 5_000 && !(form as usize + via as usize).is_multiple_of(3) {
                    continue;
                }
                let mut reader = Reader::open(&gateway, via, form, &format!("{prefix}/#"), None)?;
                // Behind everything that is retained comes this.
                post(http, &format!("/topics/{prefix}/live"), "now")?;
                let mut topics = BTreeSet::new();
                let mut live = false;
                while topics.len() < count || !live {
                    let event = reader
                        .next(PATIENCE)
                        .with_context(|| format!("{via:?} {form:?}: {} of {count}, live: {live}", topics.len()))?;
                    let topic = text(&event, "topic");
                    live |= topic.ends_with("/live");
                    ensure!(!topic.is_empty(), "a notice: {event}");
                    if !topic.ends_with("/live") {
                        ensure!(topics.insert(topic.to_owned()), "{topic} came twice");
                    }
                }
            }
        }
    }
    gateway.settle()?;
    Ok("0 to 5000 messages, 9 ways".to_owned())
}

pub(super) fn sizes() -> Result<String> {
    let mut gateway = Gateway::start(&[GRACE])?;
    let http = gateway.address("http")?;
    // Around what is taken at a time, what is looked up at a time, and what frames and buffers hold.
    let sizes = [0, 125, 126, 16_383, 16_384, 16_385, 65_535, 65_536, 70_000, 250_000, 1_000_000];
    for (number, size) in sizes.into_iter().enumerate() {
        let body = "x".repeat(size);
        let head = format!("PUT /topics/large/{number:02} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        let answer = ask(http, &format!("{head}Content-Length: {size}\r\n\r\n{body}"))?;
        ensure!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    }
    for via in VIAS {
        for form in FORMS {
            let mut reader = Reader::open(&gateway, via, form, "large/#", None)?;
            for (number, size) in sizes.into_iter().enumerate() {
                let event = reader.next(PATIENCE).with_context(|| format!("{via:?} {form:?}: {size} bytes"))?;
                let came = (text(&event, "topic").to_owned(), text(&event, "payload").len());
                ensure!(came == (format!("large/{number:02}"), size), "{via:?} {form:?}: {came:?}");
            }
        }
    }
    gateway.settle()?;
    Ok(format!("{} sizes, 9 ways", sizes.len()))
}

pub(super) fn backlog() -> Result<String> {
    let settings = [GRACE, "http.event_stream_messages=10000", "http.event_stream_bytes=8MiB"];
    let mut gateway = Gateway::start(&settings)?;
    let http = gateway.address("http")?;
    for count in [1, 2, 97, 1_000, 5_000] {
        let mut readers = Vec::new();
        for via in VIAS {
            for form in FORMS {
                readers.push((via, form, Reader::open(&gateway, via, form, "log/#", None)?));
            }
        }
        // Nobody reads while everything is published.
        let pad = "p".repeat(400);
        let line = |number| format!("{{\"topic\":\"log/{number}\",\"payload\":\"{pad}\"}}\n");
        for first in (0..count).step_by(500) {
            post(http, "/publish", &(first..count.min(first + 500)).map(line).collect::<String>())?;
        }
        for (via, form, mut reader) in readers {
            for number in 0..count {
                let event = reader.next(PATIENCE).with_context(|| format!("{via:?} {form:?}: {number} of {count}"))?;
                ensure!(text(&event, "topic") == format!("log/{number}"), "{via:?} {form:?} {number}: {event}");
            }
        }
    }
    gateway.settle()?;
    Ok("1 to 5000 messages, 9 ways".to_owned())
}

/// A reader that claims to have received more than was sent gets a stream of its own; the stream that it named goes on.
pub(super) fn refused_resumption() -> Result<String> {
    let mut gateway = Gateway::start(&[GRACE])?;
    let http = gateway.address("http")?;
    let expect = |reader: &mut Reader, payload: &str| -> Result<()> {
        let event = reader.next(PATIENCE).with_context(|| format!("waiting for {payload}"))?;
        ensure!(text(&event, "payload") == payload, "{event} instead of {payload}");
        Ok(())
    };
    for via in VIAS {
        let mut present = Reader::open(&gateway, via, Form::Sse, "resumed/#", None)?;
        post(http, "/topics/resumed/a", "one")?;
        expect(&mut present, "one")?;
        let (stream, _) = present.last_id.as_deref().and_then(|id| id.rsplit_once('.')).context("no id")?;
        let beyond = format!("{stream}.99");
        let mut other = Reader::open(&gateway, via, Form::Sse, "resumed/#", Some(&beyond))?;
        let notice = other.next(PATIENCE)?;
        ensure!(text(&notice, "topic").is_empty(), "{via:?}: {notice} instead of a gap");
        post(http, "/topics/resumed/a", "two")?;
        expect(&mut present, "two").with_context(|| format!("{via:?}: the present reader"))?;
        expect(&mut other, "two").with_context(|| format!("{via:?}: the other reader"))?;
    }
    gateway.settle()?;
    Ok(format!("{} ways", VIAS.len()))
}

pub(super) fn resumption() -> Result<String> {
    const COUNT: usize = 5_000;
    let mut gateway = Gateway::start(&[])?;
    retain(gateway.address("http")?, "walk", COUNT, &"w".repeat(100))?;
    let mut connections = 0;
    for via in VIAS {
        let mut reader = Reader::open(&gateway, via, Form::Sse, "walk/#", None)?;
        let mut topics = BTreeSet::new();
        let mut received = 0;
        let mut portion = 1;
        while topics.len() < COUNT {
            for _ in 0..portion {
                if topics.len() == COUNT {
                    break;
                }
                let event = reader.next(PATIENCE).with_context(|| format!("{via:?}: {} of {COUNT}", topics.len()))?;
                ensure!(event.get("gap").is_none(), "{via:?} behind {}: {event}", topics.len());
                if event.get("retained").is_none_or(Value::is_boolean) {
                    received += 1;
                    topics.insert(text(&event, "topic").to_owned());
                }
            }
            portion = (portion * 3).min(1_500);
            let last = reader.last_id.take().context("no event had an id")?;
            drop(reader);
            connections += 1;
            reader = Reader::open(&gateway, via, Form::Sse, "walk/#", Some(&last))?;
        }
        // A walk begins again at most a quarter of the way back.
        ensure!(received <= COUNT * 3 / 2, "{via:?}: {received} messages for {COUNT} topics");
        // The stream is alive and knows where its reader is.
        post(gateway.address("http")?, "/topics/walk/live", "now")?;
        while text(&reader.next(PATIENCE)?, "topic") != "walk/live" {}
    }
    gateway.check_alive()?;
    Ok(format!("{connections} connections"))
}

pub(super) fn gap() -> Result<String> {
    let settings = ["http.event_stream_messages=500", "http.event_stream_bytes=64KiB"];
    let mut gateway = Gateway::start(&settings)?;
    let mut publisher = mqtt::Connection::open(gateway.address("mqtt")?, mqtt::V4, "many")?;
    let mut reader = Reader::open(&gateway, Via::Http1, Form::Sse, "g", None)?;
    publisher.publish("g", b"0")?;
    reader.next(PATIENCE)?;
    let first = reader.last_id.clone().context("no id")?;
    let mut published = 1_u64;
    // Until the sockets and the mailbox are full.
    while gateway.metrics()?.get("fogmux_bus_dropped_full_total").copied().unwrap_or_default() < 100.0 {
        for _ in 0..500 {
            publisher.publish("g", format!("{published:01000}").as_bytes())?;
            published += 1;
        }
        ensure!(published < 500_000, "nothing is ever dropped");
    }
    // Everything that waits is sent, the gap too; then the reader behaves as if none of it had come.
    let end = format!("{published:01000}");
    publisher.publish("g", end.as_bytes())?;
    while text(&reader.next(PATIENCE)?, "payload") != end {}
    drop(reader);
    let mut reader = Reader::open(&gateway, Via::Http1, Form::Sse, "g", Some(&first))?;
    let mut next = 1;
    let mut missed = 0;
    while next <= published {
        let event = reader.next(PATIENCE)?;
        if event.get("gap").is_some() {
            let count = event.get("missed").and_then(Value::as_u64).with_context(|| event.to_string())?;
            missed += count;
            next += count;
            continue;
        }
        let number: u64 = text(&event, "payload").parse().with_context(|| event.to_string())?;
        ensure!(number == next, "{number} instead of {next}, and no word of it");
        next += 1;
    }
    ensure!(missed > 0, "nothing was missed");
    gateway.check_alive()?;
    Ok(format!("{missed} of {published} missed, all of them told"))
}

pub(super) fn convergence() -> Result<String> {
    const TOPICS: usize = 8;
    let mut gateway = Gateway::start(&[GRACE, "http.event_stream_bytes=128KiB"])?;
    let http = gateway.address("http")?;
    retain(http, "v", TOPICS, "first")?;
    let mut readers = Vec::new();
    let mut writers = mqtt::Connection::open(gateway.address("mqtt")?, mqtt::V4, "writer")?;
    for round in 0..40 {
        for number in 0..TOPICS {
            let topic = format!("v/{number:05}");
            // Retained values of all sizes, and others that are not retained, on the same topics.
            let value = format!("{round}-{}", "x".repeat(round * number * 20));
            let transient = mqtt::publish(mqtt::V4, topic.as_bytes(), b"transient", 0, false, 0);
            let kept = mqtt::publish(mqtt::V4, topic.as_bytes(), value.as_bytes(), 0, true, 0);
            writers.stream.write_all(&[transient.clone(), kept, transient].concat())?;
        }
        if round % 4 == 0 {
            let (via, form) = match round / 4 % 9 {
                turn if turn < 3 => (Via::Http1, Form::Sse),
                turn if turn < 6 => (Via::Https1, Form::Ndjson),
                _ => (Via::Http2, Form::WebSocket),
            };
            readers.push((via, form, Reader::open(&gateway, via, form, "v/#", None)?));
        }
    }
    writers.stream.write_all(&[0xc0, 0])?;
    while writers.read()?.0 != 0xd0 {}
    post(http, "/topics/v/end", "end")?;
    let mut kept = BTreeMap::new();
    for number in 0..TOPICS {
        let topic = format!("v/{number:05}");
        let request = format!("GET /topics/{topic} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let answer = ask(http, &request)?;
        let (_, body) = answer.split_once("\r\n\r\n").context("no body")?;
        kept.insert(topic, body.to_owned());
    }
    let mut told = 0;
    for (via, form, mut reader) in readers {
        let mut held: BTreeMap<String, String> = BTreeMap::new();
        let (mut gaps, mut ended) = (0, false);
        // One that is told of a gap ends on the retained values, too.
        while !ended || held != kept {
            let event =
                reader.next(PATIENCE).with_context(|| format!("{via:?} {form:?}, {gaps} gaps: {:?}", held.keys()))?;
            let topic = text(&event, "topic").to_owned();
            gaps += u32::from(event.get("gap").is_some());
            ended |= topic == "v/end";
            if event.get("retain") == Some(&Value::Bool(true)) && topic != "v/end" {
                held.insert(topic, text(&event, "payload").to_owned());
            }
        }
        told += u32::from(gaps > 0);
    }
    drop(writers);
    gateway.settle()?;
    Ok(format!("10 readers, {told} told of a gap"))
}

/// Topics whose values are lost to readers that pause, and that nobody writes to afterwards.
pub(super) fn quiet() -> Result<String> {
    const QUIET: usize = 200;
    const FLOOD: usize = 20_000;
    let mut gateway = Gateway::start(&[GRACE])?;
    let mut readers = Vec::new();
    for (via, form) in [(Via::Http1, Form::Sse), (Via::Https1, Form::Ndjson), (Via::Http2, Form::WebSocket)] {
        readers.push((via, form, Reader::open(&gateway, via, form, "s/#", None)?));
    }
    let mut writer = mqtt::Connection::open(gateway.address("mqtt")?, mqtt::V4, "writer")?;
    let flood = mqtt::publish(mqtt::V4, b"s/hot", &[b'x'; 400], 0, true, 0).repeat(FLOOD);
    writer.stream.write_all(&flood)?;
    for number in 0..QUIET {
        writer.stream.write_all(&mqtt::publish(mqtt::V4, format!("s/{number}").as_bytes(), b"quiet", 0, true, 0))?;
    }
    writer.stream.write_all(&flood)?;
    writer.stream.write_all(&[0xc0, 0])?;
    while writer.read()?.0 != 0xd0 {}
    for (via, form, mut reader) in readers {
        let (mut seen, mut gaps) = (BTreeSet::new(), 0);
        while seen.len() < QUIET {
            let event =
                reader.next(PATIENCE).with_context(|| format!("{via:?} {form:?}: {} of {QUIET}", seen.len()))?;
            gaps += u32::from(event.get("gap").is_some());
            if text(&event, "payload") == "quiet" {
                seen.insert(text(&event, "topic").to_owned());
            }
        }
        ensure!(gaps > 0, "{via:?} {form:?}: nothing was lost");
    }
    drop(writer);
    gateway.settle()?;
    Ok(String::new())
}

pub(super) fn http3() -> Result<String> {
    let mut gateway = Gateway::start(&[GRACE])?;
    let url = format!("https://localhost:{}/", gateway.address("http3")?.port());
    for count in [1, 2, 97, 1_000, 5_000] {
        let prefix = format!("three{count}");
        retain(gateway.address("http")?, &prefix, count, "")?;
        let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN")?;
        let mut sub = Command::new("timeout");
        sub.args(["30", &binary, "sub", &format!("{url}{prefix}/%23"), "--http", "3", "--json", "--ca"]);
        let output = sub.arg(gateway.ca()).args(["--count", &count.to_string()]).output()?;
        let lines = String::from_utf8_lossy(&output.stdout).lines().count();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success() && lines == count, "{lines} of {count}: {} {error}", output.status);
    }
    // The client leaves without a word: its streams end when QUIC gives it up.
    gateway.check_alive()?;
    Ok("1 to 5000 messages".to_owned())
}

/// The write deadline holds for what waits in TLS as well as for what waits in the socket.
pub(super) fn stalled() -> Result<String> {
    let mut gateway = Gateway::start(&[GRACE, "http.write_timeout=1s"])?;
    let http = gateway.address("http")?;
    let body = "x".repeat(250_000);
    let mut stalled = Vec::new();
    for via in [Via::Http1, Via::Https1] {
        for form in FORMS {
            stalled.push(Reader::open(&gateway, via, form, "stall", None)?);
        }
    }
    let expected = stalled.len();
    let deadline = Instant::now() + PATIENCE;
    // More than the buffers of both sockets hold, for each: all streams together have a bound, above which one that
    // holds much is sent less than others.
    while gateway.sum(&["fogmux_door_timed_out_total{door=\"http\"}"])? < expected as u64 {
        ensure!(Instant::now() < deadline, "not all readers are cut");
        for _ in 0..20 {
            post(http, "/topics/stall", &body)?;
        }
    }
    drop(stalled);
    gateway.settle()?;
    Ok(format!("{expected} readers that take nothing"))
}

pub(super) fn memory() -> Result<String> {
    const STREAMS: u64 = 400;
    let mut gateway = Gateway::start(&[GRACE, "limits.per_address_max=1000"])?;
    let http = gateway.address("http")?;
    // One-time allocations are made before the first measurement.
    let mut warm = Vec::new();
    for _ in 0..100 {
        warm.push(idle(http)?);
    }
    drop(warm);
    gateway.wait_metric("fogmux_http_event_streams", PATIENCE, |count| count == 0.0)?;
    let before = gateway.resident_bytes()?;
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        streams.push(idle(http)?);
    }
    let each = gateway.resident_bytes()?.saturating_sub(before) / STREAMS;
    // Measured: 2.4 KiB with little optimisation.
    ensure!(each <= 3_584, "{each} bytes for each idle stream");
    drop(streams);
    gateway.wait_metric("fogmux_http_event_streams", PATIENCE, |count| count == 0.0)?;
    gateway.settle()?;
    let after = gateway.resident_bytes()?;
    ensure!(after <= before + RESIDENT_SLACK, "{after} bytes resident after, {before} before");
    Ok(format!("{each} bytes each, {} kB more when they have gone", after.saturating_sub(before) / 1000))
}

fn idle(http: std::net::SocketAddr) -> Result<std::net::TcpStream> {
    use std::io::Read as _;
    let mut stream = tcp::connect(http)?;
    stream.write_all(b"GET /subscribe?filter=idle HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")?;
    // The preamble comes with the stream itself.
    let mut seen: Vec<u8> = Vec::new();
    while !seen.windows(5).any(|window| window == b"retry") {
        let mut buffer = [0; 1024];
        let count = stream.read(&mut buffer)?;
        ensure!(count > 0, "closed");
        seen.extend(buffer.iter().take(count));
    }
    Ok(stream)
}
