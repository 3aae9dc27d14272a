//! Observers that pause end on the newest value (RFC 7641 §1.3), however much came meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use fogmux_tests::coap::{FETCH, GET, Line, OBSERVE, URI_PATH, URI_QUERY};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::tcp;

use super::{Observer, PATIENCE, publish, retain};

/// A value that says its round first, padded.
fn value(round: usize, size: usize) -> Vec<u8> {
    let mut value = round.to_string().into_bytes();
    value.push(b' ');
    value.resize(size.max(value.len()), b'.');
    value
}

/// A connection whose receive buffer is small, so that a pause is felt soon.
fn line(gateway: &Gateway, listener: &str) -> Result<Line> {
    let stream = tcp::connect(gateway.address(listener)?)?;
    rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 16 << 10)?;
    let mut line = if listener == "http" { Line::over_websocket(stream)? } else { Line::over(stream)? };
    ensure!(line.next(PATIENCE)?.is_some_and(|message| message.code == 0xe1), "no CSM");
    Ok(line)
}

/// Reads until every token or topic shows the newest value.
fn read_to_the_end(line: &mut Line, newest: &BTreeMap<String, Vec<u8>>, by_topic: bool) -> Result<usize> {
    let mut seen: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut count = 0;
    while seen != *newest {
        let Some(message) = line.next(Duration::from_secs(5))? else {
            let stale = newest.iter().filter(|(name, value)| seen.get(*name) != Some(value)).count();
            anyhow::bail!("{stale} of {} are stale", newest.len());
        };
        ensure!(message.code == 0x45, "an observation ends with {:#x}", message.code);
        let name = if by_topic { message.topic() } else { String::from_utf8_lossy(&message.token).into_owned() };
        if !message.payload.is_empty() {
            // Of a large value, the first block says enough.
            seen.insert(name, message.payload.into_iter().take_while(|byte| *byte != b' ').collect());
            count += 1;
        }
    }
    Ok(count)
}

pub(super) fn pause() -> Result<String> {
    topics_of("coap_tcp")
}

pub(super) fn pause_websocket() -> Result<String> {
    topics_of("http")
}

fn topics_of(listener: &str) -> Result<String> {
    const TOPICS: usize = 64;
    // More than 16 MiB together.
    const SIZE: usize = 400 << 10;
    const ROUNDS: usize = 3;
    let mut gateway = Gateway::start(&[])?;
    let mut line = line(&gateway, listener)?;
    for topic in 0..TOPICS {
        let name = format!("pause{topic}");
        let options: [(u16, &[u8]); 3] = [(OBSERVE, b""), (URI_PATH, b"ps"), (URI_PATH, name.as_bytes())];
        line.send(GET, format!("{topic:03}").as_bytes(), &options, b"")?;
        line.next(PATIENCE)?.context("no answer")?;
    }
    for round in 0..ROUNDS {
        retain(&gateway, (0..TOPICS).map(|topic| (format!("pause{topic}"), value(round, SIZE))))?;
    }
    let newest = (0..TOPICS).map(|topic| (format!("{topic:03}"), (ROUNDS - 1).to_string().into_bytes())).collect();
    let count = read_to_the_end(&mut line, &newest, false)?;
    drop(line);
    gateway.settle()?;
    Ok(format!("{count} of {} notifications", TOPICS * ROUNDS))
}

pub(super) fn filter() -> Result<String> {
    filter_of("coap_tcp")
}

pub(super) fn filter_websocket() -> Result<String> {
    filter_of("http")
}

fn filter_of(listener: &str) -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    for (topics, size, rounds) in [(1, 60_000, 40), (97, 30_000, 8), (200, 20_000, 5), (2_000, 2_000, 3)] {
        let prefix = format!("filter{topics}");
        let mut line = line(&gateway, listener)?;
        let query = format!("filter={prefix}/#");
        line.send(FETCH, b"f", &[(OBSERVE, b""), (URI_PATH, b"ps"), (URI_QUERY, query.as_bytes())], b"")?;
        line.next(PATIENCE)?.context("no answer")?;
        for round in 0..rounds {
            retain(&gateway, (0..topics).map(|topic| (format!("{prefix}/{topic}"), value(round, size))))?;
        }
        let newest =
            (0..topics).map(|topic| (format!("{prefix}/{topic}"), (rounds - 1).to_string().into_bytes())).collect();
        read_to_the_end(&mut line, &newest, true).with_context(|| format!("{topics} topics"))?;
    }
    gateway.settle()?;
    Ok(String::new())
}

/// Topics of [`bursts`].
const TOPICS: usize = 30;

/// An observer of one topic, or with an odd number of all, reads until it has the last value.
fn end_on_newest(number: usize, mut observer: Observer) -> Result<()> {
    let topic = if number.is_multiple_of(2) { String::new() } else { format!("burst/{number}") };
    let whole = |observer: &Observer| {
        let last = value(99, 20);
        let is_newest = |value: &Vec<u8>| *value == last;
        match number % 2 {
            0 => observer.newest.get(&topic).is_some_and(is_newest),
            _ => observer.newest.values().filter(|value| is_newest(value)).count() == TOPICS,
        }
    };
    ensure!(observer.follow(whole)?, "observer {number} is stale: {:?}", observer.newest.get(&topic));
    observer.deregister()
}

pub(super) fn bursts() -> Result<String> {
    let mut gateway = Gateway::start(&["coap.ack_timeout=200ms"])?;
    let server = gateway.address("coap")?;
    let mut observers = Vec::new();
    for number in 0..TOPICS {
        let small = number % 3 == 0;
        let socket = fogmux_tests::coap::endpoint(server)?;
        if small {
            rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 1)?;
        }
        let (topic, filter) =
            if number % 2 == 0 { (format!("burst/{number}"), None) } else { (String::new(), Some("burst/#")) };
        observers.push((number, Observer::register_by(socket, &topic, filter, &[])?));
    }
    for round in 0..100 {
        retain(&gateway, (0..TOPICS).map(|topic| (format!("burst/{topic}"), value(round, 20))))?;
    }
    // All read at the same time: one that acknowledges nothing for as long as retransmissions last is ended (§4.5).
    let results: Vec<Result<()>> = std::thread::scope(|scope| {
        let follow = |(number, observer)| scope.spawn(move || end_on_newest(number, observer));
        let readers: Vec<_> = observers.into_iter().map(follow).collect();
        readers.into_iter().map(|reader| reader.join().unwrap_or_else(|_| bail!("an observer panicked"))).collect()
    });
    results.into_iter().collect::<Result<()>>()?;
    publish(&gateway, std::iter::once(("burst/0".to_owned(), b"x".to_vec())), false)?;
    gateway.settle()?;
    Ok(String::new())
}
