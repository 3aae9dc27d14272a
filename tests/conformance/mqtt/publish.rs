//! PUBLISH: retained messages, properties, topic aliases and topic names.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{V4, V5, string};

use super::Proof;
use super::client::{Client, Connect, Message, message, text};

pub(super) const PROOFS: &[Proof] = &[
    Proof {
        name: "mqtt 5 retained messages",
        run: || retained(V5),
        proves: "5:3.3.1-5 5:3.3.1-6 5:3.3.1-7 5:3.3.1-8 5:3.3.1-12",
    },
    Proof {
        name: "mqtt 3.1.1 retained messages",
        run: || retained(V4),
        proves: "3:3.3.1-5 3:3.3.1-6 3:3.3.1-7 3:3.3.1-8 3:3.3.1-9 3:3.3.1-10 3:3.3.1-11 3:3.3.1-12 3:3.1.2-7",
    },
    Proof { name: "mqtt 5 retain as published", run: as_published, proves: "5:3.3.1-13" },
    Proof {
        name: "mqtt 5 properties are forwarded",
        run: forwarded,
        proves: "5:3.3.2-4 5:3.3.2-13 5:3.3.2-15 5:3.3.2-16 5:3.3.2-17 5:3.3.2-18 5:3.3.2-19 5:3.3.2-20 5:1.5.7-1",
    },
    Proof { name: "mqtt 5 messages expire", run: expiry, proves: "5:3.3.2-5 5:3.3.2-6" },
    Proof { name: "mqtt 5 topic aliases of a client", run: aliases, proves: "5:3.3.2-7 5:3.3.2-12" },
    Proof {
        name: "mqtt 5 topic aliases for a client",
        run: outgoing_aliases,
        proves: "5:3.1.2-26 5:3.1.2-27 5:3.3.2-11",
    },
    Proof {
        name: "mqtt topic names are taken as they are",
        run: names,
        proves: "5:1.5.4-3 5:4.7.3-3 5:4.7.3-4 5:4.7.2-1 3:1.5.3-3 3:4.7.3-3 3:4.7.3-4 3:4.7.2-1",
    },
];

fn retained(version: u8) -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let mut client = Client::open(&gateway, version, "c")?;
    let late = |expected: &[&str]| -> Result<()> {
        let mut late = Client::open(&gateway, version, "late")?;
        late.subscribe(&[("t", 1)])?;
        for text in expected {
            let came = late.message()?;
            ensure!(came.payload == text.as_bytes() && came.retain, "{came:?} instead of {text}");
        }
        late.silent()
    };
    let mut reader = Client::open(&gateway, version, "reader")?;
    reader.subscribe(&[("t", 0)])?;
    late(&[])?;
    client.publish("t", "one", true)?;
    late(&["one"])?;
    client.publish("t", "two", true)?;
    late(&["two"])?;
    client.publish("t", "passing", false)?;
    late(&["two"])?;
    // QoS 0 replaces it as well.
    client.send_message(&Message { retain: true, ..message("t", "three", 0) })?;
    client.ping()?;
    late(&["three"])?;
    client.publish("t", "", true)?;
    late(&[])?;
    // An established subscription sees all of them, without RETAIN.
    for wanted in ["one", "two", "passing", "three", ""] {
        let came = reader.message()?;
        ensure!(came.payload == wanted.as_bytes() && !came.retain, "{came:?} instead of {wanted}");
    }
    reader.silent()?;
    Ok(String::new())
}

fn as_published() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let mut client = Client::open(&gateway, V5, "c")?;
    let mut reader = Client::open(&gateway, V5, "reader")?;
    reader.subscribe(&[("t", 0x08)])?;
    for retain in [true, false] {
        client.publish("t", "m", retain)?;
        ensure!(reader.message()?.retain == retain);
    }
    Ok(String::new())
}

fn forwarded() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let mut client = Client::open(&gateway, V5, "c")?;
    let mut reader = Client::open(&gateway, V5, "reader")?;
    reader.subscribe(&[("t", 1)])?;
    let pair = |name: &str, value: &str| [vec![0x26], string(name.as_bytes()), string(value.as_bytes())].concat();
    let users = [pair("z", "1"), pair("a", "2"), pair("z", "3"), pair("", "")].concat();
    let correlation = [vec![9], string(&[0, 0xff, 0x80])].concat();
    let properties =
        [vec![1, 1], text(3, "text/plain"), text(8, "answer/é"), correlation.clone(), users.clone()].concat();
    client.send_message(&Message { properties: properties.clone(), ..message("t", "m", 1) })?;
    client.expect(0x40)?;
    let came = reader.message()?.properties;
    ensure!(came.len() == properties.len(), "{came:02x?}");
    let has = |part: &[u8]| came.windows(part.len()).any(|window| window == part);
    for part in [&[1, 1][..], &text(3, "text/plain"), &text(8, "answer/é"), &correlation, &users] {
        ensure!(has(part), "{part:02x?} is not in {came:02x?}");
    }
    // Strings that are none are refused.
    let bad = |id: u8| [vec![id], string(b"\xff")].concat();
    let pairs =
        [[vec![0x26], string(b"\xff"), string(b"v")].concat(), [vec![0x26], string(b"n"), string(b"\xc0")].concat()];
    for properties in [bad(3), bad(8)].into_iter().chain(pairs) {
        let mut client = Client::open(&gateway, V5, "bad")?;
        client.send_message(&Message { properties: properties.clone(), ..message("t", "m", 0) })?;
        let end = client.end()?;
        ensure!(matches!(&*end, [0xe0, _, 0x81 | 0x82 | 0x90, ..]), "{properties:02x?}: {end:02x?}");
    }
    Ok(String::new())
}

fn expiry() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let lasting = Connect::lasting(V5, "reader");
    Client::connect(&gateway, &lasting)?.subscribe(&[("t", 1)])?;
    let mut client = Client::open(&gateway, V5, "c")?;
    for (text, seconds) in [("gone", 1), ("there", 200)] {
        client.send_message(&Message { properties: vec![2, 0, 0, 0, seconds], ..message("t", text, 1) })?;
        client.expect(0x40)?;
    }
    std::thread::sleep(Duration::from_millis(2500));
    let mut reader = Client::connect(&gateway, &lasting)?;
    let came = reader.message()?;
    ensure!(came.payload == b"there", "{came:?}");
    ensure!(matches!(*came.properties, [2, 0, 0, 0, 190..=198]), "{:?}", came.properties);
    Ok(String::new())
}

fn aliases() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let mut reader = Client::open(&gateway, V5, "reader")?;
    reader.subscribe(&[("#", 0)])?;
    let mut client = Client::open(&gateway, V5, "c")?;
    let max = client.property(0x22).and_then(|value| value.try_into().ok()).map(u16::from_be_bytes);
    let max = max.context("no Topic Alias Maximum")?;
    let with = |topic: &str, alias: u16| {
        let [high, low] = alias.to_be_bytes();
        Message { properties: vec![0x23, high, low], ..message(topic, "m", 0) }
    };
    for alias in 1..=max {
        client.send_message(&with(&format!("t/{alias}"), alias))?;
        client.send_message(&with("", alias))?;
        for _ in 0..2 {
            let came = reader.message()?;
            ensure!(came.topic == format!("t/{alias}") && came.properties.is_empty(), "{came:?}");
        }
    }
    drop(client);
    // The next connection knows none of them.
    let mut client = Client::open(&gateway, V5, "c")?;
    client.send_message(&with("", 1))?;
    ensure!(matches!(&*client.end()?, [0xe0, _, 0x82, ..]));
    reader.silent()?;
    Ok(format!("({max} aliases)"))
}

fn outgoing_aliases() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let mut client = Client::open(&gateway, V5, "c")?;
    for max in [0, 1, 3, 200_u16] {
        let [high, low] = max.to_be_bytes();
        let maximum: &[u8] = if max > 0 { &[0x22, high, low] } else { &[] };
        let connect = Connect::new(V5, "reader").with(maximum);
        let mut reader = Client::connect(&gateway, &connect)?;
        reader.subscribe(&[("t/#", 0)])?;
        let mut known = std::collections::HashMap::new();
        for number in (0..12).chain(0..12) {
            let topic = format!("t/{number}");
            client.publish(&topic, "m", false)?;
            let came = reader.message()?;
            match *came.properties {
                [] => ensure!(came.topic == topic, "{came:?}"),
                [0x23, high, low] => {
                    let alias = u16::from_be_bytes([high, low]);
                    ensure!((1..=max).contains(&alias), "alias {alias} of {max}");
                    if !came.topic.is_empty() {
                        known.insert(alias, came.topic.clone());
                    }
                    ensure!(known.get(&alias) == Some(&topic), "{came:?}: {known:?}");
                }
                _ => anyhow::bail!("{came:?}"),
            }
        }
    }
    Ok(String::new())
}

fn names() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    for version in [V4, V5] {
        let mut client = Client::open(&gateway, version, "c")?;
        let mut reader = Client::open(&gateway, version, "reader")?;
        let long = "x".repeat(65_000);
        // Composed and not, with a byte order mark, blanks and empty levels, upper and lower case.
        let names = ["caf\u{e9}", "cafe\u{301}", "\u{feff}bom", " a b ", "/", "//", "A", "a", "\u{10ffff}", &long];
        for name in names {
            reader.subscribe(&[(name, 0)])?;
        }
        for name in names {
            client.publish(name, "m", false)?;
            let came = reader.message()?;
            ensure!(came.topic == name, "{:?} instead of {name:?}", came.topic);
        }
        reader.silent()?;
        let mut wild = Client::open(&gateway, version, "wild")?;
        wild.subscribe(&[("#", 0), ("+/x", 0)])?;
        client.publish("$mine/x", "m", false).ok();
        wild.silent()?;
    }
    Ok(String::new())
}
