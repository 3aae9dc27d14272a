//! A comparison for a terminal and in Markdown.

use std::fmt::Write as _;

use super::{Change, Comparison, Problem, RELEVANT, Verdict};
use crate::measure::statistics::magnitude;
use crate::report::grid::{Grid, wrapped};
use crate::report::markdown::{self, Align};
use crate::report::number::with_unit;

impl Comparison {
    /// For a terminal of `width` columns: what became worse, what became better, and how much of the rest is noise.
    /// `all` shows the noise too.
    #[must_use]
    pub fn terminal(&self, all: Shown, width: Option<usize>) -> String {
        let lines = self.circumstances.iter().cloned().chain(self.problems.iter().map(Problem::line));
        let mut out: String = lines.map(|line| wrapped(&format!("! {line}"), "", width)).collect();
        let rows = self.rows(all);
        if !rows.is_empty() {
            let mut grid = Grid::default();
            let head = self.head();
            grid.row(head.iter().map(|name| (*name).to_owned()).collect());
            rows.into_iter().for_each(|row| grid.row(row));
            let fitted = grid.fit(width, &PRIORITIES);
            let names: Vec<&str> = fitted.left_out.iter().filter_map(|column| head.get(*column).copied()).collect();
            if fitted.is_list {
                out.push_str(&grid.list(width));
            } else {
                out.push_str(&fitted.text);
            }
            if !names.is_empty() && !fitted.is_list {
                let line = format!("Left out for lack of room: {}; --markdown prints every column.", names.join(", "));
                out.push_str(&wrapped(&line, "", width));
            }
        }
        out + &self.closing().lines().map(|line| wrapped(line, "", width)).collect::<String>()
    }

    /// For a README or a pull request.
    #[must_use]
    pub fn markdown(&self, all: Shown) -> String {
        let mut out = String::new();
        for line in self.circumstances.iter().cloned().chain(self.problems.iter().map(Problem::line)) {
            let _ = writeln!(out, "- {}", markdown::escape(&line));
        }
        let rows = self.rows(all);
        if !rows.is_empty() {
            let head: Vec<String> = self.head().iter().map(|name| (*name).to_owned()).collect();
            let _ = write!(out, "\n{}\n", markdown::grid(&head, &rows, Align::Right));
        }
        out + &markdown::escape(&self.closing()).replace("  ", " ") + "\n"
    }

    /// Whether there is a noise floor, which only paired runs have.
    fn is_paired(&self) -> bool {
        self.changes.iter().any(|change| change.floor.is_some())
    }

    pub(super) fn head(&self) -> &'static [&'static str] {
        if self.is_paired() { &PAIRED_HEAD } else { &HEAD }
    }

    pub(super) fn rows(&self, all: Shown) -> Vec<Vec<String>> {
        let is_paired = self.is_paired();
        let of = |verdict| {
            let changes = self.changes.iter().filter(move |change| change.verdict == verdict);
            changes.map(move |change| change.row(is_paired))
        };
        let mut rows: Vec<Vec<String>> = of(Verdict::Regression).chain(of(Verdict::Improvement)).collect();
        match all {
            Shown::Everything => {
                rows.extend(of(Verdict::Noise).chain(of(Verdict::Unclear)).chain(of(Verdict::TooFew)));
            }
            Shown::Changes => {}
        }
        rows
    }

    pub(super) fn closing(&self) -> String {
        let mut out = format!(
            "{} worse, {} better, {} within noise or {:.0} %",
            self.count(Verdict::Regression) + self.count(Verdict::Crashed),
            self.count(Verdict::Improvement),
            self.count(Verdict::Noise),
            RELEVANT * 100.0
        );
        let open = [
            (Verdict::Unclear, "unclear: they scatter too much, or their conditions changed"),
            (Verdict::TooFew, "cannot be told for lack of repetitions"),
        ];
        for (verdict, why) in open {
            match self.count(verdict) {
                0 => {}
                some => {
                    let _ = write!(out, "; {some} {why}");
                }
            }
        }
        out.push_str(".\n");
        for (only, which) in [(&self.only_before, "first"), (&self.only_after, "second")] {
            if !only.is_empty() {
                let _ = writeln!(out, "Only in the {which}: {}.", only.join("; "));
            }
        }
        out
    }
}

/// How much of a comparison is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Rows that became worse or better.
    Changes,
    /// And what did not.
    Everything,
}

const HEAD: [&str; 8] = ["experiment", "figure", "before", "after", "ratio", "effect", "chance", "verdict"];
const PAIRED_HEAD: [&str; 9] =
    ["experiment", "figure", "before", "after", "ratio", "effect", "chance", "verdict", "noise floor"];
/// The ratio and the verdict say what there is to say; the others go first where a terminal is narrow.
const PRIORITIES: [u8; 9] = [0, 0, 2, 2, 1, 4, 3, 0, 3];

impl Change {
    fn row(&self, is_paired: bool) -> Vec<String> {
        let meaning = self.figure.meaning();
        let shown = |value| with_unit(meaning.unit, value);
        let ratio = self.ratio.map_or_else(
            || "–".to_owned(),
            |ratio| match ratio.low < ratio.high {
                true => format!("{:.3} ({:.3}–{:.3})", ratio.median, ratio.low, ratio.high),
                false => format!("{:.3}", ratio.median),
            },
        );
        let chance = self.chance.map_or_else(|| "–".to_owned(), |chance| format!("{chance:.3}"));
        let effect = self.effect.map_or_else(|| "–".to_owned(), |effect| format!("{effect:+.2} {}", magnitude(effect)));
        let texts = [meaning.title.to_owned(), shown(self.before), shown(self.after), ratio, effect, chance];
        let words = [self.experiment.clone()].into_iter().chain(texts).chain([self.verdict.word().to_owned()]);
        let floor = self.floor.map_or_else(|| "–".to_owned(), |floor| format!("±{:.1} %", floor * 100.0));
        words.chain(is_paired.then_some(floor)).collect()
    }
}

impl Problem {
    /// The verdict and both reasons.
    pub(super) fn line(&self) -> String {
        let said = |reason: &Option<String>| reason.clone().unwrap_or_else(|| "no problem".to_owned());
        let (before, after) = (said(&self.before), said(&self.after));
        format!("{}: {}: before: {before}; after: {after}", self.experiment, self.verdict.word())
    }
}
