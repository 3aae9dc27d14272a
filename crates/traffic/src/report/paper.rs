//! A document's tables beside ours, and what becomes of its authors' conclusions: for a terminal and in Markdown.

use std::fmt::Write as _;

use super::grid::{Grid, wrapped};
use super::markdown::{self, Align};
use super::number::PLAIN;
use crate::measure::statistics::Interval;
use crate::paper::table::{Cell, ClaimResult, PaperResult, Printed, TableResult, Verdict};

/// The tables, then the claims, then how many of them hold, in lines of at most `width` columns.
#[must_use]
pub fn terminal(result: &PaperResult, width: Option<usize>) -> String {
    let mut out: String = cited(result).lines().map(|line| wrapped(line, "", width)).collect();
    out.push('\n');
    for table in &result.tables {
        out.push_str(&wrapped(&caption(table), "", width));
        let listed = Listed::of(table);
        let mut grid = Grid::default();
        grid.row(listed.head);
        listed.rows.into_iter().for_each(|row| grid.row(row));
        out.push_str(&grid.fit(width, &[]).text);
        for remark in numbered(&listed.remarks).chain(table.notes.iter().cloned()) {
            out.push_str(&wrapped(&remark, "  ", width));
        }
        out.push('\n');
    }
    for claim in &result.claims {
        let claimed = format!("{} {}: {} ({})", mark(claim.verdict), claim.id, claim.text, claim.place);
        out.push_str(&wrapped(&claimed, "", width));
        let found = format!("{}: {}{}", word(claim.verdict), claim.because, own_numbers(claim));
        out.push_str(&wrapped(&found, "  ", width));
    }
    out + &wrapped(&conclusion(result), "", width)
}

/// The same for a README.
#[must_use]
pub fn markdown(result: &PaperResult) -> String {
    let mut out = format!("## {}\n\n{}\n", markdown::escape(&result.title), markdown::escape(&cited(result)));
    for (what, text) in [("Setup in the paper", &result.setup), ("How this run differs", &result.differences)] {
        if !text.is_empty() {
            let _ = write!(out, "\n{what}: {}\n", markdown::escape(text));
        }
    }
    for table in &result.tables {
        let _ = write!(out, "\n### {}\n\n", markdown::escape(&caption(table)));
        let listed = Listed::of(table);
        out.push_str(&markdown::grid(&listed.head, &listed.rows, Align::Right));
        let remarks: Vec<String> = numbered(&listed.remarks).chain(table.notes.iter().cloned()).collect();
        for (index, remark) in remarks.iter().enumerate() {
            let _ = writeln!(out, "{}- {}", if index == 0 { "\n" } else { "" }, markdown::escape(remark));
        }
    }
    out.push_str("\n### Claims\n\n");
    let head = ["claim", "where", "here", "by", "the paper's own numbers"].map(str::to_owned);
    let row = |claim: &ClaimResult| {
        let because = claim.because.as_str();
        let cells = [claim.text.as_str(), &claim.place, word(claim.verdict), because, agreement(claim)];
        cells.map(str::to_owned).to_vec()
    };
    let rows: Vec<Vec<String>> = result.claims.iter().map(row).collect();
    let _ = write!(out, "{}\n{}", markdown::grid(&head, &rows, Align::Left), conclusion(result));
    out
}

/// One line for each cell of a table that has anything in it.
pub(crate) struct Listed {
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
    /// Said once each; rows refer to them by number, from 1.
    pub(crate) remarks: Vec<String>,
}

impl Listed {
    pub(crate) fn of(table: &TableResult) -> Self {
        let mut listed = Self { head: Vec::new(), rows: Vec::new(), remarks: Vec::new() };
        let computed = table.computed.then_some("formula");
        let titles = [Some(""), Some("paper"), computed, Some("here"), Some("ratio"), Some("")];
        listed.head = titles.into_iter().flatten().map(str::to_owned).collect();
        for (row, cells) in table.rows.iter().zip(&table.cells) {
            for (column, cell) in table.columns.iter().zip(cells) {
                listed.add(table, &format!("{row} / {column}"), cell);
            }
        }
        listed
    }

    fn add(&mut self, table: &TableResult, name: &str, cell: &Cell) {
        if cell.paper == Printed::Nothing && cell.measured.is_none() && cell.because.is_none() {
            return;
        }
        let unit =
            if cell.unit.is_empty() || cell.unit == table.unit { String::new() } else { format!(" {}", cell.unit) };
        let paper = format!("{}{unit}", printed(cell));
        let formula = table.computed.then(|| cell.computed.map(|value| PLAIN.value(value)).unwrap_or_default());
        let texts = [
            Some(name.to_owned()),
            Some(paper),
            formula,
            Some(measured(cell)),
            Some(ratio(cell)),
            Some(self.remark(cell)),
        ];
        self.rows.push(texts.into_iter().flatten().collect());
    }

    /// `=`, `≠`, and the number of what is to be said about it.
    pub(crate) fn remark(&mut self, cell: &Cell) -> String {
        let sign = match cell.exact {
            Some(true) => "=",
            Some(false) => "≠",
            None => "",
        };
        let Some(because) = &cell.because else { return sign.to_owned() };
        let known = self.remarks.iter().position(|remark| remark == because);
        let index = known.unwrap_or_else(|| {
            self.remarks.push(because.clone());
            self.remarks.len() - 1
        });
        format!("{sign} [{}]", index + 1).trim().to_owned()
    }
}

/// Each with the number by which rows refer to it.
pub(crate) fn numbered(remarks: &[String]) -> impl Iterator<Item = String> + '_ {
    remarks.iter().enumerate().map(|(index, remark)| format!("[{}] {remark}", index + 1))
}

/// Formats the document's value.
pub(crate) fn printed(cell: &Cell) -> String {
    match &cell.paper {
        Printed::Number(number) => {
            cell.spread.map_or_else(|| number.to_string(), |spread| format!("{number} ±{spread}"))
        }
        Printed::Words(words) => words.clone(),
        Printed::Nothing => "–".to_owned(),
    }
}

/// Formats the measured value with the digits that its interval supports.
pub(crate) fn measured(cell: &Cell) -> String {
    let Some(median) = cell.measured else { return "–".to_owned() };
    let interval = Interval { median, low: cell.low.unwrap_or(median), high: cell.high.unwrap_or(median) };
    PLAIN.median(&interval)
}

/// Ours to theirs.
pub(crate) fn ratio(cell: &Cell) -> String {
    cell.ratio().map(|ratio| format!("{}×", PLAIN.value(ratio))).unwrap_or_default()
}

/// `Table 6: … (§5.2), packets`.
pub(crate) fn caption(table: &TableResult) -> String {
    titled(&table.id, &table.title, &table.place, &table.unit)
}

/// The same of a table that was not run.
pub(crate) fn titled(id: &str, title: &str, place: &str, unit: &str) -> String {
    let number = id.strip_prefix("fig").map_or_else(|| format!("Table {id}"), |figure| format!("Figure {figure}"));
    let place = if place.is_empty() { String::new() } else { format!(" ({place})") };
    let unit = if unit.is_empty() { String::new() } else { format!(", in {unit}") };
    format!("{number}: {title}{place}{unit}")
}

/// Formats authors, year and source of the document, and the extent of the rerun.
pub(crate) fn cited(result: &PaperResult) -> String {
    let scale = if result.quick { "quick: fewer messages than the document's, " } else { "" };
    let times = if result.repetitions == 1 { "time" } else { "times" };
    format!(
        "{}: {} ({}). {}\n{scale}each experiment {} {times}",
        result.authors, result.title, result.year, result.source, result.repetitions
    )
}

/// In words.
pub(crate) fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::DoesNotHold => "does not hold",
        Verdict::CannotBeTested => "cannot be tested here",
        Verdict::Inconclusive => "inconclusive",
    }
}

/// In a sign.
pub(crate) fn mark(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "✓",
        Verdict::DoesNotHold => "✗",
        Verdict::CannotBeTested => "–",
        Verdict::Inconclusive => "?",
    }
}

/// Whether the document bears out what it says.
pub(crate) fn agreement(claim: &ClaimResult) -> &'static str {
    match claim.paper_agrees {
        Some(true) => "bear it out",
        Some(false) => "do not bear it out",
        None => "",
    }
}

fn own_numbers(claim: &ClaimResult) -> String {
    match agreement(claim) {
        "" => String::new(),
        agreement => format!("; the paper's own numbers {agreement}"),
    }
}

/// How many hold.
pub(crate) fn conclusion(result: &PaperResult) -> String {
    let count = |verdict| result.claims.iter().filter(|claim| claim.verdict == verdict).count();
    let inconclusive = match count(Verdict::Inconclusive) {
        0 => String::new(),
        count => format!(", {count} are inconclusive"),
    };
    format!(
        "{} claims: {} hold, {} do not, {} cannot be tested here{inconclusive}.\n",
        result.claims.len(),
        count(Verdict::Holds),
        count(Verdict::DoesNotHold),
        count(Verdict::CannotBeTested)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(paper: f64, measured: f64, exact: Option<bool>, because: Option<&str>) -> Cell {
        let (paper, measured) = (Printed::Number(paper), Some(measured));
        Cell { paper, measured, exact, because: because.map(str::to_owned), ..Cell::default() }
    }

    fn result() -> PaperResult {
        let table = TableResult {
            id: "6".to_owned(),
            title: "Packets".to_owned(),
            place: "§5".to_owned(),
            unit: "packets".to_owned(),
            rows: vec!["0 %".to_owned(), "5 %".to_owned()],
            columns: vec!["NOSEC".to_owned(), "PSK".to_owned()],
            cells: vec![
                vec![cell(2.0, 2.0, Some(true), None), cell(8.0, 10.0, Some(false), Some("two more of the handshake"))],
                vec![cell(2.5, 5.0, None, None), cell(9.0, 10.0, Some(false), Some("two more of the handshake"))],
            ],
            ..TableResult::default()
        };
        let claim = ClaimResult {
            id: "c1".to_owned(),
            text: "PSK | costs".to_owned(),
            place: "§6".to_owned(),
            verdict: Verdict::Holds,
            because: "8 > 2".to_owned(),
            paper_agrees: Some(true),
        };
        PaperResult {
            title: "T".to_owned(),
            repetitions: 5,
            tables: vec![table],
            claims: vec![claim],
            ..PaperResult::default()
        }
    }

    #[test]
    fn each_cell_has_a_line_and_each_difference_is_explained_once() {
        let text = terminal(&result(), None);
        assert!(text.contains("Table 6: Packets (§5), in packets\n"), "{text}");
        assert!(text.contains("0 % / NOSEC      2     2     1×      =\n"), "{text}");
        assert!(text.contains("0 % / PSK        8    10  1.25×  ≠ [1]\n"), "{text}");
        assert!(text.contains("5 % / NOSEC    2.5     5     2×\n"), "{text}");
        assert_eq!(text.matches("[1] two more of the handshake").count(), 1);
        assert!(
            text.contains("✓ c1: PSK | costs (§6)\n  holds: 8 > 2; the paper's own numbers bear it out\n"),
            "{text}"
        );
        assert!(text.ends_with("1 claims: 1 hold, 0 do not, 0 cannot be tested here.\n"), "{text}");
    }

    #[test]
    fn markdown_keeps_claims_in_their_cells() {
        assert!(
            markdown(&result()).contains("| PSK \\| costs | §6 | holds | 8 > 2 | bear it out |"),
            "{}",
            markdown(&result())
        );
    }
}
