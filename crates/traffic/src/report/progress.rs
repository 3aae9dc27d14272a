//! How far a bench is and how long it still takes: a bar on a terminal, plain lines elsewhere.

use std::io::{self, Write};
use std::time::Instant;

use super::number::duration;

/// Where it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Display {
    /// One line that is written over, this many columns wide.
    Bar {
        /// The width of the terminal.
        columns: usize,
    },
    /// A line for each step.
    Lines,
    /// Not at all.
    Quiet,
}

/// Columns of the bar itself.
const BAR: usize = 20;
const FULL: &str = "█";
/// Eighths of a column.
const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

/// Steps with the seconds that each is expected to take. Time left is what is expected of the steps to come, times how
/// much longer than expected those before took.
#[derive(Debug)]
pub struct Progress<W> {
    out: W,
    display: Display,
    expected_s: Vec<f64>,
    done: usize,
    /// The duration of the finished steps, in seconds.
    done_s: f64,
    began: Instant,
}

impl<W: Write> Progress<W> {
    /// Of steps that are expected to take so many seconds each.
    pub fn new(out: W, display: Display, expected_s: Vec<f64>, now: Instant) -> Self {
        Self { out, display, expected_s, done: 0, done_s: 0.0, began: now }
    }

    /// Shows a step. To be called when it begins and while it lasts, so that the remaining time is updated.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn at(&mut self, what: &str, now: Instant) -> io::Result<()> {
        let left = duration(self.left_s(now));
        // Repetitions that replace others were not expected.
        let (done, all) = (self.done, self.expected_s.len().max(self.done + 1));
        match self.display {
            Display::Bar { columns } => {
                let head = format!("{} {done}/{all}  {left} left  ", bar(self.share(now)));
                let room = columns.saturating_sub(head.chars().count() + 1);
                let what: String = what.chars().take(room).collect();
                write!(self.out, "\r{head}{what}\x1b[K")?;
            }
            Display::Lines => writeln!(self.out, "{}/{all} {what} ({left} left)", done + 1)?,
            Display::Quiet => {}
        }
        self.out.flush()
    }

    /// The step at hand is over.
    pub fn done(&mut self, now: Instant) {
        self.done += 1;
        self.done_s = self.elapsed_s(now);
    }

    /// Removes the bar, for something else to be printed.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn clear(&mut self) -> io::Result<()> {
        match self.display {
            Display::Bar { .. } => write!(self.out, "\r\x1b[K")?,
            Display::Lines | Display::Quiet => {}
        }
        self.out.flush()
    }

    /// The seconds left.
    #[must_use]
    pub fn left_s(&self, now: Instant) -> f64 {
        let before: f64 = self.expected_s.iter().take(self.done).sum();
        let slowness = if before > 0.0 { self.done_s / before } else { 1.0 };
        let mut to_come = self.expected_s.iter().skip(self.done);
        let at_hand = to_come.next().copied().unwrap_or_default() * slowness - (self.elapsed_s(now) - self.done_s);
        at_hand.max(0.0) + to_come.sum::<f64>() * slowness
    }

    fn elapsed_s(&self, now: Instant) -> f64 {
        now.duration_since(self.began).as_secs_f64()
    }

    fn share(&self, now: Instant) -> f64 {
        let elapsed = self.elapsed_s(now);
        let all = elapsed + self.left_s(now);
        if all > 0.0 { (elapsed / all).min(1.0) } else { 0.0 }
    }
}

fn bar(share: f64) -> String {
    let eighths = eighths(share);
    let (whole, rest) = (eighths / 8, eighths % 8);
    let mut bar = FULL.repeat(whole);
    bar.push_str(PARTS.get(rest).copied().unwrap_or_default());
    let missing = BAR.saturating_sub(whole + usize::from(rest > 0));
    bar.push_str(&"·".repeat(missing));
    bar
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 160")]
fn eighths(share: f64) -> usize {
    (share.clamp(0.0, 1.0) * (BAR * 8) as f64).floor() as usize
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_time_left_follows_how_long_steps_really_take() {
        let now = Instant::now();
        let mut progress = Progress::new(Vec::new(), Display::Quiet, vec![10.0; 4], now);
        assert_eq!(progress.left_s(now), 40.0);
        assert_eq!(progress.left_s(now + Duration::from_secs(4)), 36.0);
        progress.done(now + Duration::from_secs(20));
        // Twice as long as expected.
        assert_eq!(progress.left_s(now + Duration::from_secs(25)), 15.0 + 2.0 * 20.0);
        // A step that takes longer still does not make the time left of the others negative.
        assert_eq!(progress.left_s(now + Duration::from_secs(100)), 2.0 * 20.0);
    }

    #[test]
    fn a_bar_fits_its_line_and_lines_have_no_control_characters() {
        let now = Instant::now();
        let mut progress = Progress::new(Vec::new(), Display::Bar { columns: 40 }, vec![1.0; 10], now);
        progress.at("a very long name of an experiment indeed", now).unwrap();
        let text = String::from_utf8(progress.out).unwrap();
        let shown = text.trim_start_matches('\r').trim_end_matches("\x1b[K");
        assert!(shown.chars().count() < 40, "{shown}");
        let mut progress = Progress::new(Vec::new(), Display::Lines, vec![1.0; 10], now);
        progress.at("mqtt", now).unwrap();
        assert_eq!(String::from_utf8(progress.out).unwrap(), "1/10 mqtt (10 s left)\n");
    }

    #[test]
    fn bars_are_always_as_wide() {
        for share in [0.0, 0.01, 0.5, 0.504, 0.999, 1.0, 2.0] {
            assert_eq!(bar(share).chars().count(), BAR, "{share}");
        }
    }
}
