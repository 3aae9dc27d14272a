//! The limits on all subscriptions and on all retained messages together.

use std::io::Write;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, Connection, V4, V5};

/// At the limit a client may change the subscriptions that it has, and gets no new one.
pub(super) fn replaced() -> Result<String> {
    let mut gateway = Gateway::start(&["bus.subscriptions_max=3"])?;
    let mut client = Connection::open(gateway.address("mqtt")?, V4, "limited")?;
    let filters = ["a/+", "b/#", "$share/g/c"];
    ensure!(client.subscribe(1, &filters, 1)? == [1, 1, 1]);
    for (id, filter) in (2..).zip(filters) {
        let granted = client.subscribe(id, &[filter], 0)?;
        ensure!(granted == [0], "{filter} again: {granted:02x?}");
    }
    let refused = client.subscribe(9, &["d", "a/+", "b/+"], 1)?;
    ensure!(refused == [0x80, 1, 0x80], "new ones are refused, others not: {refused:02x?}");
    client.publish("a/1", b"still")?;
    let (first, topic, _) = super::next_publish(&mut client)?;
    ensure!(first == 0x30 && topic == "a/1", "{first:#x} {topic}");
    drop(client);
    gateway.settle()?;
    gateway.check_conservation()?;
    Ok(String::new())
}

/// A retained message that is refused takes nothing from the messages behind it, on its topic or another, that came
/// with it in one segment.
pub(super) fn refused() -> Result<String> {
    let mut gateway = Gateway::start(&["bus.retained_messages_max=20"])?;
    let mut reader = Connection::open(gateway.address("mqtt")?, V4, "reader")?;
    ensure!(reader.subscribe(1, &["x", "y"], 0)? == [0, 0]);
    let mut publisher = Connection::open(gateway.address("mqtt")?, V5, "publisher")?;
    let mut reasons = |packets: &[(&str, bool)]| -> Result<Vec<u8>> {
        let publish =
            |(id, (topic, retain)): (u16, &(&str, bool))| mqtt::publish(V5, topic.as_bytes(), b"1", 1, *retain, id);
        let bytes: Vec<u8> = (1..).zip(packets).flat_map(publish).collect();
        publisher.stream.write_all(&bytes)?;
        let puback = |_| -> Result<u8> {
            let (first, body) = publisher.read()?;
            ensure!(first == 0x40, "{first:#x} instead of PUBACK");
            Ok(body.get(2).copied().unwrap_or(0))
        };
        (0..packets.len()).map(puback).collect()
    };
    let mut number = 0;
    while reasons(&[(&format!("full/{number}"), true)])? != [0x97] {
        number += 1;
        ensure!(number < 100, "{number} retained messages");
    }
    let (lost, live) = (0x97, 0);
    for retained in 0..4 {
        let mut packets = vec![("x", true); retained];
        packets.extend([("x", false), ("y", true), ("x", false), ("y", false), ("y", false)]);
        let mut expected = vec![lost; retained];
        expected.extend([live, lost, live, live, live]);
        let told = reasons(&packets)?;
        ensure!(told == expected, "{packets:?} are acknowledged by {told:02x?}");
        for _ in 0..4 {
            super::next_publish(&mut reader).with_context(|| format!("{packets:?}"))?;
        }
    }
    drop((reader, publisher));
    gateway.settle()?;
    gateway.check_conservation()?;
    Ok(String::new())
}
