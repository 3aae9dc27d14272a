//! QoS 2 messages behind a packet that ends the connection: their client sends them again, and each is published
//! exactly once (MQTT 5 §4.3.3, [MQTT-4.4.0-1]). A message that is answered is published, whatever came before it.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, Connection, V4, V5};
use fogmux_tests::suite::Case;
use fogmux_tests::{tcp, users};

pub(crate) const CASES: &[Case] = &[
    Case { name: "QoS 2 behind a packet that ends the connection, sent again", run: behind_the_end },
    Case { name: "QoS 2 that a full table refuses, sent again when there is room", run: refused },
];

const PUBLISH_AGAIN: u8 = 0x08;
const RULES: &str = "[[allow]]\nanonymous = true\nboth = [\"open/#\"]\n";

/// A publisher with a session that stays, as MQTT wants it: it sends again what was not answered.
struct Publisher<'g> {
    gateway: &'g Gateway,
    version: u8,
    /// Messages without PUBCOMP: topic and payload by identifier, and whether PUBREC has come.
    open: BTreeMap<u16, (&'static str, bool, bool)>,
    /// The reason codes of PUBREC that refused a message.
    refused: Vec<u8>,
}

impl<'g> Publisher<'g> {
    fn new(gateway: &'g Gateway, version: u8) -> Self {
        Self { gateway, version, open: BTreeMap::new(), refused: Vec::new() }
    }

    fn connect(&self) -> Result<Connection> {
        let mut body = mqtt::string(b"MQTT");
        body.extend([self.version, 0, 0, 60]);
        if self.version == V5 {
            // Session Expiry Interval.
            body.extend([5, 0x11, 0, 0, 0, 200]);
        }
        body.extend(mqtt::string(b"publisher"));
        let mut stream = tcp::connect(self.gateway.address("mqtt")?)?;
        stream.write_all(&mqtt::packet(0x10, &body))?;
        let mut connection = Connection::over(stream, self.version);
        let (first, body) = connection.read()?;
        ensure!(first == 0x20 && body.get(1) == Some(&0), "CONNACK {first:#x} {body:?}");
        Ok(connection)
    }

    /// Adds messages of QoS 2: identifier, topic, whether they are retained.
    fn add(&mut self, messages: &[(u16, &'static str, bool)]) {
        self.open.extend(messages.iter().map(|(id, topic, retain)| (*id, (*topic, *retain, false))));
    }

    /// All messages without an answer, and PUBREL for the others.
    fn unanswered(&self, first: u8) -> Vec<u8> {
        let packets = self.open.iter().map(|(id, (topic, retain, received))| {
            if *received {
                return mqtt::packet(0x62, &id.to_be_bytes());
            }
            let mut packet = mqtt::publish(self.version, topic.as_bytes(), topic.as_bytes(), 2, *retain, *id);
            packet.iter_mut().take(1).for_each(|byte| *byte |= first);
            packet
        });
        packets.collect::<Vec<_>>().concat()
    }

    /// Reads answers until every message has PUBCOMP or the connection ends.
    fn settle(&mut self, connection: &mut Connection) -> Result<()> {
        while !self.open.is_empty() {
            let Ok((first, body)) = connection.read() else { return Ok(()) };
            let Some(id) = body.first_chunk::<2>().map(|id| u16::from_be_bytes(*id)) else { continue };
            let reason = body.get(2).copied().unwrap_or_default();
            match first {
                0x50 if reason >= 0x80 => {
                    self.refused.push(reason);
                    self.open.remove(&id);
                }
                0x50 => {
                    self.open.entry(id).and_modify(|(_, _, received)| *received = true);
                    // The gateway may have ended the connection.
                    let _ = connection.stream.write_all(&mqtt::packet(0x62, &id.to_be_bytes()));
                }
                0x70 => drop(self.open.remove(&id)),
                0xe0 => return Ok(()),
                _ => {}
            }
        }
        Ok(())
    }
}

/// How often each topic comes until one that is published last.
fn count_until_last(watcher: &mut Connection, gateway: &Gateway) -> Result<BTreeMap<String, usize>> {
    Connection::open(gateway.address("mqtt")?, V4, "last")?.publish("open/last", b"")?;
    let mut counts = BTreeMap::new();
    loop {
        let (first, body) = watcher.read()?;
        if first & 0xf0 == 0x30 {
            let length = body.first_chunk().map(|bytes| usize::from(u16::from_be_bytes(*bytes))).context("no topic")?;
            let topic = String::from_utf8_lossy(body.get(2..2 + length).context("no topic")?).into_owned();
            if topic == "open/last" {
                return Ok(counts);
            }
            *counts.entry(topic).or_default() += 1;
        }
    }
}

fn watch(gateway: &Gateway) -> Result<Connection> {
    let mut watcher = Connection::open(gateway.address("mqtt")?, V4, "watcher")?;
    watcher.subscribe(1, &["open/#"], 0)?;
    Ok(watcher)
}

/// A message to a topic that may not be written ends a connection of 3.1.1, and one of QoS 0 whose topic is a filter
/// any.
fn behind_the_end() -> Result<String> {
    let forbidden = mqtt::publish(V4, b"closed/1", b"", 1, false, 99);
    for (version, ends) in [(V4, forbidden), (V5, mqtt::publish(V5, b"open/#", b"", 0, false, 0))] {
        let mut gateway = users::gateway(&[], &[], &[("acl.toml", RULES)])?;
        let mut watcher = watch(&gateway)?;
        let mut publisher = Publisher::new(&gateway, version);
        publisher.add(&[(1, "open/before", false)]);
        let before = publisher.unanswered(0);
        publisher.open.clear();
        publisher.add(&[(2, "open/behind", false), (3, "open/behind/it", true)]);
        let turn = [before, ends, publisher.unanswered(0)].concat();
        publisher.add(&[(1, "open/before", false)]);
        let mut connection = publisher.connect()?;
        tcp::pour(&mut connection.stream, &turn)?;
        publisher.settle(&mut connection)?;
        ensure!(publisher.open.contains_key(&2), "what is behind the end of the connection is answered");
        let mut connection = publisher.connect()?;
        tcp::pour(&mut connection.stream, &publisher.unanswered(PUBLISH_AGAIN))?;
        publisher.settle(&mut connection)?;
        ensure!(publisher.open.is_empty() && publisher.refused.is_empty(), "not answered: {:?}", publisher.open);
        let counts = count_until_last(&mut watcher, &gateway)?;
        let once = ["open/before", "open/behind", "open/behind/it"].map(|topic| (topic.to_owned(), 1));
        ensure!(counts == BTreeMap::from(once), "version {version}: answered all, published {counts:?}");
        drop((watcher, connection));
        gateway.settle()?;
    }
    Ok("3.1.1 and 5".to_owned())
}

/// A message that is not retained for want of room ends a connection of 3.1.1; one of version 5 is told.
fn refused() -> Result<String> {
    for version in [V4, V5] {
        let mut gateway = Gateway::start(&["bus.retained_messages_max=1", "mqtt.sys_interval=0s"])?;
        let http = gateway.address("http")?;
        ensure!(users::http(http, "", "PUT", "/topics/full", b"1")? == 201, "the table has no room");
        let mut watcher = watch(&gateway)?;
        let mut publisher = Publisher::new(&gateway, version);
        publisher.add(&[(1, "open/kept", true), (2, "open/behind", false)]);
        let mut connection = publisher.connect()?;
        tcp::pour(&mut connection.stream, &publisher.unanswered(0))?;
        publisher.settle(&mut connection)?;
        ensure!((version == V5) == (publisher.refused == [0x97]), "refused by {:x?}", publisher.refused);
        ensure!(users::http(http, "", "DELETE", "/topics/full", b"")? == 204, "DELETE");
        if version == V5 {
            publisher.add(&[(1, "open/kept", true)]);
        }
        let mut connection = publisher.connect()?;
        tcp::pour(&mut connection.stream, &publisher.unanswered(PUBLISH_AGAIN))?;
        publisher.settle(&mut connection)?;
        ensure!(publisher.open.is_empty(), "version {version}: not answered: {:?}", publisher.open);
        let kept = users::http(http, "", "GET", "/topics/open/kept", b"")?;
        ensure!(kept == 200, "version {version}: a message that is answered is not retained: GET is {kept}");
        let counts = count_until_last(&mut watcher, &gateway)?;
        let once = ["open/behind", "open/kept"].map(|topic| (topic.to_owned(), 1));
        ensure!(counts == BTreeMap::from(once), "version {version}: published {counts:?}");
        drop((watcher, connection));
        gateway.settle()?;
    }
    Ok("3.1.1 and 5".to_owned())
}
