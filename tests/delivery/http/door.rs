//! The door itself: who may ask from where, what is counted, and in which format it says so.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::{http2, mqtt, tcp, websocket};
use rustix::process::Signal;

use super::{ask, post};

const EVIL: &str = "http://evil.example:8080";
const EVIL_HOST: &str = "evil.example:8080";
/// Every route with its methods.
const ROUTES: [(&str, &str); 21] = [
    ("GET", "/"),
    ("GET", "/topics/a"),
    ("PUT", "/topics/a"),
    ("POST", "/topics/a"),
    ("DELETE", "/topics/a"),
    ("OPTIONS", "/topics/a"),
    ("GET", "/subscribe?filter=a"),
    ("POST", "/publish"),
    ("GET", "/mqtt"),
    ("GET", "/.well-known/coap"),
    ("GET", "/openapi.json"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/metrics"),
    ("GET", "/login"),
    ("POST", "/logout"),
    ("GET", "/api/v1/status"),
    ("GET", "/api/v1/topics"),
    ("DELETE", "/api/v1/clients/1"),
    ("POST", "/api/v1/rules/test"),
    ("GET", "/dashboard/app.js"),
];
const SOCKETS: [(&str, &str); 3] = [("/mqtt", "mqtt"), ("/.well-known/coap", "coap"), ("/subscribe?filter=a", "")];

fn handshake(path: &str, protocol: &str, host: &str, origin: &str) -> String {
    let protocol = if protocol.is_empty() { String::new() } else { format!("Sec-WebSocket-Protocol: {protocol}\r\n") };
    format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\n{origin}Connection: upgrade\r\nUpgrade: websocket\r\n{protocol}\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
}

/// The first line of the answer, whatever becomes of the connection.
fn status(gateway: &Gateway, request: &str) -> Result<String> {
    let mut stream = tcp::connect(gateway.address("http")?)?;
    stream.write_all(request.as_bytes())?;
    let mut line = Vec::new();
    let mut byte = [0];
    while !line.ends_with(b"\r\n") && stream.read(&mut byte)? > 0 {
        line.extend(byte);
    }
    Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
}

pub(super) fn foreign_host() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let mut asked = 0;
    let mut wrong = Vec::new();
    for (method, path) in ROUTES {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {EVIL_HOST}\r\nOrigin: {EVIL}\r\nContent-Length: 0\r\n\
             Connection: close\r\n\r\n"
        );
        let line = status(&gateway, &request)?;
        asked += 1;
        if !line.contains(" 421 ") {
            wrong.push(format!("{method} {path}: {line}"));
        }
    }
    for (path, protocol) in SOCKETS {
        for origin in [String::new(), format!("Origin: {EVIL}\r\n")] {
            let line = status(&gateway, &handshake(path, protocol, EVIL_HOST, &origin))?;
            asked += 1;
            if !line.contains(" 421 ") {
                wrong.push(format!("a WebSocket at {path}: {line}"));
            }
        }
        let line = status(&gateway, &handshake(path, protocol, "localhost", &format!("Origin: {EVIL}\r\n")))?;
        ensure!(line.contains(" 403 "), "a WebSocket of another origin at {path}: {line}");
        let line = status(&gateway, &handshake(path, protocol, "localhost", ""))?;
        ensure!(line.contains(" 101 "), "a WebSocket of a client at {path}: {line}");
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    // A health check that is no page's may name any host.
    let line = status(&gateway, "GET /healthz HTTP/1.1\r\nHost: fog.example\r\nConnection: close\r\n\r\n")?;
    ensure!(line.contains(" 200 "), "{line}");
    gateway.check_alive()?;
    Ok(format!("{asked} requests"))
}

pub(super) fn foreign_host_2() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let mut asked = 0;
    let mut wrong = Vec::new();
    let plain = ROUTES.iter().map(|(method, path)| (*method, *path, None));
    let tunnels = SOCKETS.iter().map(|(path, protocol)| ("CONNECT", *path, Some(*protocol)));
    for (method, path, tunnel) in plain.chain(tunnels) {
        let mut fields = vec![(":method", method), (":scheme", "http"), (":path", path), (":authority", EVIL_HOST)];
        if let Some(protocol) = tunnel {
            fields.insert(1, (":protocol", "websocket"));
            fields.push(("sec-websocket-version", "13"));
            if !protocol.is_empty() {
                fields.push(("sec-websocket-protocol", protocol));
            }
        }
        fields.push(("origin", EVIL));
        let block: Vec<u8> = fields.iter().flat_map(|(name, value)| http2::literal(name, value)).collect();
        let end = if tunnel.is_some() { 0 } else { http2::END_STREAM };
        let mut stream = http2::connect(gateway.address("http")?)?;
        stream.write_all(&http2::frame(http2::HEADERS, http2::END_HEADERS | end, 1, &block))?;
        let mut raw = Vec::new();
        let answer = loop {
            match http2::take_frame(&mut raw) {
                Some((http2::HEADERS, _, 1, block)) => break block,
                Some((http2::RST_STREAM | http2::GOAWAY, _, _, payload)) => break payload,
                Some(_) => {}
                None => {
                    let mut buffer = [0; 4096];
                    let count = stream.read(&mut buffer)?;
                    ensure!(count > 0, "{method} {path}: closed");
                    raw.extend(buffer.iter().take(count));
                }
            }
        };
        asked += 1;
        // `:status` by name from the static table, and 421 in Huffman's code (RFC 7541 §6.2.1, appendices A and B).
        if !answer.starts_with(&[0x48, 0x82, 0x68, 0x41]) {
            wrong.push(format!("{method} {path}: {:02x?}", answer.get(..4)));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    gateway.check_alive()?;
    Ok(format!("{asked} requests"))
}

fn header<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    let head = answer.split("\r\n\r\n").next()?;
    head.lines()
        .filter_map(|line| line.split_once(": "))
        .find(|(found, _)| found.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
}

pub(super) fn cors() -> Result<String> {
    const PANEL: &str = "https://panel.example";
    let mut gateway = Gateway::start(&[&format!("http.origins=[\"{PANEL}\"]")])?;
    let http = gateway.address("http")?;
    post(http, "/topics/c?retain=true", "value")?;
    let request = |method: &str, path: &str, origin: &str, more: &str| {
        ask(
            http,
            &format!(
                "{method} {path} HTTP/1.1\r\nHost: localhost\r\nOrigin: {origin}\r\n{more}Connection: close\r\n\r\n"
            ),
        )
    };
    let simple = [
        ("GET", "/topics/c", 200),
        ("GET", "/topics/none", 404),
        ("GET", "/topics/c?wait=0", 200),
        ("PUT", "/topics/d", 201),
        ("POST", "/topics/d", 202),
        ("DELETE", "/topics/d", 204),
        ("GET", "/metrics", 200),
        ("GET", "/topics/%ff", 400),
    ];
    for (method, path, code) in simple {
        let answer = request(method, path, PANEL, "Content-Length: 0\r\n")?;
        ensure!(answer.starts_with(&format!("HTTP/1.1 {code}")), "{method} {path}: {answer}");
        ensure!(header(&answer, "access-control-allow-origin") == Some(PANEL), "{method} {path}: {answer}");
        ensure!(header(&answer, "access-control-allow-credentials") == Some("true"), "{method} {path}: {answer}");
        let exposed = header(&answer, "access-control-expose-headers").unwrap_or_default();
        ensure!(exposed.split(", ").any(|name| name == "etag"), "{method} {path}: {answer}");
        ensure!(
            answer.to_ascii_lowercase().lines().any(|line| line.starts_with("vary:") && line.contains("origin")),
            "{answer}"
        );
    }
    for (path, methods) in
        [("/topics/c", ["GET", "PUT", "POST", "DELETE"].as_slice()), ("/publish", &["POST"]), ("/subscribe", &["GET"])]
    {
        for method in methods {
            let asked = format!(
                "Access-Control-Request-Method: {method}\r\nAccess-Control-Request-Headers: authorization,content-type\r\n"
            );
            let answer = request("OPTIONS", path, PANEL, &asked)?;
            ensure!(answer.starts_with("HTTP/1.1 204"), "{answer}");
            ensure!(header(&answer, "access-control-allow-origin") == Some(PANEL), "{answer}");
            let allowed = header(&answer, "access-control-allow-methods").unwrap_or_default();
            ensure!(allowed.split(", ").any(|allowed| allowed == *method), "{path} {method}: {answer}");
            let allowed = header(&answer, "access-control-allow-headers").unwrap_or_default();
            ensure!(allowed.contains("authorization") && allowed.contains("content-type"), "{answer}");
        }
    }
    for origin in
        ["https://other.example", "null", "https://panel.example.evil", "https://PANEL.example", "http://panel.example"]
    {
        for (method, more) in
            [("GET", ""), ("OPTIONS", "Access-Control-Request-Method: PUT\r\n"), ("PUT", "Content-Length: 0\r\n")]
        {
            let answer = request(method, "/topics/c", origin, more)?;
            ensure!(!answer.to_ascii_lowercase().contains("access-control-"), "{method} from {origin}: {answer}");
            ensure!(method != "PUT" || answer.starts_with("HTTP/1.1 403"), "{method} from {origin}: {answer}");
        }
    }
    gateway.check_alive()?;
    Ok("simple requests, preflights, strangers".to_owned())
}

pub(super) fn metrics() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let http = gateway.address("http")?;
    let get = |accept: &str| {
        ask(http, &format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\n{accept}Connection: close\r\n\r\n"))
    };
    let text = "text/plain; version=0.0.4; charset=utf-8";
    let openmetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let prometheus =
        "Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2\r\n";
    for (accept, expected) in [
        ("", text),
        ("Accept: */*\r\n", text),
        ("Accept: text/plain;version=0.0.4\r\n", text),
        ("Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n", text),
        ("Accept: application/openmetrics-text;version=1.0.0\r\n", openmetrics),
        (prometheus, openmetrics),
    ] {
        let answer = get(accept)?;
        ensure!(header(&answer, "content-type") == Some(expected), "{accept:?}: {:?}", header(&answer, "content-type"));
        let (_, body) = answer.split_once("\r\n\r\n").context("no body")?;
        ensure!(body.ends_with("# EOF\n") == (expected == openmetrics), "the end in {expected}");
        check_families(body, expected == openmetrics)?;
    }
    gateway.check_alive()?;
    Ok("six ways to ask".to_owned())
}

/// The checks of `promtool check metrics`: every sample belongs to a family with a help text and a type, and counters,
/// and only they, end in `_total`.
fn check_families(body: &str, openmetrics: bool) -> Result<()> {
    let described =
        |keyword: &str, name: &str| body.lines().any(|line| line.starts_with(&format!("# {keyword} {name} ")));
    for line in body.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        let family = if openmetrics { name.strip_suffix("_total").unwrap_or(name) } else { name };
        let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| family.strip_suffix(suffix));
        let family = of_histogram.filter(|stem| described("TYPE", stem)).unwrap_or(family);
        ensure!(described("HELP", family) && described("TYPE", family), "{name} is not described");
        let counter = body.lines().any(|line| line == format!("# TYPE {family} counter"));
        ensure!(counter == name.ends_with("_total"), "{name}");
        let unit = described("UNIT", family);
        let has_unit = ["_bytes", "_seconds"].iter().any(|unit| family.ends_with(unit));
        ensure!(unit == (openmetrics && has_unit), "the unit of {family}");
    }
    Ok(())
}

pub(super) fn cleared() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let http = gateway.address("http")?;
    post(http, "/topics/l?retain=true", "value")?;
    let answer = ask(http, "GET /topics/l HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let tag = header(&answer, "etag").context("no ETag")?.to_owned();
    let poll = |tag: &str| -> Result<std::net::TcpStream> {
        let mut poll = tcp::connect(http)?;
        let request = format!(
            "GET /topics/l?wait=10 HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: {tag}\r\nConnection: close\r\n\r\n"
        );
        poll.write_all(request.as_bytes())?;
        gateway.wait_metric("fogmux_bus_subscriptions", Duration::from_secs(10), |count| count == 1.0)?;
        Ok(poll)
    };
    let mut waiting = poll(&tag)?;
    ask(http, "DELETE /topics/l HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    waiting.read_to_string(&mut answer)?;
    ensure!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    gateway.settle()?;
    Ok(String::new())
}

pub(super) fn mqtt_inside() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let mut plain = mqtt::Connection::open(gateway.address("mqtt")?, mqtt::V4, "heir")?;
    plain.subscribe(1, &["will/#"], 0)?;
    let mut tunnels = Vec::new();
    for number in 0..20 {
        let mut stream = tcp::connect(gateway.address("http")?)?;
        stream.write_all(handshake("/mqtt", "mqtt", "localhost", "").as_bytes())?;
        let mut body = mqtt::string(b"MQTT");
        // A will with QoS 1, and a clean session.
        body.extend([mqtt::V4, 0x0e, 0, 60]);
        for text in [format!("inside{number}"), format!("will/{number}"), "gone".to_owned()] {
            body.extend(mqtt::string(text.as_bytes()));
        }
        stream.write_all(&websocket::frame(websocket::BINARY, &mqtt::packet(0x10, &body)))?;
        tunnels.push(stream);
    }
    let connections = "fogmux_door_connections{door=\"mqtt\"}";
    let counted = gateway.wait_metric(connections, Duration::from_secs(5), |count| count == 21.0);
    counted.context("twenty connections inside WebSockets and one outside")?;
    gateway.signal(Signal::TERM)?;
    let mut wills = 0;
    while wills < 20 {
        let (first, _) = plain.read().with_context(|| format!("{wills} of 20 wills"))?;
        wills += i32::from(first & 0xf0 == 0x30);
    }
    gateway.wait_exit(Duration::from_secs(20))?;
    Ok(format!("{wills} wills"))
}

pub(super) fn slow_answer() -> Result<String> {
    const BYTES: usize = 8 << 20;
    let settings = ["http.payload_bytes_max=9MiB", "mqtt.packet_bytes_max=10MiB", "http.idle_timeout=1s"];
    let gateway = Gateway::start(&settings)?;
    let mut request =
        format!("PUT /topics/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: {BYTES}\r\n\r\n").into_bytes();
    request.resize(request.len() + BYTES, b'x');
    let mut stream = tcp::connect(gateway.address("http")?)?;
    stream.write_all(&request)?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer)?;
    ensure!(answer.starts_with(b"HTTP/1.1 201"), "{}", String::from_utf8_lossy(&answer));
    let mut slow = tcp::connect_narrow(gateway.address("http")?, 16 << 10)?;
    slow.write_all(b"GET /topics/a HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    // Longer than an idle connection has.
    std::thread::sleep(Duration::from_millis(3500));
    let (mut came, mut step) = (0, vec![0; 256 << 10]);
    while came < BYTES {
        let read = slow.read(&mut step).with_context(|| format!("after {came} bytes"))?;
        ensure!(read > 0, "the end after {came} bytes");
        came += read;
    }
    Ok(String::new())
}
