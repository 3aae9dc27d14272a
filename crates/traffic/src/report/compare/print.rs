//! A comparison for a terminal and in Markdown.

use std::fmt::Write as _;

use super::{Change, Comparison, RELEVANT, Verdict};
use crate::report::grid::{Grid, wrapped};
use crate::report::markdown::{self, Align};
use crate::report::number::with_unit;

impl Comparison {
    /// For a terminal of `width` columns: what became worse, what became better, and how much of the rest is noise.
    /// `all` shows the noise too.
    #[must_use]
    pub fn terminal(&self, all: Shown, width: Option<usize>) -> String {
        let mut out: String = self.circumstances.iter().map(|line| wrapped(&format!("! {line}"), "", width)).collect();
        let rows = self.rows(all);
        if !rows.is_empty() {
            let mut grid = Grid::default();
            grid.row(HEAD.map(str::to_owned).to_vec());
            rows.into_iter().for_each(|row| grid.row(row));
            let fitted = grid.fit(width, &PRIORITIES);
            let names: Vec<&str> = fitted.left_out.iter().filter_map(|column| HEAD.get(*column).copied()).collect();
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
        out + &self.conclusion().lines().map(|line| wrapped(line, "", width)).collect::<String>()
    }

    /// For a README or a pull request.
    #[must_use]
    pub fn markdown(&self, all: Shown) -> String {
        let mut out = String::new();
        for line in &self.circumstances {
            let _ = writeln!(out, "- {}", markdown::escape(line));
        }
        let rows = self.rows(all);
        if !rows.is_empty() {
            let _ = write!(out, "\n{}\n", markdown::grid(&HEAD.map(str::to_owned), &rows, Align::Right));
        }
        out + &markdown::escape(&self.conclusion()).replace("  ", " ") + "\n"
    }

    fn rows(&self, all: Shown) -> Vec<Vec<String>> {
        let of = |verdict| self.changes.iter().filter(move |change| change.verdict == verdict).map(Change::row);
        let mut rows: Vec<Vec<String>> = of(Verdict::Regression).chain(of(Verdict::Improvement)).collect();
        match all {
            Shown::Everything => rows.extend(of(Verdict::Noise).chain(of(Verdict::TooFew))),
            Shown::Changes => {}
        }
        rows
    }

    fn conclusion(&self) -> String {
        let mut out = format!(
            "{} worse, {} better, {} within noise or {:.0} %",
            self.count(Verdict::Regression),
            self.count(Verdict::Improvement),
            self.count(Verdict::Noise),
            RELEVANT * 100.0
        );
        match self.count(Verdict::TooFew) {
            0 => {}
            few => {
                let _ = write!(out, "; {few} cannot be told for lack of repetitions (5 and 5 suffice)");
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

const HEAD: [&str; 7] = ["experiment", "figure", "before", "after", "ratio", "p", "verdict"];
/// The ratio and the verdict say what there is to say; the others go first where a terminal is narrow.
const PRIORITIES: [u8; 7] = [0, 0, 2, 2, 1, 3, 0];

impl Change {
    fn row(&self) -> Vec<String> {
        let meaning = self.figure.meaning();
        let shown = |value| with_unit(meaning.unit, value);
        let ratio = self.ratio.map_or_else(
            || "–".to_owned(),
            |ratio| format!("{:.3} ({:.3}–{:.3})", ratio.median, ratio.low, ratio.high),
        );
        let texts = [meaning.title.to_owned(), shown(self.before), shown(self.after), ratio, format!("{:.3}", self.p)];
        let words = [self.experiment.clone()].into_iter().chain(texts);
        words.chain([self.verdict.word().to_owned()]).collect()
    }
}
