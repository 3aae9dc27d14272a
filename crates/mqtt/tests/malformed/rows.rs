//! Malformed packets, a table per packet type: bytes, the version they are read as, the clause, and the reason code the
//! standard names for it (§4.13). Beside them packets that look wrong and are not. Other tests read the same tables.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets what it does not expect shall panic"
)]

use fogmux_mqtt::{ReasonCode, Version};

use Version::{V5, V31, V311};

const MALFORMED: ReasonCode = ReasonCode::MALFORMED_PACKET;
const PROTOCOL: ReasonCode = ReasonCode::PROTOCOL_ERROR;
const VERSION: ReasonCode = ReasonCode::UNSUPPORTED_PROTOCOL_VERSION;
const TOPIC: ReasonCode = ReasonCode::TOPIC_NAME_INVALID;
const ALIAS: ReasonCode = ReasonCode::TOPIC_ALIAS_INVALID;

type Refused = (&'static str, Version, Vec<u8>, ReasonCode);
type Accepted = (&'static str, Version, Vec<u8>);

/// Rows of one subject.
#[derive(Default)]
pub(crate) struct Table {
    /// Packets that have to be refused.
    pub(crate) refused: Vec<Refused>,
    /// Packets that have to be accepted.
    pub(crate) accepted: Vec<Accepted>,
}

impl Table {
    fn refused(&mut self, rows: Vec<Refused>) {
        self.refused.extend(rows);
    }

    fn accepted(&mut self, rows: Vec<Accepted>) {
        self.accepted.extend(rows);
    }
}

/// Every table.
pub(crate) const TABLES: &[fn(&mut Table)] = &[
    fixed_header,
    s2_1_3_1_reserved_flags_of_every_type,
    strings,
    connect_header,
    connect_payload,
    connect_properties,
    will_properties,
    connack,
    publish,
    publish_properties,
    puback_pubrec_pubrel_pubcomp,
    subscribe,
    suback_and_unsuback,
    unsubscribe,
    ping,
    disconnect,
    auth,
];

/// A packet: its first byte and its body.
fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    assert!(body.len() < 128);
    let mut bytes = vec![first, u8::try_from(body.len()).unwrap()];
    bytes.extend_from_slice(body);
    bytes
}

/// A packet whose body is the parts in a row.
fn parts(first: u8, parts: &[&[u8]]) -> Vec<u8> {
    packet(first, &parts.concat())
}

fn fixed_header(table: &mut Table) {
    table.refused(vec![
        ("§2.1.2 type 0 is forbidden", V5, vec![0x00, 0], MALFORMED),
        ("§2.1.2 type 15 is reserved before version 5", V311, vec![0xF0, 0], MALFORMED),
        ("§2.1.2 type 15 is reserved before version 5", V31, vec![0xF0, 0], MALFORMED),
        ("[MQTT-1.5.5-1] a Remaining Length of five bytes", V5, vec![0x30, 0xFF, 0xFF, 0xFF, 0xFF, 1], MALFORMED),
        ("[MQTT-1.5.5-1] a Remaining Length of five bytes", V311, vec![0x30, 0x80, 0x80, 0x80, 0x80], MALFORMED),
        ("[MQTT-1.5.5-1] not the shortest form", V5, vec![0xC0, 0x80, 0x00], MALFORMED),
        ("[MQTT-1.5.5-1] not the shortest form", V311, vec![0x40, 0x82, 0x80, 0x00, 0, 1], MALFORMED),
    ]);
}

fn s2_1_3_1_reserved_flags_of_every_type(table: &mut Table) {
    let required = [0, 0, 0, 0, 0, 0, 2, 0, 2, 0, 2, 0, 0, 0, 0, 0];
    let mut rows = Vec::new();
    for kind in (1..=15_u8).filter(|&kind| kind != 3) {
        for flags in (0..16_u8).filter(|&flags| flags != required[usize::from(kind)]) {
            rows.push(("[MQTT-2.1.3-1]", V5, vec![kind << 4 | flags], MALFORMED));
            if kind != 15 {
                rows.push(("[MQTT-2.2.2-2] of 3.1.1", V311, vec![kind << 4 | flags, 0], MALFORMED));
            }
        }
    }
    table.refused(rows);
    let again = [0x6A, 2, 0, 1];
    table.accepted(vec![("3.1 §2.1: PUBREL may carry DUP", V31, again.to_vec())]);
}

fn strings(table: &mut Table) {
    let topic = |bytes: &[u8]| {
        let length = u8::try_from(bytes.len()).unwrap();
        parts(0x30, &[&[0, length], bytes, &[0]])
    };
    table.refused(vec![
        ("[MQTT-1.5.4-1] a lone continuation byte", V5, topic(&[0x80]), MALFORMED),
        ("[MQTT-1.5.4-1] an overlong NUL", V5, topic(&[0xC0, 0x80]), MALFORMED),
        ("[MQTT-1.5.4-1] a surrogate", V5, topic(&[0xED, 0xA0, 0x80]), MALFORMED),
        ("[MQTT-1.5.4-1] above U+10FFFF", V5, topic(&[0xF4, 0x90, 0x80, 0x80]), MALFORMED),
        ("[MQTT-1.5.4-1] cut short", V5, topic(&[0xE2, 0x82]), MALFORMED),
        ("[MQTT-1.5.4-2] NUL", V5, topic(b"a\0b"), MALFORMED),
        ("[MQTT-1.5.4-2] NUL alone", V5, topic(b"\0"), MALFORMED),
        ("[MQTT-1.5.4-2] NUL in a long topic", V5, topic(b"a/long/topic/with/levels/\0/inside"), MALFORMED),
        ("[MQTT-1.5.3-2] of 3.1.1", V311, parts(0x30, &[&[0, 3], b"a\0b"]), MALFORMED),
        ("§1.5.4 the length lies", V5, parts(0x30, &[&[0, 9], b"ab", &[0]]), MALFORMED),
    ]);
    table.accepted(vec![
        ("[MQTT-1.5.4-3] U+FEFF is kept", V5, topic(&[0xEF, 0xBB, 0xBF])),
        ("§1.5.4 noncharacters may be accepted", V5, topic("\u{FFFF}".as_bytes())),
    ]);
}

fn connect(level: u8, flags: u8, rest: &[u8]) -> Vec<u8> {
    parts(0x10, &[b"\0\x04MQTT", &[level, flags, 0, 60], rest])
}

fn connect_header(table: &mut Table) {
    table.refused(vec![
        ("[MQTT-3.1.2-1] protocol name", V5, parts(0x10, &[b"\0\x04MQTX", &[5, 2, 0, 0, 0, 0, 0]]), VERSION),
        ("[MQTT-3.1.2-1] protocol name of no bytes", V5, parts(0x10, &[&[0, 0, 5, 2, 0, 0, 0, 0, 0]]), VERSION),
        ("[MQTT-3.1.2-2] level 6", V5, connect(6, 2, &[0, 0, 0]), VERSION),
        ("[MQTT-3.1.2-2] level 3 with the new name", V5, connect(3, 2, &[0, 0]), VERSION),
        ("a bridge's level of 3.1 with the new name", V5, connect(0x83, 2, &[0, 0]), VERSION),
        ("a bridge's level of version 5", V5, connect(0x85, 2, &[0, 0, 0]), VERSION),
        ("3.1: level 4 with the old name", V5, parts(0x10, &[b"\0\x06MQIsdp", &[4, 2, 0, 0, 0, 0]]), VERSION),
        ("[MQTT-3.1.2-3] reserved flag", V5, connect(5, 0x03, &[0, 0, 0]), MALFORMED),
        ("[MQTT-3.1.2-3] of 3.1.1", V5, connect(4, 0x03, &[0, 0]), MALFORMED),
        ("[MQTT-3.1.2-11] Will QoS without Will Flag", V5, connect(5, 0x0A, &[0, 0, 0]), MALFORMED),
        ("[MQTT-3.1.2-13] Will Retain without Will Flag", V5, connect(5, 0x22, &[0, 0, 0]), MALFORMED),
        ("[MQTT-3.1.2-12] Will QoS 3", V5, connect(5, 0x1E, &[0, 0, 0, 0, 0, 1, b'w', 0, 0]), MALFORMED),
        ("[MQTT-3.1.2-22] of 3.1.1: password, no user", V5, connect(4, 0x42, &[0, 0, 0, 1, b'p']), MALFORMED),
        ("§3.1 an empty packet", V5, vec![0x10, 0], MALFORMED),
    ]);
    table.accepted(vec![
        ("§3.1.2.9 version 5 takes a password without a user", V5, connect(5, 0x42, &[0, 0, 0, 0, 1, b'p'])),
        ("3.1", V5, parts(0x10, &[b"\0\x06MQIsdp", &[3, 2, 0, 0, 0, 1, b'a']])),
    ]);
}

fn connect_payload(table: &mut Table) {
    table.refused(vec![
        ("[MQTT-3.1.3-1] the client identifier is missing", V5, connect(5, 2, &[0]), MALFORMED),
        ("[MQTT-3.1.3-3] the client identifier is no UTF-8", V5, connect(5, 2, &[0, 0, 1, 0xFF]), MALFORMED),
        ("[MQTT-1.5.4-2] NUL in the client identifier", V5, connect(5, 2, &[0, 0, 1, 0]), MALFORMED),
        ("[MQTT-3.1.2-9] Will Flag without a will", V5, connect(5, 6, &[0, 0, 0]), MALFORMED),
        ("[MQTT-3.1.3-11] the Will Topic is no UTF-8", V5, connect(5, 6, &[0, 0, 0, 0, 0, 1, 0xFF, 0, 0]), MALFORMED),
        ("[MQTT-3.3.2-2] a wildcard in the Will Topic", V5, connect(5, 6, &[0, 0, 0, 0, 0, 1, b'#', 0, 0]), TOPIC),
        ("[MQTT-4.7.3-1] an empty Will Topic", V5, connect(5, 6, &[0, 0, 0, 0, 0, 0, 0, 0]), MALFORMED),
        ("[MQTT-3.1.2-17] user flag without a user", V5, connect(5, 0x82, &[0, 0, 0]), MALFORMED),
        ("[MQTT-3.1.3-12] the user is no UTF-8", V5, connect(5, 0x82, &[0, 0, 0, 0, 1, 0xFF]), MALFORMED),
        ("[MQTT-3.1.2-19] password flag without one", V5, connect(5, 0xC2, &[0, 0, 0, 0, 1, b'u']), MALFORMED),
        ("[MQTT-3.1.2-16] bytes after the last field", V5, connect(5, 2, &[0, 0, 0, 9]), MALFORMED),
    ]);
}

fn connect_properties(table: &mut Table) {
    let with = |properties: &[u8]| {
        let length = u8::try_from(properties.len()).unwrap();
        connect(5, 2, &[&[length], properties, &[0, 0]].concat())
    };
    table.refused(vec![
        ("§3.1.2.11.2 Session Expiry twice", V5, with(&[0x11, 0, 0, 0, 1, 0x11, 0, 0, 0, 1]), PROTOCOL),
        ("§3.1.2.11.3 Receive Maximum 0", V5, with(&[0x21, 0, 0]), PROTOCOL),
        ("§3.1.2.11.3 Receive Maximum twice", V5, with(&[0x21, 0, 1, 0x21, 0, 1]), PROTOCOL),
        ("§3.1.2.11.4 Maximum Packet Size 0", V5, with(&[0x27, 0, 0, 0, 0]), PROTOCOL),
        ("§3.1.2.11.4 Maximum Packet Size twice", V5, with(&[0x27, 0, 0, 1, 0, 0x27, 0, 0, 1, 0]), PROTOCOL),
        ("§3.1.2.11.5 Topic Alias Maximum twice", V5, with(&[0x22, 0, 1, 0x22, 0, 1]), PROTOCOL),
        ("§3.1.2.11.6 Request Response Information 2", V5, with(&[0x19, 2]), PROTOCOL),
        ("§3.1.2.11.6 Request Response Information twice", V5, with(&[0x19, 1, 0x19, 1]), PROTOCOL),
        ("§3.1.2.11.7 Request Problem Information 2", V5, with(&[0x17, 2]), PROTOCOL),
        ("§3.1.2.11.7 Request Problem Information twice", V5, with(&[0x17, 0, 0x17, 0]), PROTOCOL),
        ("§3.1.2.11.9 Authentication Method twice", V5, with(&[0x15, 0, 1, b'm', 0x15, 0, 1, b'm']), PROTOCOL),
        ("§3.1.2.11.10 Authentication Data without a method", V5, with(&[0x16, 0, 1, b'd']), PROTOCOL),
        ("§2.2.2.2 Server Keep Alive does not belong", V5, with(&[0x13, 0, 1]), MALFORMED),
        ("§2.2.2.2 Topic Alias does not belong", V5, with(&[0x23, 0, 1]), MALFORMED),
        ("§2.2.2.2 property 0", V5, with(&[0x00, 0]), MALFORMED),
        ("§2.2.2.2 property 0x2B", V5, with(&[0x2B, 0]), MALFORMED),
        ("§2.2.2.2 property 0x80 0x01", V5, with(&[0x80, 0x01]), MALFORMED),
        ("§2.2.2 cut inside a property", V5, with(&[0x11, 0, 0]), MALFORMED),
        ("[MQTT-1.5.7-1] a user property that is no UTF-8", V5, with(&[0x26, 0, 1, 0xFF, 0, 0]), MALFORMED),
        ("§2.2.2.1 the length lies", V5, connect(5, 2, &[9, 0x11, 0, 0]), MALFORMED),
        ("[MQTT-1.5.5-1] the length is not minimal", V5, connect(5, 2, &[0x80, 0, 0, 0]), MALFORMED),
    ]);
    table.accepted(vec![
        ("§3.1.2.11.8 user properties may repeat", V5, with(&[0x26, 0, 1, b'k', 0, 0, 0x26, 0, 1, b'k', 0, 0])),
        ("§3.1.2.11.2 Session Expiry 0", V5, with(&[0x11, 0, 0, 0, 0])),
    ]);
}

fn will_properties(table: &mut Table) {
    let with = |properties: &[u8]| {
        let length = u8::try_from(properties.len()).unwrap();
        connect(5, 6, &[&[0, 0, 0, length], properties, b"\0\x01w\0\0"].concat())
    };
    table.refused(vec![
        ("§3.1.3.2.2 Will Delay twice", V5, with(&[0x18, 0, 0, 0, 1, 0x18, 0, 0, 0, 1]), PROTOCOL),
        ("§3.1.3.2.3 Payload Format Indicator 2", V5, with(&[0x01, 2]), PROTOCOL),
        ("§3.1.3.2.4 Message Expiry twice", V5, with(&[0x02, 0, 0, 0, 1, 0x02, 0, 0, 0, 1]), PROTOCOL),
        ("§3.1.3.2.5 Content Type twice", V5, with(&[0x03, 0, 0, 0x03, 0, 0]), PROTOCOL),
        ("§3.1.3.2.6 Response Topic with a wildcard", V5, with(&[0x08, 0, 1, b'+']), PROTOCOL),
        ("§3.1.3.2.7 Correlation Data twice", V5, with(&[0x09, 0, 0, 0x09, 0, 0]), PROTOCOL),
        ("§2.2.2.2 Topic Alias does not belong", V5, with(&[0x23, 0, 1]), MALFORMED),
        ("§2.2.2.2 Session Expiry does not belong", V5, with(&[0x11, 0, 0, 0, 1]), MALFORMED),
    ]);
    table.accepted(vec![("§3.1.3.2.2", V5, with(&[0x18, 0, 0, 0, 1]))]);
}

fn connack(table: &mut Table) {
    table.refused(vec![
        ("[MQTT-3.2.2-1] reserved acknowledge flags", V5, packet(0x20, &[2, 0, 0]), MALFORMED),
        ("[MQTT-3.2.2-1] of 3.1.1", V311, packet(0x20, &[0x80, 0]), MALFORMED),
        ("[MQTT-3.2.2-6] Session Present in a refusal", V5, packet(0x20, &[1, 0x87, 0]), PROTOCOL),
        ("[MQTT-3.2.2-4] of 3.1.1", V311, packet(0x20, &[1, 5]), PROTOCOL),
        ("[MQTT-3.2.2-8] a code that CONNACK has not", V5, packet(0x20, &[0, 0x8E, 0]), PROTOCOL),
        ("[MQTT-3.2.2-6] of 3.1.1: return code 6", V311, packet(0x20, &[0, 6]), PROTOCOL),
        ("§3.2.2.3.3 Receive Maximum 0", V5, packet(0x20, &[0, 0, 3, 0x21, 0, 0]), PROTOCOL),
        ("§3.2.2.3.4 Maximum QoS 2", V5, packet(0x20, &[0, 0, 2, 0x24, 2]), PROTOCOL),
        ("§3.2.2.3.5 Retain Available 2", V5, packet(0x20, &[0, 0, 2, 0x25, 2]), PROTOCOL),
        ("§3.2.2.3.6 Maximum Packet Size 0", V5, packet(0x20, &[0, 0, 5, 0x27, 0, 0, 0, 0]), PROTOCOL),
        ("§3.2.2.3.11 Wildcard Available 2", V5, packet(0x20, &[0, 0, 2, 0x28, 2]), PROTOCOL),
        ("§3.2.2.3.12 Identifiers Available 2", V5, packet(0x20, &[0, 0, 2, 0x29, 2]), PROTOCOL),
        ("§3.2.2.3.13 Shared Available 2", V5, packet(0x20, &[0, 0, 2, 0x2A, 2]), PROTOCOL),
        ("§3.2.2.3.14 Server Keep Alive twice", V5, packet(0x20, &[0, 0, 6, 0x13, 0, 1, 0x13, 0, 1]), PROTOCOL),
        ("§3.2 no property length", V5, packet(0x20, &[0, 0]), MALFORMED),
        ("§3.2 of 3.1.1: three bytes", V311, packet(0x20, &[0, 0, 0]), MALFORMED),
        ("§3.2 one byte", V5, packet(0x20, &[0]), MALFORMED),
    ]);
}

fn publish(table: &mut Table) {
    table.refused(vec![
        ("[MQTT-3.3.1-4] QoS 3", V5, parts(0x36, &[b"\0\x01a\0\x01\0"]), MALFORMED),
        ("[MQTT-3.3.1-4] of 3.1.1", V311, parts(0x36, &[b"\0\x01a\0\x01"]), MALFORMED),
        ("[MQTT-3.3.1-2] DUP with QoS 0", V5, parts(0x38, &[b"\0\x01a\0"]), MALFORMED),
        ("[MQTT-3.3.2-1] no topic", V5, packet(0x30, &[]), MALFORMED),
        ("[MQTT-3.3.2-2] `+` in the topic", V5, parts(0x30, &[b"\0\x03a/+\0"]), TOPIC),
        ("[MQTT-3.3.2-2] `#` in the topic", V5, parts(0x30, &[b"\0\x01#\0"]), TOPIC),
        ("[MQTT-3.3.2-2] inside a level", V5, parts(0x30, &[b"\0\x0clong/topic/+\0"]), TOPIC),
        ("[MQTT-2.2.1-2] QoS 1 without an identifier", V311, parts(0x32, &[b"\0\x01a"]), MALFORMED),
        ("[MQTT-2.2.1-4] identifier 0", V5, parts(0x32, &[b"\0\x01a\0\0\0"]), PROTOCOL),
        ("[MQTT-2.3.1-1] of 3.1.1", V311, parts(0x34, &[b"\0\x01a\0\0"]), PROTOCOL),
        ("§3.3.2.1 no topic and no alias", V5, parts(0x30, &[b"\0\0\0"]), PROTOCOL),
        ("[MQTT-4.7.3-1] an empty topic", V311, parts(0x30, &[b"\0\0"]), MALFORMED),
        ("§3.3.2 no property length", V5, parts(0x30, &[b"\0\x01a"]), MALFORMED),
    ]);
    table.accepted(vec![
        ("§3.3.3 no payload", V5, parts(0x30, &[b"\0\x01a\0"])),
        ("§3.3.2.3.4 an alias for the topic", V5, parts(0x30, &[b"\0\0\x03\x23\0\x01"])),
    ]);
}

fn publish_properties(table: &mut Table) {
    let with = |properties: &[u8]| {
        let length = u8::try_from(properties.len()).unwrap();
        parts(0x30, &[b"\0\x01a", &[length], properties, b"payload"])
    };
    table.refused(vec![
        ("§3.3.2.3.2 Payload Format Indicator 2", V5, with(&[0x01, 2]), PROTOCOL),
        ("§3.3.2.3.2 twice", V5, with(&[0x01, 0, 0x01, 0]), PROTOCOL),
        ("§3.3.2.3.3 Message Expiry twice", V5, with(&[0x02, 0, 0, 0, 1, 0x02, 0, 0, 0, 1]), PROTOCOL),
        ("[MQTT-3.3.2-8] Topic Alias 0", V5, with(&[0x23, 0, 0]), ALIAS),
        ("§3.3.2.3.4 Topic Alias twice", V5, with(&[0x23, 0, 1, 0x23, 0, 1]), PROTOCOL),
        ("[MQTT-3.3.2-14] Response Topic with a wildcard", V5, with(&[0x08, 0, 1, b'#']), PROTOCOL),
        ("[MQTT-3.3.2-13] Response Topic is no UTF-8", V5, with(&[0x08, 0, 1, 0xFF]), MALFORMED),
        ("§3.3.2.3.5 Response Topic twice", V5, with(&[0x08, 0, 1, b'a', 0x08, 0, 1, b'a']), PROTOCOL),
        ("§3.3.2.3.6 Correlation Data twice", V5, with(&[0x09, 0, 0, 0x09, 0, 0]), PROTOCOL),
        ("§3.3.2.3.8 Subscription Identifier 0", V5, with(&[0x0B, 0]), PROTOCOL),
        ("[MQTT-3.3.2-19] Content Type is no UTF-8", V5, with(&[0x03, 0, 1, 0xFF]), MALFORMED),
        ("§3.3.2.3.9 Content Type twice", V5, with(&[0x03, 0, 0, 0x03, 0, 0]), PROTOCOL),
        ("§2.2.2.2 Reason String does not belong", V5, with(&[0x1F, 0, 0]), MALFORMED),
        ("§2.2.2.2 Will Delay does not belong", V5, with(&[0x18, 0, 0, 0, 0]), MALFORMED),
        ("[MQTT-1.5.5-1] an identifier that is not minimal", V5, with(&[0x0B, 0x81, 0x00]), MALFORMED),
        ("[MQTT-1.5.5-1] an identifier of five bytes", V5, with(&[0x0B, 0xFF, 0xFF, 0xFF, 0xFF, 1]), MALFORMED),
    ]);
    table.accepted(vec![("§3.3.2.3.8 several Subscription Identifiers", V5, with(&[0x0B, 1, 0x0B, 2, 0x0B, 1]))]);
}

fn puback_pubrec_pubrel_pubcomp(table: &mut Table) {
    let mut rows = Vec::new();
    for first in [0x40, 0x50, 0x62, 0x70] {
        rows.push(("[MQTT-2.2.1-5] no identifier", V5, packet(first, &[]), MALFORMED));
        rows.push(("[MQTT-2.2.1-5] half an identifier", V311, packet(first, &[0]), MALFORMED));
        rows.push(("[MQTT-2.2.1-3] identifier 0", V5, packet(first, &[0, 0]), PROTOCOL));
        rows.push(("[MQTT-2.3.1-1] of 3.1.1", V311, packet(first, &[0, 0]), PROTOCOL));
        rows.push(("§3.4 of 3.1.1: a reason code", V311, packet(first, &[0, 1, 0]), MALFORMED));
        rows.push(("[MQTT-3.4.2-1] and its like: unknown code", V5, packet(first, &[0, 1, 0x01]), PROTOCOL));
        rows.push(("§3.4.2.2 the property length lies", V5, packet(first, &[0, 1, 0, 1]), MALFORMED));
        rows.push(("§3.4.2.2 bytes after the properties", V5, packet(first, &[0, 1, 0, 0, 9]), MALFORMED));
        rows.push((
            "§3.4.2.2.2 Reason String twice",
            V5,
            packet(first, &[0, 1, 0, 6, 0x1F, 0, 0, 0x1F, 0, 0]),
            PROTOCOL,
        ));
        rows.push(("§2.2.2.2 Content Type does not belong", V5, packet(first, &[0, 1, 0, 3, 0x03, 0, 0]), MALFORMED));
    }
    rows.push(("[MQTT-3.6.2-1] 0x10 in PUBREL", V5, packet(0x62, &[0, 1, 0x10]), PROTOCOL));
    rows.push(("[MQTT-3.4.2-1] 0x92 in PUBACK", V5, packet(0x40, &[0, 1, 0x92]), PROTOCOL));
    table.refused(rows);
}

fn subscribe(table: &mut Table) {
    let with = |rest: &[u8]| parts(0x82, &[&[0, 1, 0], rest]);
    table.refused(vec![
        ("[MQTT-2.2.1-3] identifier 0", V5, parts(0x82, &[&[0, 0, 0, 0, 1, b'a', 0]]), PROTOCOL),
        ("[MQTT-3.8.3-2] no filter", V5, with(&[]), PROTOCOL),
        ("[MQTT-3.8.3-3] of 3.1.1: no filter", V311, packet(0x82, &[0, 1]), PROTOCOL),
        ("[MQTT-3.8.3-1] the filter is no UTF-8", V5, with(&[0, 1, 0xFF, 0]), MALFORMED),
        ("[MQTT-1.5.4-2] NUL in the filter", V5, with(&[0, 1, 0, 0]), MALFORMED),
        ("§3.8.3 no options", V5, with(&[0, 1, b'a']), MALFORMED),
        ("§3.8.3.1 QoS 3", V5, with(&[0, 1, b'a', 3]), MALFORMED),
        ("[MQTT-3-8.3-4] of 3.1.1: QoS 3", V311, parts(0x82, &[&[0, 1, 0, 1, b'a', 3]]), MALFORMED),
        ("[MQTT-3-8.3-4] of 3.1.1: reserved bits", V311, parts(0x82, &[&[0, 1, 0, 1, b'a', 4]]), MALFORMED),
        ("[MQTT-3-8.3-4] of 3.1.1: reserved bits", V311, parts(0x82, &[&[0, 1, 0, 1, b'a', 0x10]]), MALFORMED),
        ("[MQTT-3-8.3-4] of 3.1.1: reserved bits", V311, parts(0x82, &[&[0, 1, 0, 1, b'a', 0x30]]), MALFORMED),
        ("[MQTT-3.8.3-5] reserved bits", V5, with(&[0, 1, b'a', 0x40]), MALFORMED),
        ("§3.8.3.1 Retain Handling 3", V5, with(&[0, 1, b'a', 0x30]), PROTOCOL),
        ("[MQTT-3.8.3-4] No Local, shared", V5, with(b"\0\x0a$share/g/a\x04"), PROTOCOL),
        ("§3.8.2.1.2 Subscription Identifier 0", V5, parts(0x82, &[&[0, 1, 2, 0x0B, 0, 0, 1, b'a', 0]]), PROTOCOL),
        ("§3.8.2.1.2 twice", V5, parts(0x82, &[&[0, 1, 4, 0x0B, 1, 0x0B, 2, 0, 1, b'a', 0]]), PROTOCOL),
        ("§2.2.2.2 Reason String", V5, parts(0x82, &[&[0, 1, 3, 0x1F, 0, 0, 0, 1, b'a', 0]]), MALFORMED),
        ("a second filter is cut", V5, with(&[0, 1, b'a', 0, 0]), MALFORMED),
    ]);
    table.accepted(vec![("§3.8.3.1 all options", V5, with(&[0, 1, b'a', 0x2E, 0, 1, b'b', 0x11]))]);
}

fn suback_and_unsuback(table: &mut Table) {
    table.refused(vec![
        ("[MQTT-3.9.3-1] no code", V5, packet(0x90, &[0, 1, 0]), PROTOCOL),
        ("[MQTT-3.9.3-2] an unknown code", V5, packet(0x90, &[0, 1, 0, 3]), PROTOCOL),
        ("[MQTT-3.9.3-2] of 3.1.1", V311, packet(0x90, &[0, 1, 0x87]), PROTOCOL),
        ("[MQTT-2.2.1-3] identifier 0", V5, packet(0x90, &[0, 0, 0, 0]), PROTOCOL),
        ("[MQTT-3.11.3-1] no code", V5, packet(0xB0, &[0, 1, 0]), PROTOCOL),
        ("[MQTT-3.11.3-2] an unknown code", V5, packet(0xB0, &[0, 1, 0, 1]), PROTOCOL),
        ("§3.11 of 3.1.1: a payload", V311, packet(0xB0, &[0, 1, 0]), MALFORMED),
    ]);
}

fn unsubscribe(table: &mut Table) {
    table.refused(vec![
        ("[MQTT-2.2.1-3] identifier 0", V5, packet(0xA2, &[0, 0, 0, 0, 1, b'a']), PROTOCOL),
        ("[MQTT-3.10.3-2] no filter", V5, packet(0xA2, &[0, 1, 0]), PROTOCOL),
        ("[MQTT-3.10.3-2] of 3.1.1", V311, packet(0xA2, &[0, 1]), PROTOCOL),
        ("[MQTT-3.10.3-1] the filter is no UTF-8", V5, packet(0xA2, &[0, 1, 0, 0, 1, 0xFF]), MALFORMED),
        ("the filter is cut", V5, packet(0xA2, &[0, 1, 0, 0, 2, b'a']), MALFORMED),
        ("§2.2.2.2 Subscription Identifier", V5, packet(0xA2, &[0, 1, 2, 0x0B, 1, 0, 1, b'a']), MALFORMED),
    ]);
}

fn ping(table: &mut Table) {
    table.refused(vec![
        ("§3.12 a body", V5, packet(0xC0, &[0]), MALFORMED),
        ("§3.12 of 3.1.1", V311, packet(0xC0, &[0]), MALFORMED),
        ("§3.13 a body", V5, packet(0xD0, &[0]), MALFORMED),
    ]);
}

fn disconnect(table: &mut Table) {
    table.refused(vec![
        ("[MQTT-3.14.2-1] an unknown code", V5, packet(0xE0, &[0x01]), PROTOCOL),
        ("[MQTT-3.14.2-1] a code of CONNACK", V5, packet(0xE0, &[0x86]), PROTOCOL),
        ("§3.14.2.2.2 Session Expiry twice", V5, packet(0xE0, &[0, 10, 0x11, 0, 0, 0, 1, 0x11, 0, 0, 0, 1]), PROTOCOL),
        ("§2.2.2.2 Content Type", V5, packet(0xE0, &[0, 3, 0x03, 0, 0]), MALFORMED),
        ("bytes after the properties", V5, packet(0xE0, &[0, 0, 0]), MALFORMED),
        ("§3.14 of 3.1.1: a body", V311, packet(0xE0, &[0]), MALFORMED),
    ]);
    table.accepted(vec![
        ("§3.14.2.1 nothing", V5, packet(0xE0, &[])),
        ("§3.14.2.2.1 only a code", V5, packet(0xE0, &[0x04])),
    ]);
}

fn auth(table: &mut Table) {
    table.refused(vec![
        ("[MQTT-3.15.2-1] an unknown code", V5, packet(0xF0, &[0x01, 0]), PROTOCOL),
        ("§3.15.2.2.2 Authentication Method twice", V5, packet(0xF0, &[0x18, 6, 0x15, 0, 0, 0x15, 0, 0]), PROTOCOL),
        ("§3.15.2.2.3 data without a method", V5, packet(0xF0, &[0x18, 3, 0x16, 0, 0]), PROTOCOL),
        ("§3.15.2.2.2 no Authentication Method", V5, packet(0xF0, &[0x18]), PROTOCOL),
        ("§3.15.2.2.2 no method among properties", V5, packet(0xF0, &[0x19, 3, 0x1F, 0, 0]), PROTOCOL),
        ("§2.2.2.2 Session Expiry", V5, packet(0xF0, &[0x18, 5, 0x11, 0, 0, 0, 1]), MALFORMED),
    ]);
    table.accepted(vec![("§3.15.2.2.1 nothing", V5, packet(0xF0, &[]))]);
}
