//! Every MUST about malformed packets, by the tables of `rows.rs`.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that meets what it does not expect shall panic"
)]

mod rows;

use fogmux_mqtt::{DecodeError, Limits, ReasonCode, Version, decode};

use Version::V5;
use rows::{TABLES, Table};

#[test]
fn what_is_malformed_is_refused_with_its_reason() {
    let mut wrong = Vec::new();
    for fill in TABLES {
        let mut table = Table::default();
        fill(&mut table);
        for (clause, version, bytes, reason) in table.refused {
            match decode(&bytes, version, &Limits::PROTOCOL) {
                Err(error) if error.reason() == reason => {}
                other => wrong.push(format!("{clause}: {bytes:02x?} as {version:?} gave {other:?}, wanted {reason}")),
            }
        }
        for (clause, version, bytes) in table.accepted {
            match decode(&bytes, version, &Limits::PROTOCOL) {
                Ok(Some((_, used))) if used == bytes.len() => {}
                other => wrong.push(format!("{clause}: {bytes:02x?} as {version:?} gave {other:?}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn packet_too_large() {
    let limits = Limits { packet_bytes_max: 10 };
    let error = decode(&[0x30, 9], V5, &limits).unwrap_err();
    assert_eq!(error, DecodeError::PacketTooLarge { bytes: 11, max: 10 });
    assert_eq!(error.reason(), ReasonCode::PACKET_TOO_LARGE, "[MQTT-3.2.2-15]: said as soon as the length is there");
    assert_eq!(decode(&[0x30, 8], V5, &limits), Ok(None));
}
