//! SUBSCRIBE and UNSUBSCRIBE, and what they bring.

use anyhow::{Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{V4, V5, packet, string};

use super::Proof;
use super::client::{Client, Connect, message};

pub(super) const PROOFS: &[Proof] = &[
    Proof {
        name: "mqtt 5 SUBSCRIBE is answered for each filter",
        run: || answered(V5),
        proves: "5:2.2.1-6 5:3.8.4-1 5:3.8.4-2 5:3.8.4-5 5:3.8.4-6 5:3.8.4-7 5:3.9.3-1 5:3.9.3-2 5:3.8.3-1 5:3.10.3-1",
    },
    Proof {
        name: "mqtt 3.1.1 SUBSCRIBE is answered for each filter",
        run: || answered(V4),
        proves: "3:3.3.5-2 3:2.3.1-7 3:3.8.4-1 3:3.8.4-2 3:3.8.4-4 3:3.8.4-5 3:3.9.3-1 3:3.9.3-2 3:3.8.3-1 3:3.10.3-1",
    },
    Proof { name: "mqtt 5 messages have the lower QoS", run: || lower(V5), proves: "5:3.8.4-8 5:3.3.4-2 5:4.8.2-3" },
    Proof { name: "mqtt 3.1.1 messages have the lower QoS", run: || lower(V4), proves: "3:3.8.4-6 3:3.3.5-1" },
    Proof { name: "mqtt 5 a subscription is replaced", run: || replaced(V5), proves: "5:3.8.4-3 5:3.8.4-4 5:3.3.1-9" },
    Proof { name: "mqtt 3.1.1 a subscription is replaced", run: || replaced(V4), proves: "3:3.8.4-3" },
    Proof { name: "mqtt 5 retain handling", run: handling, proves: "5:3.3.1-10 5:3.3.1-11" },
    Proof { name: "mqtt 5 no local", run: no_local, proves: "5:3.8.3-3" },
    Proof { name: "mqtt 5 subscription identifiers", run: identifiers, proves: "5:3.3.4-3 5:3.3.4-4" },
    Proof {
        name: "mqtt 5 UNSUBSCRIBE",
        run: || unsubscribed(V5),
        proves: "5:3.10.4-1 5:3.10.4-2 5:3.10.4-3 5:3.10.4-4 5:3.10.4-5 5:3.10.4-6 5:3.11.3-1 5:3.11.3-2",
    },
    Proof {
        name: "mqtt 3.1.1 UNSUBSCRIBE",
        run: || unsubscribed(V4),
        proves: "3:3.10.4-1 3:3.10.4-2 3:3.10.4-3 3:3.10.4-4 3:3.10.4-5 3:3.10.4-6",
    },
    Proof {
        name: "mqtt 5 a QoS 2 delivery of a shared subscription stays with its member",
        run: shared,
        proves: "5:4.8.2-4 5:4.8.2-5",
    },
];

fn answered(version: u8) -> Result<String> {
    let acl = "[[allow]]\nanonymous = true\nread = [\"open/#\"]\nwrite = [\"open/#\", \"closed\"]\n";
    let gateway = Gateway::start_furnished(&[], &[("acl.toml", acl)])?;
    let mut client = Client::open(&gateway, version, "c")?;
    let reasons = client.subscribe(&[("open/0", 0), ("closed", 1), ("open/1", 1), ("open/2", 2), ("open/+", 0)])?;
    let refused = if version == V5 { 0x87 } else { 0x80 };
    ensure!(reasons == [0, refused, 1, 2, 0], "{reasons:02x?}");
    client.publish("open/x", "m", false)?;
    ensure!(client.text()? == "m");
    client.publish("closed", "m", false)?;
    client.silent()?;
    // A refusal is told, or closes the connection.
    let mut writer = Client::open(&gateway, version, "writer")?;
    writer.send_message(&message("forbidden", "m", 1))?;
    match version {
        V5 => ensure!(writer.expect(0x40)?.get(2) == Some(&0x87)),
        _ => ensure!(writer.end()?.is_empty()),
    }
    // Filters that are no strings.
    let none: &[u8] = if version == V5 { &[0] } else { &[] };
    let bad = string(b"\xed\xa0\x80");
    for (first, tail) in [(0x82, &[0][..]), (0xa2, &[])] {
        let mut client = Client::open(&gateway, version, "bad")?;
        client.send(&packet(first, &[&[0, 1], none, &bad, tail].concat()))?;
        let end = client.end()?;
        ensure!(matches!((version, &*end), (V4, []) | (V5, [0xe0, _, 0x81 | 0x8f, ..])), "{end:02x?}");
    }
    Ok(String::new())
}

fn lower(version: u8) -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let mut publisher = Client::open(&gateway, version, "publisher")?;
    let mut filters = vec!["t".to_owned()];
    if version == V5 {
        filters.push("$share/g/t".to_owned());
    }
    for filter in filters {
        for granted in 0..3 {
            let mut reader = Client::open(&gateway, version, "reader")?;
            reader.subscribe(&[(&filter, granted)])?;
            for qos in 0..3 {
                publisher.send_message(&message("t", "m", qos))?;
                if qos > 0 {
                    publisher.read()?;
                }
                if qos == 2 {
                    publisher.ack(0x62, 7)?;
                    publisher.expect(0x70)?;
                }
                let came = reader.message()?;
                ensure!(came.qos == qos.min(granted), "{filter} {granted} {qos}: {came:?}");
            }
        }
    }
    // Of overlapping subscriptions the higher one counts.
    let mut reader = Client::open(&gateway, version, "reader")?;
    reader.subscribe(&[("t", 0), ("+", 1), ("#", 0)])?;
    publisher.publish("t", "m", false)?;
    let mut highest = 0;
    for _ in 0..1 {
        highest = highest.max(reader.message()?.qos);
    }
    ensure!(highest == 1, "QoS {highest}");
    Ok(String::new())
}

fn replaced(version: u8) -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let mut publisher = Client::open(&gateway, version, "publisher")?;
    publisher.publish("t", "kept", true)?;
    let mut reader = Client::open(&gateway, version, "reader")?;
    for qos in [0, 1, 0] {
        reader.subscribe(&[("t", qos)])?;
        let kept = reader.message()?;
        ensure!(kept.retain && kept.qos == qos && kept.payload == b"kept", "{kept:?}");
        publisher.publish("t", "new", false)?;
        let came = reader.message()?;
        ensure!(came.qos == qos && came.payload == b"new" && !came.retain, "{came:?}");
        if qos > 0 {
            reader.ack(0x40, kept.id)?;
            reader.ack(0x40, came.id)?;
        }
        reader.silent()?;
    }
    // While the subscription is replaced over and over nothing is lost.
    let mut expected = 0;
    for number in 0..200 {
        publisher.send_message(&message("u", &number.to_string(), 0))?;
        reader.send(&fogmux_tests::mqtt::subscribe(version, 5, &["u"], 0))?;
    }
    publisher.publish("u", "last", false)?;
    let (mut answers, mut is_last) = (0, false);
    while answers < 200 || !is_last {
        let (first, body) = reader.read()?;
        if first == 0x90 {
            answers += 1;
            continue;
        }
        let text = String::from_utf8_lossy(&body).into_owned();
        let text = text.trim_start_matches(['\0', '\u{1}', 'u']);
        if text == "last" {
            is_last = true;
            continue;
        }
        // The first subscription may have come late.
        let number: u32 = text.parse()?;
        ensure!(expected == 0 || number == expected, "{number} instead of {expected}");
        expected = number + 1;
    }
    ensure!(expected == 0 || expected == 200, "the last is {expected}");
    Ok(String::new())
}

fn handling() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let mut publisher = Client::open(&gateway, V5, "publisher")?;
    publisher.publish("t", "kept", true)?;
    let mut reader = Client::open(&gateway, V5, "reader")?;
    // Options and whether the retained message follows.
    for (options, follows) in [(0x20, false), (0x10, false), (0x00, true), (0x10, false)] {
        reader.subscribe(&[("t", options)])?;
        if follows {
            ensure!(reader.text()? == "kept");
        }
        reader.silent()?;
    }
    reader.unsubscribe(&["t"])?;
    reader.subscribe(&[("t", 0x10)])?;
    ensure!(reader.text()? == "kept");
    Ok(String::new())
}

fn no_local() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let mut client = Client::open(&gateway, V5, "c")?;
    let mut other = Client::open(&gateway, V5, "other")?;
    client.subscribe(&[("t", 0x04)])?;
    other.subscribe(&[("t", 0x04)])?;
    client.publish("t", "own", false)?;
    ensure!(other.text()? == "own");
    client.silent()?;
    other.publish("t", "other's", false)?;
    ensure!(client.text()? == "other's");
    other.silent()?;
    Ok(String::new())
}

fn identifiers() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let mut client = Client::open(&gateway, V5, "c")?;
    client.subscribe_with(&[("t", 0)], &[0x0b, 1])?;
    client.subscribe_with(&[("+", 0)], &[0x0b, 0xff, 0x01])?;
    client.subscribe_with(&[("#", 0)], &[])?;
    client.publish("t", "m", false)?;
    let came = client.message()?;
    let both = [&[0x0b, 1, 0x0b, 0xff, 0x01][..], &[0x0b, 0xff, 0x01, 0x0b, 1]];
    ensure!(both.contains(&&*came.properties), "{:02x?}", came.properties);
    client.silent()?;
    client.publish("t/x", "m", false)?;
    ensure!(client.message()?.properties.is_empty());
    Ok(String::new())
}

fn unsubscribed(version: u8) -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let mut publisher = Client::open(&gateway, version, "publisher")?;
    let mut reader = Client::open(&gateway, version, "reader")?;
    reader.subscribe(&[("t/1", 2), ("t/+", 0), ("T/1", 0)])?;
    publisher.publish("t/1", "begun", false)?;
    let begun = reader.message()?;
    // Others than the very filter stay.
    let reasons = reader.unsubscribe(&["t/1", "t/2", "#"])?;
    ensure!(reasons == if version == V5 { vec![0, 0x11, 0x11] } else { Vec::new() }, "{reasons:02x?}");
    reader.ack(0x40, begun.id)?;
    publisher.publish("t/1", "by the other", false)?;
    let came = reader.message()?;
    ensure!(came.qos == 0 && came.payload == b"by the other", "{came:?}");
    reader.unsubscribe(&["t/+"])?;
    publisher.publish("t/1", "nobody", false)?;
    reader.silent()?;
    publisher.publish("T/1", "still", false)?;
    ensure!(reader.text()? == "still");
    // A delivery of QoS 2 goes on.
    reader.subscribe(&[("q", 2)])?;
    publisher.send_message(&message("q", "begun", 2))?;
    publisher.expect(0x50)?;
    let begun = reader.message()?;
    reader.unsubscribe(&["q"])?;
    reader.ack(0x50, begun.id)?;
    reader.expect(0x62)?;
    reader.ack(0x70, begun.id)?;
    reader.ping()?;
    Ok(String::new())
}

fn shared() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let mut publisher = Client::open(&gateway, V5, "publisher")?;
    let mut member = Client::connect(&gateway, &Connect::lasting(V5, "member"))?;
    member.subscribe(&[("$share/g/t", 2)])?;
    let mut publish = |text: &str| -> Result<()> {
        publisher.send_message(&message("t", text, 2))?;
        publisher.expect(0x50)?;
        publisher.ack(0x62, 7)?;
        publisher.expect(0x70).map(drop)
    };
    publish("begun")?;
    let begun = member.message()?;
    let mut other = Client::open(&gateway, V5, "other")?;
    other.subscribe(&[("$share/g/t", 2)])?;
    drop(member);
    other.silent()?;
    // The same member completes it.
    let mut member = Client::connect(&gateway, &Connect { clean: false, ..Connect::lasting(V5, "member") })?;
    let again = member.message()?;
    ensure!(again.dup && again.id == begun.id && again.payload == b"begun", "{again:?}");
    other.silent()?;
    // A session that ends takes it along.
    member.send(&[0xe0, 7, 0, 5, 0x11, 0, 0, 0, 0])?;
    member.end()?;
    other.silent()?;
    publish("next")?;
    ensure!(other.text()? == "next");
    Ok(String::new())
}
