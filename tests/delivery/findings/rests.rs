//! Clients that lose the right to read: of the blocks that they have not fetched, and of messages that others of their
//! group may read.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;

use anyhow::{Context, Result, ensure};
use fogmux_tests::coap::{self, ACK, CON, GET, Message, OBSERVE, URI_PATH, URI_QUERY};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, Connection, V5};
use fogmux_tests::users::{self, Login};
use fogmux_tests::{tcp, tls, xmpp};

use super::PATIENCE;
use super::late::read_until;

const BLOCK2: u16 = 23;
/// Block 2 of 1024 bytes (RFC 7959 §2.2).
const SECOND: &[u8] = &[0x26];
const DENIED: &str = "\n[[deny]]\nuser = \"ada\"\nboth = [\"t/hidden/#\"]\n\n[[deny]]\nanonymous = true\n\
                      both = [\"t/hidden/#\"]\n";
/// Messages that wait for a member.
const COUNT: usize = 5;
const GROUP: &str = "$share/g/t/#";

fn deny(gateway: &Gateway, rules: &str) -> Result<()> {
    fs::write(gateway.data().join("acl.toml"), format!("{rules}{DENIED}"))?;
    gateway.wait_log("users, rules and keys are read again", PATIENCE)
}

/// Publishes with QoS 1.
fn publish(writer: &mut Connection, topic: &str, payload: &[u8], retain: bool) -> Result<()> {
    writer.stream.write_all(&mqtt::publish(V5, topic.as_bytes(), payload, 1, retain, 1))?;
    ensure!(writer.read()?.0 == 0x40, "no PUBACK");
    Ok(())
}

pub(super) fn coap() -> Result<String> {
    const RULES: &str = "[[allow]]\nanonymous = true\nread = [\"t/#\"]\n\n[[allow]]\nuser = \"bob\"\nboth = [\"#\"]\n";
    let mut gateway = users::gateway(&[], &["bob"], &[("acl.toml", RULES)])?;
    let (mut bob, ..) = Login::of("bob", "writer").connect(gateway.address("mqtt")?)?;
    for number in 0..100 {
        publish(&mut bob, &format!("t/hidden/{number:03}"), b"x", true)?;
        publish(&mut bob, &format!("t/public/{number:03}"), b"x", true)?;
    }
    let socket = coap::endpoint(gateway.address("coap")?)?;
    let mut id: u16 = 0;
    let mut ask = |code: u8, path: &[&str], options: &[(u16, &[u8])]| -> Result<Message> {
        id += 1;
        let path = path.iter().map(|level| (URI_PATH, level.as_bytes()));
        let mut all: Vec<(u16, &[u8])> = path.chain(options.iter().copied()).collect();
        all.sort_by_key(|(number, _)| *number);
        socket.send(&coap::message(CON, code, id, &id.to_be_bytes(), &all, b""))?;
        loop {
            let datagram = coap::receive(&socket, PATIENCE)?.context("no answer")?;
            let message = Message::of_datagram(&datagram)?;
            if message.kind == CON {
                socket.send(&coap::message(ACK, 0, message.id, b"", &[], b""))?;
            }
            if message.token == id.to_be_bytes() && message.kind == ACK {
                return Ok(message);
            }
        }
    };
    // The first blocks of two lists, and of an event behind a filter.
    let filter: (u16, &[u8]) = (URI_QUERY, b"filter=t/#");
    let hidden: (u16, &[u8]) = (URI_QUERY, b"filter=t/hidden/+");
    for first in [ask(GET, &[".well-known", "core"], &[])?, ask(GET, &["ps"], &[filter])?] {
        ensure!(String::from_utf8_lossy(&first.payload).contains("fogmux.topic"), "{first:?}");
    }
    ask(GET, &["ps"], &[(OBSERVE, b""), hidden])?;
    publish(&mut bob, "t/hidden/event", &[b's'; 5_000], false)?;
    let asked = [(&[".well-known", "core"][..], None), (&["ps"], Some(filter)), (&["ps"], Some(hidden))];
    let mut rests = || -> Result<Vec<String>> {
        let mut texts = Vec::new();
        for (path, query) in asked {
            let options: Vec<_> = query.into_iter().chain([(BLOCK2, SECOND)]).collect();
            texts.push(String::from_utf8_lossy(&ask(GET, path, &options)?.payload).into_owned());
        }
        let event = ask(GET, &["ps", "t", "hidden", "event"], &[(BLOCK2, SECOND)])?;
        texts.push(String::from_utf8_lossy(&event.payload).into_owned());
        Ok(texts)
    };
    let is_hidden = |text: &String| text.contains("hidden") || text.contains("sss");
    let before = rests()?;
    ensure!(before.iter().filter(|text| is_hidden(text)).count() >= 3, "they tell nothing before the deny: {before:?}");
    deny(&gateway, RULES)?;
    let after = rests()?;
    ensure!(!after.iter().any(is_hidden), "{after:?}");
    drop(bob);
    gateway.check_alive()?;
    Ok(String::new())
}

/// ada, in each of these ways.
#[derive(Clone, Copy, Debug)]
enum Member {
    EventStream,
    Xmpp,
    InFlight,
}

/// ada loses the right to read the messages that wait for her as a member; bob, who joins before, gets them.
pub(super) fn shared() -> Result<String> {
    for member in [Member::EventStream, Member::Xmpp, Member::InFlight] {
        hand_on(member).with_context(|| format!("{member:?}"))?;
    }
    Ok(String::new())
}

fn hand_on(member: Member) -> Result<()> {
    const RULES: &str = "[[allow]]\nuser = [\"ada\", \"bob\", \"writer\"]\nboth = [\"#\"]\n";
    let mut gateway = users::gateway(&[], &["ada", "bob", "writer"], &[("acl.toml", RULES)])?;
    let mqtt = gateway.address("mqtt")?;
    let (mut writer, ..) = Login::of("writer", "writer").connect(mqtt)?;
    let join_and_deny = || -> Result<Connection> {
        let (mut bob, ..) = Login::of("bob", "bob").connect(mqtt)?;
        ensure!(bob.subscribe(1, &[GROUP], 1)? == [1], "bob did not join");
        deny(&gateway, RULES)?;
        Ok(bob)
    };
    let mut bob = match member {
        Member::EventStream => {
            let mut ada = follow(&gateway, "")?;
            read_until(&mut ada, "\r\n\r\n")?;
            publish(&mut writer, "t/public", b"first", false)?;
            let text = read_until(&mut ada, "first")?;
            let id = text.lines().rev().find_map(|line| line.strip_prefix("id:")).context("no id")?.trim();
            drop(ada);
            gateway.wait_metric("fogmux_http_event_streams_parked", PATIENCE, |parked| parked == 1.0)?;
            publish_all(&mut writer)?;
            let bob = join_and_deny()?;
            read_until(&mut follow(&gateway, &format!("Last-Event-ID: {id}\r\n"))?, "\r\n\r\n")?;
            bob
        }
        Member::Xmpp => {
            let (stream, config) = (tcp::connect(gateway.address("xmpps")?)?, tls::config(gateway.ca())?);
            let mut ada = xmpp::Session::plain_password(stream, &config, &users::sasl_plain("ada"), "r")?;
            ada.send("<enable xmlns='urn:xmpp:sm:3'/>")?;
            ada.until("<enabled xmlns='urn:xmpp:sm:3'/>")?;
            let form = xmpp::form("subscribe_options", &[("{urn:fogmux:0}filter", "true")]);
            let subscribe = format!("<subscribe node='{GROUP}' jid='{}'/><options>{form}</options>", ada.jid);
            let answer = ada.entity("set", &subscribe)?;
            ensure!(answer.contains("subscribed"), "{answer}");
            // More than may be unacknowledged.
            for _ in 0..1100 {
                publish(&mut writer, "t/public", b"first", false)?;
            }
            ada.until_count("</message>", 1000)?;
            publish_all(&mut writer)?;
            let bob = join_and_deny()?;
            ada.send("<a xmlns='urn:xmpp:sm:3' h='1001'/>")?;
            ada.until_count("</message>", 100)?;
            bob
        }
        Member::InFlight => {
            let (mut ada, ..) = Login::of("ada", "ada").connect(mqtt)?;
            ensure!(ada.subscribe(1, &[GROUP], 1)? == [1], "ada did not join");
            publish_all(&mut writer)?;
            for _ in 0..COUNT {
                ensure!(ada.read()?.0 & 0xf6 == 0x32, "no PUBLISH");
            }
            drop(ada);
            let bob = join_and_deny()?;
            let (_, present, _) = Login::of("ada", "ada").connect(mqtt)?;
            ensure!(present, "the session is gone");
            bob
        }
    };
    for number in 0..COUNT {
        let (first, body) = bob.read().with_context(|| format!("{number} of {COUNT} went to bob"))?;
        let is_it = first & 0xf0 == 0x30 && body.windows(8).any(|part| part == b"t/hidden");
        ensure!(is_it, "{first:#x} {body:?}");
    }
    drop((bob, writer));
    gateway.check_conservation()?;
    gateway.check_alive()
}

fn publish_all(writer: &mut Connection) -> Result<()> {
    (0..COUNT).try_for_each(|_| publish(writer, "t/hidden/x", b"x", false))
}

/// An event stream of ada's.
fn follow(gateway: &Gateway, last: &str) -> Result<TcpStream> {
    let mut stream = tcp::connect(gateway.address("http")?)?;
    let fields = format!("Host: localhost\r\nAccept: text/event-stream\r\n{}{last}", users::authorization("ada"));
    write!(stream, "GET /subscribe?filter=$share/g/t/%23 HTTP/1.1\r\n{fields}\r\n")?;
    Ok(stream)
}
