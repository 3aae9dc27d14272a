//! MQTT: what each standard says about a packet that is wrong, asked of the running gateway.
//!
//! Version 5 names a reason code for nearly all of it (MQTT 5 §4.13); 3.1.1 only lets the server close (§4.8).

use std::io::Write;

use anyhow::{Context, Result, bail, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, Connection, V4, V5, packet, string};
use fogmux_tests::tcp::{self, PATIENCE};

use super::Proof;
use crate::all;

pub(super) const PROOFS: &[Proof] = &[
    Proof {
        name: "mqtt 5 malformed CONNECT",
        run: malformed_connect,
        proves: "5:3.1.2-1 5:3.1.2-3 5:3.1.2-11 5:3.1.2-12 5:3.1.3-4",
    },
    Proof { name: "mqtt 5 malformed wills", run: malformed_wills, proves: "" },
    Proof {
        name: "mqtt 5 malformed packets",
        run: || malformed(V5),
        proves: "5:1.5.4-1 5:1.5.4-2 5:1.5.5-1 5:2.1.3-1 5:3.1.0-2 5:3.3.1-4 5:3.3.2-1 5:3.3.2-2 5:3.3.2-8 5:3.3.2-14 \
                 5:3.3.4-6 5:3.6.1-1 5:3.8.1-1 5:3.8.3-2 5:3.8.3-4 5:3.8.3-5 5:3.10.1-1 5:3.10.3-2 5:4.7.0-1 5:4.7.1-1 \
                 5:4.7.1-2 5:4.7.3-1 5:4.7.3-2 5:4.8.2-1 5:4.8.2-2 5:4.13.1-1",
    },
    Proof {
        name: "mqtt 3.1.1 malformed packets",
        run: || malformed(V4),
        proves: "3:1.5.3-1 3:1.5.3-2 3:2.2.2-1 3:2.2.2-2 3:2.3.1-1 3:3.1.0-2 3:3.3.1-4 3:3.3.2-1 3:3.3.2-2 3:3.6.1-1 \
                 3:3.8.1-1 3:3.8.3-3 3:3.8.3-4 3:3.10.1-1 3:3.10.3-2 3:4.7.1-1 3:4.7.1-2 3:4.7.1-3 3:4.7.3-1 3:4.7.3-2 \
                 3:4.8.0-1",
    },
    Proof { name: "mqtt 5 refusals that keep the connection", run: kept, proves: "" },
    Proof { name: "mqtt 5 maximum packet size", run: packet_size, proves: "" },
];

/// Wrong bytes and the reason codes that the standard allows for them.
struct Row {
    clause: &'static str,
    bytes: Vec<u8>,
    reasons: &'static [u8],
}

fn row(clause: &'static str, bytes: Vec<u8>, reasons: &'static [u8]) -> Row {
    Row { clause, bytes, reasons }
}

/// CONNECT of version 5 with these flags, properties and what follows the properties.
fn connect(name: &[u8], version: u8, flags: u8, properties: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut body = string(name);
    body.extend([version, flags, 0, 60]);
    body.extend(mqtt::varint(properties.len()));
    body.extend(properties);
    body.extend(payload);
    packet(0x10, &body)
}

fn malformed_connect() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let id = string(b"id");
    let rows = [
        row("MQTT-3.1.2-1 protocol name", connect(b"MQTX", 5, 2, &[], &id), &[0x84]),
        row("MQTT-3.1.2-3 reserved flag", connect(b"MQTT", 5, 3, &[], &id), &[0x81]),
        row("MQTT-3.1.2-11 will QoS without will", connect(b"MQTT", 5, 0x0a, &[], &id), &[0x81, 0x82]),
        row("MQTT-3.1.2-12 will QoS 3", connect(b"MQTT", 5, 0x1e, &[], &id), &[0x81]),
        row("§3.1.2.11.3 receive maximum 0", connect(b"MQTT", 5, 2, &[0x21, 0, 0], &id), &[0x82]),
        row("§3.1.2.11.4 maximum packet size 0", connect(b"MQTT", 5, 2, &[0x27, 0, 0, 0, 0], &id), &[0x82]),
        row(
            "§3.1.2.11.2 session expiry twice",
            connect(b"MQTT", 5, 2, &[0x11, 0, 0, 0, 1, 0x11, 0, 0, 0, 1], &id),
            &[0x82],
        ),
        row("§2.2.2.2 property of another packet", connect(b"MQTT", 5, 2, &[0x23, 0, 1], &id), &[0x81, 0x82]),
        row("MQTT-1.5.4-1 client identifier not UTF-8", connect(b"MQTT", 5, 2, &[], &string(b"\xff")), &[0x81, 0x85]),
        row("MQTT-1.5.4-2 client identifier with NUL", connect(b"MQTT", 5, 2, &[], &string(b"a\0")), &[0x81, 0x85]),
        row("§3.1.2.11.10 data without method", connect(b"MQTT", 5, 2, &[0x16, 0, 1, b'x'], &id), &[0x82]),
        row("bytes after the payload", connect(b"MQTT", 5, 2, &[], &[id.as_slice(), b"more"].concat()), &[0x81]),
    ];
    refused(&gateway, &rows)
}

/// Each is refused by a CONNACK with one of its reasons, or without a word.
fn refused(gateway: &Gateway, rows: &[Row]) -> Result<String> {
    all(rows, |row| {
        let mut stream = tcp::connect(gateway.address("mqtt")?)?;
        stream.write_all(&row.bytes)?;
        let end = tcp::read_end(&mut stream, PATIENCE)?;
        ensure!(end.is_closed(), "{}: left open", row.clause);
        // The server may close without a word before it has accepted (§4.13.2); a word has to be the right one.
        match end.bytes() {
            [] => Ok(()),
            [0x20, _, 0, reason, ..] if row.reasons.contains(reason) => Ok(()),
            bytes => bail!("{}: {bytes:02x?} instead of CONNACK {:02x?}", row.clause, row.reasons),
        }
    })
}

/// CONNECT with a Will: flags, properties, topic and payload.
fn malformed_wills() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let will = |flags: u8, properties: &[u8], topic: &[u8]| {
        let length = mqtt::varint(properties.len());
        let payload = [string(b"id"), length, properties.to_vec(), string(topic), string(b"gone")].concat();
        connect(b"MQTT", 5, flags, &[], &payload)
    };
    let rows = [
        row("MQTT-4.7.3-1 will to no topic", will(6, &[], b""), &[0x81, 0x90]),
        row("MQTT-3.3.2-2 wildcard in will topic", will(6, &[], b"a/+"), &[0x90, 0x81]),
        row("MQTT-4.7.3-1 empty response topic", will(6, &[8, 0, 0], b"w"), &[0x82]),
        row("MQTT-3.3.2-14 wildcard in response topic", will(6, &[8, 0, 1, b'#'], b"w"), &[0x82]),
        row("§3.1.3.2.2 delay twice", will(6, &[0x18, 0, 0, 0, 1, 0x18, 0, 0, 0, 1], b"w"), &[0x82]),
        row("§2.2.2.2 topic alias in a will", will(6, &[0x23, 0, 1], b"w"), &[0x81, 0x82]),
        row("MQTT-3.1.2-11 flags without the payload", connect(b"MQTT", 5, 6, &[], &string(b"id")), &[0x81]),
    ];
    refused(&gateway, &rows)
}

/// PUBLISH of version 5 to topic `t` with QoS 0 and these properties.
fn publish_with(properties: &[u8]) -> Vec<u8> {
    let mut body = string(b"t");
    body.extend(mqtt::varint(properties.len()));
    body.extend(properties);
    packet(0x30, &body)
}

/// Packets after CONNECT that both versions forbid; `none` stands for the empty properties of version 5.
fn common(version: u8) -> Vec<Row> {
    let none: &[u8] = if version == V5 { &[0] } else { &[] };
    let body = |parts: &[&[u8]]| parts.concat();
    vec![
        row("MQTT-3.1.0-2 second CONNECT", mqtt::connect(version, "again"), &[0x82]),
        row("MQTT-2.1.3-1 reserved packet type 0", packet(0x00, b""), &[0x81]),
        row("MQTT-3.3.1-4 QoS 3", packet(0x36, &body(&[&string(b"t"), &[0, 1], none])), &[0x81]),
        row("MQTT-3.3.1-2 DUP with QoS 0", packet(0x38, &body(&[&string(b"t"), none])), &[0x81, 0x82]),
        row("MQTT-3.3.2-2 wildcard in topic", mqtt::publish(version, b"a/+/b", b"", 0, false, 0), &[0x90, 0x82]),
        row("MQTT-4.7.3-2 NUL in topic", mqtt::publish(version, b"a\0", b"", 0, false, 0), &[0x81, 0x90]),
        row("MQTT-1.5.4-1 topic not UTF-8", mqtt::publish(version, b"\xc0\x80", b"", 0, false, 0), &[0x81, 0x90]),
        row("MQTT-2.2.1-3 packet identifier 0", mqtt::publish(version, b"t", b"", 1, false, 0), &[0x81, 0x82]),
        row("MQTT-3.8.1-1 SUBSCRIBE flags", packet(0x80, &body(&[&[0, 1], none, &string(b"t"), &[0]])), &[0x81]),
        row("MQTT-3.8.3-2 SUBSCRIBE without filter", packet(0x82, &body(&[&[0, 1], none])), &[0x82, 0x81]),
        row(
            "MQTT-3.8.3-5 reserved subscription bits",
            packet(0x82, &body(&[&[0, 1], none, &string(b"t"), &[0xc0]])),
            &[0x81, 0x82],
        ),
        row("§3.8.3.1 QoS 3", packet(0x82, &body(&[&[0, 1], none, &string(b"t"), &[3]])), &[0x81, 0x82]),
        row("MQTT-3.10.1-1 UNSUBSCRIBE flags", packet(0xa0, &body(&[&[0, 1], none, &string(b"t")])), &[0x81]),
        row("MQTT-3.10.3-2 UNSUBSCRIBE without filter", packet(0xa2, &body(&[&[0, 1], none])), &[0x82, 0x81]),
        row("MQTT-3.6.1-1 PUBREL flags", packet(0x60, &[0, 1]), &[0x81]),
        row("§3.12.1 PINGREQ with a body", packet(0xc0, &[0]), &[0x81]),
        row("MQTT-2.1.3-1 PINGREQ flags", packet(0xc1, b""), &[0x81]),
        row("MQTT-4.7.1-1 # inside a filter", mqtt::subscribe(version, 1, &["a/#/b"], 0), &[0x81]),
        row("MQTT-4.7.1-1 # beside a name", mqtt::subscribe(version, 1, &["a#"], 0), &[0x81]),
        row("MQTT-4.7.1-2 + beside a name", mqtt::subscribe(version, 1, &["a+"], 0), &[0x81]),
        row("MQTT-4.7.3-1 empty filter", mqtt::subscribe(version, 1, &[""], 0), &[0x81]),
        row("MQTT-4.7.3-1 empty filter behind a good one", mqtt::subscribe(version, 1, &["a", ""], 0), &[0x81]),
        row("MQTT-4.7.3-2 NUL in a filter", mqtt::subscribe(version, 1, &["a\0"], 0), &[0x81]),
        row("MQTT-4.7.3-1 UNSUBSCRIBE of an empty filter", unsubscribe(version, ""), &[0x81]),
        row("MQTT-4.7.1-1 UNSUBSCRIBE of a/#/b", unsubscribe(version, "a/#/b"), &[0x81]),
        row("CONNACK from a client", packet(0x20, &body(&[&[0, 0], none])), &[0x81, 0x82]),
        row("SUBACK from a client", packet(0x90, &body(&[&[0, 1], none, &[0]])), &[0x81, 0x82]),
        row("PINGRESP from a client", packet(0xd0, b""), &[0x81, 0x82]),
        row("§1.5.5 remaining length of five bytes", vec![0xc0, 0x80, 0x80, 0x80, 0x80, 0x01], &[0x81]),
        row("§1.5.5 remaining length not minimal", vec![0xc0, 0x80, 0x00], &[0x81]),
    ]
}

fn unsubscribe(version: u8, filter: &str) -> Vec<u8> {
    let none: &[u8] = if version == V5 { &[0] } else { &[] };
    packet(0xa2, &[&[0, 1], none, &string(filter.as_bytes())].concat())
}

/// Packets that only version 5 has.
fn only_5() -> Vec<Row> {
    let options = |properties: &[u8], filter: &[u8], bits: u8| {
        let mut body = vec![0, 1];
        body.extend(mqtt::varint(properties.len()));
        body.extend(properties);
        body.extend(string(filter));
        body.push(bits);
        packet(0x82, &body)
    };
    vec![
        row("§3.8.3.1 retain handling 3", options(&[], b"t", 0x30), &[0x82, 0x81]),
        row("MQTT-3.8.3-4 no local on a shared subscription", options(&[], b"$share/g/t", 0x04), &[0x82]),
        row("§3.8.2.1.2 subscription identifier 0", options(&[0x0b, 0], b"t", 0), &[0x82]),
        row("§3.8.2.1.2 subscription identifier twice", options(&[0x0b, 1, 0x0b, 2], b"t", 0), &[0x82]),
        row("MQTT-3.3.2-8 topic alias 0", publish_with(&[0x23, 0, 0]), &[0x94]),
        row("MQTT-3.3.2-9 topic alias too large", publish_with(&[0x23, 0xff, 0xff]), &[0x94]),
        row("§3.3.2.3.4 topic alias unknown", packet(0x30, &[0, 0, 3, 0x23, 0, 1]), &[0x82]),
        row("§3.3.2.3.9 content type twice", publish_with(&[3, 0, 1, b'a', 3, 0, 1, b'b']), &[0x82]),
        row("MQTT-3.3.4-6 subscription identifier from a client", publish_with(&[0x0b, 1]), &[0x82]),
        row("§3.3.2.3.2 payload format indicator 2", publish_with(&[1, 2]), &[0x81, 0x82]),
        row("MQTT-3.3.2-14 wildcard in response topic", publish_with(&[8, 0, 1, b'#']), &[0x81, 0x82, 0x90]),
        row("MQTT-4.7.3-1 empty response topic", publish_with(&[8, 0, 0]), &[0x82]),
        row("MQTT-4.8.2-1 $share without a filter", mqtt::subscribe(V5, 1, &["$share/g/"], 0), &[0x81]),
        row("MQTT-4.8.2-1 $share without a name", mqtt::subscribe(V5, 1, &["$share//t"], 0), &[0x81]),
        row("MQTT-4.8.2-2 $share with a wildcard in its name", mqtt::subscribe(V5, 1, &["$share/+/t"], 0), &[0x81]),
        row("§2.2.2.2 property of another packet", publish_with(&[0x18, 0, 0, 0, 1]), &[0x81, 0x82]),
        row("§2.2.2.2 property unknown", publish_with(&[0x7e, 0]), &[0x81]),
        row("§2.2.2.1 properties longer than the packet", packet(0x30, &[0, 1, b't', 9]), &[0x81]),
        row("§3.15 AUTH without a method agreed", packet(0xf0, &[0x18, 0]), &[0x82]),
        row("§3.14.2.2.2 session expiry raised from 0", packet(0xe0, &[0, 5, 0x11, 0, 0, 0, 9]), &[0x82]),
    ]
}

fn malformed(version: u8) -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let mut rows = common(version);
    if version == V5 {
        rows.extend(only_5());
    }
    all(&rows, |row| {
        let mut connection = Connection::open(gateway.address("mqtt")?, version, "row")?;
        connection.stream.write_all(&row.bytes)?;
        let end = tcp::read_end(&mut connection.stream, PATIENCE)?;
        ensure!(end.is_closed(), "{}: left open, {:02x?}", row.clause, end.bytes());
        match (version, end.bytes()) {
            (V4, []) => Ok(()),
            (V5, [0xe0, _, reason, ..]) if row.reasons.contains(reason) => Ok(()),
            (V4, bytes) => bail!("{}: {bytes:02x?} instead of silence", row.clause),
            (_, bytes) => bail!("{}: {bytes:02x?} instead of DISCONNECT {:02x?}", row.clause, row.reasons),
        }
    })
}

/// Wrong, but answered in its own acknowledgement.
fn kept() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let deep = "/".repeat(250);
    let answers: [(&str, Vec<u8>, &[u8]); 3] = [
        ("§3.9.3 more levels than we take", mqtt::subscribe(V5, 1, &[&deep], 0), &[0x90, 4, 0, 1, 0, 0x8f]),
        ("§3.7.2.1 PUBREL of nothing", packet(0x62, &[0, 9]), &[0x70, 3, 0, 9, 0x92]),
        ("§3.11.3 UNSUBSCRIBE of nothing", packet(0xa2, &[0, 1, 0, 0, 1, b'n']), &[0xb0, 4, 0, 1, 0, 0x11]),
    ];
    all(&answers, |(clause, bytes, wanted)| {
        let mut connection = Connection::open(gateway.address("mqtt")?, V5, "kept")?;
        connection.stream.write_all(bytes)?;
        let (first, body) = connection.read().with_context(|| clause.to_string())?;
        let reason = (body.get(..2), body.last());
        let right = Some(&first) == wanted.first() && reason == (wanted.get(2..4), wanted.last());
        ensure!(right, "{clause}: {first:02x} {body:02x?} instead of {wanted:02x?}");
        connection.stream.write_all(&[0xc0, 0])?;
        let (first, _) = connection.read().with_context(|| format!("{clause}: the connection is gone"))?;
        ensure!(first == 0xd0, "{clause}: {first:#x} instead of PINGRESP");
        Ok(())
    })
}

/// [MQTT-3.2.2-15]: a packet larger than CONNACK's Maximum Packet Size is refused with 0x95.
fn packet_size() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let mut stream = tcp::connect(gateway.address("mqtt")?)?;
    stream.write_all(&mqtt::connect(V5, "large"))?;
    let mut connection = Connection::over(stream, V5);
    let (_, body) = connection.read()?;
    let at = properties(&body).context("CONNACK names no Maximum Packet Size")?;
    let whole = mqtt::publish(V5, b"t", &vec![b'x'; usize::try_from(at)?], 0, false, 0);
    tcp::pour(&mut connection.stream, &whole)?;
    let end = tcp::read_end(&mut connection.stream, PATIENCE)?;
    match end.bytes() {
        [0xe0, _, 0x95, ..] if end.is_closed() => Ok(format!("({at} bytes)")),
        bytes => bail!("{bytes:02x?} instead of DISCONNECT 0x95"),
    }
}

/// The Maximum Packet Size (0x27) among the properties of a CONNACK.
fn properties(body: &[u8]) -> Option<u32> {
    let mut rest = body.get(3..)?;
    while let Some((id, after)) = rest.split_first() {
        let skip = match id {
            0x27 => return after.first_chunk().map(|bytes| u32::from_be_bytes(*bytes)),
            0x11 => 4,
            0x21 | 0x22 | 0x13 => 2,
            0x24 | 0x25 | 0x28 | 0x29 | 0x2a => 1,
            0x12 | 0x1a | 0x1c | 0x1f => 2 + usize::from(u16::from_be_bytes(*after.first_chunk()?)),
            _ => return None,
        };
        rest = after.get(skip..)?;
    }
    None
}
