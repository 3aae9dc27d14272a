//! The journal over a simulated disk, under seeds: crashes that lose what was not synchronised, torn writes, failing
//! operations, damage, and a full disk, beside a map that says what must be there.
//!
//! `FOGMUX_JOURNAL_SEEDS` is the number of seeds of each case, `FOGMUX_JOURNAL_SEED` a single one.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test that cannot go on fails, and its numbers are small"
)]

mod crashes;
mod damage;
mod disk;
mod forged;
mod model;
mod outages;
mod random;
mod shares;
mod space;

/// Seeds of each case, unless the variable says otherwise. Cases that take longer have a part of them.
const SEEDS: u64 = 300;

/// Runs a case under each seed, and names the one that failed.
fn seeds(case: impl Fn(u64) + std::panic::RefUnwindSafe) {
    some_seeds(1, case);
}

/// Runs a case under one in `part` of the seeds.
fn some_seeds(part: u64, case: impl Fn(u64) + std::panic::RefUnwindSafe) {
    let number = |name| std::env::var(name).ok().and_then(|value: String| value.parse::<u64>().ok());
    if let Some(seed) = number("FOGMUX_JOURNAL_SEED") {
        return case(seed);
    }
    for seed in 0..number("FOGMUX_JOURNAL_SEEDS").unwrap_or(SEEDS) / part {
        if let Err(panic) = std::panic::catch_unwind(|| case(seed)) {
            eprintln!("FOGMUX_JOURNAL_SEED={seed} repeats it");
            std::panic::resume_unwind(panic);
        }
    }
}
