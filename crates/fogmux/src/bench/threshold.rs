//! The conditions of `--fail-if`, as text and as an exit code.

use fogmux_traffic::outcome::Run;
use fogmux_traffic::report;
use fogmux_traffic::report::threshold::{Crossing, Threshold};

use crate::exit::{Failure, Status};

/// Tries all conditions on all runs, and prints those that hold or that cannot be told.
///
/// # Errors
/// A condition holds (1), or cannot be told (75).
pub(super) fn check(thresholds: &[Threshold], runs: &[Run]) -> Result<(), Failure> {
    let summaries = report::summaries(runs);
    let (mut crossed, mut unknown) = (0u32, 0u32);
    for summary in summaries.iter().filter(|summary| !summary.used.is_empty()) {
        for threshold in thresholds {
            match threshold.on(summary) {
                Crossing::Within => {}
                Crossing::Crossed(text) => {
                    crossed += 1;
                    eprintln!("{text}");
                }
                Crossing::Unknown(text) => {
                    unknown += 1;
                    eprintln!("{text}");
                }
            }
        }
    }
    match (crossed, unknown) {
        (0, 0) => Ok(()),
        (0, _) => Err(Failure::new(Status::TempFail, "a condition of --fail-if cannot be told")),
        (1.., _) => Err(Failure::silent(Status::Regression)),
    }
}
