//! Where a context goes on, by its record and the clock (RFC 8613 §7.2.1, appendix B.1).

use std::time::Duration;

use fogmux_oscore::{Fingerprint, Requests, Start, file::directory::ContextFile};

use super::{
    super::{
        journal::{Record, Records, Seen},
        keyring::start,
    },
    parameters,
};

/// 2026-01-01.
const NOW: u64 = 1_767_225_600;
/// 2020-01-01.
const EPOCH: u64 = 1_577_836_800;
const AT_NOW: u64 = (NOW - EPOCH) * 256;

fn begun(record: Option<(u64, Option<u64>)>, unix_s: u64) -> Option<Start> {
    let parameters = parameters(1);
    let fingerprint: Fingerprint = parameters.fingerprint();
    let mut records = Records::default();
    let recipient = parameters.recipient_id;
    if let Some((below, seen)) = record {
        let seen = seen.map(|below| Seen { below, recipient });
        records.put(fingerprint, Record { below, seen });
    }
    let file = ContextFile { user: "alice".to_owned(), path: "one.toml".into(), made: None, parameters };
    start(&file, &records, &fingerprint, Duration::from_secs(unix_s)).ok()
}

#[test]
fn numbers_begin_at_the_clock_or_at_the_record_whichever_is_higher() {
    let next = |record, unix_s| begun(record, unix_s).map(|start| start.next);
    assert_eq!(next(None, NOW), Some(AT_NOW));
    assert_eq!(next(Some((2048, None)), NOW), Some(AT_NOW), "an old journal");
    assert_eq!(next(Some((AT_NOW + 7, None)), NOW), Some(AT_NOW + 7), "more numbers than the clock gives");
    // A clock that is not set, was set back or is far ahead changes nothing.
    for clock in [0, EPOCH - 1, NOW - 86_400, 3_800_000_000, u64::MAX / 2] {
        assert_eq!(next(Some((AT_NOW, None)), clock), Some(AT_NOW), "{clock}");
    }
    for clock in [0, EPOCH - 1, 3_800_000_000] {
        assert_eq!(next(None, clock), None, "{clock}: nothing says which numbers were used");
    }
}

#[test]
fn a_window_is_believed_for_ten_minutes() {
    let known = |below: u64, clock: u64| {
        let start = begun(Some((below, Some(77))), clock).expect("a start");
        start.requests == Requests::SeenBelow(77)
    };
    assert!(known(AT_NOW, NOW) && known(AT_NOW, NOW + 600));
    assert!(!known(AT_NOW, NOW + 601), "an old record");
    assert!(!known(2048, NOW), "a record of before there was a clock");
    assert!(known(AT_NOW + 1000, NOW), "more numbers than the clock gives");
    assert!(!known(AT_NOW, NOW - 3600), "the clock was set back: nothing says how old it is");
    assert!(!known(AT_NOW, 0), "without a clock nothing says how old it is");
}
