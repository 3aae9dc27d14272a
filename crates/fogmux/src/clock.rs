//! A wall clock that shows a time in the past, as that of a board without a battery does until it hears of the time.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fogmux_net::pki;

/// Files may be as much newer than the clock, which is adjusted in steps.
pub(crate) const TOLERANCE: Duration = Duration::from_secs(300);
/// A gateway that still ran so long after its certificate was made had the right time then.
const PROVEN: Duration = Duration::from_secs(2 * 86_400);

/// Returns when a file of the store was last written, since 1970.
pub(crate) fn newest(store: &Path) -> Option<Duration> {
    let journal = fogmux_store::lock_file(store);
    let entries = std::fs::read_dir(journal.parent()?).ok()?.flatten();
    let written = entries.filter_map(|entry| entry.metadata().ok()?.modified().ok());
    written.max().and_then(|newest: SystemTime| newest.duration_since(UNIX_EPOCH).ok())
}

/// Returns whether a certificate of the gateway's own that is valid from a moment on (since 1970) is only not valid yet
/// because the clock is in the past: there was no gateway at that time, or the store was written later than that, and
/// long after the certificate was made. If it was made by a clock that was ahead, and has been set back since, the
/// store was not.
pub(crate) fn is_behind(now: Duration, valid_from: Duration, store: &Path) -> bool {
    let has_run = || newest(store).is_some_and(|newest| newest > now + TOLERANCE && newest > valid_from + PROVEN);
    now < valid_from && (!pki::is_believable(UNIX_EPOCH + now) || has_run())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_ahead_when_the_certificate_was_made_is_not_behind_now() {
        const DAY: Duration = Duration::from_secs(86_400);
        let data = tempfile::tempdir().unwrap();
        let store = data.path().join("store");
        let lock = fogmux_store::lock_file(&store);
        std::fs::create_dir_all(lock.parent().unwrap()).unwrap();
        let written = |at: Duration| {
            std::fs::File::create(&lock).unwrap().set_modified(UNIX_EPOCH + at).unwrap();
        };
        let made = Duration::from_secs(1_800_000_000);
        for (wrote, now, expected) in [
            (made + 300 * DAY, made - DAY, true),
            (made + DAY, made - DAY, false),
            (made + DAY, Duration::from_secs(600), true),
            (made + 300 * DAY, made + DAY, false),
            (made - 30 * DAY, made - 29 * DAY, false),
        ] {
            written(wrote);
            assert_eq!(is_behind(now, made, &store), expected, "written at {wrote:?}, now {now:?}");
        }
    }
}
