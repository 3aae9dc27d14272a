//! Our MQTT codec beside `rmqtt-codec`, `mqtt-protocol-core`, `rumqttd`'s and `mqttbytes`, in 3.1.1 and 5.0: what each
//! reads of any bytes, and what it writes of what it has read. Each disagreement has a class with its clause.
//!
//! `FOGMUX_SEED` chooses other cases than CI's, `FOGMUX_CASES` their number.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

mod classes;
mod fields;
mod meaning;
mod packets;
mod peers;
#[path = "../../../crates/mqtt/tests/malformed/rows.rs"]
mod rows;
mod witnesses;

use std::collections::BTreeSet;

use classes::{CLASSES, class_of};
use fogmux_mqtt::Version;
use meaning::Case;
use packets::Input;
use peers::Peer;
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestCaseResult, TestRunner};

/// Compares all codecs on these bytes.
fn compare(version: Version, bytes: &[u8], mut class: impl FnMut(usize, &Case<'_>)) -> TestCaseResult {
    for case in Peer::ALL.into_iter().filter_map(|peer| Case::new(peer, version, bytes)).filter(|case| !case.agree()) {
        match class_of(&case) {
            Some(index) => class(index, &case),
            None => return Err(TestCaseError::fail(format!("no class explains {case:02x?}"))),
        }
    }
    Ok(())
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap())
}

fn check(cases: u64, inputs: impl Strategy<Value = Input>) {
    let cases = u32::try_from(setting("FOGMUX_CASES", cases)).unwrap();
    let rng_seed = RngSeed::Fixed(setting("FOGMUX_SEED", 1));
    let config = ProptestConfig { cases, rng_seed, failure_persistence: None, ..ProptestConfig::default() };
    let result = TestRunner::new(config).run(&inputs, |(version, bytes)| compare(version, &bytes, |_, _| ()));
    result.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn what_we_write_is_read_with_the_same_meaning_and_written_back() {
    check(20_000, packets::written());
}

#[test]
fn what_is_damaged_is_judged_alike() {
    check(60_000, packets::damaged());
}

#[test]
fn any_bytes_are_judged_alike() {
    check(40_000, packets::nearly());
}

#[test]
fn fields_have_the_names_that_mqtt_protocol_core_gives_them() {
    let cases = u32::try_from(setting("FOGMUX_CASES", 10_000)).unwrap();
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new(config).run(&packets::written(), |(version, bytes)| fields::compare(version, &bytes)).unwrap();
}

/// Every class has a disagreement in the corpus for each codec and version that it names, and for no other.
#[test]
fn every_class_occurs() {
    let (mut occurs, mut unexplained) = (BTreeSet::new(), Vec::new());
    for (version, bytes) in witnesses::corpus() {
        // Cut anywhere as well.
        for end in 0..=bytes.len() {
            let noted = compare(version, &bytes[..end], |index, case| {
                occurs.insert((index, case.peer, case.version));
            });
            unexplained.extend(noted.err().map(|error| error.to_string()));
        }
    }
    assert!(unexplained.is_empty(), "{}", unexplained.join("\n"));
    let mut missing = Vec::new();
    for (index, class) in CLASSES.iter().enumerate() {
        for (peer, version) in Peer::ALL.into_iter().flat_map(|peer| [(peer, Version::V311), (peer, Version::V5)]) {
            if class.concerns(peer, version) && !occurs.contains(&(index, peer, version)) {
                missing.push(format!("{}: {peer}, {version:?}", class.what));
            }
        }
    }
    assert!(missing.is_empty(), "no longer a disagreement:\n{}", missing.join("\n"));
}

#[test]
fn the_documentation_has_this_table() {
    let document = include_str!("../../../docs/protocols/mqtt.md");
    let row =
        |class: &classes::Class| format!("| {} | {} | {} | {} |", class.what, class.clause, class.right, class.peers());
    let rows: Vec<_> = CLASSES.iter().map(row).collect();
    assert!(document.contains(&rows.join("\n")), "docs/protocols/mqtt.md should have these rows:\n{}", rows.join("\n"));
}
