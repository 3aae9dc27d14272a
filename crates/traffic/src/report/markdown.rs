//! Markdown tables, for a README.

use std::fmt::Write as _;

use super::best;
use super::label;
use super::number::moment;
use super::slices;
use super::summary::Summary;
use super::table::{self, Column};
use super::warning;
use crate::outcome::Report;

/// The whole report: table, doubts, machine.
#[must_use]
pub fn document(report: &Report, summaries: &[Summary<'_>]) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "`{}`, {}\n", report.command.replace('`', "'"), moment(report.began_unix_s));
    if let Some(result) = &report.paper {
        let _ = writeln!(out, "{}", super::paper::markdown(result));
    }
    out.push_str(&results(summaries));
    out.push_str(&best::markdown(summaries));
    out.push_str(&slices::markdown(summaries));
    let warnings = warning::warnings(summaries);
    if !warnings.is_empty() {
        out.push('\n');
        for warning in warnings {
            let _ = writeln!(out, "- {}", escape(&warning.to_string()));
        }
    }
    let machines = [("machine", Some(&report.environment)), ("gateway's machine", report.gateway_environment.as_ref())];
    for (name, environment) in machines {
        let facts = environment.map(label::pairs).unwrap_or_default();
        if !facts.is_empty() {
            let rows = facts.iter().map(|(key, value)| vec![key.clone(), value.clone()]).collect::<Vec<_>>();
            let _ = write!(out, "\n{}", grid(&[name.to_owned(), String::new()], &rows, Align::Left));
        }
    }
    out
}

/// The table of the runs: medians with their 95 % intervals.
#[must_use]
pub fn results(summaries: &[Summary<'_>]) -> String {
    let columns = table::columns(summaries);
    let head: Vec<String> = std::iter::once(String::new()).chain(columns.iter().map(Column::head)).collect();
    let row = |summary: &Summary<'_>| {
        let cells = columns.iter().map(|column| match column.range(summary) {
            Some(range) => format!("{} ({range})", column.cell(summary)),
            None => column.cell(summary),
        });
        std::iter::once(summary.label.clone()).chain(cells).collect::<Vec<_>>()
    };
    grid(&head, &summaries.iter().map(row).collect::<Vec<_>>(), Align::Right)
}

/// How columns but the first are aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// For words.
    Left,
    /// For numbers.
    Right,
}

/// A table of any cells.
pub(crate) fn grid(head: &[String], rows: &[Vec<String>], align: Align) -> String {
    let mut out = line(head);
    let rule = match align {
        Align::Left => "---",
        Align::Right => "---:",
    };
    let rules = head.iter().enumerate().map(|(column, _)| if column == 0 { "---" } else { rule });
    let _ = writeln!(out, "|{}|", rules.collect::<Vec<_>>().join("|"));
    rows.iter().for_each(|row| out.push_str(&line(row)));
    out
}

fn line(cells: &[String]) -> String {
    format!("| {} |\n", cells.iter().map(|cell| escape(cell)).collect::<Vec<_>>().join(" | "))
}

/// Escapes text of a peer, so that it contains no markup and does not end the cell.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\r' | '\n' => out.push(' '),
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            '|' | '`' | '*' | '[' | ']' | '\\' | '_' | '~' => {
                out.push('\\');
                out.push(character);
            }
            _ => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_cannot_leave_its_place() {
        let rows = [vec!["a|b".to_owned(), "<b>\n".to_owned()]];
        let text = grid(&["x".to_owned(), "y".to_owned()], &rows, Align::Right);
        assert_eq!(text, "| x | y |\n|---|---:|\n| a\\|b | &lt;b>  |\n");
    }
}
