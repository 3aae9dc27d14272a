//! CONNECT and CONNACK, wills, keep alive and sessions.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{V4, V5, packet, string};
use fogmux_tests::users;

use super::Proof;
use super::client::{Client, Connect, Will, text};

pub(super) const PROOFS: &[Proof] = &[
    Proof {
        name: "mqtt 5 CONNECT is answered once, first, and well",
        run: || answered(V5),
        proves: "5:3.1.0-1 5:3.1.4-5 5:3.2.0-1 5:3.2.0-2 5:3.2.2-1 5:3.2.2-2 5:2.2.2-1 5:3.12.4-1 5:3.14.0-1 5:4.2.0-1 \
                 5:4.12.0-6 5:3.1.3-5 5:3.1.3-1 5:3.1.3-3",
    },
    Proof {
        name: "mqtt 3.1.1 CONNECT is answered once, first, and well",
        run: || answered(V4),
        proves: "3:3.1.0-1 3:3.1.4-4 3:3.2.0-1 3:3.2.2-1 3:3.12.4-1 3:3.1.3-5 3:3.1.3-1 3:3.1.3-3 3:7.0.0-2 3:7.1.1-1",
    },
    Proof {
        name: "mqtt refusals of CONNECT",
        run: refusals,
        proves: "5:3.1.2-2 5:3.2.2-6 5:3.2.2-7 5:3.2.2-8 5:3.1.4-2 5:3.1.4-6 5:4.12.0-1 5:3.1.3-8 3:3.1.2-2 3:3.2.2-4 \
                 3:3.2.2-5 3:3.1.4-5 3:3.1.3-8 3:3.1.3-9",
    },
    Proof {
        name: "mqtt fields of CONNECT that the flags do not announce",
        run: fields,
        proves: "5:3.1.2-9 5:3.1.2-13 5:3.1.2-16 5:3.1.2-17 5:3.1.2-18 5:3.1.2-19 5:3.1.3-12 5:3.1.3-11 5:3.1.4-1 \
                 3:3.1.2-3 3:3.1.2-9 3:3.1.2-11 3:3.1.2-13 3:3.1.2-14 3:3.1.2-15 3:3.1.2-18 3:3.1.2-19 3:3.1.2-20 \
                 3:3.1.2-21 3:3.1.2-22 3:3.1.3-4 3:3.1.3-10 3:3.1.3-11 3:3.1.4-1 3:3.1.2-1 3:3.2.2-6",
    },
    Proof {
        name: "mqtt an empty client identifier",
        run: assigned,
        proves: "5:3.1.3-6 5:3.1.3-7 5:3.2.2-16 3:3.1.3-6 3:3.1.3-7",
    },
    Proof {
        name: "mqtt 5 a session goes on, or ends",
        run: || sessions(V5),
        proves: "5:3.1.2-4 5:3.1.2-5 5:3.1.2-6 5:3.1.2-23 5:3.1.3-2 5:3.1.4-4 5:3.2.2-3 5:4.1.0-1 5:4.5.0-1",
    },
    Proof {
        name: "mqtt 3.1.1 a session goes on, or ends",
        run: || sessions(V4),
        proves: "3:3.1.2-4 3:3.1.2-5 3:3.1.2-6 3:3.1.4-3 3:3.1.3-2 3:3.2.2-2 3:3.2.2-3 3:4.1.0-1 3:4.1.0-2 3:4.5.0-1",
    },
    Proof { name: "mqtt 5 a session expires", run: expiry, proves: "5:4.1.0-2" },
    Proof {
        name: "mqtt a client is displaced by another of its identifier",
        run: displaced,
        proves: "5:3.1.4-3 3:3.1.4-2",
    },
    Proof {
        name: "mqtt 5 wills",
        run: || wills(V5),
        proves: "5:3.1.2-7 5:3.1.2-8 5:3.1.2-10 5:3.1.2-14 5:3.1.2-15 5:3.14.4-3",
    },
    Proof {
        name: "mqtt 3.1.1 wills",
        run: || wills(V4),
        proves: "3:3.1.2-8 3:3.1.2-10 3:3.1.2-12 3:3.1.2-16 3:3.1.2-17 3:3.14.4-3",
    },
    Proof { name: "mqtt 5 a will that waits, and its properties", run: delayed, proves: "5:3.1.3-9 5:3.1.3-10" },
    Proof { name: "mqtt keep alive", run: keep_alive, proves: "5:3.1.2-22 5:3.2.2-22 3:3.1.2-24" },
];

fn answered(version: u8) -> Result<String> {
    let gateway = Gateway::start(&[])?;
    // Something else than CONNECT is not answered.
    for first in [packet(0xc0, b""), fogmux_tests::mqtt::publish(version, b"t", b"x", 0, true, 0)] {
        let mut stream = fogmux_tests::tcp::connect(gateway.address("mqtt")?)?;
        std::io::Write::write_all(&mut stream, &first)?;
        let end = fogmux_tests::tcp::read_end(&mut stream, fogmux_tests::tcp::PATIENCE)?;
        ensure!(end.is_closed() && end.bytes().is_empty(), "{:02x?}", end.bytes());
    }
    for id in ["a", "0123456789abcdefghijklm", "nopqrstuvwxyzABCDEFGHIJ", "KLMNOPQRSTUVWXYZ"] {
        let mut client = Client::open(&gateway, version, id)?;
        ensure!(!client.present);
        ensure!(client.property(0x15).is_none(), "an authentication method");
        client.ping()?;
        client.subscribe(&[("retained/#", 0)])?;
        client.silent()?;
    }
    Ok(String::new())
}

fn refusals() -> Result<String> {
    let gateway = users::gateway(&[], &["alice"], &[])?;
    // The reason of each version, and what may not be processed behind it.
    let wrong = |version: u8| Connect { login: Some(("alice", "wrong")), ..Connect::new(version, "c") };
    let level = |version: u8| Connect { version, ..Connect::new(V4, "c") };
    let method = Connect::new(V5, "c").with(&text(0x15, "NO-SUCH-METHOD"));
    for (what, connect, reason) in [
        ("password", wrong(V5), 0x86),
        ("password", wrong(V4), 4),
        ("method", method, 0x8c),
        ("level 6", level(6), 0x84),
        ("level 9", level(9), 0x84),
    ] {
        let mut bytes = connect.bytes();
        bytes.extend(fogmux_tests::mqtt::publish(connect.version.clamp(V4, V5), b"behind", b"x", 0, true, 0));
        let mut stream = fogmux_tests::tcp::connect(gateway.address("mqtt")?)?;
        std::io::Write::write_all(&mut stream, &bytes)?;
        let end = fogmux_tests::tcp::read_end(&mut stream, fogmux_tests::tcp::PATIENCE)?;
        ensure!(end.is_closed(), "{what}: left open");
        match end.bytes() {
            // Version 5 and those that are not known.
            [0x20, _, 0, came, ..] if *came == reason || (what.starts_with("level") && *came == 1) => {}
            bytes => anyhow::bail!("{what}: {bytes:02x?}"),
        }
    }
    // [MQTT-3.1.3-8] of 3.1.1: no identifier and no clean session.
    let (mut client, reason) = Client::try_connect(&gateway, &Connect { clean: false, ..Connect::new(V4, "") })?;
    ensure!(reason == 2 && !client.present && client.end()?.is_empty(), "{reason}");
    let mut reader = Client::open(&gateway, V5, "reader")?;
    reader.subscribe(&[("behind", 0)])?;
    reader.silent()?;
    Ok(String::new())
}

/// CONNECT packets whose payload is not what their flags say: all are closed.
fn fields() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let id = string(b"c");
    let mut count = 0;
    for version in [V4, V5] {
        let none: &[u8] = if version == V5 { &[0] } else { &[] };
        let will = [none, &string(b"w"), &string(b"gone")].concat();
        let bad = string(b"\xff");
        let cases: Vec<(u8, Vec<u8>)> = vec![
            (0x82, id.clone()),
            (0x02, [id.clone(), string(b"user")].concat()),
            (0xc2, [id.clone(), string(b"user")].concat()),
            (0x82, [id.clone(), string(b"user"), string(b"password")].concat()),
            (0x82, [id.clone(), bad.clone()].concat()),
            (0x06, id.clone()),
            (0x06, [&id, none, &string(b"w")].concat()),
            (0x06, [&id, none, &bad, &string(b"gone")].concat()),
            (0x02, [id.clone(), will.clone()].concat()),
            (0x0a, id.clone()),
            (0x22, id.clone()),
            (0x1e, [id.clone(), will].concat()),
            (0x03, id.clone()),
            (0x02, bad),
            (0x02, Vec::new()),
        ];
        for (flags, payload) in cases {
            let head = [string(b"MQTT"), vec![version, flags, 0, 60], none.to_vec()].concat();
            let mut stream = fogmux_tests::tcp::connect(gateway.address("mqtt")?)?;
            std::io::Write::write_all(&mut stream, &packet(0x10, &[head, payload.clone()].concat()))?;
            let end = fogmux_tests::tcp::read_end(&mut stream, fogmux_tests::tcp::PATIENCE)?;
            ensure!(end.is_closed(), "{version} {flags:#x} {payload:02x?}: left open");
            let refused = matches!(end.bytes(), [] | [0x20, _, 0, 1..=255, ..]);
            ensure!(refused, "{version} {flags:#x} {payload:02x?}: {:02x?}", end.bytes());
            count += 1;
        }
    }
    // 3.1.1 forbids a password without a user name.
    let head = [string(b"MQTT"), vec![V4, 0x42, 0, 60], id, string(b"password")].concat();
    let mut stream = fogmux_tests::tcp::connect(gateway.address("mqtt")?)?;
    std::io::Write::write_all(&mut stream, &packet(0x10, &head))?;
    ensure!(fogmux_tests::tcp::read_end(&mut stream, fogmux_tests::tcp::PATIENCE)?.is_closed());
    Ok(format!("({count} packets)"))
}

fn assigned() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let mut client = Client::connect(&gateway, &Connect::lasting(V5, ""))?;
        let id = client.property(0x12).context("no Assigned Client Identifier")?;
        let id = String::from_utf8(id.to_vec())?;
        ensure!(!id.is_empty() && !ids.contains(&id), "{id} of {ids:?}");
        client.subscribe(&[("t", 1)])?;
        drop(client);
        // It names the session.
        let again = Client::connect(&gateway, &Connect { clean: false, ..Connect::lasting(V5, &id) })?;
        ensure!(again.present, "{id} has no session");
        ids.push(id);
    }
    let mut old = Client::open(&gateway, V4, "")?;
    let mut other = Client::open(&gateway, V4, "")?;
    old.ping()?;
    other.ping()?;
    Ok(String::new())
}

fn sessions(version: u8) -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let mut publisher = Client::open(&gateway, version, "publisher")?;
    let mut first = Client::connect(&gateway, &Connect::lasting(version, "c"))?;
    ensure!(!first.present, "a session that nobody made");
    ensure!(first.subscribe(&[("t", 1)])? == [1]);
    drop(first);
    publisher.publish("t", "away", false)?;
    let mut second = Client::connect(&gateway, &Connect::lasting(version, "c"))?;
    ensure!(second.present, "the session is gone");
    ensure!(second.text()? == "away");
    // It is kept while the connection is open, too.
    publisher.publish("t", "here", false)?;
    ensure!(second.text()? == "here");
    drop(second);
    let mut clean = Client::connect(&gateway, &Connect::new(version, "c"))?;
    ensure!(!clean.present, "session present with a clean start");
    publisher.publish("t", "nobody", false)?;
    clean.silent()?;
    drop(clean);
    let mut last = Client::connect(&gateway, &Connect::lasting(version, "c"))?;
    ensure!(!last.present, "the session of before the clean start");
    last.silent()?;
    Ok(String::new())
}

fn expiry() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let brief = Connect { clean: false, ..Connect::new(V5, "c") }.with(&[0x11, 0, 0, 0, 1]);
    Client::connect(&gateway, &brief)?.subscribe(&[("t", 1)])?;
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let client = Client::connect(&gateway, &brief)?;
        if !client.present {
            return Ok(String::new());
        }
        drop(client);
        ensure!(Instant::now() < deadline, "it has not expired");
        std::thread::sleep(Duration::from_millis(1500));
    }
}

fn displaced() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    for version in [V4, V5] {
        let mut first = Client::open(&gateway, version, "c")?;
        let mut second = Client::open(&gateway, version, "c")?;
        let end = first.end()?;
        match (version, &*end) {
            (V5, [0xe0, _, 0x8e, ..]) | (V4, []) => {}
            (_, bytes) => anyhow::bail!("{bytes:02x?}"),
        }
        second.ping()?;
    }
    Ok(String::new())
}

fn wills(version: u8) -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let mut reader = Client::open(&gateway, version, "reader")?;
    reader.subscribe(&[("will/+", 2)])?;
    let with = |topic: &'static str, qos: u8, retain: bool| {
        let will = Will { topic, qos, retain, properties: Vec::new() };
        Connect { will: Some(will), ..Connect::new(version, topic) }
    };
    for (topic, qos, retain) in [("will/0", 0, false), ("will/1", 1, true), ("will/2", 2, false)] {
        drop(Client::connect(&gateway, &with(topic, qos, retain))?);
        let came = reader.message()?;
        ensure!((came.topic.as_str(), came.qos, came.retain) == (topic, qos, false), "{came:?}");
        ensure!(came.payload == b"gone", "{came:?}");
    }
    // Without a will nothing is published.
    drop(Client::open(&gateway, version, "none")?);
    // Removed by DISCONNECT, and published once.
    let mut client = Client::connect(&gateway, &with("will/3", 1, true))?;
    client.send(&[0xe0, 0])?;
    client.end()?;
    reader.silent()?;
    if version == V5 {
        // 0x04 asks for it.
        let mut client = Client::connect(&gateway, &with("will/4", 0, false))?;
        client.send(&[0xe0, 1, 4])?;
        ensure!(reader.message()?.topic == "will/4");
    }
    let mut late = Client::open(&gateway, version, "late")?;
    late.subscribe(&[("will/+", 0)])?;
    let kept = late.message()?;
    ensure!(kept.topic == "will/1" && kept.retain, "{kept:?}");
    late.silent()?;
    Ok(String::new())
}

fn delayed() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let mut reader = Client::open(&gateway, V5, "reader")?;
    reader.subscribe(&[("will", 0)])?;
    let pairs = [("b", "1"), ("a", "2"), ("b", "3")];
    let user: Vec<u8> = pairs
        .iter()
        .flat_map(|(name, value)| [vec![0x26], string(name.as_bytes()), string(value.as_bytes())].concat())
        .collect();
    let properties = [&[0x18, 0, 0, 0, 1], user.as_slice()].concat();
    let will = Will { topic: "will", qos: 0, retain: false, properties };
    let connect = Connect { will: Some(will), ..Connect::lasting(V5, "c") };
    drop(Client::connect(&gateway, &connect)?);
    // Back before the delay is over, and gone again for good.
    let back = Client::connect(&gateway, &Connect { clean: false, ..connect })?;
    std::thread::sleep(Duration::from_millis(1500));
    reader.silent()?;
    drop(back);
    let came = reader.message()?;
    ensure!(came.properties == user, "{came:?}");
    Ok(String::new())
}

fn keep_alive() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let mut reader = Client::open(&gateway, V5, "reader")?;
    reader.subscribe(&[("will", 0)])?;
    for version in [V4, V5] {
        let will = Will { topic: "will", ..Will::default() };
        let connect = Connect { keep_alive: 1, will: Some(will), ..Connect::new(version, "c") };
        let mut client = Client::connect(&gateway, &connect)?;
        ensure!(client.property(0x13).is_none(), "a Server Keep Alive");
        // Packets within the time keep it open.
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(700));
            client.ping()?;
        }
        let began = Instant::now();
        client.end()?;
        ensure!(began.elapsed() >= Duration::from_millis(1400), "closed after {:?}", began.elapsed());
        ensure!(reader.message()?.topic == "will");
    }
    Ok(String::new())
}
