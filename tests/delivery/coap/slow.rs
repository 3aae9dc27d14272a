//! Clients over TCP that are slow to read their answers.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fogmux_tests::coap::{GET, URI_PATH};
use fogmux_tests::coap_stream::Line;
use fogmux_tests::gateway::Gateway;
use fogmux_tests::tcp;
use rustix::process::Signal;

use super::{PATIENCE, retain};

/// 2.05 of a request, and Ping (RFC 8323 §5.4).
const CONTENT: u8 = 0x45;
const PING: u8 = 0xe2;
const RELEASE: u8 = 0xe4;
const RECEIVE_BYTES: usize = 16 << 10;

/// A client that has asked for so many answers of 60 kB and read none: beyond what the sockets of both ends hold.
fn asked(gateway: &Gateway, count: usize) -> Result<Line> {
    retain(gateway, [("t".to_owned(), vec![b'x'; 60_000])].into_iter())?;
    let mut line = Line::over(tcp::connect_narrow(gateway.address("coap_tcp")?, RECEIVE_BYTES)?)?;
    for number in 0..count {
        let token = u16::try_from(number)?.to_be_bytes();
        line.send(GET, &token, &[(URI_PATH, b"ps"), (URI_PATH, b"t")], b"")?;
    }
    Ok(line)
}

/// Reads answers, with a pause after each, in which it pings; other messages are signals.
fn read(line: &mut Line, count: usize, pause: Duration) -> Result<()> {
    let mut came = 0;
    while came < count {
        let message = line.next(PATIENCE).with_context(|| format!("after {came} of {count}"))?.context("an answer")?;
        ensure!(message.code != RELEASE, "Release after {came} of {count}");
        if message.code == CONTENT {
            came += 1;
            line.send(PING, b"p", &[], b"")?;
            thread::sleep(pause);
        }
    }
    Ok(())
}

/// For longer than the gateway waits for its Ping to be answered, the client reads nothing and is not read.
pub(super) fn unread() -> Result<String> {
    const COUNT: usize = 140;
    let mut gateway = Gateway::start(&["coap.idle_timeout=1s", "coap.pong_timeout=1s"])?;
    let mut line = asked(&gateway, COUNT)?;
    thread::sleep(Duration::from_millis(3500));
    read(&mut line, COUNT, Duration::ZERO)?;
    drop(line);
    gateway.settle()?;
    Ok(String::new())
}

pub(super) fn shutdown() -> Result<String> {
    const COUNT: usize = 110;
    let mut gateway = Gateway::start(&["workers.drain=30s"])?;
    let mut line = asked(&gateway, COUNT)?;
    // A connection that is not accepted yet, or whose requests lie in the socket, ends with the listener.
    read(&mut line, 1, Duration::ZERO)?;
    gateway.signal(Signal::TERM)?;
    read(&mut line, COUNT - 1, Duration::from_millis(50))?;
    ensure!(gateway.wait_exit(Duration::from_secs(60))?.success(), "{}", gateway.log());
    Ok(String::new())
}
