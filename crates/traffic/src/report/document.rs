//! A document as it was published: its set-up, its tables as printed, and what its authors conclude, for a terminal.

use std::fmt::Write as _;

use super::grid::{Grid, wrapped};
use super::paper::titled;
use crate::paper::Paper;
use crate::paper::file::{Line, Table};
use crate::paper::table::Printed;

/// Columns of running text: longer lines are hard to read.
const WIDTH_MAX: usize = 100;
const INDENT: &str = "  ";

/// Everything that the file knows of it, for a terminal of `width` columns.
#[must_use]
pub fn terminal(paper: &Paper, width: Option<usize>) -> String {
    let head = &paper.head;
    let mut out = String::new();
    let lines = Some(width.map_or(WIDTH_MAX, |width| width.min(WIDTH_MAX)));
    let wrap = |out: &mut String, indent: &str, text: &str| out.push_str(&wrapped(text, indent, lines));
    wrap(&mut out, "", &format!("{}: {} ({}). {}", head.authors, head.title, head.year, head.source));
    for (name, text) in [
        ("Setup in the paper", Some(&head.setup)),
        ("How this run differs", Some(&head.differences)),
        ("From the paper", head.note.as_ref()),
    ] {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            let _ = writeln!(out, "\n{name}");
            wrap(&mut out, INDENT, text);
        }
    }
    for table in &paper.tables {
        out.push('\n');
        wrap(&mut out, "", &titled(&table.id, &table.title, &table.place, unit(&table.own)));
        out.push_str(&grid(table).fit(width, &[]).text);
        let lines = std::iter::once(&table.own).chain(&table.rows).chain(&table.columns);
        for line in lines {
            for (text, before) in [(&line.note, ""), (&line.not_here, "not here: ")] {
                let name = if line.name.is_empty() { String::new() } else { format!("{}: ", line.name) };
                if let Some(text) = text {
                    wrap(&mut out, INDENT, &format!("{name}{before}{text}"));
                }
            }
        }
    }
    let _ = writeln!(out, "\nClaims");
    for claim in &paper.claims {
        wrap(&mut out, INDENT, &format!("{}: {} ({})", claim.id, claim.text, claim.place));
        if let Some(note) = &claim.note {
            wrap(&mut out, "    ", note);
        }
    }
    out
}

fn unit(line: &Line) -> &str {
    line.unit.as_deref().unwrap_or_default()
}

/// The table with what is printed in it; where nothing is, a dash.
fn grid(table: &Table) -> Grid {
    let mut grid = Grid::default();
    grid.row(std::iter::once(String::new()).chain(table.columns.iter().map(named)).collect());
    for (at, row) in table.rows.iter().enumerate() {
        let cells = (0..table.columns.len()).map(|column| printed(table, at, column));
        grid.row(std::iter::once(named(row)).chain(cells).collect());
    }
    grid
}

fn named(line: &Line) -> String {
    match unit(line) {
        "" => line.name.clone(),
        unit => format!("{} ({unit})", line.name),
    }
}

fn printed(table: &Table, row: usize, column: usize) -> String {
    let spread = table.spread.get(row).and_then(|row| row.get(column)).and_then(Printed::number);
    match (table.printed(row, column), spread) {
        (Printed::Number(number), Some(spread)) => format!("{number} ±{spread}"),
        (Printed::Number(number), None) => number.to_string(),
        (Printed::Words(words), _) => words,
        (Printed::Nothing, _) => "–".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper;

    #[test]
    fn a_table_stands_as_it_was_printed() {
        let text = terminal(&paper::load("seoane2021").unwrap(), None);
        assert!(text.contains("\nTable 6: Number of CoAP packets and bytes exchanged (table 6, §5.1.1)\n"), "{text}");
        assert!(text.contains("   Packets (packets)  Bytes (bytes)\n"), "{text}");
        assert!(text.contains("\nB                  4            258\n"), "{text}");
    }

    #[test]
    fn every_document_has_every_table_and_claim() {
        for name in paper::NAMES {
            let paper = paper::load(name).unwrap();
            // Captions and claims are wrapped.
            let text = terminal(&paper, None).split_whitespace().collect::<Vec<_>>().join(" ");
            for table in &paper.tables {
                let caption = titled(&table.id, &table.title, &table.place, unit(&table.own));
                let caption = caption.split_whitespace().collect::<Vec<_>>().join(" ");
                assert!(text.contains(&caption), "{name}: {caption}");
            }
            for claim in &paper.claims {
                assert!(text.contains(&format!(" {}: ", claim.id)), "{name}: {}", claim.id);
            }
        }
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for name in paper::NAMES {
            let paper = paper::load(name).unwrap();
            for width in [60, 80, 132] {
                let text = terminal(&paper, Some(width));
                let long: Vec<_> = text.lines().filter(|line| line.chars().count() > width).collect();
                assert!(long.is_empty(), "{name} at {width}: {long:#?}");
            }
        }
    }
}
