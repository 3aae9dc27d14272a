//! The results of runs for a terminal: a list for one run, a table for several. A table that is too wide leaves out its
//! most dispensable columns and says how to choose them.

use super::figure::Figure;
use super::grid::{Grid, wrapped};
use super::number::Scale;
use super::summary::Summary;
use super::table::{self, Column};
use super::warning::{self, Warning};

/// How results are printed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Layout<'a> {
    /// Columns of the terminal; `None` for output to a file or a pipe, which has no limit.
    pub width: Option<usize>,
    /// The figures to print, in this order, whatever room there is; empty: those that have a value, by priority.
    pub figures: &'a [Figure],
}

/// Returns the results as a list or as a table, and the number of repetitions.
#[must_use]
pub fn results(summaries: &[Summary<'_>], layout: Layout<'_>) -> String {
    let Layout { width, figures } = layout;
    let columns = if figures.is_empty() { table::columns(summaries) } else { table::chosen(summaries, figures) };
    if let [summary] = summaries {
        return list(summary, &columns).list(width) + &repetitions(summaries, width);
    }
    let grid = grid(summaries, &columns);
    if !figures.is_empty() {
        return grid.text() + &repetitions(summaries, width);
    }
    let priorities: Vec<u8> = std::iter::once(0).chain(columns.iter().map(|column| column.dispensable)).collect();
    let fitted = grid.fit(width, &priorities);
    // The first column of the grid is the label.
    let at = |column: &usize| column.checked_sub(1).and_then(|column| columns.get(column));
    let left_out: Vec<Figure> = fitted.left_out.iter().filter_map(at).map(|column| column.figure).collect();
    fitted.text + &repetitions(summaries, width) + &more(&left_out, width)
}

fn grid(summaries: &[Summary<'_>], columns: &[Column]) -> Grid {
    let mut grid = Grid::default();
    grid.row(std::iter::once(String::new()).chain(columns.iter().map(Column::head)).collect());
    for summary in summaries {
        let cells = columns.iter().map(|column| with_uncertainty(column, summary));
        grid.row(std::iter::once(summary.label.clone()).chain(cells).collect());
    }
    grid
}

/// One run, which has room for the intervals.
fn list(summary: &Summary<'_>, columns: &[Column]) -> Grid {
    let mut grid = Grid::default();
    grid.row(std::iter::once(String::new()).chain(columns.iter().map(Column::head)).collect());
    let cells = columns.iter().map(|column| match column.range(summary) {
        Some(range) => format!("{} ({range})", column.cell(summary)),
        None => column.cell(summary),
    });
    grid.row(std::iter::once(summary.label.clone()).chain(cells).collect());
    grid
}

/// The rate's interval is the one that readers compare by, so it stands beside it: as half its width in percent.
fn with_uncertainty(column: &Column, summary: &Summary<'_>) -> String {
    let cell = column.cell(summary);
    let Some(interval) = summary.get(column.figure).filter(|_| column.dispensable == 0) else { return cell };
    if !table::is_wide(interval) || interval.median <= 0.0 {
        return cell;
    }
    let percent = (interval.high - interval.low) / 2.0 / interval.median * 100.0;
    let percent = match percent {
        narrow if narrow < 1.0 => "<1".to_owned(),
        wide if wide > 100.0 => ">100".to_owned(),
        between => PERCENT.value(between.round()),
    };
    format!("{cell} ±{percent}%")
}

const PERCENT: Scale = Scale { name: "%", divisor: 1.0 };

fn repetitions(summaries: &[Summary<'_>], width: Option<usize>) -> String {
    let fewest = summaries.iter().map(|summary| summary.used.len()).min().unwrap_or_default();
    let most = summaries.iter().map(|summary| summary.used.len()).max().unwrap_or_default();
    let interval = if summaries.len() == 1 { " and 95 % intervals" } else { ", ± half of the 95 % interval" };
    let text = match (fewest, most) {
        (_, 0) => "Nothing was measured.".to_owned(),
        (1, 1) if summaries.len() == 1 => "One repetition.".to_owned(),
        (1, 1) => "One repetition each.".to_owned(),
        (fewest, most) if fewest == most => format!("Medians of {most} repetitions{interval}."),
        (fewest, most) => format!("Medians of {fewest} to {most} repetitions{interval}."),
    };
    wrapped(&text, "", width)
}

/// Names the columns that were left out as `--columns` takes them.
fn more(left_out: &[Figure], width: Option<usize>) -> String {
    if left_out.is_empty() {
        return String::new();
    }
    let names: Vec<String> = left_out.iter().map(|figure| figure.name()).collect();
    let columns = if names.len() == 1 { "1 column does" } else { &format!("{} columns do", names.len()) };
    wrapped(&format!("{columns} not fit; --columns NAME,… prints any of: {}.", names.join(", ")), "", width)
}

/// One line for each warning. A peer's words may be in it, and say nothing to a terminal.
#[must_use]
pub fn warnings(summaries: &[Summary<'_>]) -> String {
    let line = |warning: &Warning| format!("! {}\n", warning.to_string().replace(char::is_control, "\u{fffd}"));
    warning::warnings(summaries).iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;
    use crate::outcome::{Outcome, Run};

    #[test]
    fn words_of_a_peer_are_no_commands_to_a_terminal() {
        let outcome =
            Outcome { errors: 1, first_error: Some("5.03: \u{1b}[2J\nevil".to_owned()), ..Outcome::default() };
        let run = Run { outcomes: vec![outcome; 5], ..Run::of(Experiment::default(), "a test".to_owned()) };
        let said = warnings(&[Summary::of(&run, "run".to_owned())]);
        assert!(said.contains("5.03: \u{fffd}[2J\u{fffd}evil\n") && !said.contains('\u{1b}'), "{said:?}");
        assert_eq!(said.lines().count(), 1, "{said:?}");
    }
}
