//! Work for clients that are gone takes turns with that for those that are there (ADR 0020): publications to sessions
//! without a connection, which wake nobody, and the end of a large session.

use std::io::{Read as _, Write as _, sink};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, Connection, V4};
use fogmux_tests::xmpp::{Session, Via, form};
use fogmux_tests::{tcp, tls};

/// Sessions without a connection, each with a subscription.
const ABSENT: usize = 300;
/// Messages of five bytes that fit one read of the gateway.
const MESSAGES: usize = 13_000;
/// Answers that a neighbour gets while these are delivered: there are more than two hundred turns, and this process may
/// be held up in most of them. In one piece, there would be two or three.
const ANSWERS: usize = 10;
/// Rounds of which one has to show it.
const ROUNDS: usize = 5;
const PINGREQ: [u8; 2] = [0xC0, 0];
const DISCONNECT: [u8; 2] = [0xE0, 0];

/// Opens a session that stays when its connection goes.
fn open_session(gateway: &Gateway, client: &str) -> Result<Connection> {
    let mut body = mqtt::string(b"MQTT");
    body.extend([V4, 0, 0, 60]);
    body.extend(mqtt::string(client.as_bytes()));
    let mut stream = tcp::connect(gateway.address("mqtt")?)?;
    stream.write_all(&mqtt::packet(0x10, &body))?;
    let mut connection = Connection::over(stream, V4);
    let (first, body) = connection.read()?;
    ensure!(first == 0x20 && body.get(1) == Some(&0), "CONNACK {first:#x} {body:?}");
    Ok(connection)
}

fn absent_sessions(gateway: &Gateway, many: usize) -> Result<()> {
    for number in 0..many {
        open_session(gateway, &format!("absent-{number}"))?.subscribe(1, &["w"], 1)?;
    }
    gateway.wait_metric("fogmux_bus_subscriptions", tcp::PATIENCE, |count| count >= many as f64)?;
    Ok(())
}

/// The neighbour's answers until the publisher has its own behind everything that it has published.
fn answers_meanwhile(publisher: &mut Connection, neighbour: &mut Connection) -> Result<usize> {
    let (count, (first, _)) = pings_until_answered(publisher, neighbour)?;
    ensure!(first == 0xD0, "{first:#x} instead of PINGRESP");
    Ok(count)
}

/// The neighbour's answers until a client has its own, and that.
fn pings_until_answered(client: &mut Connection, neighbour: &mut Connection) -> Result<(usize, (u8, Vec<u8>))> {
    client.stream.set_nonblocking(true)?;
    let mut count = 0;
    while client.stream.peek(&mut [0]).is_err() {
        neighbour.stream.write_all(&PINGREQ)?;
        let (first, _) = neighbour.read()?;
        ensure!(first == 0xD0, "{first:#x} instead of PINGRESP");
        count += 1;
    }
    client.stream.set_nonblocking(false)?;
    Ok((count, client.read()?))
}

pub(super) fn absent_subscribers() -> Result<String> {
    let mut gateway = Gateway::start(&["workers.count=1"])?;
    absent_sessions(&gateway, ABSENT)?;
    let mut publisher = Connection::open(gateway.address("mqtt")?, V4, "publisher")?;
    let mut neighbour = Connection::open(gateway.address("mqtt")?, V4, "neighbour")?;
    let mut flood = mqtt::publish(V4, b"w", b"", 0, false, 0).repeat(MESSAGES);
    flood.extend(PINGREQ);
    let (mut best, mut rounds) = (0, 0);
    while best < ANSWERS && rounds < ROUNDS {
        rounds += 1;
        publisher.stream.write_all(&flood)?;
        best = best.max(answers_meanwhile(&mut publisher, &mut neighbour)?);
    }
    ensure!(best >= ANSWERS, "{best} answers during {MESSAGES} messages to {ABSENT} sessions, {rounds} times");
    let all = (rounds * MESSAGES) as f64;
    gateway.wait_metric("fogmux_bus_published_total", tcp::PATIENCE, |count| count >= all)?;
    drop((publisher, neighbour));
    gateway.check_conservation()?;
    gateway.check_alive()?;
    Ok(format!("{best} answers in round {rounds}"))
}

/// The least part of the whole work, in time that the worker ran, for which no neighbour waits.
const PARTS: u32 = 8;

/// Whether a neighbour's longest wait is a small part of the whole work, and both.
fn waits(
    gateway: &Gateway,
    neighbour: &mut Connection,
    parts: u32,
    work: JoinHandle<Result<()>>,
) -> Result<(bool, String)> {
    let began = gateway.worker_times()?.0;
    let mut longest = Duration::ZERO;
    while !work.is_finished() {
        let before = gateway.worker_times()?.0;
        neighbour.stream.write_all(&PINGREQ)?;
        let (first, _) = neighbour.read()?;
        ensure!(first == 0xD0, "{first:#x} instead of PINGRESP");
        longest = longest.max(gateway.worker_times()?.0 - before);
    }
    work.join().map_err(|_| anyhow::anyhow!("the client panicked"))??;
    let all = gateway.worker_times()?.0 - began;
    Ok((longest < all / parts, format!("{longest:?} of {all:?}")))
}

/// Has work done in rounds until a neighbour's longest wait is a small part of one. `begin` starts a round.
fn rounds(gateway: &mut Gateway, begin: impl Fn() -> Result<JoinHandle<Result<()>>>) -> Result<String> {
    rounds_of(PARTS, gateway, begin)
}

fn rounds_of(parts: u32, gateway: &mut Gateway, begin: impl Fn() -> Result<JoinHandle<Result<()>>>) -> Result<String> {
    let mut neighbour = Connection::open(gateway.address("mqtt")?, V4, "neighbour")?;
    let mut seen = Vec::new();
    for _ in 0..ROUNDS {
        let (is_small, told) = waits(gateway, &mut neighbour, parts, begin()?)?;
        seen.push(told);
        if is_small {
            gateway.check_alive()?;
            return Ok(seen.join(", "));
        }
    }
    anyhow::bail!("a neighbour waited for {}", seen.join(", "))
}

/// The same by requests of CoAP over TCP. Its input comes in smaller pieces, so the longest wait of a neighbour is
/// compared with the whole work, both in time that the worker ran.
pub(super) fn absent_subscribers_of_coap() -> Result<String> {
    const REQUESTS: usize = 8000;
    // Sessions in memory: millions of records would be the work of the disk.
    let mut gateway = Gateway::start(&["workers.count=1", "store.durability=none"])?;
    absent_sessions(&gateway, ABSENT)?;
    let address = gateway.address("coap_tcp")?;
    rounds(&mut gateway, || {
        Ok(std::thread::spawn(move || {
            // POST /ps/w, behind the settings of each connection (RFC 8323 §3.2, §5.3).
            let flood = [&b"\x00\xe1"[..], &b"\x50\x02\xb2ps\x01w".repeat(REQUESTS)].concat();
            let mut stream = tcp::connect(address)?;
            stream.write_all(&flood)?;
            // An answer has two bytes.
            let bytes = std::io::copy(&mut stream.take(2 * REQUESTS as u64), &mut sink())?;
            ensure!(bytes == 2 * REQUESTS as u64, "{bytes} bytes of answers");
            Ok(())
        }))
    })
}

/// The same by XMPP: requests of as many items as one may have, which follow others with few subscribers.
pub(super) fn absent_subscribers_of_xmpp() -> Result<String> {
    const REQUESTS: usize = 28;
    const ITEMS: usize = 64;
    // Sessions in memory: millions of records would be the work of the disk.
    let mut gateway = Gateway::start(&["workers.count=1", "store.durability=none"])?;
    absent_sessions(&gateway, ABSENT)?;
    let options = form("publish-options", &[("pubsub#persist_items", "0")]);
    let request = |node: &str, items: usize| {
        let items = "<item><a xmlns='b'/></item>".repeat(items);
        format!(
            "<iq type='set' id='p' to='pubsub.localhost'><pubsub xmlns='http://jabber.org/protocol/pubsub'>\
             <publish node='{node}'>{items}</publish><publish-options>{options}</publish-options></pubsub></iq>"
        )
    };
    let flood = request("nobody", 1).repeat(2) + &request("w", ITEMS).repeat(REQUESTS);
    let (config, address) = (tls::config(gateway.ca())?, gateway.address("xmpp")?);
    rounds(&mut gateway, || {
        let mut session = Session::over(tcp::connect(address)?, &config, Via::Plain)?;
        let flood = flood.clone();
        Ok(std::thread::spawn(move || {
            session.send(&flood)?;
            let answers = session.until_count("</iq>", REQUESTS + 2)?;
            ensure!(!answers.contains("type='error'"), "{answers}");
            Ok(())
        }))
    })
}

/// The items of one request of XMPP to sessions with records, which are a lot of work each, take turns. They are
/// answered whole, and before what was sent behind them.
pub(super) fn one_request_of_xmpp() -> Result<String> {
    const SESSIONS: usize = 700;
    const ITEMS: usize = 64;
    // Nothing is dropped of five rounds, and no session waits for a commit of its own.
    let settings = ["bus.memory_high_bytes=512MiB", "mqtt.tight_bytes=256MiB", "store.durability=interval"];
    let mut gateway = Gateway::start(&[&["workers.count=1"], &settings[..]].concat())?;
    absent_sessions(&gateway, SESSIONS)?;
    let options = form("publish-options", &[("pubsub#persist_items", "0")]);
    let request = |id: &str, items: &str| {
        format!(
            "<iq type='set' id='{id}' to='pubsub.localhost'><pubsub xmlns='http://jabber.org/protocol/pubsub'>\
             <publish node='w'>{items}</publish><publish-options>{options}</publish-options></pubsub></iq>"
        )
    };
    let item = |number: usize| format!("<item id='i{number}'><a xmlns='b'>{number}</a></item>");
    let many = request("many", &(0..ITEMS).map(item).collect::<String>());
    let flood = many.clone() + &request("one", &item(ITEMS));
    let (config, address) = (tls::config(gateway.ca())?, gateway.address("xmpp")?);
    // A round has forty milliseconds, of which the neighbour's own turns and a commit take some.
    let told = rounds_of(PARTS / 2, &mut gateway, || {
        let mut session = Session::over(tcp::connect(address)?, &config, Via::Plain)?;
        let flood = flood.clone();
        Ok(std::thread::spawn(move || {
            session.send(&flood)?;
            let answers = session.until_count("</iq>", 2)?;
            let ids: Vec<_> = answers.match_indices("<item id='").collect();
            let numbers = ids.iter().map(|(at, found)| answers.get(at + found.len()..)?.split('\'').next());
            let expected = (0..=ITEMS).map(|number| format!("i{number}"));
            ensure!(numbers.eq(expected.collect::<Vec<_>>().iter().map(|id| Some(id.as_str()))), "{answers}");
            Ok(())
        }))
    })?;
    goes_first(&gateway, &config, address, &many)?;
    let mut session = open_session(&gateway, "absent-0")?;
    for number in 0..=ITEMS {
        let (first, body) = session.read()?;
        let text = format!("<a xmlns='b'>{number}</a>");
        let is_next = body.ends_with(text.as_bytes()) && first & 0xf0 == 0x30;
        ensure!(is_next, "{number}: {first:#x} {}", String::from_utf8_lossy(&body));
        let at = 4 + body.get(1).copied().map_or(0, usize::from);
        let id = body.get(at - 2..at).context("a packet identifier")?;
        session.stream.write_all(&[&[0x40, 2], id].concat())?;
    }
    Ok(told)
}

/// A client that closes its stream, or is gone, behind a request has everything of it published; the one that waits is
/// answered.
fn goes_first(
    gateway: &Gateway,
    config: &std::sync::Arc<rustls::ClientConfig>,
    address: std::net::SocketAddr,
    request: &str,
) -> Result<()> {
    let published = || anyhow::Ok(gateway.metrics()?.get("fogmux_bus_published_total").copied().unwrap_or_default());
    for waits in [true, false] {
        let before = published()?;
        let mut session = Session::over(tcp::connect(address)?, config, Via::Plain)?;
        session.send(&format!("{request}</stream:stream>"))?;
        if waits {
            let answers = session.until("</stream:stream>")?;
            ensure!(answers.matches("<item id='i").count() == 64, "{answers}");
        }
        drop(session);
        gateway.wait_metric("fogmux_bus_published_total", tcp::PATIENCE, |count| count >= before + 64.0)?;
    }
    Ok(())
}

/// A batch that takes many turns is acknowledged and delivered in its order, also if its client goes at once.
pub(super) fn order() -> Result<String> {
    const COUNT: u16 = 250;
    let mut gateway = Gateway::start(&["workers.count=1"])?;
    absent_sessions(&gateway, ABSENT)?;
    let mut subscriber = Connection::open(gateway.address("mqtt")?, V4, "subscriber")?;
    subscriber.subscribe(1, &["w"], 1)?;
    let batch = |qos: u8, retain: bool| -> Vec<u8> {
        (1..=COUNT).flat_map(|id| mqtt::publish(V4, b"w", &id.to_be_bytes(), qos, retain, id)).collect()
    };
    for (qos, retain, ends) in [(1, false, false), (1, true, false), (0, false, true), (1, false, true)] {
        let mut publisher = Connection::open(gateway.address("mqtt")?, V4, "publisher")?;
        let mut flood = batch(qos, retain);
        if ends {
            flood.extend(DISCONNECT);
        }
        publisher.stream.write_all(&flood)?;
        let of = format!("QoS {qos}, retain {retain}, ends {ends}");
        for expected in 1..=COUNT {
            let (_, _, payload) =
                super::next_publish(&mut subscriber).with_context(|| format!("{expected} of {of}"))?;
            // The packet identifier comes first.
            let number = payload.last_chunk::<2>().map(|bytes| u16::from_be_bytes(*bytes));
            ensure!(number == Some(expected), "{number:?} instead of {expected} ({of})");
            if qos == 1 {
                let id = payload.first_chunk::<2>().context("no identifier")?;
                subscriber.stream.write_all(&mqtt::packet(0x40, id))?;
            }
        }
        if !ends {
            for expected in 1..=COUNT {
                let (first, body) = publisher.read()?;
                ensure!(first == 0x40 && body == expected.to_be_bytes(), "{first:#x} {body:?}, PUBACK of {expected}");
            }
        }
    }
    drop(subscriber);
    gateway.check_conservation()?;
    gateway.check_alive()?;
    Ok(String::new())
}

/// Filters of a session that expires are removed in portions: somebody who looks sees some of them gone.
pub(super) fn large_session() -> Result<String> {
    const FILTERS: usize = 10_000;
    let mut gateway = Gateway::start(&["workers.count=1", "mqtt.session_expiry_max=1s"])?;
    let names: Vec<String> = (0..FILTERS).map(|number| format!("e/{number}")).collect();
    let (mut seen, mut rounds) = (0, 0);
    while seen == 0 && rounds < 2 * ROUNDS {
        rounds += 1;
        let mut session = open_session(&gateway, "large")?;
        for some in names.chunks(1000) {
            session.subscribe(1, &some.iter().map(String::as_str).collect::<Vec<_>>(), 0)?;
        }
        let all = gateway.sum(&["fogmux_bus_subscriptions"])?;
        drop(session);
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let left = gateway.sum(&["fogmux_bus_subscriptions"])?;
            if left + FILTERS as u64 <= all {
                break;
            }
            seen += usize::from(left < all);
            ensure!(Instant::now() < deadline, "{left} of {all} filters are left");
        }
    }
    ensure!(seen > 0, "a session with {FILTERS} filters always ended in one piece");
    gateway.check_alive()?;
    Ok(format!("seen {seen} times in round {rounds}"))
}

/// Neighbours have their turn while a clean start ends a session with many filters, and nothing of them is left when it
/// is accepted.
pub(super) fn clean_start() -> Result<String> {
    const FILTERS: usize = 20_000;
    let mut gateway = Gateway::start(&["workers.count=1"])?;
    let names: Vec<String> = (0..FILTERS).map(|number| format!("e/{number}")).collect();
    let mut neighbour = Connection::open(gateway.address("mqtt")?, V4, "neighbour")?;
    let mut most = [0; 2];
    for round in 0..2 * ROUNDS {
        let connected = round % 2;
        let mut session = open_session(&gateway, "large")?;
        for some in names.chunks(1000) {
            session.subscribe(1, &some.iter().map(String::as_str).collect::<Vec<_>>(), 0)?;
        }
        let session = if connected == 1 { Some(session) } else { None };
        let mut fresh = tcp::connect(gateway.address("mqtt")?)?;
        fresh.write_all(&mqtt::connect(V4, "large"))?;
        let mut fresh = Connection::over(fresh, V4);
        let (answers, connack) = pings_until_answered(&mut fresh, &mut neighbour)?;
        ensure!(connack == (0x20, vec![0, 0]), "{connack:?} instead of a CONNACK without a session");
        let left = gateway.sum(&["fogmux_bus_subscriptions"])?;
        ensure!(left == 0, "{left} filters of the session before are left");
        neighbour.publish("e/1", b"x")?;
        fresh.stream.write_all(&PINGREQ)?;
        ensure!(fresh.read()?.0 == 0xD0, "the new session has inherited a filter");
        drop((session, fresh));
        if let Some(most) = most.get_mut(connected) {
            *most = answers.max(*most);
        }
    }
    ensure!(most.iter().all(|most| *most >= ANSWERS), "{most:?} answers while {FILTERS} filters were removed");
    gateway.check_alive()?;
    Ok(format!("{most:?} answers meanwhile"))
}

/// Publications to topics that one client follows by thousands of filters: each is one delivery, and much work to find.
pub(super) fn filters_that_match() -> Result<String> {
    const LEVELS: usize = 12;
    const TOPICS: usize = 1000;
    let mut gateway = Gateway::start(&["workers.count=1"])?;
    let level = |bits: u32| move |place: usize| if bits >> place & 1 == 1 { "+/" } else { "l/" };
    let filters: Vec<String> =
        (0..1 << LEVELS).map(|bits| (0..LEVELS).map(level(bits)).collect::<String>() + "+").collect();
    let mut reader = Connection::open(gateway.address("mqtt")?, V4, "reader")?;
    for some in filters.chunks(500) {
        let codes = reader.subscribe(1, &some.iter().map(String::as_str).collect::<Vec<_>>(), 0)?;
        ensure!(codes.iter().all(|code| *code == 0), "SUBACK {codes:?}");
    }
    let mut publisher = Connection::open(gateway.address("mqtt")?, V4, "publisher")?;
    let mut neighbour = Connection::open(gateway.address("mqtt")?, V4, "neighbour")?;
    let (mut best, mut rounds) = (0, 0);
    while best < ANSWERS && rounds < ROUNDS {
        rounds += 1;
        let topic = |number| format!("{}{rounds}-{number}", "l/".repeat(LEVELS));
        let mut flood: Vec<u8> =
            (0..TOPICS).flat_map(|number| mqtt::publish(V4, topic(number).as_bytes(), b"", 0, false, 0)).collect();
        flood.extend(PINGREQ);
        publisher.stream.write_all(&flood)?;
        best = best.max(answers_meanwhile(&mut publisher, &mut neighbour)?);
    }
    ensure!(best >= ANSWERS, "{best} answers during {TOPICS} messages that {} filters match", filters.len());
    for number in 0..rounds * TOPICS {
        super::next_publish(&mut reader).with_context(|| format!("message {number}"))?;
    }
    gateway.check_alive()?;
    Ok(format!("{best} answers in round {rounds}"))
}
