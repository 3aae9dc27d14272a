//! Peers that vanish: how long the system waits for their acknowledgements on each TCP connection (RFC 5482).

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::suite::Case;
use fogmux_tests::xmpp::{self, Via};
use fogmux_tests::{coap, coap_stream, mqtt, tcp, tls, websocket};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use socket2::Socket;

pub(crate) const EVERY_LISTENER: Case = Case {
    name: "operation: every TCP connection has a bound on what its peer leaves unacknowledged",
    run: every_listener,
};
pub(crate) const KEEP_ALIVE: Case =
    Case { name: "operation: that bound follows MQTT's keep alive, over WebSocket as well", run: keep_alive };
pub(crate) const READERS: Case =
    Case { name: "operation: readers whose host acknowledges nothing are cut at every door", run: readers };

const PATIENCE: Duration = Duration::from_secs(30);
const SMALL_BUFFER: usize = 16 << 10;

/// The gateway's end of a connection, duplicated: a parent may do so (pidfd_getfd(2)).
fn other_end(gateway: &Gateway, client: SocketAddr) -> Result<Option<Socket>> {
    let pid = Pid::from_raw(i32::try_from(gateway.pid())?).context("no process")?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    for entry in fs::read_dir(format!("/proc/{}/fd", gateway.pid()))? {
        let number = entry?.file_name().to_string_lossy().parse()?;
        // One may be closed while this looks.
        let Ok(copy) = pidfd_getfd(process.as_fd(), number, PidfdGetfdFlags::empty()) else { continue };
        let socket = Socket::from(copy);
        if socket.peer_addr().ok().and_then(|peer| peer.as_socket()) == Some(client) {
            return Ok(Some(socket));
        }
    }
    Ok(None)
}

/// Waits until the gateway's end of a connection has that user timeout.
fn expect(gateway: &Gateway, what: &str, client: &TcpStream, seconds: u64) -> Result<()> {
    let deadline = Instant::now() + tcp::PATIENCE;
    loop {
        let end = other_end(gateway, client.local_addr()?)?;
        let limit = end.map(|socket| socket.tcp_user_timeout()).transpose()?.flatten();
        if limit == Some(Duration::from_secs(seconds)) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{what}: the user timeout is {limit:?}, not {seconds} s");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn every_listener() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let listeners = ["http", "https", "coap_tcp", "coaps_tcp", "xmpp", "xmpps"];
    for listener in listeners {
        // Before the handshake is over, if there is one.
        let stream = tcp::connect(gateway.address(listener)?)?;
        expect(&gateway, listener, &stream, 60)?;
    }
    gateway.settle()?;
    let mut gateway = Gateway::start(&[
        "http.unacknowledged_max=\"7s\"",
        "coap.unacknowledged_max=\"8s\"",
        "xmpp.unacknowledged_max=\"9s\"",
    ])?;
    for (listener, seconds) in listeners.into_iter().zip([7, 7, 8, 8, 9, 9]) {
        let stream = tcp::connect(gateway.address(listener)?)?;
        expect(&gateway, listener, &stream, seconds)?;
    }
    gateway.settle()?;
    Ok(listeners.join(", "))
}

/// CONNECT of version 3.1.1 with that keep alive, and CONNACK.
fn log_in(stream: &mut (impl Read + Write), keep_alive: u16) -> Result<()> {
    let mut body = mqtt::string(b"MQTT");
    body.extend([mqtt::V4, 2]);
    body.extend(keep_alive.to_be_bytes());
    body.extend(mqtt::string(b""));
    stream.write_all(&mqtt::packet(0x10, &body))?;
    stream.flush()?;
    let mut connack = [0; 4];
    stream.read_exact(&mut connack)?;
    ensure!(connack == [0x20, 2, 0, 0], "CONNACK {connack:?}");
    Ok(())
}

fn keep_alive() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let config = tls::config(gateway.ca())?;
    // 1.5 times the keep alive, no less than a minute and no more than fifteen.
    for (keep_alive, seconds) in [(0, 60), (40, 60), (100, 150), (u16::MAX, 900)] {
        let mut plain = tcp::connect(gateway.address("mqtt")?)?;
        log_in(&mut plain, keep_alive)?;
        expect(&gateway, "mqtt", &plain, seconds)?;
        let mut upgraded = tcp::connect(gateway.address("http")?)?;
        let client = upgraded.try_clone()?;
        websocket::upgrade(&mut upgraded, "/mqtt", "mqtt")?;
        log_in(&mut websocket::ByteStream::over(upgraded), keep_alive)?;
        expect(&gateway, "ws", &client, seconds)?;
        let mut secure = tls::connect(&config, gateway.address("https")?)?;
        let client = secure.get_ref().try_clone()?;
        websocket::upgrade(&mut secure, "/mqtt", "mqtt")?;
        log_in(&mut websocket::ByteStream::over(secure), keep_alive)?;
        expect(&gateway, "wss", &client, seconds)?;
    }
    gateway.settle()?;
    Ok(String::new())
}

/// A window that stays closed is to the system like a host that has gone (RFC 9293 §3.8.6.1), and can be had without
/// the rights that dropping packets takes.
fn readers() -> Result<String> {
    let mut gateway = Gateway::start(&[
        "http.unacknowledged_max=\"2s\"",
        "http.write_timeout=\"1h\"",
        "coap.unacknowledged_max=\"2s\"",
        "coap.write_timeout=\"1h\"",
        "xmpp.unacknowledged_max=\"2s\"",
        "xmpp.write_timeout=\"1h\"",
    ])?;
    let narrow = |listener: &str| tcp::connect_narrow(gateway.address(listener)?, SMALL_BUFFER);
    let mut events = narrow("http")?;
    events.write_all(b"GET /subscribe?filter=t HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    events.read_exact(&mut [0; 12])?;
    let stream = narrow("xmpp")?;
    let node = stream.try_clone()?;
    let mut session = xmpp::Session::over(stream, &tls::config(gateway.ca())?, Via::StartTls)?;
    session.entity("set", &format!("<subscribe node='t' jid='{}'/>", session.jid.clone()))?;
    let requests = narrow("coap_tcp")?;
    let mut line = coap_stream::Line::over(requests.try_clone()?)?;
    // Less than any queue of the gateway holds, and more than the sockets of those who do not read take.
    let mut publisher = mqtt::Connection::open(gateway.address("mqtt")?, mqtt::V4, "publisher")?;
    let value = vec![b'x'; 48 << 10];
    publisher.stream.write_all(&mqtt::publish(mqtt::V4, b"kept", &value, 1, true, 1))?;
    ensure!(publisher.read()?.0 == 0x40, "no PUBACK");
    for _ in 0..200 {
        publisher.publish("t", &[b'x'; 1024])?;
    }
    for token in 0..16 {
        let options: [(u16, &[u8]); 2] = [(coap::URI_PATH, b"ps"), (coap::URI_PATH, b"kept")];
        line.send(coap::GET, &[token], &options, b"")?;
    }
    let deadline = Instant::now() + PATIENCE;
    for (what, client) in [("HTTP", &events), ("XMPP", &node), ("CoAP", &requests)] {
        while other_end(&gateway, client.local_addr()?)?.is_some() {
            ensure!(Instant::now() < deadline, "{what}: a reader that takes nothing for 2 s is still there after 30 s");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    drop((events, session, line, publisher));
    gateway.check_alive()?;
    Ok(String::new())
}
