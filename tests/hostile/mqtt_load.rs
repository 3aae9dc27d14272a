//! MQTT: clients that say nothing wrong, only too much of it, or never listen.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, Connection, V4, V5};
use fogmux_tests::suite::Case;
use fogmux_tests::tcp;

use crate::{attack, attack_with};

pub(crate) const CASES: &[Case] = &[
    Case { name: "mqtt half PUBLISHes", run: || attack(half_publishes) },
    Case { name: "mqtt 100 000 filters from one client", run: || attack(many_filters) },
    Case { name: "mqtt 8 000 filters that all match", run: || attack(matching_filters) },
    Case { name: "mqtt 65 535 QoS 2 never released", run: || attack(unreleased) },
    Case { name: "mqtt retained flood", run: || attack(retained_flood) },
    Case { name: "mqtt deaf readers", run: || attack(deaf_readers) },
    Case { name: "mqtt deaf readers of QoS 1", run: || attack(deaf_acknowledgers) },
    // Not on the disk: with records each message is 400 changes of the store, and others' p99 is some 20 ms even with
    // a release build, which is at the bound.
    Case { name: "mqtt absent sessions", run: || attack_with(&["store.durability=none"], absent_sessions) },
    Case { name: "mqtt absent sessions with a large message each", run: || attack(absent_holders) },
    Case { name: "mqtt filters that match none of 5 000 topics", run: || attack(filters_without_match) },
    Case { name: "mqtt filters of 190 levels", run: || attack(deep_filters) },
    Case { name: "mqtt wills of 60 kB", run: || attack(large_wills) },
    Case { name: "mqtt connect storm", run: || attack(connect_storm) },
    Case {
        name: "mqtt one identifier in 4 000 connections, with a PUBLISH behind each CONNECT",
        run: || attack(one_name),
    },
];

/// Time after which an attack has done what it could.
const LONG_ENOUGH: Duration = Duration::from_secs(20);

fn half_publishes(gateway: &Gateway) -> Result<String> {
    let whole = mqtt::publish(V4, b"half", &vec![b'x'; 1_000_000], 0, false, 0);
    let half = whole.get(..whole.len() / 2).unwrap_or_default();
    let mut held = Vec::new();
    let began = Instant::now();
    for number in 0..600 {
        if began.elapsed() > LONG_ENOUGH {
            break;
        }
        let Ok(mut connection) = Connection::open(gateway.address("mqtt")?, V4, &format!("half-{number}")) else {
            break;
        };
        connection.stream.set_write_timeout(Some(Duration::from_millis(200)))?;
        tcp::pour(&mut connection.stream, half)?;
        held.push(connection);
    }
    ensure!(held.len() >= 100, "only {} connections were let in", held.len());
    Ok(format!("{} × 500 kB held", held.len()))
}

fn many_filters(gateway: &Gateway) -> Result<String> {
    let mut connection = Connection::open(gateway.address("mqtt")?, V5, "filters")?;
    let mut granted = 0;
    for packet in 0..1000u16 {
        let filters: Vec<String> = (0..100).map(|n| format!("filter/{packet}/{n}/+/with/some/length/to/it")).collect();
        let names: Vec<&str> = filters.iter().map(String::as_str).collect();
        match connection.subscribe(packet + 1, &names, 0) {
            Ok(reasons) => {
                // 0x97 quota exceeded is the honest refusal; nothing else is.
                ensure!(reasons.iter().all(|reason| matches!(reason, 0 | 0x97)), "SUBACK {reasons:02x?}");
                granted += reasons.iter().filter(|reason| **reason == 0).count();
            }
            Err(_) => return Ok(format!("cut off after {granted} filters")),
        }
    }
    Ok(format!("{granted} of 100 000 filters granted"))
}

fn matching_filters(gateway: &Gateway) -> Result<String> {
    let levels = 13;
    let mut connection = Connection::open(gateway.address("mqtt")?, V4, "matching")?;
    let mut granted = 0;
    let all: Vec<String> = (0..8000u32)
        .map(|bits| (0..levels).map(|n| if bits >> n & 1 == 1 { "+" } else { "l" }).collect::<Vec<_>>().join("/"))
        .collect();
    for (id, filters) in (1u16..).zip(all.chunks(100)) {
        let names: Vec<&str> = filters.iter().map(String::as_str).collect();
        let Ok(reasons) = connection.subscribe(id, &names, 0) else { break };
        granted += reasons.iter().filter(|reason| **reason == 0).count();
    }
    let topic = vec!["l"; levels].join("/");
    let mut publisher = Connection::open(gateway.address("mqtt")?, V4, "publisher")?;
    for _ in 0..200 {
        publisher.publish(&topic, b"to all")?;
    }
    let mut arrived = 0;
    connection.stream.set_read_timeout(Some(Duration::from_millis(500)))?;
    let began = Instant::now();
    while began.elapsed() < LONG_ENOUGH && connection.read().is_ok() {
        arrived += 1;
    }
    // Overlapping filters of one client may be one delivery or several (§3.3.4); none at all would be a loss.
    ensure!(granted == 0 || arrived >= 200, "{granted} filters, 200 messages, {arrived} deliveries");
    Ok(format!("{granted} filters, {arrived} deliveries of 200 messages"))
}

fn unreleased(gateway: &Gateway) -> Result<String> {
    let mut told = Vec::new();
    for version in [V4, V5] {
        let mut connection = Connection::open(gateway.address("mqtt")?, version, &format!("qos2-{version}"))?;
        let mut reader = connection.stream.try_clone()?;
        let sink = std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
        let mut sent = 0;
        for id in 1..=u16::MAX {
            if !tcp::pour(&mut connection.stream, &mqtt::publish(version, b"two", &[b'x'; 1000], 2, false, id))? {
                break;
            }
            sent += 1;
        }
        told.push(format!("{sent} of version {version}"));
        connection.stream.shutdown(std::net::Shutdown::Both).ok();
        drop(sink.join());
    }
    Ok(told.join(", "))
}

fn retained_flood(gateway: &Gateway) -> Result<String> {
    let mut connection = Connection::open(gateway.address("mqtt")?, V5, "retained")?;
    let payload = vec![b'r'; 1000];
    let mut batch = Vec::new();
    let mut sent = 0;
    let began = Instant::now();
    for round in 0..3000 {
        batch.clear();
        for number in 0..100 {
            let topic = format!("flood/{round}/{number}");
            batch.extend(mqtt::publish(V5, topic.as_bytes(), &payload, 0, true, 0));
        }
        if began.elapsed() > LONG_ENOUGH || !tcp::pour(&mut connection.stream, &batch)? {
            break;
        }
        sent += 100;
    }
    ensure!(sent >= 1000, "only {sent} were taken");
    Ok(format!("{sent} topics of 1 kB"))
}

fn deaf_readers(gateway: &Gateway) -> Result<String> {
    deaf(gateway, 0)
}

fn deaf_acknowledgers(gateway: &Gateway) -> Result<String> {
    deaf(gateway, 1)
}

/// Fifty clients that subscribe and never read, and one that has much to say.
fn deaf(gateway: &Gateway, qos: u8) -> Result<String> {
    let mut readers = Vec::new();
    for number in 0..50 {
        let mut reader = Connection::open(gateway.address("mqtt")?, V5, &format!("deaf-{number}"))?;
        let granted = reader.subscribe(1, &["loud/#"], qos)?;
        ensure!(granted == [qos], "SUBACK {granted:?}");
        readers.push(reader);
    }
    let mut publisher = Connection::open(gateway.address("mqtt")?, V5, "loud")?;
    let mut acknowledgements = publisher.stream.try_clone()?;
    let sink = std::thread::spawn(move || std::io::copy(&mut acknowledgements, &mut std::io::sink()));
    let (payload, began, mut sent) = (vec![b'l'; 10_000], Instant::now(), 0);
    for number in 0..10_000u16 {
        let packet = mqtt::publish(V5, b"loud/speaker", &payload, qos, false, number % 60_000 + 1);
        if began.elapsed() > LONG_ENOUGH || !tcp::pour(&mut publisher.stream, &packet)? {
            break;
        }
        sent += 1;
    }
    publisher.stream.shutdown(std::net::Shutdown::Both).ok();
    drop(sink.join());
    ensure!(sent > 0, "nothing was taken");
    Ok(format!("{sent} messages of 10 kB towards 50 deaf readers of QoS {qos}"))
}

/// CONNECT of version 5 with a session that outlives the connection.
fn lasting(client: &str) -> Vec<u8> {
    let mut body = mqtt::string(b"MQTT");
    body.extend([V5, 0x02, 0, 60, 5, 0x11, 0, 0, 0x0e, 0x10]);
    body.extend(mqtt::string(client.as_bytes()));
    mqtt::packet(0x10, &body)
}

fn absent_sessions(gateway: &Gateway) -> Result<String> {
    for number in 0..200 {
        let mut stream = tcp::connect(gateway.address("mqtt")?)?;
        stream.write_all(&lasting(&format!("absent-{number}")))?;
        stream.write_all(&mqtt::subscribe(V5, 1, &["queue/#"], 1))?;
        // CONNACK and SUBACK have come once five bytes and as many again are there; then leave without a word.
        stream.read_exact(&mut [0; 10]).context("CONNACK and SUBACK")?;
    }
    let mut publisher = Connection::open(gateway.address("mqtt")?, V5, "queue")?;
    let mut acknowledgements = publisher.stream.try_clone()?;
    let sink = std::thread::spawn(move || std::io::copy(&mut acknowledgements, &mut std::io::sink()));
    let (payload, began, mut sent) = (vec![b'q'; 10_000], Instant::now(), 0);
    for number in 1..=20_000u16 {
        let packet = mqtt::publish(V5, b"queue/in", &payload, 1, false, number);
        if began.elapsed() > LONG_ENOUGH || !tcp::pour(&mut publisher.stream, &packet)? {
            break;
        }
        sent += 1;
    }
    publisher.stream.shutdown(std::net::Shutdown::Both).ok();
    drop(sink.join());
    Ok(format!("{sent} messages of 10 kB for 200 absent sessions"))
}

fn absent_holders(gateway: &Gateway) -> Result<String> {
    for number in 0..140 {
        let mut stream = tcp::connect(gateway.address("mqtt")?)?;
        stream.write_all(&lasting(&format!("holder-{number}")))?;
        stream.write_all(&mqtt::subscribe(V5, 1, &["large"], 1))?;
        stream.read_exact(&mut [0; 10]).context("CONNACK and SUBACK")?;
    }
    let mut publisher = Connection::open(gateway.address("mqtt")?, V5, "large")?;
    publisher.stream.write_all(&mqtt::publish(V5, b"large", &vec![b'x'; 1 << 20], 1, false, 1))?;
    ensure!(publisher.read()?.0 == 0x40, "no PUBACK");
    Ok("1 MiB for 140 absent sessions".to_owned())
}

fn filters_without_match(gateway: &Gateway) -> Result<String> {
    let mut publisher = Connection::open(gateway.address("mqtt")?, V5, "retainer")?;
    for number in 0..5000 {
        let topic = format!("d/{number}/v");
        publisher.stream.write_all(&mqtt::publish(V5, topic.as_bytes(), b"x", 0, true, 0))?;
    }
    gateway.wait_metric("fogmux_bus_retained_messages", LONG_ENOUGH, |kept| kept >= 5000.0)?;
    let mut connection = Connection::open(gateway.address("mqtt")?, V5, "unmatched")?;
    let filters: Vec<String> = (0..4000).map(|number| format!("+/+/none-{number}")).collect();
    let mut names: Vec<&str> = filters.iter().map(String::as_str).collect();
    // Comes when all others have been looked through.
    names.push("d/0/v");
    connection.stream.write_all(&mqtt::subscribe(V5, 1, &names, 0))?;
    connection.stream.set_read_timeout(Some(LONG_ENOUGH))?;
    while connection.read()?.0 & 0xf0 != 0x30 {}
    Ok(format!("{} filters over 5 000 topics", filters.len()))
}

fn deep_filters(gateway: &Gateway) -> Result<String> {
    let mut connection = Connection::open(gateway.address("mqtt")?, V5, "deep")?;
    let (tail, mut granted) = ("/x".repeat(190), 0);
    for packet in 0..100_u16 {
        let filters: Vec<String> = (0..100).map(|number| format!("{packet}-{number}{tail}")).collect();
        let names: Vec<&str> = filters.iter().map(String::as_str).collect();
        let reasons = connection.subscribe(packet + 1, &names, 0)?;
        ensure!(reasons.iter().all(|reason| matches!(reason, 0 | 0x97)), "SUBACK {reasons:02x?}");
        granted += reasons.iter().filter(|reason| **reason == 0).count();
    }
    Ok(format!("{granted} of 10 000 filters granted"))
}

fn large_wills(gateway: &Gateway) -> Result<String> {
    let mut taken = 0;
    for number in 0..3000 {
        // A will with a delay of an hour in a session of an hour.
        let mut body = mqtt::string(b"MQTT");
        body.extend([V5, 0x06, 0, 60, 5, 0x11, 0, 0, 0x0e, 0x10]);
        body.extend(mqtt::string(format!("will-{number}").as_bytes()));
        body.extend([5, 0x18, 0, 0, 0x0e, 0x10]);
        body.extend(mqtt::string(b"last/words"));
        body.extend(mqtt::string(&vec![b'w'; 60_000]));
        let mut connection = Connection::over(tcp::connect(gateway.address("mqtt")?)?, V5);
        connection.stream.write_all(&mqtt::packet(0x10, &body))?;
        let (_, connack) = connection.read()?;
        taken += usize::from(connack.get(1) == Some(&0));
    }
    Ok(format!("{taken} of 3000 wills taken"))
}

fn connect_storm(gateway: &Gateway) -> Result<String> {
    let began = Instant::now();
    let mut count = 0;
    while began.elapsed() < Duration::from_secs(5) {
        // The same client again and again: each takes over from the one before.
        let mut stream = tcp::connect(gateway.address("mqtt")?)?;
        stream.write_all(&mqtt::connect(V5, "storm"))?;
        count += 1;
    }
    Ok(format!("{count} takeovers"))
}

/// Each connection takes over the one before. What is behind CONNECT waits until those before have gone.
fn one_name(gateway: &Gateway) -> Result<String> {
    const CONNECTIONS: usize = 4_000;
    let address = gateway.address("mqtt")?;
    let message = mqtt::publish(V4, b"nobody", &[b'x'; 62_000], 0, false, 0);
    let input = [mqtt::connect(V4, "one"), message].concat();
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS {
        let stream = tcp::connect(address)?;
        stream.set_write_timeout(Some(Duration::from_millis(200)))?;
        held.push(stream);
    }
    let mut whole = 0;
    for stream in &mut held {
        whole += usize::from(tcp::pour(stream, &input)?);
    }
    ensure!(whole > CONNECTIONS / 2, "only {whole} of {CONNECTIONS} took all");
    Ok(format!("{whole} of {CONNECTIONS} took 62 kB"))
}
