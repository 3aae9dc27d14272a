//! The bounds of measurements, each with its reason.

use std::time::Duration;

/// Jobs that wait: more than an administrator plans for an evening.
pub(super) const WAITING_MAX: usize = 16;
/// Ended jobs that are kept, of which the oldest leave first.
pub(super) const KEPT_MAX: usize = 32;
/// Bytes of their files: little beside what a card of a Raspberry Pi has.
pub(super) const KEPT_BYTES_MAX: u64 = 96 << 20;
/// Bytes of the files of one job. At its end the report lies there beside the outcomes that it is made of.
pub(super) const JOB_BYTES_MAX: u64 = 40 << 20;
/// Bytes of a report that is given out, which is in memory meanwhile.
pub(super) const REPORT_BYTES_MAX: u64 = 16 << 20;
/// Bytes of a repetition in a report: 64 to 93 kB were seen, with histograms of three digits.
const REPETITION_BYTES: u64 = 100 << 10;

/// Bytes of a payload: the greatest of `fogmux bench matrix`.
pub(super) const SIZE_MAX: u32 = 65_536;
/// Publishers, and subscribers: as many connections as a small machine has descriptors for.
pub(super) const CLIENTS_MAX: u32 = 500;
/// Operations a second: above what a thread of the generator sends.
pub(super) const RATE_MAX: u32 = 1_000_000;
/// Seconds of a repetition.
pub(super) const SECONDS_MAX: u32 = 300;
/// Repetitions of an experiment.
pub(super) const REPEAT_MAX: u32 = 50;
/// Repetitions of all experiments of a job, by which its files are bounded.
pub(super) const REPETITIONS_MAX: u32 = 150;
/// Seconds that a job may be expected to take.
pub(super) const JOB_SECONDS_MAX: u32 = 1800;
/// Seconds of a repetition besides those that are asked for: start, warm-up and end of a gateway.
pub(super) const BESIDES_SECONDS: u32 = 2;
/// A job that takes longer is ended: the expected time of the tables of documents is not known.
pub(super) const JOB_MAX: Duration = Duration::from_hours(1);

/// The time over which the load of the gateway is taken.
pub(super) const LOAD_WINDOW: Duration = Duration::from_secs(1);
/// The pause before a gateway that was loaded is looked at again.
pub(super) const LOAD_PAUSE: Duration = Duration::from_secs(5);
/// The share of one core above which the gateway is loaded.
pub(super) const LOAD_SHARE: f64 = 0.25;
/// Publications a second above which it is.
pub(super) const LOAD_PUBLICATIONS: f64 = 500.0;

/// The time for a measurement to remove what it has laid before it is killed. Shorter than the time that systemd gives
/// the gateway.
pub(super) const END_MAX: Duration = Duration::from_secs(8);
/// The time between two looks at the size of its files.
pub(super) const LOOK: Duration = Duration::from_secs(2);
/// The time for a comparison.
pub(super) const COMPARISON_MAX: Duration = Duration::from_secs(30);
/// Comparisons that wait for another, or are under way.
pub(super) const COMPARISONS_MAX: usize = 4;

const _: () = assert!(REPETITIONS_MAX as u64 * REPETITION_BYTES <= REPORT_BYTES_MAX, "a report can be read");
const _: () = assert!(REPORT_BYTES_MAX * 5 / 2 <= JOB_BYTES_MAX, "a job may end with its report and its outcomes");
const _: () = assert!(2 * JOB_BYTES_MAX <= KEPT_BYTES_MAX, "a job can be compared with the one before");
