//! Delivery at QoS 0, 1 and 2, both ways, and after a reconnect.

use anyhow::{Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{V4, V5};

use super::Proof;
use super::client::{Client, Connect, Message, message};

pub(super) const PROOFS: &[Proof] = &[
    Proof {
        name: "mqtt 5 messages from a client are acknowledged by their QoS",
        run: || received(V5),
        proves: "5:2.2.1-2 5:2.2.1-5 5:3.3.4-1 5:4.3.2-4 5:4.3.2-5 5:4.3.3-8 5:4.3.3-10 5:4.3.3-11 5:4.3.3-12 5:3.3.1-3 \
                 5:3.4.2-1 5:3.5.2-1 5:3.7.2-1",
    },
    Proof {
        name: "mqtt 3.1.1 messages from a client are acknowledged by their QoS",
        run: || received(V4),
        proves: "3:2.3.1-5 3:2.3.1-6 3:3.3.4-1 3:4.3.2-2 3:4.3.3-2 3:3.3.1-3",
    },
    Proof {
        name: "mqtt 5 messages to a client are sent by their QoS",
        run: || sent(V5),
        proves: "5:2.2.1-4 5:3.3.1-2 5:4.3.1-1 5:4.3.2-1 5:4.3.2-2 5:4.3.3-1 5:4.3.3-2 5:4.3.3-4 5:3.6.2-1 5:3.3.2-3",
    },
    Proof {
        name: "mqtt 3.1.1 messages to a client are sent by their QoS",
        run: || sent(V4),
        proves: "3:2.3.1-1 3:2.3.1-4 3:3.3.1-2 3:4.3.1-1 3:3.3.2-3",
    },
    Proof {
        name: "mqtt 5 what is not acknowledged is sent again, in order, after a reconnect only",
        run: || again(V5),
        proves: "5:3.3.1-1 5:4.3.2-3 5:4.3.3-3 5:4.3.3-5 5:4.3.3-6 5:4.4.0-1 5:4.3.3-7",
    },
    Proof {
        name: "mqtt 3.1.1 what is not acknowledged is sent again, in order, after a reconnect only",
        run: || again(V4),
        proves: "3:3.3.1-1 3:4.3.2-1 3:4.3.3-1 3:4.4.0-1",
    },
    Proof { name: "mqtt 5 a failure ends a message", run: failures, proves: "5:4.4.0-2 5:4.8.2-6" },
    Proof { name: "mqtt 5 an identifier that was refused is a new message's", run: refused, proves: "5:4.3.3-9" },
    Proof { name: "mqtt 5 messages keep their order", run: || ordered(V5), proves: "5:4.6.0-5 5:4.6.0-6" },
    Proof {
        name: "mqtt 3.1.1 messages and acknowledgements keep their order",
        run: || ordered(V4),
        proves: "3:4.6.0-5 3:4.6.0-6",
    },
    Proof {
        name: "mqtt an exchange of QoS 2 that stays open holds up nothing of QoS 1",
        run: held_open,
        proves: "5:4.9.0-1",
    },
];

fn received(version: u8) -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let mut reader = Client::open(&gateway, version, "reader")?;
    reader.subscribe(&[("t", 0)])?;
    let mut client = Client::open(&gateway, version, "c")?;
    client.send_message(&message("t", "0", 0))?;
    client.silent()?;
    for (dup, text) in [(false, "1"), (true, "1 again")] {
        client.send_message(&Message { dup, ..message("t", text, 1) })?;
        client.expect_all(&[0x40, 2, 0, 7])?;
    }
    // Until PUBREL the same identifier is the same message.
    for dup in [false, true] {
        client.send_message(&Message { dup, ..message("t", "2", 2) })?;
        client.expect_all(&[0x50, 2, 0, 7])?;
    }
    client.ack(0x62, 7)?;
    client.expect_all(&[0x70, 2, 0, 7])?;
    client.send_message(&message("t", "2 anew", 2))?;
    client.expect_all(&[0x50, 2, 0, 7])?;
    client.ack(0x62, 7)?;
    client.expect_all(&[0x70, 2, 0, 7])?;
    for wanted in ["0", "1", "1 again", "2", "2 anew"] {
        let came = reader.message()?;
        ensure!(came.payload == wanted.as_bytes() && !came.dup, "{came:?} instead of {wanted}");
    }
    reader.silent()?;
    Ok(String::new())
}

fn sent(version: u8) -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let mut reader = Client::open(&gateway, version, "reader")?;
    reader.subscribe(&[("t/+", 2)])?;
    let mut client = Client::open(&gateway, version, "c")?;
    let mut ids = Vec::new();
    for qos in [0, 1, 2, 1, 2] {
        // With DUP, which is of this connection only.
        client.send_message(&Message { dup: qos > 0, id: 100 + u16::from(qos), ..message("t/x", "m", qos) })?;
        if qos == 2 {
            client.expect(0x50)?;
            client.ack(0x62, 102)?;
        }
        if qos > 0 {
            client.read()?;
        }
        let came = reader.message()?;
        ensure!(came.qos == qos && !came.dup && came.topic == "t/x", "{came:?}");
        ensure!(qos == 0 || !ids.contains(&came.id), "{} is in use", came.id);
        ids.push(came.id);
    }
    // Two of QoS 2 are open.
    for id in [ids.get(2), ids.get(4)].into_iter().flatten() {
        reader.ack(0x50, *id)?;
        let [high, low] = id.to_be_bytes();
        reader.expect_all(&[0x62, 2, high, low])?;
        reader.ack(0x70, *id)?;
    }
    reader.ping()?;
    Ok(String::new())
}

fn again(version: u8) -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let lasting = Connect::lasting(version, "reader");
    let mut reader = Client::connect(&gateway, &lasting)?;
    reader.subscribe(&[("t", 2)])?;
    let mut client = Client::open(&gateway, version, "c")?;
    for (text, qos) in [("a", 1), ("b", 2), ("c", 2), ("d", 1)] {
        // Version 5 says that they expire, which counts no more when they were sent.
        let properties = if version == V5 { vec![2, 0, 0, 0, 1] } else { Vec::new() };
        client.send_message(&Message { properties, ..message("t", text, qos) })?;
        client.read()?;
        if qos == 2 {
            client.ack(0x62, 7)?;
            client.expect(0x70)?;
        }
    }
    let first: Vec<Message> = (0..4).map(|_| reader.message()).collect::<Result<_>>()?;
    let id = |index: usize| first.get(index).map_or(0, |message| message.id);
    // The second is at PUBREL. Nothing is sent again on this connection.
    reader.ack(0x50, id(1))?;
    reader.expect(0x62)?;
    reader.silent()?;
    drop(reader);
    std::thread::sleep(std::time::Duration::from_millis(1200));
    let mut reader = Client::connect(&gateway, &lasting)?;
    ensure!(reader.present);
    let (mut messages, mut released) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let mut byte = [0];
        reader.stream.peek(&mut byte)?;
        match byte {
            [0x62] => released.push(reader.expect(0x62)?),
            _ => messages.push(reader.message()?),
        }
    }
    ensure!(released == [id(1).to_be_bytes().to_vec()], "PUBREL {released:02x?}");
    let ids: Vec<u16> = messages.iter().map(|message| message.id).collect();
    ensure!(ids == [id(0), id(2), id(3)], "{ids:?}");
    ensure!(messages.iter().all(|message| message.dup), "{messages:?}");
    let texts: Vec<&[u8]> = messages.iter().map(|message| &*message.payload).collect();
    ensure!(texts == [b"a", b"c", b"d"], "{messages:?}");
    reader.ack(0x40, id(0))?;
    reader.ack(0x70, id(1))?;
    reader.ack(0x50, id(2))?;
    reader.expect(0x62)?;
    reader.ack(0x70, id(2))?;
    reader.ack(0x40, id(3))?;
    reader.ping()?;
    drop(reader);
    Client::connect(&gateway, &lasting)?.silent()?;
    Ok(String::new())
}

fn failures() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let lasting = |id: &str| Connect::lasting(V5, id);
    let mut members: Vec<Client> =
        ["one", "other"].iter().map(|id| Client::connect(&gateway, &lasting(id))).collect::<Result<_>>()?;
    for member in &mut members {
        member.subscribe(&[("$share/g/t", 2)])?;
    }
    let mut client = Client::open(&gateway, V5, "c")?;
    for qos in [1, 2] {
        client.send_message(&message("t", "m", qos))?;
        client.read()?;
        client.ack(0x62, 7)?;
        client.read()?;
        let mut failed = 0;
        for member in &mut members {
            member.stream.set_read_timeout(Some(std::time::Duration::from_millis(500)))?;
            if member.stream.peek(&mut [0]).is_ok() {
                let came = member.message()?;
                let [high, low] = came.id.to_be_bytes();
                // Implementation specific error.
                member.send(&[if qos == 1 { 0x40 } else { 0x50 }, 3, high, low, 0x83])?;
                failed += 1;
            }
        }
        ensure!(failed == 1, "{failed} members have it");
        for member in &mut members {
            member.silent()?;
        }
    }
    drop(members);
    for id in ["one", "other"] {
        Client::connect(&gateway, &lasting(id))?.silent()?;
    }
    Ok(String::new())
}

fn refused() -> Result<String> {
    let acl = "[[allow]]\nanonymous = true\nread = [\"#\"]\nwrite = [\"open\"]\n";
    let gateway = Gateway::start_furnished(&[], &[("acl.toml", acl)])?;
    let mut reader = Client::open(&gateway, V5, "reader")?;
    reader.subscribe(&[("open", 0)])?;
    let mut client = Client::open(&gateway, V5, "c")?;
    client.send_message(&message("closed", "refused", 2))?;
    let body = client.expect(0x50)?;
    ensure!(body.get(..3) == Some(&[0, 7, 0x87]), "{body:02x?}");
    client.send_message(&message("open", "anew", 2))?;
    client.expect_all(&[0x50, 2, 0, 7])?;
    ensure!(reader.text()? == "anew");
    Ok(String::new())
}

fn ordered(version: u8) -> Result<String> {
    const COUNT: u16 = 300;
    let gateway = Gateway::start(&[])?;
    let mut reader = Client::open(&gateway, version, "reader")?;
    reader.subscribe(&[("#", 2)])?;
    for qos in 0..3 {
        let mut client = Client::open(&gateway, version, "c")?;
        for id in 1..=COUNT {
            client.send_message(&Message { id, ..message("t", &id.to_string(), qos) })?;
        }
        let mut all = Vec::new();
        for id in 1..=COUNT {
            let came = reader.message()?;
            ensure!(came.payload == id.to_string().as_bytes() && came.qos == qos, "{came:?} instead of {id}");
            if qos > 0 {
                let [high, low] = id.to_be_bytes();
                client.expect_all(&[if qos == 1 { 0x40 } else { 0x50 }, 2, high, low])?;
            }
            all.push(came.id);
        }
        for id in all.into_iter().filter(|_| qos > 0) {
            reader.ack(if qos == 1 { 0x40 } else { 0x50 }, id)?;
            if qos == 2 {
                reader.expect_all(&[0x62, 2, id.to_be_bytes()[0], id.to_be_bytes()[1]])?;
                reader.ack(0x70, id)?;
            }
        }
    }
    Ok(String::new())
}

/// Identifiers are used again while one of an early exchange stays in use.
fn held_open() -> Result<String> {
    const COUNT: u32 = 70_000;
    let gateway = Gateway::start(&[])?;
    for version in [V4, V5] {
        let connect = Connect::new(version, "reader").with(&[0x21, 0xff, 0xff]);
        let mut reader = Client::connect(&gateway, &connect)?;
        reader.subscribe(&[("t", 2)])?;
        let mut client = Client::open(&gateway, version, "c")?;
        client.send_message(&message("t", "held", 2))?;
        client.expect(0x50)?;
        client.ack(0x62, 7)?;
        client.expect(0x70)?;
        let held = reader.message()?;
        reader.ack(0x50, held.id)?;
        reader.expect(0x62)?;
        for number in 0..COUNT {
            client.send_message(&message("t", "m", 1))?;
            client.expect(0x40)?;
            let came = reader.message();
            let came =
                came.map_err(|error| error.context(format!("version {version}, message {number} of {COUNT}")))?;
            ensure!(came.id != held.id && came.qos == 1, "{came:?}, {} is in use", held.id);
            reader.ack(0x40, came.id)?;
        }
        reader.ack(0x70, held.id)?;
        reader.ping()?;
    }
    Ok(format!("({COUNT} messages)"))
}
