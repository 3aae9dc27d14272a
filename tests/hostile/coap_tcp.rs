//! CoAP over TCP (RFC 8323): frames that lie about their length, signals out of place, readers that do not read.

use std::time::Duration;

use anyhow::{Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::suite::Case;
use fogmux_tests::tcp;

use crate::attack;
use crate::mqtt::noise;

pub(crate) const CASES: &[Case] = &[
    Case { name: "coap tcp frames that lie", run: || attack(lies) },
    Case { name: "coap tcp requests never read", run: || attack(never_read) },
    Case { name: "coap tcp pings without end", run: || attack(pings) },
];

/// Capabilities and Settings, empty: the first thing each side says (RFC 8323 §5.3).
const CSM: [u8; 2] = [0x00, 0xe1];
const PING: [u8; 2] = [0x00, 0xe2];
const GET: u8 = 0x01;
/// The options of `/ps/big`.
const PATH: &[u8] = b"\xb2ps\x03big";

/// A message in its frame, with a token of one byte (RFC 8323 §3.2).
fn frame(code: u8, token: u8, rest: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match u8::try_from(rest.len()) {
        Ok(length @ 0..=12) => out.push(length << 4 | 1),
        Ok(length) => out.extend([13 << 4 | 1, length - 13]),
        Err(_) => {
            let length = u16::try_from(rest.len().saturating_sub(269)).unwrap_or(u16::MAX);
            out.push(14 << 4 | 1);
            out.extend(length.to_be_bytes());
        }
    }
    out.extend([code, token]);
    out.extend(rest);
    out
}

fn lies(gateway: &Gateway) -> Result<String> {
    let address = gateway.address("coap_tcp")?;
    let openings: [&[u8]; 8] = [
        &[0xf0, 0xff, 0xff, 0xff, 0xff, 0xe1],                // a CSM of 4 GiB
        &[0xf0, 0xff, 0xff, 0xff, 0xff, 0x03],                // a PUT of 4 GiB
        &[0x0f, 0x01, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], // a token of fifteen
        &[0x09, 0x01, 1, 2, 3, 4, 5, 6, 7, 8, 9],             // a token of nine
        &[0x10, 0x01, 0xff],                                  // marker without payload
        &[0x20, 0x01, 0xf0, 0x00],                            // option delta 15
        &[0x20, 0xe1, 0xee, 0xff],                            // an option of the CSM cut short
        &[0x00, 0xff],                                        // signal 7.31
    ];
    let mut closed = 0;
    for opening in openings {
        for with_csm in [false, true] {
            for _ in 0..20 {
                let mut stream = tcp::connect(address)?;
                if with_csm {
                    tcp::pour(&mut stream, &CSM)?;
                }
                tcp::pour(&mut stream, opening)?;
                tcp::pour(&mut stream, &noise(4096, 7))?;
                closed += usize::from(tcp::read_end(&mut stream, Duration::from_millis(20))?.is_closed());
            }
        }
    }
    Ok(format!("320 connections, {closed} closed at once"))
}

fn never_read(gateway: &Gateway) -> Result<String> {
    let address = gateway.address("coap_tcp")?;
    let put = b"PUT /topics/big HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\nConnection: close\r\n\r\n";
    let mut request = put.to_vec();
    request.resize(request.len() + 60_000, b'b');
    let answer = tcp::ask(gateway.address("http")?, &request)?;
    ensure!(answer.starts_with(b"HTTP/1.1 20"), "PUT: {}", String::from_utf8_lossy(&answer));
    let mut sent = 0;
    let mut deaf = Vec::new();
    for _ in 0..50 {
        let mut stream = tcp::connect(address)?;
        stream.set_write_timeout(Some(Duration::from_millis(50)))?;
        tcp::pour(&mut stream, &CSM)?;
        for token in 0..200 {
            if !tcp::pour(&mut stream, &frame(GET, token, PATH))? {
                break;
            }
            sent += 1;
        }
        deaf.push(stream);
    }
    Ok(format!("{sent} requests for 60 kB each on {} connections", deaf.len()))
}

fn pings(gateway: &Gateway) -> Result<String> {
    let mut stream = tcp::connect(gateway.address("coap_tcp")?)?;
    stream.set_write_timeout(Some(Duration::from_millis(500)))?;
    tcp::pour(&mut stream, &CSM)?;
    let many = PING.repeat(100_000);
    let taken = tcp::pour(&mut stream, &many)?;
    Ok(format!("100 000 pings, {}", if taken { "all taken" } else { "not all taken" }))
}
