//! Bytes that are always compared: the tables of malformed packets, the corpus of the fuzz target, and one packet for
//! each class that has none among them.

use fogmux_mqtt::{Frame, Limits, Version};

use crate::packets::Input;
use crate::rows;

use Version::{V5, V311};

pub(crate) fn corpus() -> Vec<Input> {
    let mut all: Vec<Input> = WITNESSES.iter().map(|(version, bytes)| (*version, bytes.to_vec())).collect();
    for fill in rows::TABLES {
        let mut table = rows::Table::default();
        fill(&mut table);
        for (clause, version, bytes, reason) in table.refused {
            assert!(!clause.is_empty() && reason.is_error());
            all.push((version, bytes));
        }
        all.extend(table.accepted.into_iter().map(|(_, version, bytes)| (version, bytes)));
    }
    for stream in [
        &include_bytes!("../../../fuzz/corpus/mqtt_decode/seed-v311")[..],
        include_bytes!("../../../fuzz/corpus/mqtt_decode/seed-v5"),
    ] {
        all.extend(packets(stream));
    }
    all
}

/// The packets of a stream for the fuzz target, whose first byte chooses the version.
fn packets(stream: &[u8]) -> Vec<Input> {
    let version = [Version::V31, V311, V5][usize::from(stream[0] % 3)];
    let mut rest = &stream[1..];
    let mut all = Vec::new();
    while let Ok(Some(frame)) = Frame::read(rest, version, &Limits::default()) {
        let Some((packet, behind)) = rest.split_at_checked(frame.total_len()) else { break };
        all.push((version, packet.to_vec()));
        rest = behind;
    }
    assert!(!all.is_empty());
    all
}

/// Packets that the tables do not have, most of them in both versions.
const WITNESSES: &[(Version, &[u8])] = &[
    // Read by us: CONNECT with a Password that is not UTF-8, with an empty User Name, with an empty Password.
    (V311, b"\x10\x12\0\x04MQTT\x04\xC2\0\0\0\x01c\0\x01u\0\0"),
    (V311, b"\x10\x13\0\x04MQTT\x04\xC2\0\0\0\x01c\0\x01u\0\x01\xFF"),
    (V5, b"\x10\x14\0\x04MQTT\x05\xC2\0\0\0\0\x01c\0\x01u\0\x01\xFF"),
    (V311, b"\x10\x12\0\x04MQTT\x04\xC2\0\0\0\x01c\0\0\0\x01p"),
    (V311, b"\x10\x0F\0\x04MQTT\x04\x82\0\0\0\x01c\0\0"),
    (V5, b"\x10\x10\0\x04MQTT\x05\x82\0\0\0\0\x01c\0\0"),
    (V5, b"\x10\x13\0\x04MQTT\x05\xC2\0\0\0\0\x01c\0\x01u\0\0"),
    // An empty client identifier for a session that stays, a level of a bridge, a password alone.
    (V311, b"\x10\x0C\0\x04MQTT\x04\0\0\0\0\0"),
    (V5, b"\x10\x0D\0\x04MQTT\x05\0\0\0\0\0\0"),
    (V311, b"\x10\x0D\0\x04MQTT\x84\0\0\0\0\x01c"),
    (V5, b"\x10\x11\0\x04MQTT\x05\x42\0\0\0\0\x01c\0\x01p"),
    // CONNACK, PUBLISH that expires at once, and in a will.
    (V311, b"\x20\x02\x01\0"),
    (V5, b"\x20\x03\0\0\0"),
    (V5, b"\x30\x0A\0\x01a\x05\x02\0\0\0\0p"),
    (V5, b"\x10\x19\0\x04MQTT\x05\x06\0\0\0\0\x01c\x05\x02\0\0\0\0\0\x01w\0\0"),
    // Several Subscription Identifiers, also before another property.
    (V5, b"\x30\x0E\0\x01a\x09\x0B\x01\x0B\x02\x23\0\x01\x01\0p"),
    (V5, b"\x30\x0B\0\x01a\x06\x0B\x01\x0B\x02\x0B\x03p"),
    // Filters: empty, and malformed shared ones.
    (V311, b"\x82\x05\0\x01\0\0\0"),
    (V5, b"\x82\x06\0\x01\0\0\0\0"),
    (V311, b"\xA2\x04\0\x01\0\0"),
    (V5, b"\xA2\x05\0\x01\0\0\0"),
    (V311, b"\x82\x0D\0\x01\0\x08$share/a\0"),
    (V5, b"\x82\x0E\0\x01\0\0\x08$share/a\0"),
    (V5, b"\xA2\x0D\0\x01\0\0\x08$share/a"),
    // The ends of connections.
    (V311, b"\xE0\0"),
    (V5, b"\xE0\0"),
    (V5, b"\xE0\x01\x04"),
    (V5, b"\xE0\x02\x81\0"),
    (V5, b"\xF0\0"),
    (V5, b"\xF0\x01\0"),
    (V5, b"\xF0\x07\x18\x05\x15\0\x02mm"),
    (V5, b"\xB0\x04\0\x01\0\0"),
    (V311, b"\xB0\x02\0\x01"),
    // Refused by us. The fixed header, whole.
    (V5, b"\x11\x0E\0\x04MQTT\x05\x02\0\0\0\0\x01c"),
    (V5, b"\xC1\0"),
    (V5, b"\x41\x02\0\x01"),
    (V5, b"\xC0\x81\0\0"),
    (V5, b"\xE0\x80\0"),
    // Strings and numbers.
    (V311, b"\x30\x03\0\x01\xFF"),
    (V5, b"\x30\x04\0\x01\xFF\0"),
    (V311, b"\x10\x13\0\x04MQTT\x04\x06\0\0\0\x01c\0\x01\xFF\0\x02pp"),
    (V311, b"\x82\x06\0\0\0\x01a\0"),
    (V311, b"\x90\x03\0\0\0"),
    (V311, b"\xA2\x05\0\0\0\x01a"),
    (V311, b"\xB0\x02\0\0"),
    (V5, b"\xB0\x04\0\0\0\0"),
    (V5, b"\x62\x02\0\0"),
    // Bytes missing inside a whole packet, and bytes too many.
    (V311, b"\x40\x01\0"),
    (V5, b"\x40\x01\0"),
    (V5, b"\x40\x05\0\x01\0\x02\x1F"),
    (V5, b"\x40\x07\0\x01\0\x02\x1F\0\0"),
    (V5, b"\xA2\x06\0\x01\x04\x26\0\0"),
    (V5, b"\x82\x0B\0\x01\x01\x26\0\0\0\0\0\0\0"),
    (V5, b"\xE0\x05\0\x01\x1F\0\0"),
    (V311, b"\xD0\x01\0"),
    (V311, b"\x10\x0E\0\x04MQTT\x04\x02\0\0\0\x01c\0"),
    // CONNECT.
    (V311, b"\x10\x0D\0\x04MQTT\x04\x03\0\0\0\x01c"),
    (V311, b"\x10\x0D\0\x04MQTT\x04\x0A\0\0\0\x01c"),
    (V5, b"\x10\x0E\0\x04MQTT\x05\x22\0\0\0\0\x01c"),
    (V311, b"\x10\x0D\0\x04MQTT\x04\x1A\0\0\0\x01c"),
    (V5, b"\x10\x0E\0\x04MQTT\x05\x1A\0\0\0\0\x01c"),
    (V311, b"\x10\x12\0\x04MQTT\x04\x1E\0\0\0\x01c\0\x01w\0\0"),
    (V5, b"\x10\x14\0\x04MQTT\x05\x1E\0\0\0\0\x01c\0\0\x01w\0\0"),
    (V311, b"\x10\x10\0\x04MQTT\x04\x42\0\0\0\x01c\0\x01p"),
    (V311, b"\x10\x11\0\x04MQTT\x04\x06\0\0\0\x01c\0\0\0\0"),
    (V5, b"\x10\x13\0\x04MQTT\x05\x06\0\0\0\0\x01c\0\0\0\0\0"),
    (V311, b"\x10\x12\0\x04MQTT\x04\x06\0\0\0\x01c\0\x01#\0\0"),
    // CONNACK and PUBLISH.
    (V311, b"\x20\x02\x02\0"),
    (V311, b"\x20\x02\x01\x01"),
    (V311, b"\x20\x02\0\x06"),
    (V5, b"\x20\x03\0\x8E\0"),
    (V311, b"\x38\x03\0\x01a"),
    (V311, b"\x30\x03\0\x01#"),
    (V311, b"\x30\x02\0\0"),
    (V5, b"\x30\x07\0\x01a\x03\x08\0\0"),
    (V5, b"\x30\x0F\0\x01a\x0B\x0B\x01\x0B\x01\x0B\x01\x0B\x01\x1F\0\0"),
    (V5, b"\x30\x0E\0\x01a\x07\x0B\x01\x0B\x01\x11\x0B\x01\x11\x01\x02"),
    (V5, b"\x82\x0C\0\x01\x04\x0B\x01\x23\x01\0\x01a\0"),
    // Acknowledgements of subscriptions.
    (V311, b"\x90\x02\0\x01"),
    (V5, b"\x90\x03\0\x01\0"),
    (V5, b"\xE0\x01\x8C"),
    (V311, b"\x82\x02\0\x01"),
    (V5, b"\xA2\x03\0\x01\0"),
];
