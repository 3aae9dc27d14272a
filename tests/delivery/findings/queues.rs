//! Messages that wait at a connection, or for a reader to return, while the reader loses the right to read them.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;

use anyhow::{Context, Result, ensure};
use fogmux_tests::coap::{self, ACK, CON, FETCH, Message, OBSERVE, URI_PATH, URI_QUERY};
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
        Self::open_with(ALLOWED)
    }

    fn open_with(rules: &str) -> Result<Self> {
        let gateway = users::gateway(&[], &["ada", "bob"], &[("acl.toml", rules)])?;
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

    fn publish_all(&mut self) -> Result<()> {
        for number in 0..50 {
            self.publish("secret/x", &format!("secret-{number}"))?;
            self.publish("public/x", &format!("public-{number}"))?;
        }
        self.publish("public/x", LAST)
    }

    /// Publishes events of which every second one is denied to the reader before anything of them is sent.
    fn publish_and_deny(&mut self) -> Result<()> {
        self.publish_all()?;
        self.change(&format!("{DENIED}{ALLOWED}"))
    }

    fn change(&self, rules: &str) -> Result<()> {
        fs::write(self.gateway.data().join("acl.toml"), rules)?;
        self.gateway.wait_log("users, rules and keys are read again", PATIENCE)
    }

    fn xmpp(&self, user: &str) -> Result<xmpp::Session> {
        let stream = tcp::connect(self.gateway.address("xmpps")?)?;
        let config = tls::config(self.gateway.ca())?;
        xmpp::Session::plain_password(stream, &config, &users::sasl_plain(user), "r")
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

/// Stanzas that an XMPP client may leave unacknowledged.
const WINDOW: usize = 1024;

/// An XMPP client that subscribes to both nodes and leaves as many stanzas unacknowledged as it may (XEP-0198).
fn subscribed(house: &mut House) -> Result<xmpp::Session> {
    let mut ada = house.xmpp("ada")?;
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
    Ok(ada)
}

/// Acknowledges what has come, and reads what waited.
fn released(ada: &mut xmpp::Session) -> Result<String> {
    ada.send(&format!("<a xmlns='urn:xmpp:sm:3' h='{}'/>", WINDOW - 24))?;
    ada.until(LAST)
}

pub(super) fn xmpp() -> Result<String> {
    let mut house = House::open()?;
    let mut ada = subscribed(&mut house)?;
    house.publish_and_deny()?;
    let seen = released(&mut ada)?;
    house.check(&seen)
}

/// An XMPP client that the owner of a node shuts out of it (XEP-0060 §8.9).
pub(super) fn outcast() -> Result<String> {
    const RULES: &str = "[[allow]]\nuser = [\"ada\", \"bob\"]\nboth = [\"#\"]\n";
    let mut house = House::open_with(RULES)?;
    let mut owner = house.xmpp("bob")?;
    let answer = owner.entity("set", "<create node='secret/x'/>")?;
    ensure!(answer.contains("type='result'"), "{answer}");
    let mut ada = subscribed(&mut house)?;
    house.publish_all()?;
    let bare = ada.jid.split('/').next().unwrap_or_default();
    let change = format!("<affiliation jid='{bare}' affiliation='outcast'/>");
    let answer = owner.owner("set", &format!("<affiliations node='secret/x'>{change}</affiliations>"))?;
    ensure!(answer.contains("type='result'"), "{answer}");
    let seen = released(&mut ada)?;
    house.check(&seen)
}

/// A CoAP client that observes a filter and leaves a Confirmable notification unacknowledged.
pub(super) fn coap() -> Result<String> {
    const TOPICS: usize = 20;
    let for_anybody = |rules: &str| rules.replace("user = \"ada\"", "anonymous = true");
    let mut house = House::open_with(&for_anybody(ALLOWED))?;
    let socket = coap::endpoint(house.gateway.address("coap")?)?;
    let options: [(u16, &[u8]); 3] = [(OBSERVE, b""), (URI_PATH, b"ps"), (URI_QUERY, b"filter=#")];
    socket.send(&coap::message(CON, FETCH, 1, b"t", &options, b""))?;
    let receive = || {
        let datagram = coap::receive(&socket, PATIENCE)?.context("nothing comes")?;
        Message::of_datagram(&datagram)
    };
    let answer = receive()?;
    ensure!(answer.kind == ACK && answer.code == 0x45, "{answer:?}");
    // One after the other, until the gateway wants to know whether they arrive.
    let unacknowledged = loop {
        house.publish("public/before", "before")?;
        let notification = receive()?;
        if notification.kind == CON {
            break notification.id;
        }
    };
    for number in 0..TOPICS {
        house.publish(&format!("secret/{number}"), &format!("secret-{number}"))?;
        house.publish(&format!("public/{number}"), &format!("public-{number}"))?;
    }
    house.change(&for_anybody(&format!("{DENIED}{ALLOWED}")))?;
    let acknowledge = |id: u16| socket.send(&coap::message(ACK, 0, id, b"", &[], b""));
    acknowledge(unacknowledged)?;
    let mut seen = BTreeSet::new();
    while (0..TOPICS).any(|number| !seen.contains(&format!("public-{number}"))) {
        let notification = receive().with_context(|| format!("{seen:?}"))?;
        if notification.kind == CON {
            acknowledge(notification.id)?;
        }
        seen.insert(String::from_utf8_lossy(&notification.payload).into_owned());
    }
    // A last one, behind which nothing waits.
    house.publish("public/x", LAST)?;
    while !seen.contains(LAST) {
        seen.insert(String::from_utf8_lossy(&receive()?.payload).into_owned());
    }
    ensure!(!seen.iter().any(|payload| payload.contains("secret")), "sent after the deny: {seen:?}");
    house.gateway.check_conservation()?;
    house.gateway.check_alive()?;
    Ok(String::new())
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
    // The stream is open when the head of its response is there.
    read_until(&mut first, "\r\n\r\n")?;
    house.publish("public/x", "before")?;
    let text = read_until(&mut first, "before")?;
    let id = text.lines().rev().find_map(|line| line.strip_prefix("id:")).context("no id")?.trim().to_owned();
    drop(first);
    house.publish_and_deny()?;
    let mut second = follow(&format!("Last-Event-ID: {id}\r\n"))?;
    let seen = read_until(&mut second, LAST)?;
    house.check(&seen)
}
