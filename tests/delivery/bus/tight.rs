//! Above the mark: clients that take what they are sent lose nothing, and publishers wait for a few seconds at most
//! (ADR 0038).

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::http2;
use fogmux_tests::mqtt::{self, Connection, V5};
use fogmux_tests::users::{self, Login};
use fogmux_tests::{tcp, tls, xmpp};

const RULES: &str = "[[allow]]\nuser = \"ada\"\nread = [\"eve/#\"]\n\n[[allow]]\nuser = \"eve\"\nboth = [\"eve/#\"]\n";
const MAILBOX_BYTES: &str = "fogmux_bus_mailbox_bytes";
/// Publishers wait for the mark for two seconds, in looks of a second, on a machine that has other work.
const A_FEW_SECONDS: Duration = Duration::from_secs(8);

fn gateway(settings: &[&str]) -> Result<Gateway> {
    users::gateway(settings, &["ada", "eve"], &[("acl.toml", RULES)])
}

fn log_in(gateway: &Gateway, user: &str, client: &str) -> Result<Connection> {
    let login = Login { clean: true, expiry: 0, ..Login::of(user, client) };
    let (connection, _, reason) = login.connect(gateway.address("mqtt")?)?;
    ensure!(reason == 0, "CONNACK {reason:#x}");
    Ok(connection)
}

/// Publishes with QoS 1, and waits for PUBACK.
fn publish(publisher: &mut Connection, payload: &[u8]) -> Result<()> {
    publisher.stream.write_all(&mqtt::publish(V5, b"eve/x", payload, 1, false, 7))?;
    let (first, _) = publisher.read().context("no PUBACK")?;
    ensure!(first == 0x40, "{first:#x} instead of PUBACK");
    Ok(())
}

fn held(gateway: &Gateway) -> Result<f64> {
    gateway.metrics()?.get(MAILBOX_BYTES).copied().context("no gauge")
}

/// Reads the next message and acknowledges it.
fn take(reader: &mut Connection) -> Result<()> {
    let (first, _, rest) = super::next_publish(reader)?;
    let id = rest.first_chunk::<2>().filter(|_| first & 0x06 != 0).context("no packet identifier")?;
    reader.stream.write_all(&mqtt::packet(0x40, id)).context("PUBACK")
}

/// One large message for all of a user's readers passes the mark, and another comes before they can have read the
/// first: that says nothing about them.
pub(super) fn fresh_readers() -> Result<String> {
    const READERS: usize = 64;
    const LARGE: usize = 150_000;
    let mut gateway = gateway(&["bus.memory_high_bytes=8MiB", "mqtt.tight_bytes=2MiB"])?;
    let mut readers = Vec::new();
    for number in 0..READERS {
        let mut reader = log_in(&gateway, "ada", &format!("reader-{number}"))?;
        reader.subscribe(1, &["eve/#"], 1)?;
        readers.push(reader);
    }
    let mut publisher = log_in(&gateway, "eve", "publisher")?;
    for _ in 0..2 {
        publish(&mut publisher, &vec![b'x'; LARGE])?;
    }
    for round in ["first", "second"] {
        for (number, reader) in readers.iter_mut().enumerate() {
            take(reader).with_context(|| format!("the {round} message of reader {number}"))?;
        }
    }
    publish(&mut publisher, b"x")?;
    for reader in &mut readers {
        take(reader).context("the last message")?;
    }
    drop((readers, publisher));
    gateway.settle()?;
    Ok(String::new())
}

/// XMPP sessions have as many stanzas unacknowledged as they may, and their queues are above the mark: their
/// acknowledgements are read, and what is queued comes.
pub(super) fn stream_management() -> Result<String> {
    const SESSIONS: usize = 3;
    const WINDOW: usize = 1024;
    const HIGH: f64 = (2 << 20) as f64;
    let mut gateway = gateway(&["bus.memory_high_bytes=2MiB", "mqtt.tight_bytes=1MiB"])?;
    let config = tls::config(gateway.ca())?;
    let mut sessions = Vec::new();
    for number in 0..SESSIONS {
        let stream = tcp::connect(gateway.address("xmpps")?)?;
        let resource = format!("r{number}");
        let mut session = xmpp::Session::plain_password(stream, &config, &users::sasl_plain("eve"), &resource)?;
        session.send("<enable xmlns='urn:xmpp:sm:3'/>")?;
        session.until("<enabled xmlns='urn:xmpp:sm:3'/>")?;
        let own = session.jid.clone();
        let answer = session.entity("set", &format!("<subscribe node='eve/x' jid='{own}'/>"))?;
        ensure!(answer.contains("subscribed"), "{answer}");
        sessions.push(session);
    }
    let mut publisher = log_in(&gateway, "eve", "publisher")?;
    for _ in 0..WINDOW + 100 {
        publish(&mut publisher, b"small")?;
    }
    // The answer to the subscription is a stanza, too.
    for session in &mut sessions {
        session.until_count("</message>", WINDOW - 24)?;
    }
    while held(&gateway)? <= HIGH {
        publish(&mut publisher, &[b'x'; 16 << 10])?;
    }
    for session in &mut sessions {
        session.send(&format!("<a xmlns='urn:xmpp:sm:3' h='{}'/>", WINDOW - 24))?;
    }
    let began = Instant::now();
    publish(&mut publisher, b"the-last").context("after the acknowledgements")?;
    let waited = began.elapsed();
    ensure!(waited < A_FEW_SECONDS, "it waited for {waited:?}");
    for (number, session) in sessions.iter_mut().enumerate() {
        session.until("the-last").with_context(|| format!("session {number}"))?;
    }
    drop((sessions, publisher));
    gateway.settle()?;
    Ok(format!("the publisher waited for {waited:?}"))
}

/// Clients without a name that read nothing stop no publisher without a name, though all come from one host.
pub(super) fn nameless_neighbours() -> Result<String> {
    const DEAF: usize = 40;
    const LARGE: usize = 256 << 10;
    let mut gateway = Gateway::start(&["bus.memory_high_bytes=8MiB", "mqtt.tight_bytes=2MiB"])?;
    let mut publisher = Connection::open(gateway.address("mqtt")?, V5, "neighbour")?;
    let mut held = Vec::new();
    for round in 0..3 {
        for number in 0..DEAF {
            let mut deaf = Connection::over(tcp::connect_narrow(gateway.address("mqtt")?, 4096)?, V5);
            deaf.stream.write_all(&mqtt::connect(V5, &format!("deaf-{round}-{number}")))?;
            ensure!(deaf.read()?.0 == 0x20, "no CONNACK");
            deaf.subscribe(1, &["deaf"], 1)?;
            held.push(deaf);
        }
        for number in 0..3 {
            let mut stranger = Connection::open(gateway.address("mqtt")?, V5, &format!("stranger-{round}-{number}"))?;
            tcp::pour(&mut stranger.stream, &mqtt::publish(V5, b"deaf", &[b'x'; LARGE], 1, false, 7))?;
            held.push(stranger);
            for _ in 0..5 {
                let status = users::http(gateway.address("http")?, "", "POST", "/topics/eve/x", b"x")?;
                ensure!(matches!(status, 202 | 204), "round {round}: HTTP {status}");
                let began = Instant::now();
                publish(&mut publisher, b"x").with_context(|| format!("round {round}"))?;
                ensure!(began.elapsed() < A_FEW_SECONDS, "round {round}: it waited for {:?}", began.elapsed());
            }
        }
    }
    drop((held, publisher));
    gateway.settle()?;
    Ok(String::new())
}

/// A connection with event streams of Eve that may never send anything: it gives them no window.
fn without_window(gateway: &Gateway, streams: u32) -> Result<TcpStream> {
    const INITIAL_WINDOW_SIZE: [u8; 6] = [0, 4, 0, 0, 0, 0];
    let mut connection = http2::connect(gateway.address("http")?)?;
    connection.write_all(&http2::frame(http2::SETTINGS, 0, 0, &INITIAL_WINDOW_SIZE))?;
    let authorization = users::authorization("eve");
    let (_, login) = authorization.trim_end().split_once(": ").context("no login")?;
    for number in 0..streams {
        let block = [http2::get("/subscribe?filter=eve/%23"), http2::literal("authorization", login)].concat();
        let flags = http2::END_STREAM | http2::END_HEADERS;
        connection.write_all(&http2::frame(http2::HEADERS, flags, 1 + 2 * number, &block))?;
    }
    Ok(connection)
}

/// HTTP/2 streams without window hold what is above the mark for as long as they are open: publishers wait for a few
/// seconds, then the streams lose messages.
pub(super) fn streams_without_window() -> Result<String> {
    const STREAMS: u32 = 6;
    let settings = ["bus.memory_high_bytes=2MiB", "mqtt.tight_bytes=1MiB", "http.event_stream_grace=0s"];
    let mut gateway = gateway(&settings)?;
    let connection = without_window(&gateway, STREAMS)?;
    gateway.wait_metric("fogmux_http_event_streams", tcp::PATIENCE, |count| count >= f64::from(STREAMS))?;
    let mut publisher = log_in(&gateway, "eve", "publisher")?;
    let (mut longest, mut peak) = (Duration::ZERO, 0.0_f64);
    // The mark is reached after some twenty.
    for number in 0..50 {
        let began = Instant::now();
        publish(&mut publisher, &[b'x'; 16 << 10]).with_context(|| format!("message {number}"))?;
        longest = longest.max(began.elapsed());
        peak = peak.max(held(&gateway)?);
    }
    ensure!(peak > f64::from(2 << 20), "the mark was not reached, {peak} bytes");
    ensure!(longest < A_FEW_SECONDS, "a publisher waited for {longest:?}");
    drop((connection, publisher));
    gateway.settle()?;
    Ok(format!("a publisher waited for {longest:?}, queues held {peak} bytes"))
}
