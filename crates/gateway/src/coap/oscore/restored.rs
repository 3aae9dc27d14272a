//! Contexts of a backup: where their numbers begin on the machine that it is restored on.
//!
//! A Partial IV must never be used twice with a key (RFC 8613 §7.2.1), and nobody tells the backup how many the gateway
//! used after it. The clock does, if it is right. If it is in the past, the time of the backup and the numbers that
//! were reserved by then do, as long as the gateway did not go on for longer than [`MARGIN`]. What two machines restore
//! from one backup is kept apart by chance only: neither knows of the other.

use std::{io, path::Path, time::Duration};

use fogmux_oscore::SEQUENCE_MAX;

use super::{
    journal::{Journal, Lock, Records},
    start::{PER_SECOND, number_at, since_1970},
};

/// Numbers that the gateway may have used since the backup: those of a year.
const MARGIN: u64 = PER_SECOND * 366 * 86_400;
/// The part of all numbers that are left over which the beginnings of restored contexts are spread: 6 * 10^10 of them
/// in 2026. Two machines that use 10^6 numbers in all meet with a probability of 1 in 60 000. After twenty restores,
/// each of the one before, two fifths of the numbers are left, on average.
const SHARE: u64 = 16;

/// The numbers of a backup's contexts, as far as it knows them.
#[derive(Clone, Copy, Debug, Default)]
pub struct BackedUp {
    /// When it was made, in seconds since 1970.
    pub unix_s: u64,
    /// No context had a number reserved from here on; 0 if none had any.
    pub below: u64,
}

/// Notes in a journal that contexts made before now may have been used: those of a backup. Their numbers begin beyond
/// all that may have been used.
///
/// # Errors
/// The disk does not take it, or the system has no randomness.
pub fn note_restored(journal: &Path, backup: BackedUp) -> io::Result<()> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    note(journal, backup, since_1970(), u64::from_le_bytes(random))
}

pub(super) fn note(journal: &Path, backup: BackedUp, now: Duration, random: u64) -> io::Result<()> {
    let lock = Lock::take(journal)?;
    let mut records = Records::read(journal)?;
    let made_below = number_at(now).max(number_at(Duration::from_secs(backup.unix_s)));
    records.lose(made_below.unwrap_or(u64::MAX));
    if let Some(first) = first(backup, now, random) {
        records.restore(first);
    }
    drop(Journal::open(journal, lock, records)?);
    Ok(())
}

/// Returns the first number of every context; `None` if neither the backup nor the clock says anything. `now` is since
/// 1970.
fn first(backup: BackedUp, now: Duration, random: u64) -> Option<u64> {
    let reserved = Some(backup.below).filter(|below| *below > 0);
    let (clock, then) = (number_at(now), number_at(Duration::from_secs(backup.unix_s)));
    // More have passed if the clock says so.
    let passed = clock.zip(then).map_or(0, |(clock, then)| clock.saturating_sub(then)).max(MARGIN);
    let least = reserved.max(then).map(|known| known.saturating_add(passed)).max(clock)?;
    let spread = SEQUENCE_MAX.saturating_sub(least) / SHARE;
    Some(least.saturating_add(random.checked_rem(spread).unwrap_or_default()))
}

/// Returns the number from which on no context of a journal has reserved any; 0 without a journal.
///
/// # Errors
/// The file cannot be read.
pub fn reserved_below(journal: &Path) -> io::Result<u64> {
    Ok(Records::read(journal)?.highest())
}
