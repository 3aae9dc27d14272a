//! Connections for their own sake: thousands that say nothing, and some that never finish a word.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::suite::Case;
use fogmux_tests::tcp;

use crate::attack;
use crate::mqtt::noise;

pub(crate) const CASES: &[Case] = &[
    Case { name: "10 000 connections that send nothing", run: || attack(silent) },
    Case { name: "slow-loris on each TCP door", run: || attack(slow_loris) },
    Case { name: "garbage at each TCP door", run: || attack(garbage) },
    Case { name: "garbage at each UDP port", run: || attack(garbage_datagrams) },
];

const TCP_DOORS: [&str; 8] = ["mqtt", "mqtts", "coap_tcp", "coaps_tcp", "http", "https", "xmpp", "xmpps"];
/// By then every door has to have let go of who never said a whole word.
const LOGIN_MAX: Duration = Duration::from_secs(45);

fn silent(gateway: &Gateway) -> Result<String> {
    let address = gateway.address("mqtt")?;
    let mut held = Vec::new();
    for _ in 0..10_000 {
        match TcpStream::connect_timeout(&address, Duration::from_secs(2)) {
            Ok(stream) => held.push(stream),
            // A cap on connections is an answer too, as long as others still get in; that is looked at afterwards.
            Err(_) => break,
        }
    }
    let kept = held.iter().filter(|stream| is_open(stream)).count();
    Ok(format!("{} connected, {kept} kept", held.len()))
}

/// Whether the peer still holds the connection, without waiting for it; what it said is read away.
fn is_open(mut stream: &TcpStream) -> bool {
    let mut buffer = [0; 4096];
    if stream.set_nonblocking(true).is_err() {
        return false;
    }
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return tcp::is_timeout(error.kind()),
        }
    }
}

/// The beginning of something sensible at each door, of which one byte is sent at a time.
fn opening(door: &str) -> Vec<u8> {
    match door {
        "mqtt" => b"\x10\xff\xff\x03\x00\x04MQTT\x04\x02\x00\x3c\xff\xff".to_vec(),
        // Capabilities and Settings of 64 KiB (RFC 8323 §5.3), of which no byte comes.
        "coap_tcp" => b"\xe0\xff\xff\xe1".to_vec(),
        "http" => b"GET /topics/a HTTP/1.1\r\nHost: localhost\r\nX-Slow: ".to_vec(),
        "xmpp" => b"<?xml version='1.0'?><stream:stream to='localhost' version='1.0' xmlns='jabber:client' ".to_vec(),
        // The start of a TLS record of handshake type that announces 16 KiB.
        _ => b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03".to_vec(),
    }
}

fn slow_loris(gateway: &Gateway) -> Result<String> {
    let mut victims: Vec<(&str, TcpStream, Vec<u8>)> = Vec::new();
    for door in TCP_DOORS {
        for _ in 0..50 {
            let stream = tcp::connect(gateway.address(door)?)?;
            victims.push((door, stream, opening(door)));
        }
    }
    let began = Instant::now();
    let mut turn = 0usize;
    let mut open = victims.len();
    while began.elapsed() < LOGIN_MAX && open > 0 {
        for (_, stream, words) in &mut victims {
            let byte = words.get(turn).copied().unwrap_or(b'a');
            // A closed connection refuses; it is counted below.
            let _ = stream.write_all(&[byte]);
        }
        turn += 1;
        std::thread::sleep(Duration::from_millis(250));
        open = victims.iter().filter(|(_, stream, _)| is_open(stream)).count();
    }
    let mut left: Vec<&str> = victims.iter().filter_map(|(door, stream, _)| is_open(stream).then_some(*door)).collect();
    left.dedup();
    ensure!(left.is_empty(), "still held after {LOGIN_MAX:?}: {}", left.join(" "));
    Ok(format!("400 connections, the last one let go after {:.0} s", began.elapsed().as_secs_f32()))
}

fn garbage(gateway: &Gateway) -> Result<String> {
    for door in TCP_DOORS {
        for seed in 0..100 {
            let mut stream = tcp::connect(gateway.address(door)?)?;
            tcp::pour(&mut stream, &noise(2048, seed))?;
        }
    }
    Ok("800 × 2 KiB".to_owned())
}

fn garbage_datagrams(gateway: &Gateway) -> Result<String> {
    for door in ["coap", "coaps", "http3"] {
        let socket = fogmux_tests::coap::endpoint(gateway.address(door)?)?;
        for seed in 0..10_000u64 {
            let length = usize::try_from(seed % 1400)?;
            let mut bytes = noise(length, seed);
            if seed % 2 == 0
                && let Some(first) = bytes.first_mut()
            {
                // Half of them begin like the real thing: a QUIC Initial, a DTLS handshake, a CoAP confirmable message.
                *first = match door {
                    "http3" => 0xc0 | (*first & 0x0f),
                    "coaps" => 0x16,
                    _ => 0x40 | (*first & 0x0f),
                };
            }
            // A full buffer drops it; that is what UDP does.
            let _ = socket.send(&bytes);
        }
    }
    Ok("30 000 datagrams".to_owned())
}
