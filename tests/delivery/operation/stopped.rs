//! A gateway that is stopped for a while, by a signal or with its machine: that time counts against no client, and a
//! client that is gone is found nevertheless.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::coap::{Line, PUT};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, Connection, V4, V5};
use fogmux_tests::suite::Case;
use fogmux_tests::xmpp::{Session, Transport, Via};
use fogmux_tests::{tcp, tls};
use rustix::process::Signal;

use crate::mqtt::{client, wire};

pub(crate) const SILENT: Case = Case {
    name: "operation: silent and deaf clients are found though the gateway is stopped again and again",
    run: dead,
};
pub(crate) const COMPLETED: Case =
    Case { name: "operation: what a client completes while the gateway is stopped is answered", run: completed };
pub(crate) const READ: Case =
    Case { name: "operation: subscribers that read while the gateway is stopped are not cut", run: read };

/// Longer than each deadline of these cases.
const STOPPED: Duration = Duration::from_secs(6);

fn stop(gateway: &Gateway, meanwhile: impl FnOnce() -> Result<()>) -> Result<()> {
    let began = Instant::now();
    gateway.signal(Signal::STOP)?;
    wait_until_stopped(gateway)?;
    meanwhile()?;
    thread::sleep(STOPPED.saturating_sub(began.elapsed()));
    gateway.signal(Signal::CONT)
}

/// Until then its threads may take what comes.
fn wait_until_stopped(gateway: &Gateway) -> Result<()> {
    let deadline = Instant::now() + tcp::PATIENCE;
    for task in fs::read_dir(format!("/proc/{}/task", gateway.pid()))? {
        let stat = task?.path().join("stat");
        // The state is behind the name, which is in parentheses.
        while !fs::read_to_string(&stat)?.rsplit(')').next().is_some_and(|rest| rest.starts_with(" T")) {
            ensure!(Instant::now() < deadline, "the gateway is not stopped");
            thread::sleep(Duration::from_millis(5));
        }
    }
    Ok(())
}

/// Stops that are shorter than any deadline, and more often than any deadline passes.
fn dead() -> Result<String> {
    const RUNS: Duration = Duration::from_millis(800);
    const STOPS: Duration = Duration::from_millis(1700);
    const COUNT: usize = 30;
    let mut gateway = Gateway::start(&["mqtt.stall_max=1s"])?;
    let login = |name| client::Login { keep_alive: 0, ..client::Login::new(name, wire::Transport::Tcp).v5() };
    let dead = client::Login { keep_alive: 1, will: Some("will/dead"), ..login("dead") };
    let deaf = client::Login { buffer: Some(wire::SMALL_BUFFER), will: Some("will/deaf"), ..login("deaf") };
    let mut watcher = client::Client::login(&gateway, &login("watcher"))?;
    watcher.subscribe(&["will/+"], 1)?;
    // Its keep alive is longer than a stop, and it keeps it.
    let mut alive = client::Client::login(&gateway, &client::Login { keep_alive: 3, ..login("alive") })?;
    let mut deaf = client::Client::login(&gateway, &deaf)?;
    deaf.subscribe(&["t"], 0)?;
    let mut publisher = client::Client::login(&gateway, &login("publisher"))?;
    let payload = vec![b'x'; 700_000];
    publisher.publish_all((0..12).map(|_| ("t", payload.as_slice())), 1, false, 1)?;
    let dead = client::Client::login(&gateway, &dead)?;
    let mut stops = 0;
    while cut(&gateway)? < 2.0 {
        ensure!(stops < COUNT, "after {stops} stops: {}", gateway.log());
        thread::sleep(RUNS);
        gateway.signal(Signal::STOP)?;
        thread::sleep(STOPS);
        gateway.signal(Signal::CONT)?;
        alive.send(&[0xc0, 0])?;
        ensure!(alive.next()? == client::Came::Pong, "a client that pings is cut");
        stops += 1;
    }
    let mut wills = [watcher.message_or("a will")?.topic, watcher.message_or("a will")?.topic];
    wills.sort_unstable();
    ensure!(wills == ["will/dead", "will/deaf"], "{wills:?}");
    drop((dead, deaf, alive, publisher, watcher));
    gateway.settle()?;
    Ok(format!("after {stops} stops"))
}

/// The MQTT clients that the gateway has disconnected.
fn cut(gateway: &Gateway) -> Result<f64> {
    let metrics = gateway.metrics()?;
    Ok(metrics.iter().filter(|(name, _)| name.starts_with("fogmux_mqtt_cut_total")).map(|(_, value)| value).sum())
}

/// The first part of each message comes before a stop that is longer than the time it has, the rest during the stop.
fn completed() -> Result<String> {
    let settings = [
        "mqtt.login_deadline=3s",
        "coap.message_timeout=3s",
        "http.header_timeout=3s",
        "http.body_timeout=3s",
        "xmpp.stanza_timeout=3s",
        "xmpp.login_timeout=5s",
    ];
    let mut gateway = Gateway::start(&settings)?;
    let connect = mqtt::connect(V5, "half");
    let put = b"PUT /topics/h HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20\r\nConnection: close\r\n\r\n0123456789";
    let head = b"GET /topics/h HTTP/1.1\r\nHost: loc";
    let tls = tls::config(gateway.ca())?;
    let mut xmpp = Session::over(tcp::connect(gateway.address("xmpps")?)?, &tls, Via::DirectTls)?;
    let mut coap = Line::open(gateway.address("coap_tcp")?)?;
    ensure!(coap.next(tcp::PATIENCE)?.is_some_and(|message| message.code == 0xe1), "no CSM");
    let begun = |listener, first: &[u8]| begin(&gateway, listener, first);
    let (front, rest) = connect.split_at(6);
    let mut half_login = begun("mqtt", front)?;
    let mut half_body = begun("http", put)?;
    let mut half_head = begun("http", head)?;
    let mut half_stream = begun("xmpp", b"<stream:stream to='localhost' ")?;
    xmpp.send("<iq type='get' id='half' to='localhost'><ping xm")?;
    let message = coap_put();
    let (coap_front, coap_rest) = message.split_at(5);
    coap.send_raw(coap_front)?;
    // The gateway reads all of that.
    gateway.metrics()?;
    thread::sleep(Duration::from_millis(200));
    stop(&gateway, || {
        half_login.write_all(rest)?;
        half_body.write_all(b"0123456789")?;
        half_head.write_all(b"alhost\r\nConnection: close\r\n\r\n")?;
        half_stream
            .write_all(b"version='1.0' xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>")?;
        xmpp.send("lns='urn:xmpp:ping'/></iq>")?;
        coap.send_raw(coap_rest)
    })?;
    let (first, body) = Connection::over(half_login, V5).read().context("half a CONNECT")?;
    ensure!(first == 0x20 && body.get(1) == Some(&0), "half a CONNECT: {first:#x} {body:?}");
    for (mut stream, name, wanted) in [
        (half_body, "half a body", "HTTP/1.1 201"),
        (half_head, "half a head", "HTTP/1.1 "),
        (half_stream, "half a stream header", "<?xml version='1.0'?><stream:stream"),
    ] {
        let mut answer = [0; 64];
        let count = stream.read(&mut answer).context(name)?;
        let answer = String::from_utf8_lossy(answer.get(..count).unwrap_or_default()).into_owned();
        ensure!(answer.starts_with(wanted) && !answer.contains(" 408 "), "{name}: {answer:?}");
    }
    let answer = xmpp.until("/>").context("half a stanza")?;
    ensure!(answer.contains("id='half'") && answer.contains("type='result'"), "half a stanza: {answer}");
    let answer =
        coap.next(tcp::PATIENCE).context("half a CoAP message")?.context("no answer to half a CoAP message")?;
    ensure!(answer.code >> 5 == 2, "half a CoAP message: {:#x}", answer.code);
    drop((xmpp, coap));
    gateway.settle()?;
    Ok(String::new())
}

fn begin(gateway: &Gateway, listener: &str, first: &[u8]) -> Result<TcpStream> {
    let mut stream = tcp::connect(gateway.address(listener)?)?;
    stream.write_all(first)?;
    Ok(stream)
}

/// A PUT over TCP (RFC 8323 §3.2) with options and a payload of so few bytes that its length is in the second byte.
fn coap_put() -> Vec<u8> {
    let options = [&[0xb0 | 2][..], b"ps", &[1], b"h", &[0xff], b"whole payload"].concat();
    let length = u8::try_from(options.len() - 13).unwrap_or_default();
    [&[0xd1, length, PUT, b't'][..], &options].concat()
}

/// Subscribers with output that waits read all that has been sent to them while the gateway is stopped, and go on.
fn read() -> Result<String> {
    const COUNT: usize = 80;
    const SIZE: usize = 100_000;
    let settings =
        ["http.event_stream_grace=1s", "http.write_timeout=4s", "xmpp.write_timeout=4s", "mqtt.stall_max=4s"];
    let mut gateway = Gateway::start(&settings)?;
    let narrow = |listener| tcp::connect_narrow(gateway.address(listener)?, 4096);
    let mut events = narrow("http")?;
    events.write_all(b"GET /subscribe?filter=big HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let tls = tls::config(gateway.ca())?;
    let mut session = Session::over(narrow("xmpp")?, &tls, Via::Plain)?;
    let follow = format!("<subscribe node='big' jid='{}'/>", session.bare());
    session.entity("set", &follow)?;
    let Transport::Plain(xmpp) = session.stream else { anyhow::bail!("it was plain") };
    let mut subscriber = Connection::over(narrow("mqtt")?, V4);
    subscriber.stream.write_all(&mqtt::connect(V4, "subscriber"))?;
    subscriber.read()?;
    subscriber.subscribe(1, &["big"], 0)?;
    let readers = [("HTTP", events), ("XMPP", xmpp), ("MQTT", subscriber.stream)];
    let mut publisher = Connection::open(gateway.address("mqtt")?, V4, "publisher")?;
    for number in 0..COUNT {
        let mut payload = vec![b'x'; SIZE];
        if number == COUNT - 1 {
            payload.extend(b"the last");
        }
        publisher.stream.write_all(&mqtt::publish(V4, b"big", &payload, 0, false, 0))?;
    }
    publisher.stream.write_all(&[0xc0, 0])?;
    ensure!(publisher.read()?.0 == 0xd0, "no PINGRESP");
    // Each has output that waits.
    thread::sleep(Duration::from_millis(500));
    stop(&gateway, || readers.iter().try_for_each(|(name, stream)| drain(stream).context(*name)))?;
    thread::scope(|threads| {
        let all = readers.iter().map(|(name, stream)| threads.spawn(move || to_the_end(stream).context(*name)));
        let all: Vec<_> = all.collect();
        all.into_iter().try_for_each(|one| one.join().map_err(|_| anyhow::anyhow!("panic"))?)
    })?;
    drop((readers, publisher));
    gateway.settle()?;
    Ok(String::new())
}

/// Reads what the sockets of both hosts hold.
fn drain(mut stream: &TcpStream) -> Result<()> {
    stream.set_read_timeout(Some(Duration::from_millis(300)))?;
    let mut buffer = vec![0; 64 << 10];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => anyhow::bail!("the connection has ended"),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
            Err(error) => return Err(error.into()),
        }
    }
    stream.set_read_timeout(Some(tcp::PATIENCE))?;
    Ok(())
}

fn to_the_end(mut stream: &TcpStream) -> Result<()> {
    const LAST: &[u8] = b"the last";
    let (mut buffer, mut tail) = (vec![0; 64 << 10], Vec::<u8>::new());
    while !tail.windows(LAST.len()).any(|window| window == LAST) {
        let count = stream.read(&mut buffer)?;
        ensure!(count > 0, "the connection has ended");
        tail.drain(..tail.len().saturating_sub(LAST.len()));
        tail.extend(buffer.iter().take(count));
    }
    Ok(())
}
