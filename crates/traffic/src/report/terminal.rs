//! A table for a terminal: one line for each run, columns as thin as they can be, the most dispensable left out where
//! there is no room.

use super::number::Scale;
use super::summary::Summary;
use super::table::{self, Column};
use super::warning;

/// Between columns.
const GAP: &str = "  ";

/// Lines and columns of text, aligned: the first column to the left, others to the right.
#[derive(Debug, Default)]
pub struct Grid {
    rows: Vec<Vec<String>>,
}

impl Grid {
    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// As text, with a line below the head.
    #[must_use]
    pub fn text(&self) -> String {
        let widths = self.widths();
        let mut out = String::new();
        for (index, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let padding = " ".repeat(width.saturating_sub(columns_of(cell)));
                let (before, after) = if column == 0 { ("", padding.as_str()) } else { (padding.as_str(), "") };
                line.push_str(if column == 0 { "" } else { GAP });
                line.push_str(&format!("{before}{cell}{after}"));
            }
            out.push_str(line.trim_end());
            out.push('\n');
            if index == 0 {
                out.push_str(&"─".repeat(self.width()));
                out.push('\n');
            }
        }
        out
    }

    /// Columns of the terminal that it takes.
    #[must_use]
    pub fn width(&self) -> usize {
        let widths = self.widths();
        widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1)
    }

    fn widths(&self) -> Vec<usize> {
        let most = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(String::as_str).map(columns_of).max()
        };
        (0..most).map(|column| width(column).unwrap_or_default()).collect()
    }
}

/// Everything that is printed of these is one column wide.
fn columns_of(text: &str) -> usize {
    text.chars().count()
}

/// The runs in a table that is no wider than this, if that is possible.
#[must_use]
pub fn table(summaries: &[Summary<'_>], width: Option<usize>) -> String {
    let mut columns = table::columns(summaries);
    let mut left_out = 0;
    loop {
        let grid = grid(summaries, &columns);
        let fits = width.is_none_or(|width| grid.width() <= width);
        let most = columns.iter().map(|column| column.dispensable).max().unwrap_or_default();
        if fits || most == 0 {
            return grid.text() + &foot(summaries, left_out);
        }
        if let Some(last) = columns.iter().rposition(|column| column.dispensable == most) {
            columns.remove(last);
            left_out += 1;
        }
    }
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

/// The rate's interval is the one that readers compare by, so it stands beside it: as half its width in percent.
fn with_uncertainty(column: &Column, summary: &Summary<'_>) -> String {
    let cell = column.cell(summary);
    let Some(interval) = summary.get(column.figure).filter(|_| column.dispensable == 0) else { return cell };
    if !table::is_wide(interval) || interval.median <= 0.0 {
        return cell;
    }
    let percent = (interval.high - interval.low) / 2.0 / interval.median * 100.0;
    let percent = if percent < 1.0 { "<1".to_owned() } else { PERCENT.value(percent.round()) };
    format!("{cell} ±{percent}%")
}

const PERCENT: Scale = Scale { name: "%", divisor: 1.0 };

fn foot(summaries: &[Summary<'_>], left_out: usize) -> String {
    let fewest = summaries.iter().map(|summary| summary.used.len()).min().unwrap_or_default();
    let most = summaries.iter().map(|summary| summary.used.len()).max().unwrap_or_default();
    let repetitions = match (fewest, most) {
        (_, 0) => "Nothing was measured.".to_owned(),
        (1, 1) => "One repetition each.".to_owned(),
        (fewest, most) if fewest == most => format!("Medians of {most} repetitions, ± half of the 95 % interval."),
        (fewest, most) => format!("Medians of {fewest} to {most} repetitions, ± half of the 95 % interval."),
    };
    let more = match left_out {
        0 => String::new(),
        1 => "One more column is in the files.\n".to_owned(),
        more => format!("{more} more columns are in the files.\n"),
    };
    format!("{repetitions}\n{more}")
}

/// One line for each warning.
#[must_use]
pub fn warnings(summaries: &[Summary<'_>]) -> String {
    warning::warnings(summaries).iter().map(|warning| format!("! {warning}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_left_and_numbers_right() {
        let mut grid = Grid::default();
        grid.row(["", "µs", "rate"].map(str::to_owned).to_vec());
        grid.row(["coap", "1.5", "12"].map(str::to_owned).to_vec());
        grid.row(["mqtt5", "10.5", ""].map(str::to_owned).to_vec());
        assert_eq!(grid.text(), "         µs  rate\n─────────────────\ncoap    1.5    12\nmqtt5  10.5\n");
    }
}
