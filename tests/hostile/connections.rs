//! Connections for their own sake: thousands that say nothing, and some that never finish a word.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::suite::Case;
use fogmux_tests::{tcp, tls};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use crate::attack;
use crate::mqtt::noise;

pub(crate) const CASES: &[Case] = &[
    Case { name: "10 000 connections that send nothing", run: || attack(silent) },
    Case { name: "slow-loris on each TCP door", run: || attack(slow_loris) },
    Case { name: "TLS handshakes that fall silent leave places to other networks", run: fallen_silent },
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

/// Places for TLS handshakes at one listener, for each of 256 hosts.
const PLACES_FOR_HOST: usize = 4;

/// The first words of a client of TLS, and no more.
fn client_hello(gateway: &Gateway) -> Result<Vec<u8>> {
    let mut client = ClientConnection::new(tls::config(gateway.ca())?, ServerName::try_from("localhost")?)?;
    let mut hello = Vec::new();
    client.write_tls(&mut hello)?;
    Ok(hello)
}

fn fallen_silent() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let (address, hello) = (gateway.address("mqtts")?, client_hello(&gateway)?);
    // Two networks, each with as many hosts as there are places for both.
    let mut held = Vec::new();
    for host in 0..=255 {
        for network in [1, 2] {
            for _ in 0..PLACES_FOR_HOST {
                let mut stream = tcp::connect_from(Ipv4Addr::new(127, 1, network, host).into(), address)?;
                stream.write_all(&hello)?;
                held.push(stream);
            }
        }
    }
    // Each that the gateway has answered holds a place.
    let answered = || held.iter().filter(|stream| stream.peek(&mut [0]).is_ok_and(|count| count > 0)).count();
    held.iter().try_for_each(|stream| stream.set_nonblocking(true))?;
    let places = 256 * PLACES_FOR_HOST;
    let began = Instant::now();
    while answered() < places && began.elapsed() < LOGIN_MAX {
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut stream = tls::connect(&tls::config(gateway.ca())?, address)?;
    stream.write_all(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01g")?;
    let mut connack = [0; 4];
    stream.read_exact(&mut connack)?;
    ensure!(connack == *b"\x20\x02\x00\x00", "{connack:02x?}");
    // Not one after the others' deadline: those who fell silent still have their places.
    let kept = held.iter().filter(|stream| is_open(stream)).count();
    ensure!(kept > places, "the handshake waited until {} others had come to their end", held.len() - kept);
    let gave_way = gateway.sum(&["fogmux_share_gave_way_total{table=\"tls_handshakes\"}"])?;
    ensure!(gave_way > 0, "nobody counted the handshake that gave way");
    drop(held);
    gateway.check_alive()?;
    Ok(format!("{gave_way} gave way"))
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
