//! One endpoint that does much at once: uploads in blocks side by side, and observations.

use std::collections::BTreeMap;
use std::net::UdpSocket;

use anyhow::{Context, Result, ensure};
use fogmux_tests::coap::{self, BLOCK1, CON, GET, Line, OBSERVE, PUT, URI_PATH};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::tcp;

use super::{PATIENCE, retain};

/// 2.31 Continue.
const CONTINUE: &str = "2.31";

/// Sends a block of 1024 bytes, and gives the code of its answer.
fn block(socket: &UdpSocket, id: u16, topic: &str, number: u8, blocks: u8) -> Result<String> {
    let more = u8::from(number + 1 < blocks);
    let block = [number >> 4, (number << 4) | (more << 3) | 6];
    let request = coap::request(CON, PUT, id, &id.to_be_bytes(), topic, &[(BLOCK1, &block)], &[b'u'; 1024]);
    Ok(coap::dotted(&coap::exchange(socket, &request, &id.to_be_bytes())?))
}

/// Uploads side by side, a block of each in turn, and gives how many ended well, and all other answers.
fn side_by_side(gateway: &Gateway, count: usize, blocks: u8) -> Result<(usize, BTreeMap<String, usize>)> {
    let socket = coap::endpoint(gateway.address("coap")?)?;
    let (mut id, mut complete, mut refused) = (0, 0, BTreeMap::new());
    let mut open: Vec<String> = (0..count).map(|n| format!("upload/{count}/{n}")).collect();
    for number in 0..blocks {
        for topic in std::mem::take(&mut open) {
            id += 1;
            let code = block(&socket, id, &topic, number, blocks)?;
            match code.as_str() {
                CONTINUE => open.push(topic),
                "2.01" | "2.04" => complete += 1,
                _ => *refused.entry(code).or_insert(0) += 1,
            }
        }
    }
    Ok((complete, refused))
}

pub(super) fn uploads() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    for count in [1, 2, 3, 4, 5, 16, 97, 128] {
        let (complete, refused) = side_by_side(&gateway, count, 3)?;
        ensure!(complete == count, "{complete} of {count}, others {refused:?}");
    }
    // One more than the limit: that one is refused, the others are not.
    let (complete, refused) = side_by_side(&gateway, 129, 3)?;
    ensure!((complete, refused.get("4.29")) == (128, Some(&1)), "{complete} of 129, others {refused:?}");
    gateway.settle()?;
    Ok(String::new())
}

pub(super) fn uploads_without_room() -> Result<String> {
    let mut gateway =
        Gateway::start(&["coap.payload_bytes_max=64KiB", "coap.upload_bytes_max=64KiB", "workers.count=1"])?;
    let mut said = String::new();
    for count in [1, 4, 5, 16, 97] {
        // Four bodies of 16 KiB fit: the last block of each is not kept, for it completes the body.
        let (complete, refused) = side_by_side(&gateway, count, 16)?;
        ensure!(complete >= count.min(4), "{complete} of {count}, others {refused:?}");
        // A new one finds no room (RFC 8516), one that gave way is incomplete (RFC 7959 §2.9.2).
        ensure!(
            refused.keys().all(|code| code == "4.29" || code == "4.08"),
            "{complete} of {count}, others {refused:?}"
        );
        said += &format!("{complete} of {count} ");
    }
    gateway.settle()?;
    Ok(said)
}

pub(super) fn observations() -> Result<String> {
    const TOPICS: usize = 1_000;
    let mut gateway = Gateway::start(&[])?;
    for listener in ["coap_tcp", "http"] {
        let stream = tcp::connect(gateway.address(listener)?)?;
        let mut line = if listener == "http" { Line::over_websocket(stream)? } else { Line::over(stream)? };
        ensure!(line.next(PATIENCE)?.is_some_and(|message| message.code == 0xe1), "no CSM");
        for topic in 0..TOPICS {
            let name = format!("{listener}{topic}");
            let options: [(u16, &[u8]); 3] = [(OBSERVE, b""), (URI_PATH, b"ps"), (URI_PATH, name.as_bytes())];
            line.send(GET, format!("{topic:04}").as_bytes(), &options, b"")?;
            let answer = line.next(PATIENCE)?.context("no answer")?;
            ensure!(answer.uint(OBSERVE).is_some(), "topic {topic} is not observed over {listener}");
        }
        retain(&gateway, (0..TOPICS).map(|topic| (format!("{listener}{topic}"), b"x".to_vec())))?;
        let mut told = std::collections::BTreeSet::new();
        while told.len() < TOPICS {
            let message = line.next(PATIENCE)?.with_context(|| format!("{} of {TOPICS} told", told.len()))?;
            told.insert(message.token);
        }
    }
    gateway.settle()?;
    Ok(String::new())
}
