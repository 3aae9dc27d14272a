//! `/metrics` on time: of deliveries by pairs of doors, of synchronisations, and what waits and fails.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, Connection, V4, V5};
use fogmux_tests::suite::Case;
use fogmux_tests::{coap, dtls, tcp, tls, users, xmpp};

pub(super) const PAIRS: Case = Case { name: "metrics time each delivery by its pair of doors", run: pairs };
pub(super) const MANY: Case = Case { name: "metrics time a sample that stands for all of many deliveries", run: many };
pub(super) const SLOW: Case = Case { name: "metrics time what a subscriber has let wait", run: slow };
pub(super) const ABSENT: Case = Case { name: "metrics do not time what waited for an absent client", run: absent };
pub(super) const STORE: Case = Case { name: "metrics time the synchronisations of the store", run: store };
pub(super) const HANDSHAKES: Case = Case { name: "metrics count failed handshakes by reason", run: handshakes };

const DOORS: [&str; 4] = ["mqtt", "coap", "http", "xmpp"];
const ROUNDS: u32 = 5;

type Metrics = HashMap<String, f64>;

fn count(metrics: &Metrics, from: &str, to: &str) -> Result<f64> {
    let name = format!("fogmux_delivery_seconds_count{{from=\"{from}\",to=\"{to}\"}}");
    metrics.get(&name).copied().context(name)
}

/// Deliveries of a pair that took no longer than a bound.
fn within(metrics: &Metrics, from: &str, to: &str, bound: &str) -> Result<f64> {
    let found = metrics.iter().find(|(name, _)| {
        let labels = [format!("from=\"{from}\""), format!("to=\"{to}\""), format!("le=\"{bound}\"")];
        name.starts_with("fogmux_delivery_seconds_bucket{") && labels.iter().all(|label| name.contains(label))
    });
    found.map(|(_, count)| *count).with_context(|| format!("no bucket {bound} from {from} to {to}"))
}

/// The samples of all pairs.
fn all(metrics: &Metrics) -> f64 {
    let counts = metrics.iter().filter(|(name, _)| name.starts_with("fogmux_delivery_seconds_count"));
    counts.map(|(_, count)| count).sum()
}

/// Waits until so many deliveries are timed.
fn wait_for(gateway: &Gateway, expected: f64) -> Result<Metrics> {
    let deadline = Instant::now() + tcp::PATIENCE;
    loop {
        let metrics = gateway.metrics()?;
        let timed = all(&metrics);
        if timed >= expected {
            ensure!((timed - expected).abs() < 0.5, "{timed} deliveries instead of {expected}");
            return Ok(metrics);
        }
        ensure!(Instant::now() < deadline, "{timed} of {expected} deliveries");
        sleep(Duration::from_millis(20));
    }
}

/// One subscriber at each door.
struct Followers {
    mqtt: Connection,
    coap: UdpSocket,
    _http: std::net::TcpStream,
    xmpp: xmpp::Session,
}

impl Followers {
    fn open(gateway: &Gateway) -> Result<Self> {
        let mut mqtt = Connection::open(gateway.address("mqtt")?, V4, "follower")?;
        mqtt.subscribe(1, &["times/#"], 0)?;
        let coap = coap::endpoint(gateway.address("coap")?)?;
        let options: [(u16, &[u8]); 3] =
            [(coap::OBSERVE, b""), (coap::URI_PATH, b"ps"), (coap::URI_QUERY, b"filter=times/#")];
        coap::exchange(&coap, &coap::message(coap::CON, coap::FETCH, 1, b"f", &options, b""), b"f")?;
        let mut http = tcp::connect(gateway.address("http")?)?;
        http.write_all(
            b"GET /subscribe?filter=times/%23 HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n",
        )?;
        let mut xmpp = xmpp::Session::anonymous(&tls::config(gateway.ca())?, gateway.address("xmpps")?)?;
        let own = xmpp.bare();
        for door in DOORS {
            xmpp.entity("set", &format!("<subscribe node='times/{door}' jid='{own}'/>"))?;
        }
        gateway.wait_metric("fogmux_bus_subscriptions", tcp::PATIENCE, |count| count >= 7.0)?;
        Ok(Self { mqtt, coap, _http: http, xmpp })
    }

    /// Each gets one message. That of HTTP waits in its socket.
    fn receive(&mut self) -> Result<()> {
        while self.mqtt.read()?.0 & 0xf0 != 0x30 {}
        loop {
            let datagram = coap::receive(&self.coap, tcp::PATIENCE)?.context("no notification")?;
            let message = coap::Message::of_datagram(&datagram)?;
            if message.kind == coap::CON {
                self.coap.send(&coap::message(coap::ACK, 0, message.id, b"", &[], b""))?;
            }
            if !message.payload.is_empty() {
                break;
            }
        }
        self.xmpp.until("</message>")?;
        Ok(())
    }
}

/// One publisher at each door.
struct Publishers {
    mqtt: Connection,
    coap: UdpSocket,
    xmpp: xmpp::Session,
}

impl Publishers {
    fn open(gateway: &Gateway) -> Result<Self> {
        Ok(Self {
            mqtt: Connection::open(gateway.address("mqtt")?, V4, "publisher")?,
            coap: coap::endpoint(gateway.address("coap")?)?,
            xmpp: xmpp::Session::anonymous(&tls::config(gateway.ca())?, gateway.address("xmpps")?)?,
        })
    }

    fn publish(&mut self, gateway: &Gateway, door: &str, round: u32) -> Result<()> {
        let (topic, payload) = (format!("times/{door}"), format!("{door} {round}"));
        match door {
            "mqtt" => self.mqtt.publish(&topic, payload.as_bytes())?,
            "coap" => {
                let (id, token) = (u16::try_from(round)? + 100, round.to_be_bytes());
                let put = coap::request(coap::CON, coap::PUT, id, &token, &topic, &[], payload.as_bytes());
                let answer = coap::exchange(&self.coap, &put, &token)?;
                ensure!(coap::dotted(&answer).starts_with("2."), "{}", coap::dotted(&answer));
            }
            "http" => {
                let status = users::http(gateway.address("http")?, "", "POST", &format!("/topics/{topic}"), b"x")?;
                ensure!(status == 202, "POST: {status}");
            }
            "xmpp" => {
                let item = format!("<item><x xmlns='urn:example'>{payload}</x></item>");
                self.xmpp.entity("set", &format!("<publish node='{topic}'>{item}</publish>"))?;
            }
            other => bail!("no door {other}"),
        }
        Ok(())
    }
}

fn pairs() -> Result<String> {
    let mut gateway = Gateway::start(&["workers.count=2"])?;
    let before = gateway.metrics()?;
    let series = before.keys().filter(|name| name.starts_with("fogmux_delivery_seconds_count")).count();
    ensure!(series == 16, "{series} pairs of doors");
    ensure!(all(&before) == 0.0, "deliveries before there was any");
    let (mut followers, mut publishers) = (Followers::open(&gateway)?, Publishers::open(&gateway)?);
    for round in 0..ROUNDS {
        for door in DOORS {
            publishers.publish(&gateway, door, round)?;
            followers.receive().with_context(|| format!("round {round} of {door}"))?;
        }
    }
    let metrics = wait_for(&gateway, f64::from(16 * ROUNDS))?;
    for from in DOORS {
        for to in DOORS {
            let counted = count(&metrics, from, to)?;
            ensure!(counted == f64::from(ROUNDS), "{counted} deliveries from {from} to {to}");
            let top = within(&metrics, from, to, "+Inf")?;
            ensure!(top == counted, "{top} of {counted} in the buckets from {from} to {to}");
        }
    }
    let sent = metrics.get("fogmux_bus_sent_total").copied().context("no count of what was sent")?;
    ensure!(sent == all(&metrics), "{sent} sent, {} timed", all(&metrics));
    // Retained messages are no deliveries of a publication.
    let mut late = Connection::open(gateway.address("mqtt")?, V4, "late")?;
    late.subscribe(1, &["times/#"], 0)?;
    while late.read()?.0 & 0xf1 != 0x31 {}
    ensure!(all(&gateway.metrics()?) == f64::from(16 * ROUNDS), "a retained message was timed");
    gateway.check_conservation()?;
    gateway.check_alive()?;
    Ok(format!("{sent} deliveries of 16 pairs"))
}

/// More than can all be timed: those that are stand for as many as there were.
fn many() -> Result<String> {
    const MESSAGES: u32 = 80_000;
    let gateway = Gateway::start(&["workers.count=1"])?;
    let mut subscriber = Connection::open(gateway.address("mqtt")?, V4, "many-subscriber")?;
    subscriber.subscribe(1, &["many"], 0)?;
    let mut publisher = Connection::open(gateway.address("mqtt")?, V4, "many-publisher")?;
    let reader = std::thread::spawn(move || -> Result<()> {
        for _ in 0..MESSAGES {
            subscriber.read()?;
        }
        Ok(())
    });
    let all_of_them = mqtt::publish(V4, b"many", b"0123456789", 0, false, 0).repeat(MESSAGES as usize);
    publisher.stream.write_all(&all_of_them)?;
    reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))??;
    let counted = count(&gateway.metrics()?, "mqtt", "mqtt")?;
    // A cycle of gaps is of 32 640 messages; a part of one may be off by as much as a few of them stand for.
    let share = counted / f64::from(MESSAGES);
    ensure!((0.95..1.05).contains(&share), "{counted} of {MESSAGES}");
    Ok(format!("{counted} counted of {MESSAGES}"))
}

fn slow() -> Result<String> {
    const MESSAGES: u32 = 200;
    let gateway = Gateway::start(&["workers.count=1"])?;
    let mut stream = tcp::connect_narrow(gateway.address("mqtt")?, 4096)?;
    stream.write_all(&mqtt::connect(V4, "slow"))?;
    let mut slow = Connection::over(stream, V4);
    slow.read()?;
    slow.subscribe(1, &["slow"], 0)?;
    let mut publisher = Connection::open(gateway.address("mqtt")?, V4, "slow-publisher")?;
    for _ in 0..MESSAGES {
        publisher.publish("slow", &[b'x'; 60_000])?;
    }
    gateway.wait_metric("fogmux_bus_matched_total", tcp::PATIENCE, |count| count >= f64::from(MESSAGES))?;
    let paused = Duration::from_millis(600);
    sleep(paused);
    let before = gateway.metrics()?;
    // All of these came before the pause and are written after it.
    let waiting = before.get("fogmux_door_queue_messages{door=\"mqtt\"}").copied().context("no queue")?;
    let bytes = before.get("fogmux_door_queue_bytes{door=\"mqtt\"}").copied().context("no bytes")?;
    ensure!(waiting >= 10.0 && bytes >= waiting * 60_000.0, "{waiting} messages of {bytes} bytes wait");
    for _ in 0..MESSAGES {
        slow.read()?;
    }
    let metrics = wait_for(&gateway, f64::from(MESSAGES))?;
    let late = count(&metrics, "mqtt", "mqtt")? - within(&metrics, "mqtt", "mqtt", "0.5")?;
    ensure!(late >= waiting, "{late} deliveries took above half a second, {waiting} have waited for {paused:?}");
    for name in ["fogmux_door_queue_messages", "fogmux_door_queue_bytes"] {
        gateway.wait_metric(&format!("{name}{{door=\"mqtt\"}}"), tcp::PATIENCE, |left| left == 0.0)?;
    }
    Ok(format!("{waiting} have waited, {late} counted so"))
}

fn absent() -> Result<String> {
    let gateway = Gateway::start(&["workers.count=1"])?;
    let address = gateway.address("mqtt")?;
    let (mut session, _) = Connection::resume(address, "away", 3600, true)?;
    session.subscribe(1, &["away"], 1)?;
    drop(session);
    gateway.wait_metric("fogmux_door_connections{door=\"mqtt\"}", tcp::PATIENCE, |count| count == 0.0)?;
    let mut publisher = Connection::open(address, V5, "away-publisher")?;
    let publish = |publisher: &mut Connection, id| -> Result<()> {
        publisher.stream.write_all(&mqtt::publish(V5, b"away", b"x", 1, false, id))?;
        ensure!(publisher.read()?.0 == 0x40, "no PUBACK");
        Ok(())
    };
    publish(&mut publisher, 1)?;
    let (mut session, present) = Connection::resume(address, "away", 3600, false)?;
    ensure!(present, "the session is gone");
    ensure!(session.read()?.0 & 0xf0 == 0x30, "the message that has waited");
    publish(&mut publisher, 2)?;
    ensure!(session.read()?.0 & 0xf0 == 0x30, "the message that follows");
    wait_for(&gateway, 1.0)?;
    Ok(String::new())
}

fn store() -> Result<String> {
    let gateway = Gateway::start(&["store.durability=always"])?;
    for number in 0..3 {
        let status = users::http(gateway.address("http")?, "", "PUT", &format!("/topics/kept/{number}"), b"x")?;
        ensure!(status == 201, "PUT: {status}");
    }
    let metrics = gateway.metrics()?;
    let sample = |name: &str| metrics.get(name).copied().with_context(|| name.to_owned());
    let (syncs, commits) = (sample("fogmux_store_sync_seconds_count")?, sample("fogmux_store_commit_seconds_count")?);
    let (sync_s, commit_s) = (sample("fogmux_store_sync_seconds_sum")?, sample("fogmux_store_commit_seconds_sum")?);
    ensure!(syncs >= 3.0 && syncs <= commits, "{syncs} synchronisations of {commits} commits");
    ensure!(sync_s > 0.0 && sync_s <= commit_s, "{sync_s} s of {commit_s} s");
    Ok(format!("{syncs} synchronisations in {sync_s} s"))
}

fn handshakes() -> Result<String> {
    let files = [("psk.toml", &*users::key_file("device", b"0123456789abcdef"))];
    let gateway = Gateway::start_furnished(&[], &files)?;
    let address = gateway.address("mqtts")?;
    let mut expected = HashMap::new();
    let mut failed = |door: &str, transport: &str, reason: &str| -> Result<()> {
        let labels = format!("door=\"{door}\",transport=\"{transport}\",reason=\"{reason}\"");
        let name = format!("fogmux_handshake_failures_total{{{labels}}}");
        expected.insert(name.clone(), 1.0);
        gateway.wait_metric(&name, tcp::PATIENCE, |count| count == 1.0)?;
        let metrics = gateway.metrics()?;
        let counts = metrics.iter().filter(|(name, count)| name.contains("handshake_failures") && **count != 0.0);
        let counts: HashMap<_, _> = counts.map(|(name, count)| (name.clone(), *count)).collect();
        ensure!(counts == expected, "{counts:?} instead of {expected:?}");
        Ok(())
    };
    // A client that goes away, one that does not speak TLS, and one that does not know our authority.
    drop(tcp::connect(address)?);
    failed("mqtt", "tls", "closed")?;
    let mut stream = tcp::connect(address)?;
    stream.write_all(&mqtt::connect(V4, "plain"))?;
    let _ = stream.read(&mut [0; 64]);
    failed("mqtt", "tls", "protocol")?;
    let strangers = Gateway::start(&[])?;
    let mut stream = tls::connect(&tls::config(strangers.ca())?, gateway.address("https")?)?;
    ensure!(stream.write_all(b"GET / HTTP/1.1\r\n\r\n").is_err(), "a stranger's authority was trusted");
    failed("http", "tls", "alert")?;
    let socket = dtls::endpoint(gateway.address("coaps")?, 1)?;
    let context = dtls::psk("device", b"another key.....")?;
    ensure!(dtls::Session::open(&context, socket).is_err(), "a wrong key was taken");
    failed("coap", "dtls", "key")?;
    Ok(format!("{} reasons", expected.len()))
}
