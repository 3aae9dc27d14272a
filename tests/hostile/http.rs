//! HTTP: floods of HTTP/2 frames, bodies and headers without end, frames of WebSocket that lie.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::http2::{self, CONTINUATION, END_HEADERS, END_STREAM, HEADERS, PING, RST_STREAM, SETTINGS};
use fogmux_tests::suite::Case;
use fogmux_tests::tcp;

use crate::attack;

pub(crate) const CASES: &[Case] = &[
    Case { name: "http h2 rapid reset", run: || attack(rapid_reset) },
    Case { name: "http h2 CONTINUATION flood", run: || attack(continuation_flood) },
    Case { name: "http h2 PING and SETTINGS flood", run: || attack(control_flood) },
    Case { name: "http headers without end", run: || attack(endless_headers) },
    Case { name: "http bodies too large", run: || attack(large_bodies) },
    Case { name: "http requests never read", run: || attack(unread) },
    Case { name: "http half bodies", run: || attack(half_bodies) },
    Case { name: "http event streams never read", run: || attack(deaf_streams) },
    Case { name: "http WebSocket frames that lie", run: || attack(websocket_lies) },
];

const SOON: Duration = Duration::from_secs(5);

fn rapid_reset(gateway: &Gateway) -> Result<String> {
    let block = http2::get("/healthz");
    let mut connections = 0;
    let mut resets = 0u32;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(5) {
        let mut stream = http2::connect(gateway.address("http")?)?;
        connections += 1;
        for id in (1..20_001u32).step_by(2) {
            let mut both = http2::frame(HEADERS, END_HEADERS | END_STREAM, id, &block);
            both.extend(http2::frame(RST_STREAM, 0, id, &8u32.to_be_bytes()));
            if !tcp::pour(&mut stream, &both)? {
                break;
            }
            resets += 1;
        }
    }
    Ok(format!("{resets} resets on {connections} connections"))
}

fn continuation_flood(gateway: &Gateway) -> Result<String> {
    let mut stream = http2::connect(gateway.address("http")?)?;
    let mut sent = 0usize;
    let mut open = tcp::pour(&mut stream, &http2::frame(HEADERS, END_STREAM, 1, &http2::get("/")))?;
    // A literal field without indexing, again and again: `x: yyyy…`.
    let mut block = vec![0x00, 1, b'x', 0x7f, 0x81, 0x7e];
    block.extend(std::iter::repeat_n(b'y', 16_000));
    while open && sent < 60_000_000 {
        open = tcp::pour(&mut stream, &http2::frame(CONTINUATION, 0, 1, &block))?;
        sent += block.len();
    }
    ensure!(!open, "60 MB of header block were swallowed");
    Ok(format!("closed after {} kB", sent / 1000))
}

fn control_flood(gateway: &Gateway) -> Result<String> {
    let mut frames = 0;
    for (kind, payload) in [(PING, vec![0; 8]), (SETTINGS, vec![0, 3, 0, 0, 0, 100])] {
        let mut stream = http2::connect(gateway.address("http")?)?;
        stream.set_write_timeout(Some(Duration::from_secs(2)))?;
        let batch = http2::frame(kind, 0, 0, &payload).repeat(1000);
        for _ in 0..200 {
            // The answers are never read: they must not pile up either.
            if !tcp::pour(&mut stream, &batch)? {
                break;
            }
            frames += 1000;
        }
    }
    Ok(format!("{frames} frames"))
}

fn endless_headers(gateway: &Gateway) -> Result<String> {
    let mut stream = tcp::connect(gateway.address("http")?)?;
    let mut open = tcp::pour(&mut stream, b"GET / HTTP/1.1\r\nHost: localhost\r\n")?;
    let line = format!("X-{}: {}\r\n", "n".repeat(100), "v".repeat(8000));
    let mut sent = 0;
    while open && sent < 20_000_000 {
        open = tcp::pour(&mut stream, line.as_bytes())?;
        sent += line.len();
    }
    ensure!(!open, "20 MB of headers were swallowed");
    // One line without an end, and a target of a megabyte.
    for start in ["GET /topics/", "GET / HTTP/1.1\r\nHost: "] {
        let mut stream = tcp::connect(gateway.address("http")?)?;
        tcp::pour(&mut stream, start.as_bytes())?;
        tcp::pour(&mut stream, &vec![b'a'; 1_000_000])?;
        let end = tcp::read_end(&mut stream, SOON)?;
        let status = String::from_utf8_lossy(end.bytes()).into_owned();
        ensure!(end.is_closed(), "held: {status}");
    }
    Ok(format!("closed after {} kB", sent / 1000))
}

fn large_bodies(gateway: &Gateway) -> Result<String> {
    let mut statuses = Vec::new();
    let chunk = format!("{:x}\r\n{}\r\n", 60_000, "c".repeat(60_000));
    for framing in ["Content-Length: 60000000", "Transfer-Encoding: chunked"] {
        let mut stream = tcp::connect(gateway.address("http")?)?;
        tcp::pour(
            &mut stream,
            format!("PUT /topics/large HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n\r\n").as_bytes(),
        )?;
        for _ in 0..1000 {
            if !tcp::pour(&mut stream, chunk.as_bytes())? {
                break;
            }
        }
        let end = tcp::read_end(&mut stream, SOON)?;
        let line = String::from_utf8_lossy(end.bytes()).lines().next().unwrap_or_default().to_owned();
        // A reset may overtake the answer (RFC 9112 §9.6); an answer has to be 413.
        ensure!(line.contains(" 413 ") || (line.is_empty() && end.is_closed()), "{framing}: {line:?}");
        statuses.push(if line.is_empty() { "reset".to_owned() } else { line });
    }
    let mut stream = tcp::connect(gateway.address("http")?)?;
    tcp::pour(
        &mut stream,
        b"PUT /topics/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\nx",
    )?;
    let end = tcp::read_end(&mut stream, SOON)?;
    let line = String::from_utf8_lossy(end.bytes()).lines().next().unwrap_or_default().to_owned();
    ensure!(line.contains(" 4") || (line.is_empty() && end.is_closed()), "a chunk of 2^64: {line:?}");
    Ok(statuses.join(", "))
}

fn unread(gateway: &Gateway) -> Result<String> {
    let mut stream = tcp::connect(gateway.address("http")?)?;
    let body = vec![b'k'; 100_000];
    let head = format!("PUT /topics/kept HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes())?;
    stream.write_all(&body)?;
    let mut first = [0; 12];
    stream.read_exact(&mut first)?;
    ensure!(first.starts_with(b"HTTP/1.1 20"), "PUT: {}", String::from_utf8_lossy(&first));
    let mut asked = 0;
    for _ in 0..20 {
        let mut stream = tcp::connect(gateway.address("http")?)?;
        stream.set_write_timeout(Some(Duration::from_millis(200)))?;
        let batch = "GET /topics/kept HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1000);
        for _ in 0..10 {
            if !tcp::pour(&mut stream, batch.as_bytes())? {
                break;
            }
            asked += 1000;
        }
    }
    Ok(format!("{asked} pipelined requests for 100 kB each"))
}

fn half_bodies(gateway: &Gateway) -> Result<String> {
    let mut held = Vec::new();
    for number in 0..600 {
        let mut stream = tcp::connect(gateway.address("http")?)?;
        stream.set_write_timeout(Some(Duration::from_millis(200)))?;
        let head = format!("PUT /topics/half/{number} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n");
        if tcp::pour(&mut stream, head.as_bytes())? {
            tcp::pour(&mut stream, &vec![b'h'; 500_000])?;
        }
        held.push(stream);
    }
    Ok(format!("{} × 500 kB held", held.len()))
}

fn deaf_streams(gateway: &Gateway) -> Result<String> {
    let mut held = Vec::new();
    for accept in ["text/event-stream", "application/x-ndjson"] {
        for _ in 0..50 {
            let mut stream = tcp::connect(gateway.address("http")?)?;
            let request =
                format!("GET /subscribe?filter=loud%2F%23 HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n");
            stream.write_all(request.as_bytes())?;
            let mut status = [0; 12];
            stream.read_exact(&mut status)?;
            ensure!(&status == b"HTTP/1.1 200", "{accept}: {}", String::from_utf8_lossy(&status));
            held.push(stream);
        }
    }
    let mut publisher = fogmux_tests::mqtt::Connection::open(gateway.address("mqtt")?, 4, "loud")?;
    let (payload, began, mut sent) = (vec![0xf0; 10_000], Instant::now(), 0);
    while sent < 5000 && began.elapsed() < Duration::from_secs(15) {
        publisher.publish("loud/speaker", &payload)?;
        sent += 1;
    }
    Ok(format!("{sent} messages of 10 kB towards {} deaf streams", held.len()))
}

fn websocket_lies(gateway: &Gateway) -> Result<String> {
    let upgrade = |path: &str, protocol: &str| {
        format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{protocol}\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
    };
    let mqtt = upgrade("/mqtt", "Sec-WebSocket-Protocol: mqtt\r\n");
    let follow = upgrade("/subscribe?filter=a", "");
    let lies: [(&str, &[u8]); 5] = [
        ("2^63 bytes", &[0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5]),
        ("no mask", &[0x82, 0x02, 0xc0, 0x00]),
        ("reserved bits", &[0xf2, 0x80, 0, 0, 0, 0]),
        ("unknown opcode", &[0x8b, 0x80, 0, 0, 0, 0]),
        ("a ping of 126 bytes", &[0x89, 0xfe, 0, 126, 0, 0, 0, 0]),
    ];
    for request in [&mqtt, &follow] {
        for (name, frame) in lies {
            let mut stream = tcp::connect(gateway.address("http")?)?;
            stream.write_all(request.as_bytes())?;
            let mut status = [0; 12];
            stream.read_exact(&mut status)?;
            ensure!(&status == b"HTTP/1.1 101", "upgrade: {}", String::from_utf8_lossy(&status));
            stream.write_all(frame)?;
            // RFC 6455 §5.1, §5.2, §5.5: each of them fails the connection.
            ensure!(tcp::read_end(&mut stream, SOON)?.is_closed(), "{name} is left unpunished");
        }
        let mut stream = tcp::connect(gateway.address("http")?)?;
        stream.write_all(request.as_bytes())?;
        // A message of empty-handed continuations without end, 60 MB of it.
        let fragment = [[0x02, 0xfe, 0xff, 0xff, 0, 0, 0, 0].as_slice(), &vec![b'w'; 65_535]].concat();
        let mut open = tcp::pour(&mut stream, &fragment)?;
        let mut sent = 0;
        let next = [[0x00, 0xfe, 0xff, 0xff, 0, 0, 0, 0].as_slice(), &vec![b'w'; 65_535]].concat();
        while open && sent < 1000 {
            open = tcp::pour(&mut stream, &next)?;
            sent += 1;
        }
        ensure!(!open, "60 MB of one message were swallowed");
    }
    Ok("12 lies".to_owned())
}
