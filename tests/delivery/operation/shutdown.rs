//! SIGTERM with messages that wait for event streams and XMPP clients: who reads gets them, who does not is not waited
//! for.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::suite::Case;
use fogmux_tests::{tcp, tls, xmpp};
use rustix::process::Signal;

use crate::mqtt::client::Client;
use crate::mqtt::wire::Transport;

pub(super) const EVENT_STREAMS: Case =
    Case { name: "SIGTERM: what waits for an event stream is sent", run: event_stream };
pub(super) const XMPP: Case = Case { name: "SIGTERM: what waits for an XMPP client is sent", run: xmpp_client };
pub(super) const DEAF: Case =
    Case { name: "SIGTERM does not wait for event streams and XMPP clients that do not read", run: deaf };

const RECEIVE_BYTES: usize = 16 << 10;
/// Beyond what the sockets of both ends hold, as the gateway's send buffer is bounded so.
const BYTES: usize = 20 << 10;
const PATIENCE: Duration = Duration::from_secs(20);

/// More room than the default for one event stream.
const SETTINGS: [&str; 2] = ["http.event_stream_bytes=32MiB", "xmpp.mailbox_bytes_max=32MiB"];

fn publish(gateway: &Gateway, count: usize) -> Result<()> {
    let payloads: Vec<String> = (0..count).map(|number| format!("<{number:06}>{}", "x".repeat(BYTES))).collect();
    let mut publisher = Client::open(gateway, "publisher", Transport::Tcp)?;
    publisher.publish_all(payloads.iter().map(|payload| ("t", payload.as_bytes())), 1, false, 20)?;
    Ok(())
}

/// Enough that some wait in the gateway, whatever the kernel's buffers hold.
const COUNT: usize = 500;

fn stream(gateway: &Gateway) -> Result<TcpStream> {
    let mut stream = tcp::connect_narrow(gateway.address("http")?, RECEIVE_BYTES)?;
    stream.write_all(b"GET /subscribe?filter=t HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    Ok(stream)
}

fn session(gateway: &Gateway) -> Result<xmpp::Session> {
    let socket = tcp::connect_narrow(gateway.address("xmpps")?, RECEIVE_BYTES)?;
    let mut session = xmpp::Session::over(socket, &tls::config(gateway.ca())?, xmpp::Via::DirectTls)?;
    let jid = session.jid.clone();
    session.entity("set", &format!("<subscribe node='t' jid='{jid}'/>"))?;
    Ok(session)
}

/// How many of the messages are in what came, which has each once and in order.
fn count(text: &str, open: &str) -> Result<usize> {
    let numbers: Vec<usize> = text.split(open).skip(1).filter_map(|rest| rest.get(..6)?.parse().ok()).collect();
    ensure!(numbers.iter().copied().eq(0..numbers.len()), "out of order");
    Ok(numbers.len())
}

fn ends(mut gateway: Gateway, began: Instant) -> Result<String> {
    ensure!(gateway.wait_exit(PATIENCE)?.success(), "{}", gateway.log());
    let log = gateway.log();
    ensure!(!log.contains("did not read everything"), "{log}");
    Ok(format!("{:.1} s", began.elapsed().as_secs_f32()))
}

fn event_stream() -> Result<String> {
    let gateway = Gateway::start(&SETTINGS)?;
    let mut stream = stream(&gateway)?;
    publish(&gateway, COUNT)?;
    ensure!(gateway.sum(&["fogmux_bus_mailbox_messages"])? > 0, "nothing waits");
    let began = Instant::now();
    gateway.signal(Signal::TERM)?;
    let (mut body, mut step) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let read = stream.read(&mut step)?;
        if read == 0 {
            break;
        }
        body.extend_from_slice(step.get(..read).unwrap_or_default());
        // Slowly: the gateway does not end before it has sent everything.
        std::thread::sleep(Duration::from_millis(2));
    }
    let came = count(&String::from_utf8_lossy(&body), "<")?;
    ensure!(came == COUNT, "{came} of {COUNT} came");
    ends(gateway, began)
}

fn xmpp_client() -> Result<String> {
    let gateway = Gateway::start(&SETTINGS)?;
    let mut session = session(&gateway)?;
    publish(&gateway, COUNT)?;
    ensure!(gateway.sum(&["fogmux_bus_mailbox_messages"])? > 0, "nothing waits");
    let began = Instant::now();
    gateway.signal(Signal::TERM)?;
    let text = session.until("</stream:stream>")?;
    let came = count(&text, "&lt;")?;
    ensure!(came == COUNT, "{came} of {COUNT} came");
    drop(session);
    ends(gateway, began)
}

fn deaf() -> Result<String> {
    let mut gateway = Gateway::start(&SETTINGS)?;
    let (stream, session) = (stream(&gateway)?, session(&gateway)?);
    publish(&gateway, COUNT)?;
    let began = Instant::now();
    gateway.signal(Signal::TERM)?;
    ensure!(gateway.wait_exit(PATIENCE)?.success(), "{}", gateway.log());
    ensure!(began.elapsed() < Duration::from_secs(9), "{:?} of the ten seconds that it has", began.elapsed());
    drop((stream, session));
    let log = gateway.log();
    ensure!(log.contains("event streams and XMPP clients did not read everything clients=2"), "{log}");
    Ok(String::new())
}
