//! MQTT: packets that lie, end early or say what the standard forbids.

use std::io::Write;
use std::time::Duration;

use anyhow::{Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, Connection, V4, V5};
use fogmux_tests::suite::Case;
use fogmux_tests::tcp::{self, End};

use crate::attack;

/// How long a wrong packet may stay without consequence.
const SOON: Duration = Duration::from_secs(5);

pub(crate) const CASES: &[Case] = &[
    Case { name: "mqtt packets cut anywhere", run: || attack(cut_anywhere) },
    Case { name: "mqtt lengths that lie", run: || attack(lying_lengths) },
    Case { name: "mqtt NUL in topics", run: || attack(nul_topics) },
    Case { name: "mqtt a topic of 65 535 slashes", run: || attack(slashes) },
    Case { name: "mqtt alias abuse", run: || attack(alias_abuse) },
    Case { name: "mqtt garbage before CONNECT", run: || attack(garbage) },
    Case { name: "mqtt every single byte changed", run: || attack(mutations) },
];

/// CONNECT, SUBSCRIBE and two PUBLISH of version 5, as one stream of bytes.
fn conversation() -> Vec<u8> {
    let mut bytes = mqtt::connect(V5, "hostile");
    bytes.extend(mqtt::subscribe(V5, 1, &["a/+/b", "c/#"], 2));
    bytes.extend(mqtt::publish(V5, b"a/x/b", b"payload", 1, true, 2));
    bytes.extend(mqtt::publish(V5, b"c", b"", 2, false, 3));
    bytes
}

fn cut_anywhere(gateway: &Gateway) -> Result<String> {
    let bytes = conversation();
    for at in 0..bytes.len() {
        let mut stream = tcp::connect(gateway.address("mqtt")?)?;
        stream.write_all(bytes.get(..at).unwrap_or_default())?;
    }
    // Cut in two, with the rest in a segment of its own: nothing may be lost.
    for at in 1..bytes.len() {
        let mut stream = tcp::connect(gateway.address("mqtt")?)?;
        stream.write_all(bytes.get(..at).unwrap_or_default())?;
        let mut connection = Connection::over(stream, V5);
        connection.stream.write_all(bytes.get(at..).unwrap_or_default())?;
        let (first, _) = connection.read()?;
        ensure!(first == 0x20, "cut at {at}: {first:#x} instead of CONNACK");
        let (first, _) = connection.read()?;
        ensure!(first == 0x90, "cut at {at}: {first:#x} instead of SUBACK");
    }
    Ok(format!("{} cuts", 2 * bytes.len()))
}

fn lying_lengths(gateway: &Gateway) -> Result<String> {
    let address = gateway.address("mqtt")?;
    let mut liars = Vec::new();
    for first in (0x00..=0xf0u8).step_by(0x10) {
        // Says that 256 MB follow, before and after CONNECT.
        let mut early = tcp::connect(address)?;
        early.write_all(&[first, 0xff, 0xff, 0xff, 0x7f, 0, 4])?;
        let mut late = Connection::open(address, V4, &format!("liar-{first}"))?;
        late.stream.write_all(&[first, 0xff, 0xff, 0xff, 0x7f, 0, 4])?;
        liars.extend([early, late.stream]);
    }
    let wrong: [&[u8]; 5] = [
        &[0x30, 0xff, 0xff, 0xff, 0xff, 0x01],       // five bytes of remaining length
        &[0x30, 0x02, 0x00, 0x09],                   // a topic longer than its packet
        &[0x82, 0x05, 0x00, 0x01, 0xff, 0xff, b'a'], // a filter longer than its packet
        &[0x32, 0x03, 0x00, 0x01, b'a'],             // QoS 1 without a packet identifier
        &[0x40, 0x01, 0x00],                         // PUBACK of one byte
    ];
    for bytes in wrong {
        let mut connection = Connection::open(address, V4, "liar")?;
        connection.stream.write_all(bytes)?;
        let end = tcp::read_end(&mut connection.stream, SOON)?;
        ensure!(end.is_closed(), "{bytes:02x?} is left unpunished");
    }
    Ok(format!("{} connections that announce 256 MB", liars.len()))
}

fn nul_topics(gateway: &Gateway) -> Result<String> {
    let address = gateway.address("mqtt")?;
    for version in [V4, V5] {
        for bytes in [
            mqtt::publish(version, b"a\0b", b"x", 0, false, 0),
            mqtt::publish(version, b"\0", b"x", 1, true, 1),
            mqtt::subscribe(version, 1, &["a/\0/#"], 0),
            mqtt::publish(version, b"a/\xff\xfe", b"x", 0, false, 0),
            mqtt::publish(version, b"a/\xed\xa0\x80", b"x", 0, false, 0),
            mqtt::publish(version, b"a/+", b"x", 0, false, 0),
            mqtt::publish(version, b"", b"x", 0, false, 0),
        ] {
            let mut connection = Connection::open(address, version, "nul")?;
            connection.stream.write_all(&bytes)?;
            let end = tcp::read_end(&mut connection.stream, SOON)?;
            ensure!(end.is_closed(), "version {version}: {bytes:02x?} was taken");
        }
    }
    Ok("14 forbidden names".to_owned())
}

fn slashes(gateway: &Gateway) -> Result<String> {
    let address = gateway.address("mqtt")?;
    let topic = "/".repeat(65_535);
    let plus = "+/".repeat(32_767) + "+";
    let mut refused = 0;
    for _ in 0..50 {
        for bytes in [
            mqtt::publish(V5, topic.as_bytes(), b"x", 0, true, 0),
            mqtt::subscribe(V5, 1, &[&topic], 0),
            mqtt::subscribe(V5, 1, &[&plus], 0),
        ] {
            let mut connection = Connection::open(address, V5, "slashes")?;
            connection.stream.write_all(&bytes)?;
            // A ping behind it: it is answered, or the connection was closed for the topic.
            connection.stream.write_all(&[0xc0, 0])?;
            match connection.read() {
                Ok((0xd0, _)) => {}
                Ok((first, _)) => ensure!(matches!(first, 0x90 | 0xe0), "{first:#x} in answer"),
                Err(_) => refused += 1,
            }
        }
    }
    Ok(format!("150 names of 65 535 bytes, {refused} connections closed"))
}

/// A version 5 PUBLISH that sets or uses a topic alias.
fn aliased(topic: &[u8], alias: u16) -> Vec<u8> {
    let mut body = mqtt::string(topic);
    body.extend([3, 0x23]);
    body.extend(alias.to_be_bytes());
    body.push(b'x');
    mqtt::packet(0x30, &body)
}

fn alias_abuse(gateway: &Gateway) -> Result<String> {
    let address = gateway.address("mqtt")?;
    let cases: [(&str, Vec<u8>, u8); 3] = [
        ("alias 0", aliased(b"a", 0), 0x94),                      // [MQTT-3.3.2-8]
        ("alias above the maximum", aliased(b"a", 65_535), 0x94), // [MQTT-3.3.2-9]
        ("alias never set", aliased(b"", 1), 0x82),               // §3.3.2.3.4
    ];
    for (name, bytes, reason) in cases {
        let mut connection = Connection::open(address, V5, "alias")?;
        connection.stream.write_all(&bytes)?;
        let (first, body) = connection.read()?;
        ensure!(first == 0xe0 && body.first() == Some(&reason), "{name}: {first:#x} {body:02x?}");
    }
    // One alias, set anew with 64 KiB of topic each time: only the last may be kept.
    let mut topic = "t".repeat(60_000).into_bytes();
    for round in 0..20u16 {
        let mut connection = Connection::open(address, V5, &format!("alias-{round}"))?;
        for byte in b'a'..=b'z' {
            topic.fill(byte);
            if !tcp::pour(&mut connection.stream, &aliased(&topic, 1))? {
                break;
            }
        }
    }
    Ok("520 aliases of 60 000 bytes".to_owned())
}

/// Bytes that look like nothing, from a generator with a fixed seed (Knuth's MMIX constants).
pub(crate) fn noise(count: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut step = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    (0..count).map(|_| step()).collect()
}

fn garbage(gateway: &Gateway) -> Result<String> {
    for seed in 0..300 {
        let mut stream = tcp::connect(gateway.address("mqtt")?)?;
        tcp::pour(&mut stream, &noise(4096, seed))?;
    }
    let mut stream = tcp::connect(gateway.address("mqtt")?)?;
    stream.write_all(&[0xc0, 0])?;
    let end = tcp::read_end(&mut stream, SOON)?;
    // [MQTT-3.1.0-1]: the first packet has to be CONNECT.
    ensure!(end == End::Closed(Vec::new()), "PINGREQ before CONNECT: {end:?}");
    Ok("300 × 4 KiB".to_owned())
}

fn mutations(gateway: &Gateway) -> Result<String> {
    let bytes = conversation();
    let mut count = 0;
    for at in 0..bytes.len() {
        for change in [0x01, 0x80, 0xff] {
            let mut changed = bytes.clone();
            if let Some(byte) = changed.get_mut(at) {
                *byte ^= change;
            }
            let mut stream = tcp::connect(gateway.address("mqtt")?)?;
            tcp::pour(&mut stream, &changed)?;
            count += 1;
        }
    }
    Ok(format!("{count} changed conversations"))
}
