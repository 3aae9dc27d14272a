//! Messages that wait at a connection, or for a reader to return, while the reader loses the right to read them.

use std::fs;
use std::io::Write;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::http2::{self, Windowless};
use fogmux_tests::mqtt::{self, Connection};
use fogmux_tests::users::{self, Login};
use fogmux_tests::{tcp, tls, xmpp};

use super::PATIENCE;
use super::late::read_until;
use super::waiting::{ALLOWED, DENIED};

const LAST: &str = "the-last";

/// A gateway, and a writer who publishes events.
struct House {
    gateway: Gateway,
    bob: Connection,
    next: u16,
}

impl House {
    fn open() -> Result<Self> {
        let gateway = users::gateway(&[], &["ada", "bob"], &[("acl.toml", ALLOWED)])?;
        let (bob, ..) = Login::of("bob", "writer").connect(gateway.address("mqtt")?)?;
        Ok(Self { gateway, bob, next: 0 })
    }

    fn publish(&mut self, topic: &str, payload: &str) -> Result<()> {
        self.next += 1;
        let packet = mqtt::publish(mqtt::V5, topic.as_bytes(), payload.as_bytes(), 1, false, self.next);
        self.bob.stream.write_all(&packet)?;
        ensure!(self.bob.read()?.0 == 0x40, "no PUBACK");
        Ok(())
    }

    /// Publishes events of which every second one is denied to the reader before anything of them is sent.
    fn publish_and_deny(&mut self) -> Result<()> {
        for number in 0..50 {
            self.publish("secret/x", &format!("secret-{number}"))?;
            self.publish("public/x", &format!("public-{number}"))?;
        }
        self.publish("public/x", LAST)?;
        fs::write(self.gateway.data().join("acl.toml"), format!("{DENIED}{ALLOWED}"))?;
        self.gateway.wait_log("users, rules and keys are read again", PATIENCE)
    }

    /// Checks what the reader was sent after the deny, and that each message is accounted for.
    fn check(mut self, seen: &str) -> Result<String> {
        ensure!(!seen.contains("secret"), "sent after the deny: {seen}");
        let public = (0..50).filter(|number| seen.contains(&format!("public-{number}"))).count();
        ensure!(public == 50, "{public} of 50 that may be read");
        self.gateway.check_conservation()?;
        self.gateway.check_alive()?;
        Ok(String::new())
    }
}

/// An XMPP client that has as many stanzas unacknowledged as it may (XEP-0198).
pub(super) fn xmpp() -> Result<String> {
    const WINDOW: usize = 1024;
    let mut house = House::open()?;
    let stream = tcp::connect(house.gateway.address("xmpps")?)?;
    let config = tls::config(house.gateway.ca())?;
    let mut ada = xmpp::Session::plain_password(stream, &config, &users::sasl_plain("ada"), "r")?;
    ada.send("<enable xmlns='urn:xmpp:sm:3'/>")?;
    ada.until("<enabled xmlns='urn:xmpp:sm:3'/>")?;
    for node in ["secret/x", "public/x"] {
        let answer = ada.entity("set", &format!("<subscribe node='{node}' jid='{}'/>", ada.jid))?;
        ensure!(answer.contains("subscribed"), "{answer}");
    }
    for _ in 0..WINDOW + 10 {
        house.publish("public/x", "before")?;
    }
    // The answers to the subscriptions are stanzas, too.
    ada.until_count("</message>", WINDOW - 24)?;
    house.publish_and_deny()?;
    ada.send(&format!("<a xmlns='urn:xmpp:sm:3' h='{}'/>", WINDOW - 24))?;
    let seen = ada.until(LAST)?;
    house.check(&seen)
}

/// An event stream over HTTP/2 whose reader lets nothing through.
pub(super) fn no_window() -> Result<String> {
    const DATA: u8 = 0;
    let mut house = House::open()?;
    let mut ada = Windowless::connect(house.gateway.address("http")?)?;
    let mut block = http2::get("/subscribe?filter=%23");
    let credentials = users::authorization("ada");
    let (_, value) = credentials.trim_end().split_once(": ").context("no field")?;
    block.extend(http2::literal("authorization", value));
    block.extend(http2::literal("accept", "text/event-stream"));
    let stream = ada.send(&block, b"")?;
    ada.answered(stream)?;
    // One portion may be taken for the time when there is a window.
    house.publish("public/x", "before")?;
    house.publish_and_deny()?;
    ada.open(0, 1 << 20)?;
    ada.open(stream, 1 << 20)?;
    let mut seen = String::new();
    while !seen.contains(LAST) {
        let (kind, _, id, payload) = ada.next_frame().with_context(|| seen.clone())?;
        if (kind, id) == (DATA, stream) {
            seen += &String::from_utf8_lossy(&payload);
        }
    }
    house.check(&seen)
}

/// An event stream whose reader is away.
pub(super) fn parked() -> Result<String> {
    let mut house = House::open()?;
    let http = house.gateway.address("http")?;
    let follow = |last: &str| {
        let mut stream = tcp::connect(http)?;
        let fields = format!("Host: localhost\r\nAccept: text/event-stream\r\n{}", users::authorization("ada"));
        write!(stream, "GET /subscribe?filter=%23 HTTP/1.1\r\n{fields}{last}\r\n")?;
        anyhow::Ok(stream)
    };
    let mut first = follow("")?;
    house.publish("public/x", "before")?;
    let text = read_until(&mut first, "before")?;
    let id = text.lines().rev().find_map(|line| line.strip_prefix("id:")).context("no id")?.trim().to_owned();
    drop(first);
    house.publish_and_deny()?;
    let mut second = follow(&format!("Last-Event-ID: {id}\r\n"))?;
    let seen = read_until(&mut second, LAST)?;
    house.check(&seen)
}
