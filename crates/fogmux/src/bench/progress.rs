//! The progress of a measurement on standard error.

use std::ffi::OsStr;
use std::io::IsTerminal as _;
use std::time::Instant;

use fogmux_traffic::Experiment;
use fogmux_traffic::report::progress::{Display, Progress};

use crate::terminal::{columns, is_dumb};

/// Shows the progress and the estimated remaining time. Of the repetitions so many are done already.
pub(super) fn progress(
    experiments: &[Experiment],
    repetitions: u32,
    done: usize,
) -> impl FnMut(&Experiment, u32) + use<> {
    let term = std::env::var_os("TERM");
    let display = display(columns(std::io::stderr()), std::io::stderr().is_terminal(), term.as_deref());
    let rounds = usize::try_from(repetitions).unwrap_or(1);
    let each: Vec<f64> = experiments.iter().map(expected_seconds).collect();
    let expected = each.repeat(rounds).into_iter().skip(done).collect();
    let mut progress = Shown(Progress::new(std::io::stderr(), display, expected, Instant::now()));
    let mut first = true;
    move |experiment, repetition| {
        let now = Instant::now();
        if !std::mem::take(&mut first) {
            progress.0.done(now);
        }
        // A closed standard error is no failure.
        let _ = progress.0.at(&format!("{} #{}", experiment.title(), repetition + 1), now);
    }
}

/// Returns how progress is shown: a bar needs a terminal that understands escape sequences.
fn display(columns: Option<usize>, is_terminal: bool, term: Option<&OsStr>) -> Display {
    match columns {
        _ if is_dumb(term) => Display::Lines,
        Some(columns) => Display::Bar { columns },
        // A terminal of unknown width is assumed to have 80 columns.
        None if is_terminal => Display::Bar { columns: 80 },
        None => Display::Lines,
    }
}

/// Clears the line when everything is done, so that the table starts at the margin.
struct Shown(Progress<std::io::Stderr>);

impl Drop for Shown {
    fn drop(&mut self) {
        // As above.
        let _ = self.0.clear();
    }
}

/// Includes starting and stopping a gateway.
fn expected_seconds(experiment: &Experiment) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
    let counted = experiment.count.map(|count| experiment.rate.map_or(1.0, |rate| count as f64 / rate));
    counted.unwrap_or(f64::MAX).min(experiment.seconds + experiment.warm_up_seconds) + 0.4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dumb_terminal_gets_lines_without_escape_sequences() {
        assert_eq!(display(Some(80), true, Some(OsStr::new("dumb"))), Display::Lines);
        assert_eq!(display(Some(80), true, Some(OsStr::new("xterm"))), Display::Bar { columns: 80 });
        assert_eq!(display(None, true, None), Display::Bar { columns: 80 });
        assert_eq!(display(None, false, None), Display::Lines);
    }
}
