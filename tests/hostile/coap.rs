//! CoAP: datagrams that are no messages, blocks that never end, observers without number.

use std::io::Write;
use std::net::UdpSocket;
use std::time::Duration;

use anyhow::{Result, ensure};
use fogmux_tests::coap::{self, ACK, BLOCK1, BLOCK2, CON, GET, NON, OBSERVE, PUT};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::suite::Case;
use fogmux_tests::tcp::PATIENCE;

use crate::{attack, attack_with};

/// Loopback cannot be forged from afar, so by default its addresses need no proof; here they stand for the others.
const PROVE_ALL: &str = "coap.prove_address=all";

pub(crate) const CASES: &[Case] = &[
    Case { name: "coap malformed headers", run: || attack(malformed) },
    Case { name: "coap blocks of 2^31", run: || attack(huge_blocks) },
    Case { name: "coap observe flood from 10 000 ports", run: || attack(observe_flood) },
    Case { name: "coap unfinished Block1 uploads", run: || attack(unfinished_uploads) },
    Case { name: "coap no amplification over 3×", run: || attack_with(&[PROVE_ALL], amplification) },
    Case { name: "coap downloads of others do not end one", run: || attack_with(&DOWNLOADS, downloads) },
    Case { name: "coap 100 000 different message ids", run: || attack(exchanges) },
    Case { name: "coap every single byte changed", run: || attack(mutations) },
];

fn id(number: usize) -> u16 {
    u16::try_from(number % 65_536).unwrap_or_default()
}

/// A PUT that is answered, so that there is something to look at.
fn put(gateway: &Gateway, topic: &str, payload: &[u8]) -> Result<UdpSocket> {
    let socket = coap::endpoint(gateway.address("coap")?)?;
    let answer = coap::exchange(&socket, &coap::request(CON, PUT, 1, b"put", topic, &[], payload), b"put")?;
    ensure!(coap::dotted(&answer).starts_with("2."), "PUT: {}", coap::dotted(&answer));
    Ok(socket)
}

fn malformed(gateway: &Gateway) -> Result<String> {
    let socket = coap::endpoint(gateway.address("coap")?)?;
    let mut count = 0usize;
    for round in 0..2000 {
        let [high, low] = id(round).to_be_bytes();
        let messages: [&[u8]; 10] = [
            &[0x40, 1, high, low, 0xff],                         // marker without payload (RFC 7252 §3)
            &[0x00, 1, high, low],                               // version 0
            &[0xc0, 1, high, low],                               // version 3
            &[0x42, 0, high, low, 1, 2],                         // token in Empty (§4.1)
            &[0x49, 1, high, low, 1, 2, 3, 4, 5, 6, 7, 8, 9],    // token of nine
            &[0x4f, 1, high, low],                               // token of fifteen that is not there
            &[0x40, 1, high, low, 0xf0],                         // option delta 15
            &[0x40, 1, high, low, 0x0f],                         // option length 15
            &[0x40, 1, high, low, 0xee, 0xff, 0xff, 0xff, 0xff], // delta and length of 65 804
            &[0x40, 0x3f, high, low],                            // code 1.31
        ];
        for message in messages {
            let _ = socket.send(message);
            count += 1;
        }
    }
    Ok(format!("{count} messages"))
}

fn huge_blocks(gateway: &Gateway) -> Result<String> {
    let _ = put(gateway, "blocks/value", &[b'b'; 2000])?;
    let socket = coap::endpoint(gateway.address("coap")?)?;
    let numbers: [&[u8]; 6] = [
        &[0xff, 0xff, 0xfe],
        &[0xff, 0xff, 0xff],
        &[0xff, 0xff, 0xf6],
        &[0x7f, 0xff, 0xff, 0xff],
        &[0x07],
        &[0x80, 0, 0, 0, 6],
    ];
    for (number, value) in numbers.iter().enumerate() {
        for (code, option) in [(GET, BLOCK2), (PUT, BLOCK1), (PUT, BLOCK2), (GET, BLOCK1)] {
            for repeat in 0..50 {
                let message_id = id(1 + repeat + 100 * (number * 4 + usize::from(code) + usize::from(option)));
                let request = coap::request(CON, code, message_id, b"bk", "blocks/value", &[(option, value)], b"x");
                let _ = socket.send(&request);
            }
        }
    }
    // A well-behaved upload begins at block 0; one that begins at the last number there is has to be told so.
    let fresh = coap::endpoint(gateway.address("coap")?)?;
    let request = coap::request(CON, PUT, 9, b"last", "blocks/value", &[(BLOCK1, &[0xff, 0xff, 0xfe])], &[b'x'; 1024]);
    let answer = coap::exchange(&fresh, &request, b"last")?;
    ensure!(matches!(coap::dotted(&answer).as_str(), "4.08" | "4.13"), "block 1 048 575: {}", coap::dotted(&answer));
    Ok("1 200 requests".to_owned())
}

fn observe_flood(gateway: &Gateway) -> Result<String> {
    let publisher = put(gateway, "watched/value", b"first")?;
    let server = gateway.address("coap")?;
    let mut observers = Vec::new();
    for number in 0..10_000 {
        let socket = coap::endpoint(server)?;
        let request = coap::request(NON, GET, id(number), b"ob", "watched/value", &[(OBSERVE, b"")], b"");
        let _ = socket.send(&request);
        observers.push(socket);
    }
    for round in 0..20u16 {
        let payload = format!("value {round}");
        let request = coap::request(CON, PUT, 100 + round, b"put", "watched/value", &[], payload.as_bytes());
        let answer = coap::exchange(&publisher, &request, b"put")?;
        ensure!(!coap::dotted(&answer).starts_with('4'), "PUT: {}", coap::dotted(&answer));
    }
    let mut answered = 0;
    for socket in &observers {
        socket.set_nonblocking(true)?;
        answered += usize::from(socket.recv(&mut [0; 1500]).is_ok());
    }
    Ok(format!("{answered} of 10 000 observers were answered"))
}

fn unfinished_uploads(gateway: &Gateway) -> Result<String> {
    let server = gateway.address("coap")?;
    let mut sockets = Vec::new();
    for number in 0..3000 {
        let socket = coap::endpoint(server)?;
        for block in 0..64u8 {
            // Number, more, 1024 bytes (RFC 7959 §2.2); the 64th block never ends the body.
            let value = (u16::from(block) << 4 | 0x0e).to_be_bytes();
            let topic = format!("upload/{number}");
            let more: [(u16, &[u8]); 1] = [(BLOCK1, &value)];
            let _ = socket.send(&coap::request(NON, PUT, id(usize::from(block)), b"up", &topic, &more, &[b'u'; 1024]));
        }
        sockets.push(socket);
    }
    Ok(format!("{} uploads of 64 KiB begun", sockets.len()))
}

fn amplification(gateway: &Gateway) -> Result<String> {
    let kept = fogmux_tests::mqtt::publish(4, b"amp/lify", &[b'A'; 1000], 1, true, 1);
    let mut publisher = fogmux_tests::mqtt::Connection::open(gateway.address("mqtt")?, 4, "kept")?;
    publisher.stream.write_all(&kept)?;
    ensure!(publisher.read()?.0 == 0x40, "no PUBACK");
    let server = gateway.address("coap")?;
    let mut worst = 0;
    for number in 0..200 {
        let socket = coap::endpoint(server)?;
        for request in [
            coap::request(NON, GET, id(number), b"", "amp/lify", &[], b""),
            coap::message(
                NON,
                GET,
                id(number + 1),
                b"",
                &[(coap::URI_PATH, b".well-known"), (coap::URI_PATH, b"core")],
                b"",
            ),
        ] {
            socket.send(&request)?;
            let answer = coap::receive(&socket, PATIENCE)?.unwrap_or_default();
            worst = worst.max(answer.len() * 100 / request.len());
        }
    }
    ensure!(worst <= 300, "an address that never proved itself gets {:.1} bytes for each", worst as f32 / 100.0);
    Ok(format!("at most {:.1}×", worst as f32 / 100.0))
}

const ETAG: u16 = 4;
/// Room for four downloads of the largest kind.
const DOWNLOADS: [&str; 3] = ["workers.count=1", "coap.payload_bytes_max=64KiB", "coap.download_bytes_max=256KiB"];

/// A block of a representation, and its ETag.
fn block(socket: &UdpSocket, topic: &str, number: u32) -> Result<coap::Message> {
    let [_, value @ ..] = ((number << 4) | 6).to_be_bytes();
    let id = id(usize::try_from(number)? + 1);
    let request = coap::request(CON, GET, id, b"block", topic, &[(BLOCK2, &value)], b"");
    let answer = coap::Message::of_datagram(&coap::exchange(socket, &request, b"block")?)?;
    ensure!(answer.code == 0x45, "block {number} of {topic}: {:#x}", answer.code);
    Ok(answer)
}

/// A client at one address begins many downloads; that of a client at another goes on as it began, though its value is
/// replaced meanwhile.
fn downloads(gateway: &Gateway) -> Result<String> {
    const MANY: u32 = 30;
    let server = gateway.address("coap")?;
    let mut publisher = fogmux_tests::mqtt::Connection::open(gateway.address("mqtt")?, 4, "values")?;
    let mut keep = |topic: &str, byte: u8| -> Result<()> {
        publisher.stream.write_all(&fogmux_tests::mqtt::publish(4, topic.as_bytes(), &[byte; 60_000], 1, true, 1))?;
        ensure!(publisher.read()?.0 == 0x40, "no PUBACK");
        Ok(())
    };
    for number in 0..MANY {
        keep(&format!("hog/{number}"), b'h')?;
    }
    keep("victim", b'v')?;
    let hog = UdpSocket::bind("127.0.0.2:0")?;
    hog.connect(server)?;
    let victim = coap::endpoint(server)?;
    let first = block(&victim, "victim", 0)?;
    for number in 0..MANY {
        block(&hog, &format!("hog/{number}"), 0)?;
        block(&victim, "victim", 1 + number / 2)?;
    }
    for number in 0..MANY {
        block(&hog, &format!("hog/{number}"), 0)?;
    }
    keep("victim", b'w')?;
    for number in 1..60_000_u32.div_ceil(1024) {
        let next = block(&victim, "victim", number)?;
        let etag = |message: &coap::Message| message.options.iter().find(|(number, _)| *number == ETAG).cloned();
        ensure!(
            next.payload.iter().all(|byte| *byte == b'v') && etag(&next) == etag(&first),
            "block {number} is of another value"
        );
    }
    let gave_way = gateway.sum(&["fogmux_share_gave_way_total{table=\"coap_downloads\"}"])?;
    Ok(format!("{gave_way} gave way"))
}

fn exchanges(gateway: &Gateway) -> Result<String> {
    let server = gateway.address("coap")?;
    let sockets = (0..100).map(|_| coap::endpoint(server)).collect::<Result<Vec<_>>>()?;
    for number in 0..1000 {
        for socket in &sockets {
            let _ = socket.send(&coap::request(CON, PUT, id(number), b"x", "ex/change", &[], &[b'e'; 500]));
        }
    }
    Ok("100 000 confirmable PUTs unheard".to_owned())
}

fn mutations(gateway: &Gateway) -> Result<String> {
    let socket = coap::endpoint(gateway.address("coap")?)?;
    let more: [(u16, &[u8]); 4] = [(OBSERVE, b""), (coap::CONTENT_FORMAT, &[50]), (BLOCK2, &[2]), (BLOCK1, &[8 + 2])];
    let request = coap::request(CON, PUT, 1, b"token", "mu/ta/tions", &more, b"payload of some bytes");
    let mut count = 0;
    for at in 0..request.len() {
        for change in 1..=255 {
            let mut changed = request.clone();
            if let Some(byte) = changed.get_mut(at) {
                *byte ^= change;
            }
            let _ = socket.send(&changed);
            count += 1;
        }
    }
    // Answers to what was never asked: reset, or nothing (§4.2, §4.3).
    for number in 0..1000 {
        let _ = socket.send(&coap::message(ACK, 0x45, id(number), b"none", &[], b"unasked"));
    }
    while coap::receive(&socket, Duration::from_millis(200))?.is_some() {}
    Ok(format!("{count} changed messages"))
}
