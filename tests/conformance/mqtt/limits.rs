//! The maxima of a client, reason strings, and the end of a connection.

use anyhow::{Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{V4, V5, packet, string};
use fogmux_tests::{tcp, users, websocket};

use super::Proof;
use super::client::{Client, Connect, Message, message, text};

pub(super) const PROOFS: &[Proof] = &[
    Proof {
        name: "mqtt 5 maximum packet size of a client",
        run: size,
        proves: "5:3.1.2-24 5:3.1.2-25 5:3.2.2-19 5:3.4.2-2 5:3.5.2-2 5:3.9.2-1 5:3.11.2-1 5:3.14.2-3",
    },
    Proof {
        name: "mqtt 5 receive maximum of a client",
        run: receive_maximum,
        proves: "5:3.3.4-9 5:3.3.4-10 5:4.9.0-2 5:4.9.0-3",
    },
    Proof {
        name: "mqtt 5 reason strings and response information are for clients that ask",
        run: information,
        proves: "5:3.1.2-28 5:3.1.2-29",
    },
    Proof {
        name: "mqtt 5 DISCONNECT of the server is the last packet",
        run: last,
        proves: "5:3.14.2-1 5:3.14.2-2 5:3.14.4-1 5:3.14.4-2 5:4.13.2-1 5:3.14.1-1 5:3.15.1-1",
    },
    Proof {
        name: "mqtt 3.1.1 DISCONNECT and errors end the connection",
        run: last_of_3,
        proves: "3:3.14.1-1 3:3.14.4-1 3:4.8.0-1",
    },
    Proof {
        name: "mqtt over WebSocket",
        run: socket,
        proves: "5:6.0.0-1 5:6.0.0-2 5:6.0.0-4 3:6.0.0-1 3:6.0.0-2 3:6.0.0-4",
    },
];

fn size() -> Result<String> {
    let acl = "[[allow]]\nanonymous = true\nread = [\"open/#\"]\nwrite = [\"open/#\"]\n";
    let gateway = Gateway::start_furnished(&[], &[("acl.toml", acl)])?;
    let mut publisher = Client::open(&gateway, V5, "publisher")?;
    for max in [30_u8, 60, 100] {
        let connect = Connect::new(V5, "c").with(&[0x27, 0, 0, 0, max]);
        let mut client = Client::connect(&gateway, &connect)?;
        client.subscribe(&[("open/+", 0)])?;
        // Around the limit: what fits comes, what does not is as if it had come.
        for length in 0..120 {
            let text = "x".repeat(length);
            publisher.publish("open/t", &text, false)?;
            // 2 + 2 + 6 + 1 bytes besides the payload.
            if 11 + length <= usize::from(max) {
                ensure!(client.text()? == text, "{length} of {max}");
            }
        }
        client.silent()?;
        // Refusals have reason strings where there is room.
        let fits = |first: u8, body: &[u8]| {
            let whole = packet(first, body).len();
            ensure!(whole <= usize::from(max), "{first:#x} of {whole} bytes, {max} allowed");
            Ok(())
        };
        let deep = format!("closed/{}", "y".repeat(40));
        for qos in [1, 2] {
            client.send_message(&message(&deep, "m", qos))?;
            let (first, body) = client.read()?;
            ensure!(body.get(2) == Some(&0x87), "{first:#x} {body:02x?}");
            fits(first, &body)?;
        }
        ensure!(client.subscribe(&[(&deep, 0)])? == [0x87]);
        ensure!(client.unsubscribe(&[&deep])? == [0x11]);
        client.send(&packet(0x36, &[&string(b"t")[..], &[0, 1, 0]].concat()))?;
        let end = client.end()?;
        ensure!(end.first() == Some(&0xe0) && end.len() <= usize::from(max), "{end:02x?}");
        // A CONNACK that refuses.
        let (mut refused, reason) = Client::try_connect(&gateway, &connect.clone().with(&text(0x15, "NO")))?;
        ensure!(reason == 0x8c && refused.granted.len() + 4 <= usize::from(max), "{reason:#x}");
        refused.end()?;
    }
    Ok(String::new())
}

fn receive_maximum() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let mut publisher = Client::open(&gateway, V5, "publisher")?;
    for max in [1_u16, 2, 5] {
        let [high, low] = max.to_be_bytes();
        let mut client = Client::connect(&gateway, &Connect::new(V5, "c").with(&[0x21, high, low]))?;
        client.subscribe(&[("t", 2)])?;
        for number in 0..10 {
            publisher.publish("t", &number.to_string(), false)?;
        }
        let mut open: Vec<Message> = Vec::new();
        for number in 0..10 {
            if open.len() == usize::from(max) {
                client.silent()?;
                // Everything else goes on.
                client.ping()?;
                client.subscribe(&[("other", 0)])?;
                publisher.send_message(&message("other", "passes", 0))?;
                client.publish("nobody", "m", false)?;
                client.ack(0x40, open.remove(0).id)?;
            }
            let mut came = client.message()?;
            if came.topic == "other" {
                came = client.message()?;
            }
            ensure!(came.payload == number.to_string().as_bytes(), "{came:?} instead of {number}");
            open.push(came);
        }
    }
    Ok(String::new())
}

fn information() -> Result<String> {
    let acl = "[[allow]]\nanonymous = true\nread = [\"open\"]\nwrite = [\"open\"]\n";
    let gateway = Gateway::start_furnished(&[], &[("acl.toml", acl)])?;
    for asks in [Vec::new(), vec![0x17, 0], vec![0x17, 1], vec![0x19, 0]] {
        let mut client = Client::connect(&gateway, &Connect::new(V5, "c").with(&asks))?;
        ensure!(client.property(0x1a).is_none(), "Response Information");
        for (sends, first) in [
            (fogmux_tests::mqtt::publish(V5, b"closed", b"m", 1, false, 7), 0x40),
            (fogmux_tests::mqtt::publish(V5, b"closed", b"m", 2, false, 7), 0x50),
            (fogmux_tests::mqtt::subscribe(V5, 7, &["closed"], 0), 0x90),
            (packet(0x62, &[0, 9]), 0x70),
        ] {
            client.send(&sends)?;
            let body = client.expect(first)?;
            let explains = body.windows(3).any(|bytes| matches!(bytes, [0x1f | 0x26, 0, 1..=255]));
            ensure!(asks != [0x17, 0] || !explains, "{first:#x} {body:02x?}");
        }
    }
    Ok(String::new())
}

fn last() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let mut publisher = Client::open(&gateway, V5, "publisher")?;
    for (wrong, reasons) in [
        (packet(0xe1, b""), &[0x81][..]),
        (packet(0xf1, b""), &[0x81]),
        (packet(0x36, &[0, 1, b't', 0, 1, 0]), &[0x81]),
        (packet(0x00, b""), &[0x81]),
        (packet(0x10, b"again"), &[0x81, 0x82]),
    ] {
        let mut client = Client::connect(&gateway, &Connect::lasting(V5, "c"))?;
        client.subscribe(&[("t", 0)])?;
        client.send(&wrong)?;
        let (first, body) = client.read()?;
        ensure!(first == 0xe0 && body.first().is_some_and(|reason| reasons.contains(reason)), "{first:#x} {body:02x?}");
        ensure!(
            !body.windows(5).any(|bytes| matches!(bytes, [0x11, ..])) || body.len() < 6,
            "a session expiry: {body:02x?}"
        );
        // Nothing follows, whatever is published.
        publisher.publish("t", "m", false)?;
        ensure!(client.end()?.is_empty());
    }
    Ok(String::new())
}

fn last_of_3() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    for bytes in [packet(0xe0, b""), packet(0xe1, b""), packet(0x00, b""), packet(0x36, &[0, 1, b't', 0, 1])] {
        let mut client = Client::open(&gateway, V4, "c")?;
        client.send(&bytes)?;
        ensure!(client.end()?.is_empty());
    }
    // Others are not disturbed by them.
    Client::open(&gateway, V4, "c")?.ping()?;
    Ok(String::new())
}

fn socket() -> Result<String> {
    let gateway = users::gateway(&[], &[], &[])?;
    for version in [V4, V5] {
        let open = || -> Result<std::net::TcpStream> {
            let mut stream = tcp::connect(gateway.address("http")?)?;
            // It checks that the subprotocol is the one that was asked for.
            websocket::upgrade(&mut stream, "/mqtt", "mqtt")?;
            Ok(stream)
        };
        // A packet in single bytes, then three in one frame.
        let mut stream = open()?;
        let connect = Connect::new(version, "c").bytes();
        for byte in &connect {
            std::io::Write::write_all(&mut stream, &websocket::frame(websocket::BINARY, &[*byte]))?;
        }
        let three = [0xc0, 0, 0xc0, 0, 0xc0, 0];
        std::io::Write::write_all(&mut stream, &websocket::frame(websocket::BINARY, &three))?;
        let mut bytes = Vec::new();
        let mut payload = Vec::new();
        while !payload.ends_with(&[0xd0, 0, 0xd0, 0, 0xd0, 0]) {
            let mut buffer = [0; 512];
            let count = std::io::Read::read(&mut stream, &mut buffer)?;
            ensure!(count > 0, "closed behind {payload:02x?}");
            bytes.extend(buffer.iter().take(count));
            while let Some((opcode, part)) = websocket::take_frame(&mut bytes) {
                ensure!(opcode == websocket::BINARY, "opcode {opcode}");
                payload.extend(part);
            }
        }
        ensure!(payload.first() == Some(&0x20), "{payload:02x?}");
        // Text closes the connection.
        let mut stream = open()?;
        std::io::Write::write_all(&mut stream, &websocket::frame(websocket::TEXT, &connect))?;
        ensure!(tcp::read_end(&mut stream, tcp::PATIENCE)?.is_closed());
    }
    Ok(String::new())
}
