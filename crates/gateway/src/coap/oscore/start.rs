//! Where the numbers of a context begin (RFC 8613 §7.2.1, appendix B.1): at the journal, the clock, or what a restored
//! backup was given, whichever is highest.

use std::time::{Duration, SystemTime};

use fogmux_net::pki::is_believable;
use fogmux_oscore::{CHUNK, Fingerprint, Requests, Start, file::directory::ContextFile};

use super::journal::Records;

/// Numbers begin where the clock is, or where they are noted to have been used if that is higher: the journal, too, may
/// be an old one that came back from a backup. The clock gives [`PER_SECOND`] for each second since this one
/// (2020-01-01), 2^40 last until 2156 …
const EPOCH: Duration = Duration::from_secs(1_577_836_800);
/// … so that only a context that has had more notifications than this on the average of its life could meet them.
pub(super) const PER_SECOND: u64 = 256;
/// Beyond this number, which it gives in 2088, the clock is not believed: what it took away would not come back.
const CLOCK_MAX: u64 = 1 << 39;
/// For how long a file that says when its keys were made is believed that nobody has used them, in seconds.
const NEW_FOR: u64 = 3600;
/// The machine on which keys were made may be ahead of this one by as many seconds.
const AHEAD: u64 = 300;

pub(super) fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// The number that the clock gives, unless it is not set; `now` is since 1970.
pub(super) fn number_at(now: Duration) -> Option<u64> {
    SystemTime::UNIX_EPOCH.checked_add(now).filter(|now| is_believable(*now))?;
    let number = now.checked_sub(EPOCH)?.as_millis().saturating_mul(PER_SECOND.into()) / 1000;
    u64::try_from(number).ok().filter(|number| *number <= CLOCK_MAX)
}

/// [`number_at`] for keys that were made at a time, in seconds since 1970: a clock before that is not set.
pub(super) fn number_for(made: Option<u64>, now: Duration) -> Option<u64> {
    number_at(now).filter(|_| made.is_none_or(|made| made <= now.as_secs().saturating_add(AHEAD)))
}

/// Where a context goes on; `now` is since 1970. `None`: nothing says which numbers were used, until the clock is set.
///
/// # Errors
/// The system has no randomness.
pub(super) fn start(
    file: &ContextFile,
    records: &Records,
    fingerprint: &Fingerprint,
    now: Duration,
) -> Result<Option<Start>, getrandom::Error> {
    let first = number_for(file.made, now).max(records.restored_from());
    let record = records.of(fingerprint, first);
    // The clock only raises: one that was set back, or is not set, takes no number back.
    let Some(next) = record.map(|record| record.below).max(first) else { return Ok(None) };
    let is_new = |made: &u64| {
        let is_young = now.as_secs().checked_sub(*made).is_some_and(|age| age < NEW_FOR);
        is_young && number_at(Duration::from_secs(*made)).is_some_and(|number| number > records.lost_below())
    };
    // RFC 8613 appendix B.1.2: what was seen before this start is not known. A note of it on the disk would be in a
    // copy that comes back, too, and old requests would be answered again, under nonces that were used.
    let requests = if record.is_none() && file.made.is_some_and(|made| is_new(&made)) {
        Requests::SeenBelow(0)
    } else {
        let mut echo = [0; 8];
        getrandom::fill(&mut echo)?;
        Requests::Unknown { echo }
    };
    Ok(Some(Start { next, durable: next.saturating_add(CHUNK), requests }))
}
