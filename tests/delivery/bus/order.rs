//! One order per topic: the retained value, and what readers at every door see, whatever publishers do at once.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, Connection, V4};
use fogmux_tests::{coap, tcp};
use serde_json::Value;

const TOPICS: usize = 64;
const ROUNDS: usize = 100;
const ALL: usize = 2 * TOPICS * ROUNDS;
/// Connections that share a worker before another is used.
const BLOCK: usize = 16;
const URI_QUERY: u16 = 15;
const PATIENCE: Duration = Duration::from_secs(30);

/// Topic and value, in the order in which they came.
type Seen = Vec<(String, String)>;

/// A reader that has been there from the start, on a thread of its own.
struct Reader {
    got: Receiver<(String, String)>,
    seen: Seen,
}

impl Reader {
    fn start(mut next: impl FnMut() -> Result<(String, String)> + Send + 'static) -> Self {
        let (sender, got) = channel();
        std::thread::spawn(move || {
            while let Ok(value) = next() {
                if sender.send(value).is_err() {
                    return;
                }
            }
        });
        Self { got, seen: Seen::new() }
    }

    fn read_to(&mut self, count: usize) -> Result<()> {
        while self.seen.len() < count {
            let next = self.got.recv_timeout(PATIENCE);
            self.seen.push(next.with_context(|| format!("{} of {count} values came", self.seen.len()))?);
        }
        Ok(())
    }
}

pub(super) fn readers_agree() -> Result<String> {
    let mut gateway = Gateway::start(&[
        "workers.count=2",
        "http.event_stream_messages=100000",
        "http.event_stream_bytes=64MiB",
        "http.event_streams_bytes=64MiB",
        "http.event_stream_grace=1s",
    ])?;
    let over = Arc::new(AtomicBool::new(false));
    let (mut readers, mut publishers, mut idle) = (Vec::new(), Vec::new(), Vec::new());
    for worker in 0..2 {
        publishers.push(Connection::open(gateway.address("mqtt")?, V4, &format!("publisher-{worker}"))?);
        readers.push(mqtt_reader(&gateway, worker)?);
        for number in 0..BLOCK - 2 {
            idle.push(Connection::open(gateway.address("mqtt")?, V4, &format!("idle-{worker}-{number}"))?);
        }
    }
    readers.push(event_stream(&gateway)?);
    let last = Arc::new(OnceLock::new());
    let observers = (0..4).map(|topic| observer(&gateway, topic, &over, &last)).collect::<Result<Vec<_>>>()?;
    let mut late = (0..2).map(|number| late_readers(&gateway, number, &over)).collect::<Result<Vec<_>>>()?;
    late.push(late_streams(&gateway, &over)?);
    late.push(late_observers(&gateway, &over)?);
    late.push(late_filter_observers(&gateway, &over)?);
    for round in 1..=ROUNDS {
        publish(round, &mut publishers)?;
        readers.iter_mut().try_for_each(|reader| reader.read_to(round * 2 * TOPICS))?;
        let retained = retained(&gateway, round)?;
        for reader in &readers {
            let last: HashMap<_, _> = reader.seen.iter().cloned().collect();
            ensure!(
                last == retained,
                "in round {round} a reader was left with {} other values",
                differ(&last, &retained)
            );
        }
    }
    let _ = last.set(retained(&gateway, ROUNDS + 1)?);
    over.store(true, Ordering::SeqCst);
    let mut complete = readers.into_iter().map(|reader| by_topic(reader.seen));
    let order = complete.next().context("no reader")?;
    ensure!(complete.all(|other| other == order), "readers saw other orders");
    let mut partial = 0;
    for seen in late.into_iter().map(join).collect::<Result<Vec<Vec<Seen>>>>()?.into_iter().flatten() {
        partial += 1;
        check_sorted("a subscriber that came late", &order, seen)?;
    }
    for (topic, seen) in observers.into_iter().map(join).collect::<Result<Vec<Seen>>>()?.into_iter().enumerate() {
        let last = order.get(&format!("order/{topic}")).and_then(|values| values.last());
        ensure!(seen.last().map(|(_, value)| value) == last, "an observer of topic {topic} ends elsewhere");
        check_sorted("an observer", &order, seen)?;
    }
    drop((idle, publishers));
    super::settle_beside_coap(&mut gateway)?;
    Ok(format!("{ALL} values, {partial} subscribers that came late"))
}

fn differ(one: &HashMap<String, String>, other: &HashMap<String, String>) -> usize {
    other.iter().filter(|(topic, value)| one.get(*topic) != Some(value)).count()
}

/// A batch of each publisher at once, one in the order of the topics and the other against it.
fn publish(round: usize, publishers: &mut [Connection]) -> Result<()> {
    let packets = |index: usize| {
        let topic = |number| if index == 0 { number } else { TOPICS - 1 - number };
        let topics = (0..TOPICS).map(|number| format!("order/{}", topic(number)));
        let value = format!("{index}-{round}");
        topics.flat_map(|topic| mqtt::publish(V4, topic.as_bytes(), value.as_bytes(), 0, true, 0)).collect()
    };
    let batches: Vec<Vec<u8>> = (0..publishers.len()).map(packets).collect();
    for (publisher, batch) in publishers.iter_mut().zip(batches) {
        publisher.stream.write_all(&batch)?;
    }
    for publisher in publishers {
        publisher.stream.write_all(&[0xc0, 0])?;
        ensure!(publisher.read()?.0 == 0xd0, "no PINGRESP");
    }
    Ok(())
}

/// The retained messages that a new subscriber receives.
fn retained(gateway: &Gateway, round: usize) -> Result<HashMap<String, String>> {
    let mut subscriber = Connection::open(gateway.address("mqtt")?, V4, &format!("judge-{round}"))?;
    subscriber.subscribe(1, &["order/#"], 0)?;
    let mut next = || -> Result<(String, String)> {
        let (_, topic, value) = super::next_publish(&mut subscriber)?;
        Ok((topic, String::from_utf8(value)?))
    };
    (0..TOPICS).map(|_| next()).collect()
}

fn mqtt_reader(gateway: &Gateway, number: usize) -> Result<Reader> {
    let mut reader = Connection::open(gateway.address("mqtt")?, V4, &format!("reader-{number}"))?;
    reader.subscribe(1, &["order/#"], 0)?;
    reader.stream.set_read_timeout(Some(PATIENCE))?;
    let mut left = ALL;
    Ok(Reader::start(move || {
        left = left.checked_sub(1).context("all")?;
        let (_, topic, value) = super::next_publish(&mut reader)?;
        Ok((topic, String::from_utf8(value)?))
    }))
}

fn join<T>(thread: JoinHandle<Result<T>>) -> Result<T> {
    thread.join().map_err(|_| anyhow!("a thread panicked"))?
}

/// Server-sent events, by HTTP/1.0, whose body is not chunked; gives what reads the next.
fn events(address: SocketAddr, patience: Duration) -> Result<impl FnMut() -> Result<(String, String)> + Send + use<>> {
    let mut stream = tcp::connect(address)?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(b"GET /subscribe?filter=order/%23 HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut lines = BufReader::new(stream).lines();
    let status = lines.next().context("no status")??;
    ensure!(status.contains(" 200 "), "{status}");
    Ok(move || {
        loop {
            let line = lines.next().context("the stream ends")??;
            let Some(data) = line.strip_prefix("data:") else { continue };
            let event: Value = serde_json::from_str(data)?;
            let text = |name: &str| event.get(name).and_then(Value::as_str).map(str::to_owned);
            return Ok((text("topic").context("no topic")?, text("payload").context("no payload")?));
        }
    })
}

fn event_stream(gateway: &Gateway) -> Result<Reader> {
    let (mut next, mut left) = (events(gateway.address("http")?, PATIENCE)?, ALL);
    Ok(Reader::start(move || {
        left = left.checked_sub(1).context("all")?;
        next()
    }))
}

/// Clients that subscribe while values come, read some and leave.
fn late_readers(gateway: &Gateway, number: usize, over: &Arc<AtomicBool>) -> Result<JoinHandle<Result<Vec<Seen>>>> {
    let (address, over) = (gateway.address("mqtt")?, Arc::clone(over));
    Ok(std::thread::spawn(move || {
        let mut all = Vec::new();
        for turn in 0.. {
            // The last ones come when all has been said.
            let last = over.load(Ordering::SeqCst);
            let mut reader = Connection::open(address, V4, &format!("late-{number}-{turn}"))?;
            reader.stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            reader.stream.write_all(&mqtt::subscribe(V4, 1, &["order/#"], 0))?;
            let mut seen = Seen::new();
            for _ in 0..if last { TOPICS } else { 3 * TOPICS } {
                let Ok((_, topic, value)) = super::next_publish(&mut reader) else { break };
                seen.push((topic, String::from_utf8(value)?));
                if over.load(Ordering::SeqCst) && seen.len() >= TOPICS {
                    break;
                }
            }
            all.push(seen);
            if last {
                break;
            }
        }
        Ok(all)
    }))
}

/// Event streams that begin while values come.
fn late_streams(gateway: &Gateway, over: &Arc<AtomicBool>) -> Result<JoinHandle<Result<Vec<Seen>>>> {
    let (address, over) = (gateway.address("http")?, Arc::clone(over));
    Ok(std::thread::spawn(move || {
        let mut all = Vec::new();
        while !over.load(Ordering::SeqCst) {
            let mut next = events(address, Duration::from_secs(1))?;
            all.push((0..3 * TOPICS).map_while(|_| next().ok()).collect());
        }
        Ok(all)
    }))
}

/// Observations that begin while values come, each of one topic and of a few values.
fn late_observers(gateway: &Gateway, over: &Arc<AtomicBool>) -> Result<JoinHandle<Result<Vec<Seen>>>> {
    let (address, over) = (gateway.address("coap")?, Arc::clone(over));
    Ok(std::thread::spawn(move || {
        let (socket, mut all) = (coap::endpoint(address)?, Vec::new());
        let mut id = 1;
        for token in 0..=u8::MAX {
            if over.load(Ordering::SeqCst) {
                break;
            }
            let name = format!("order/{}", usize::from(token) % TOPICS);
            let mut ask = |wish: &[u8]| -> Result<Vec<u8>> {
                id += 1;
                let options: [(u16, &[u8]); 1] = [(coap::OBSERVE, wish)];
                let request = coap::request(coap::CON, coap::GET, id, &[token], &name, &options, b"");
                coap::exchange(&socket, &request, &[token])
            };
            let mut values: Vec<String> = payload(&ask(b"")?).into_iter().collect();
            for _ in 0..5 {
                let Some(message) = coap::receive(&socket, Duration::from_millis(100))? else { break };
                acknowledge(&socket, &message)?;
                if message.get(4) == Some(&token) {
                    values.extend(payload(&message));
                }
            }
            ask(&[1])?;
            all.push(values.into_iter().map(|value| (name.clone(), value)).collect());
        }
        Ok(all)
    }))
}

/// Observations of a filter that begin while values come; each notification names its topic.
fn late_filter_observers(gateway: &Gateway, over: &Arc<AtomicBool>) -> Result<JoinHandle<Result<Vec<Seen>>>> {
    let (address, over) = (gateway.address("coap")?, Arc::clone(over));
    Ok(std::thread::spawn(move || {
        let mut all = Vec::new();
        while !over.load(Ordering::SeqCst) {
            let socket = coap::endpoint(address)?;
            let ask = |id, wish: &[u8]| -> Result<Vec<u8>> {
                let options: [(u16, &[u8]); 3] =
                    [(coap::OBSERVE, wish), (coap::URI_PATH, b"ps"), (URI_QUERY, b"filter=order/#")];
                coap::exchange(&socket, &coap::message(coap::CON, coap::GET, id, b"f", &options, b""), b"f")
            };
            ask(1, b"")?;
            let mut seen = Seen::new();
            while seen.len() < 3 * TOPICS {
                let Some(message) = coap::receive(&socket, Duration::from_millis(200))? else { break };
                acknowledge(&socket, &message)?;
                if let (Some(level), Some(value)) = (last_level(&message), payload(&message)) {
                    seen.push((format!("order/{level}"), value));
                }
            }
            ask(2, &[1])?;
            all.push(seen);
        }
        ensure!(all.iter().any(|seen| seen.len() >= TOPICS), "observers of a filter saw next to nothing");
        Ok(all)
    }))
}

/// The last Location-Path (RFC 7252 §3.1, §5.10.7); our options are no longer than 12 bytes.
fn last_level(message: &[u8]) -> Option<String> {
    const LOCATION_PATH: usize = 8;
    let mut at = 4 + usize::from(message.first()? & 0x0f);
    let (mut number, mut level) = (0, None);
    while let Some(head) = message.get(at).filter(|head| **head != 0xff) {
        let length = usize::from(head & 0x0f);
        number += usize::from(head >> 4);
        if number == LOCATION_PATH {
            level = String::from_utf8(message.get(at + 1..at + 1 + length)?.to_vec()).ok();
        }
        at += 1 + length;
    }
    level
}

fn acknowledge(socket: &UdpSocket, message: &[u8]) -> Result<()> {
    if let Some(&[first, _, high, low]) = message.first_chunk::<4>()
        && (first >> 4) & 3 == coap::CON
    {
        socket.send(&[0x60, 0, high, low])?;
    }
    Ok(())
}

/// Observes one topic with confirmable notifications until all is over and nothing comes any more.
fn observer(
    gateway: &Gateway,
    topic: usize,
    over: &Arc<AtomicBool>,
    last: &Arc<OnceLock<HashMap<String, String>>>,
) -> Result<JoinHandle<Result<Seen>>> {
    let socket = coap::endpoint(gateway.address("coap")?)?;
    let name = format!("order/{topic}");
    let options: [(u16, &[u8]); 2] = [(coap::OBSERVE, b""), (URI_QUERY, b"qos=1")];
    let answer = coap::exchange(&socket, &coap::request(coap::CON, coap::GET, 1, b"o", &name, &options, b""), b"o")?;
    ensure!(coap::dotted(&answer) == "2.05", "{}", coap::dotted(&answer));
    let (over, last) = (Arc::clone(over), Arc::clone(last));
    let mut seen: Seen = payload(&answer).map(|value| (name.clone(), value)).into_iter().collect();
    Ok(std::thread::spawn(move || {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let Some(message) = coap::receive(&socket, Duration::from_millis(500))? else {
                // A notification that was lost comes again after some seconds.
                let is_latest = || seen.last().map(|(_, value)| value) == last.get().and_then(|last| last.get(&name));
                if over.load(Ordering::SeqCst) && (is_latest() || Instant::now() >= deadline) {
                    // RFC 7641 §3.6
                    let gone: [(u16, &[u8]); 2] = [(coap::OBSERVE, &[1]), (URI_QUERY, b"qos=1")];
                    coap::exchange(&socket, &coap::request(coap::CON, coap::GET, 2, b"o", &name, &gone, b""), b"o")?;
                    return Ok(seen);
                }
                let waits = over.load(Ordering::SeqCst);
                ensure!(waits || Instant::now() < deadline, "the others do not end");
                continue;
            };
            acknowledge(&socket, &message)?;
            // A retransmission has the value that it had: it is no older one for an observer (RFC 7641 §3.4).
            let value = payload(&message);
            if value.is_some() && seen.last().map(|(_, last)| last) != value.as_ref() {
                seen.extend(value.map(|value| (name.clone(), value)));
            }
        }
    }))
}

/// The payload behind its marker; our options contain no 0xff.
fn payload(message: &[u8]) -> Option<String> {
    let at = message.iter().position(|byte| *byte == 0xff)?;
    String::from_utf8(message.get(at + 1..)?.to_vec()).ok()
}

fn by_topic(seen: Seen) -> HashMap<String, Vec<String>> {
    let mut topics: HashMap<String, Vec<String>> = HashMap::new();
    for (topic, value) in seen {
        topics.entry(topic).or_default().push(value);
    }
    topics
}

fn check_sorted(who: &str, order: &HashMap<String, Vec<String>>, seen: Seen) -> Result<()> {
    for (topic, values) in by_topic(seen) {
        let all = order.get(&topic).with_context(|| topic.clone())?;
        let place = |value: &String| all.iter().position(|other| other == value);
        let places: Vec<Option<usize>> = values.iter().map(place).collect();
        ensure!(places.iter().all(Option::is_some), "{who} of {topic} saw what nobody else did");
        ensure!(places.is_sorted(), "{who} of {topic} saw an older value after a newer one: {places:?}");
    }
    Ok(())
}
