//! Where a context goes on, by its record and the clock (RFC 8613 §7.2.1, appendix B.1).

use std::time::Duration;

use fogmux_oscore::{Fingerprint, Requests, Start, file::directory::ContextFile};

use super::{
    super::{
        journal::{Record, Records},
        start::start,
    },
    parameters,
};

/// 2027-01-15.
const NOW: u64 = 1_800_000_000;
/// 2020-01-01.
const EPOCH: u64 = 1_577_836_800;
const AT_NOW: u64 = (NOW - EPOCH) * 256;

fn begun(record: Option<u64>, unix_s: u64) -> Option<Start> {
    let parameters = parameters(1);
    let fingerprint: Fingerprint = parameters.fingerprint();
    let mut records = Records::default();
    if let Some(below) = record {
        records.put(fingerprint, Record { below });
    }
    let file = ContextFile { user: "alice".to_owned(), path: "one.toml".into(), made: None, parameters };
    start(&file, &records, &fingerprint, Duration::from_secs(unix_s)).expect("randomness")
}

#[test]
fn numbers_begin_at_the_clock_or_at_the_record_whichever_is_higher() {
    let next = |record, unix_s| begun(record, unix_s).map(|start| start.next);
    assert_eq!(next(None, NOW), Some(AT_NOW));
    assert_eq!(next(Some(2048), NOW), Some(AT_NOW), "an old journal");
    assert_eq!(next(Some(AT_NOW + 7), NOW), Some(AT_NOW + 7), "more numbers than the clock gives");
    // A clock that is not set, was set back or is far ahead changes nothing.
    for clock in [0, EPOCH - 1, NOW - 86_400, 3_800_000_000, u64::MAX / 2] {
        assert_eq!(next(Some(AT_NOW), clock), Some(AT_NOW), "{clock}");
    }
    for clock in [0, EPOCH - 1, 1_767_225_600, 3_800_000_000] {
        assert_eq!(next(None, clock), None, "{clock}: nothing says which numbers were used");
    }
}

#[test]
fn a_context_that_was_used_has_no_window_after_a_start() {
    for (below, clock) in [(AT_NOW, NOW), (AT_NOW, NOW + 600), (AT_NOW + 1000, NOW), (2048, NOW), (AT_NOW, 0)] {
        let start = begun(Some(below), clock).expect("a start");
        assert!(matches!(start.requests, Requests::Unknown { .. }), "{below} at {clock}");
    }
}
