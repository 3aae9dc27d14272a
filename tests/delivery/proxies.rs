//! Proxies in front of the listeners: whom a connection or request belongs to, and that it is never taken for local.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, V4};
use fogmux_tests::suite::Case;
use fogmux_tests::{tcp, users};

pub(crate) const CASES: &[Case] = &[
    Case { name: "proxies: a request that came through an unnamed proxy is not local", run: unnamed },
    Case { name: "proxies: a WebSocket that came through an unnamed proxy is not local", run: unnamed_socket },
    Case { name: "proxies: requests of a named proxy are those of its clients", run: named },
    Case { name: "proxies: guesses through a named proxy delay their client only", run: back_off },
    Case { name: "proxies: the PROXY protocol names clients on every listener", run: protocol },
    Case { name: "proxies: limits per address hold behind the PROXY protocol", run: per_address },
    Case { name: "proxies: malformed headers of the PROXY protocol end their connection", run: malformed },
    Case { name: "proxies: nginx in front of the default listener", run: nginx },
];

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// A client elsewhere.
const CLIENT: &str = "203.0.113.9";

fn unnamed() -> Result<String> {
    let gateway = Gateway::start_furnished(&[], &[("users.toml", &users::file(&["dev"]))])?;
    let http = gateway.address("http")?;
    let put = |headers: &str| users::http_with(http, headers, "PUT", "/topics/t", b"x");
    ensure!(matches!(put("")?, 201 | 204), "a local client was refused");
    for header in [
        "X-Forwarded-For: 203.0.113.9\r\n",
        "x-forwarded-for: 127.0.0.1\r\n",
        "Forwarded: for=203.0.113.9\r\n",
        "Forwarded: for=127.0.0.1\r\n",
        "Via: 1.1 cache\r\n",
    ] {
        let status = put(header)?;
        ensure!(status == 401, "an anonymous PUT with {header:?} is answered {status}");
        let status = put(&format!("{header}{}", users::authorization("dev")))?;
        ensure!(matches!(status, 201 | 204), "a user's PUT with {header:?} is answered {status}");
        let status = users::http_with(http, header, "GET", "/subscribe?filter=t", b"")?;
        ensure!(status == 401, "an anonymous subscription with {header:?} is answered {status}");
    }
    // As nginx asks without any configuration.
    let answer = tcp::ask(
        http,
        format!("PUT /topics/t HTTP/1.0\r\nHost: {http}\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx").as_bytes(),
    )?;
    ensure!(
        answer.starts_with(b"HTTP/1.0 401") || answer.starts_with(b"HTTP/1.1 401"),
        "nginx's PUT is answered {}",
        { String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned() }
    );
    // Requests on one connection are judged each by its own fields.
    let mut stream = tcp::connect(http)?;
    for (header, expected) in [("", "HTTP/1.1 20"), ("Via: 1.1 x\r\n", "HTTP/1.1 401"), ("", "HTTP/1.1 20")] {
        write!(stream, "PUT /topics/t HTTP/1.1\r\nHost: {http}\r\n{header}Content-Length: 1\r\n\r\nx")?;
        let head = head(&mut stream)?;
        ensure!(head.starts_with(expected), "{header:?} on one connection: {head}");
        skip_body(&mut stream, &head)?;
    }
    Ok(String::new())
}

/// The head of a response.
fn head(stream: &mut TcpStream) -> Result<String> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        bytes.extend(byte);
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn skip_body(stream: &mut TcpStream, head: &str) -> Result<()> {
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    stream.read_exact(&mut vec![0; length.unwrap_or(0)])?;
    Ok(())
}

/// Opens MQTT over WebSocket and logs in without credentials; the reason code.
fn socket(gateway: &Gateway, headers: &str) -> Result<u8> {
    let mut stream = tcp::connect(gateway.address("http")?)?;
    write!(
        stream,
        "GET /mqtt HTTP/1.1\r\nHost: localhost\r\n{headers}Connection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
    )?;
    let head = head(&mut stream)?;
    ensure!(head.starts_with("HTTP/1.1 101"), "{head}");
    let connect = mqtt::connect(V4, "socket");
    // One masked binary frame; the mask is zero.
    let length = u8::try_from(connect.len())?;
    stream.write_all(&[&[0x82, 0x80 | length, 0, 0, 0, 0], &connect[..]].concat())?;
    let mut answer = [0; 6];
    stream.read_exact(&mut answer)?;
    ensure!(answer.get(2) == Some(&0x20), "{answer:02x?} instead of CONNACK");
    Ok(answer.last().copied().unwrap_or_default())
}

fn unnamed_socket() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    ensure!(socket(&gateway, "")? == 0, "a local client was refused");
    for header in ["X-Forwarded-For: 203.0.113.9\r\n", "Forwarded: for=203.0.113.9\r\n", "Via: 1.1 cache\r\n"] {
        let reason = socket(&gateway, header)?;
        ensure!(reason == 5, "an anonymous CONNECT with {header:?} is answered {reason}");
    }
    Ok(String::new())
}

fn named() -> Result<String> {
    let users = users::file(&["dev"]);
    for (setting, field) in
        [("x-forwarded-for", "X-Forwarded-For: 203.0.113.9"), ("forwarded", "Forwarded: for=203.0.113.9;proto=https")]
    {
        let settings = ["proxy.addresses=[\"127.0.0.1\"]", &format!("proxy.header={setting}")];
        let gateway = Gateway::start_furnished(&settings, &[("users.toml", &users)])?;
        let http = gateway.address("http")?;
        let put = |headers: &str| users::http_with(http, headers, "PUT", "/topics/t", b"x");
        for headers in ["", &format!("{field}\r\n"), "Via: 1.1 x\r\n"] {
            ensure!(put(headers)? == 401, "an anonymous PUT through a named proxy with {headers:?}");
        }
        // Passwords are taken: the way from the proxy is on this machine.
        let status = put(&format!("{field}\r\n{}", users::authorization("dev")))?;
        ensure!(matches!(status, 201 | 204), "a user's PUT is answered {status}");
    }
    Ok(String::new())
}

fn back_off() -> Result<String> {
    let settings = ["proxy.addresses=[\"127.0.0.1\"]", "auth.backoff.free_failures=2", "auth.backoff.first=5s"];
    let gateway = Gateway::start_furnished(&settings, &[("users.toml", &users::file(&["dev"]))])?;
    let http = gateway.address("http")?;
    let guess = |address: &str, name: &str| {
        let wrong = users::basic(name, "wrong");
        users::http_with(http, &format!("X-Forwarded-For: {address}\r\n{wrong}"), "GET", "/topics/t", b"")
    };
    let mut answers = Vec::new();
    for number in 0..8 {
        // The client's own fields precede the proxy's.
        answers.push(guess(&format!("198.51.100.{number}, {CLIENT}"), &format!("nobody{number}"))?);
    }
    ensure!(answers.contains(&429), "guesses from one address are answered {answers:?}");
    // Another address of the same proxy is not delayed.
    let own = format!("X-Forwarded-For: 203.0.113.77\r\n{}", users::authorization("dev"));
    let status = users::http_with(http, &own, "GET", "/topics/t", b"")?;
    ensure!(status == 404, "another client is answered {status}");
    Ok(format!("{answers:?}"))
}

/// A header of version 2 for TCP over IPv4, with a TLV.
fn version_2(command: u8, family: u8, rest: &[u8]) -> Result<Vec<u8>> {
    let length = u16::try_from(rest.len())?.to_be_bytes();
    Ok([SIGNATURE, &[0x20 | command, family], &length, rest].concat())
}

const ADDRESSES: [u8; 12] = [203, 0, 113, 9, 127, 0, 0, 1, 0x12, 0x34, 7, 0x5b];

/// The reason code of an anonymous CONNECT behind these bytes; `None` when the connection ends.
fn login_behind(gateway: &Gateway, listener: &str, header: &[u8]) -> Result<Option<u8>> {
    let mut stream = tcp::connect(gateway.address(listener)?)?;
    // It may be closed already.
    let _ = stream.write_all(&[header, &mqtt::connect(V4, "proxied")].concat());
    let mut connack = [0; 4];
    match stream.read_exact(&mut connack) {
        Ok(()) => Ok(connack.last().copied()),
        Err(error) if tcp::is_end(error.kind()) => Ok(None),
        Err(error) => Err(error).context("neither CONNACK nor an end"),
    }
}

const NAMED: &str = "proxy.addresses=[\"127.0.0.1\"]";

fn protocol() -> Result<String> {
    let settings = [
        NAMED,
        "listeners.mqtt.proxy_protocol=true",
        "listeners.xmpp.proxy_protocol=true",
        "listeners.coap_tcp.proxy_protocol=true",
    ];
    let gateway = Gateway::start(&settings)?;
    let line = format!("PROXY TCP4 {CLIENT} 127.0.0.1 4711 1883\r\n");
    let tlv = [&ADDRESSES[..], &[4, 0, 1, 0]].concat();
    let six = [&[0x20, 1, 0xd, 0xb8][..], &[0; 28], &[0x12, 0x34, 7, 0x5b]].concat();
    let remote: [(&str, Vec<u8>); 6] = [
        ("version 1", line.clone().into_bytes()),
        ("version 1, unknown", b"PROXY UNKNOWN\r\n".to_vec()),
        ("version 2", version_2(1, 0x11, &ADDRESSES)?),
        ("version 2 with a TLV", version_2(1, 0x11, &tlv)?),
        ("version 2 over IPv6", version_2(1, 0x21, &six)?),
        ("version 2, no address", version_2(1, 0x00, &[])?),
    ];
    for (what, header) in remote {
        let reason = login_behind(&gateway, "mqtt", &header)?;
        ensure!(reason == Some(5), "{what}: an anonymous client elsewhere gets {reason:?}");
    }
    // LOCAL: the proxy itself, which is on this machine.
    let reason = login_behind(&gateway, "mqtt", &version_2(0, 0x00, &[])?)?;
    ensure!(reason == Some(0), "the proxy itself gets {reason:?}");
    // In pieces, each of one byte.
    let mut stream = tcp::connect(gateway.address("mqtt")?)?;
    stream.set_nodelay(true)?;
    for byte in [line.as_bytes(), &mqtt::connect(V4, "slow")].concat() {
        stream.write_all(&[byte])?;
    }
    let mut connack = [0; 4];
    stream.read_exact(&mut connack)?;
    ensure!(connack == [0x20, 2, 0, 5], "{connack:?}");
    // The other doors: what follows the header is the protocol.
    let mut xmpp = tcp::connect(gateway.address("xmpp")?)?;
    write!(
        xmpp,
        "{line}<?xml version='1.0'?><stream:stream to='localhost' xmlns='jabber:client' \
        xmlns:stream='http://etherx.jabber.org/streams' version='1.0'>"
    )?;
    let mut start = [0; 5];
    xmpp.read_exact(&mut start).context("XMPP")?;
    ensure!(&start == b"<?xml", "{start:?}");
    let mut coap = tcp::connect(gateway.address("coap_tcp")?)?;
    coap.write_all(line.as_bytes())?;
    // RFC 8323 §5.3: a CSM comes first.
    let mut start = [0; 2];
    coap.read_exact(&mut start).context("CoAP")?;
    ensure!(start.last() == Some(&0xe1), "{start:02x?} instead of a CSM");
    Ok(String::new())
}

fn per_address() -> Result<String> {
    let gateway = Gateway::start_furnished(
        &[NAMED, "listeners.mqtt.proxy_protocol=true", "limits.per_address_max=5"],
        &[("users.toml", &users::file(&["dev"]))],
    )?;
    let open = |client: &str| -> Result<(TcpStream, bool)> {
        let mut stream = tcp::connect(gateway.address("mqtt")?)?;
        let _ = write!(stream, "PROXY TCP4 {client} 127.0.0.1 1 1883\r\n");
        stream.write_all(&users::connect_3("dev", client))?;
        let mut connack = [0; 4];
        let taken = stream.read_exact(&mut connack).is_ok();
        ensure!(!taken || connack == [0x20, 2, 0, 0], "{connack:?}");
        Ok((stream, taken))
    };
    let mut held = Vec::new();
    for number in 0..8 {
        let (stream, taken) = open(CLIENT)?;
        ensure!(taken == (number < 5), "connection {number} of 5: {taken}");
        held.push(stream);
    }
    let (_, taken) = open("203.0.113.10")?;
    ensure!(taken, "another address behind the same proxy was refused");
    drop(held);
    let deadline = Instant::now() + tcp::PATIENCE;
    while !open(CLIENT)?.1 {
        ensure!(Instant::now() < deadline, "places that were given back cannot be had again");
    }
    Ok(String::new())
}

fn malformed() -> Result<String> {
    let mut gateway = Gateway::start(&[NAMED, "listeners.mqtt.proxy_protocol=true", "proxy.timeout=1s"])?;
    let long = format!("PROXY TCP4 {CLIENT} 127.0.0.1 {} 1883\r\n", "1".repeat(200));
    let wrong: Vec<(&str, Vec<u8>)> = vec![
        ("none", Vec::new()),
        ("version 1 too long", long.into_bytes()),
        ("version 1 without CR", format!("PROXY TCP4 {CLIENT} 127.0.0.1 1 1883\n").into_bytes()),
        ("version 1 with another family", format!("PROXY TCP5 {CLIENT} 127.0.0.1 1 1883\r\n").into_bytes()),
        ("version 1 with a port too many", format!("PROXY TCP4 {CLIENT} 127.0.0.1 1 1883 7\r\n").into_bytes()),
        ("version 1 that is not UTF-8", b"PROXY TCP4 \xff\xff 127.0.0.1 1 1883\r\n".to_vec()),
        ("version 2 cut short", version_2(1, 0x11, ADDRESSES.get(..11).unwrap_or_default())?),
        ("version 2 with another command", version_2(2, 0x11, &ADDRESSES)?),
        ("version 2 with another family", version_2(1, 0x51, &ADDRESSES)?),
        ("version 2 too long", version_2(1, 0x11, &[0; 20_000])?),
        ("version 3", [SIGNATURE, &[0x31, 0x11, 0, 12], &ADDRESSES].concat()),
    ];
    for (what, header) in &wrong {
        let reason = login_behind(&gateway, "mqtt", header)?;
        ensure!(reason.is_none(), "{what}: CONNACK {reason:?}");
    }
    // One that never completes has a deadline.
    for part in [&b""[..], b"PROXY TCP4", SIGNATURE, b"\r\n\r\n\0"] {
        let mut stream = tcp::connect(gateway.address("mqtt")?)?;
        let began = Instant::now();
        stream.write_all(part)?;
        ensure!(tcp::read_end(&mut stream, Duration::from_secs(20))?.is_closed(), "{part:?} is waited for");
        ensure!(began.elapsed() >= Duration::from_millis(900), "{part:?}: closed after {:?}", began.elapsed());
    }
    gateway.check_alive()?;
    // Connections of other addresses than the named proxies' are closed.
    let gateway = Gateway::start(&["proxy.addresses=[\"192.0.2.1\"]", "listeners.mqtt.proxy_protocol=true"])?;
    let reason = login_behind(&gateway, "mqtt", &version_2(1, 0x11, &ADDRESSES)?)?;
    ensure!(reason.is_none(), "somebody who is no named proxy got CONNACK {reason:?}");
    Ok(format!("{} headers", wrong.len()))
}

/// nginx in a directory of its own; dropped, it is killed.
struct Nginx {
    child: Child,
    address: SocketAddr,
    _home: tempfile::TempDir,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

impl Nginx {
    /// Starts it with lines for the location that it passes on to `upstream`.
    fn start(upstream: SocketAddr, lines: &str) -> Result<Self> {
        let home = tempfile::tempdir()?;
        // Free until somebody takes it: nginx opens it a moment later.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let temporary: String = temporary.map(|name| format!("{name}_temp_path {name};")).concat();
        let text = format!(
            "daemon off; master_process off; pid nginx.pid; error_log stderr; events {{}}\n\
             http {{ access_log off; {temporary} server {{ listen {address}; location / {{\n\
             proxy_pass http://{upstream}; {lines} }} }} }}\n"
        );
        std::fs::write(home.path().join("nginx.conf"), text)?;
        let log = std::fs::File::create(home.path().join("log"))?;
        let mut command = Command::new("nginx");
        command.arg("-p").arg(home.path()).args(["-c", "nginx.conf"]).stdout(Stdio::null()).stderr(log);
        let mut nginx = Self { child: command.spawn().context("nginx")?, address, _home: home };
        let deadline = Instant::now() + tcp::PATIENCE;
        while TcpStream::connect(address).is_err() {
            ensure!(nginx.child.try_wait()?.is_none() && Instant::now() < deadline, "nginx does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(nginx)
    }
}

fn nginx() -> Result<String> {
    if Command::new("nginx").arg("-v").stderr(Stdio::null()).status().is_err() {
        return Ok("skipped: there is no nginx on the PATH".to_owned());
    }
    let users = users::file(&["dev"]);
    let put = |nginx: &Nginx, user: &str| users::http(nginx.address, user, "PUT", "/topics/t", b"x");
    // As it comes: it says nothing of whom it asks for.
    let gateway = Gateway::start_furnished(&[], &[("users.toml", &users)])?;
    let plain = Nginx::start(gateway.address("http")?, "")?;
    let status = put(&plain, "")?;
    ensure!(status == 401, "an anonymous PUT through nginx is answered {status}");
    let status = put(&plain, "dev")?;
    ensure!(matches!(status, 201 | 204), "a user's PUT through nginx is answered {status}");
    // As the documentation has it.
    let settings = [NAMED, "auth.backoff.free_failures=2", "auth.backoff.first=5s"];
    let gateway = Gateway::start_furnished(&settings, &[("users.toml", &users)])?;
    let lines = "proxy_http_version 1.1; proxy_set_header Host $host; proxy_set_header X-Forwarded-For $remote_addr;";
    let nginx = Nginx::start(gateway.address("http")?, lines)?;
    ensure!(put(&nginx, "")? == 401, "an anonymous PUT through a named nginx");
    let status = put(&nginx, "dev")?;
    ensure!(matches!(status, 201 | 204), "a user's PUT through a named nginx is answered {status}");
    Ok(String::new())
}
