//! A document's tables as it arranged them, each cell with ours beside it, and its authors' claims.

use std::fmt::Write as _;

use super::escape::escape;
use crate::paper::table::{Cell, ClaimResult, PaperResult, TableResult, Verdict};
use crate::report::paper::{self, Listed};

/// Writes the section.
pub(crate) fn write(out: &mut String, result: &PaperResult) {
    let _ = writeln!(
        out,
        "<section class=\"paper\"><h2>{}</h2><p class=\"caption\">{}</p>",
        escape(&result.title),
        escape(&paper::cited(result))
    );
    for (what, text) in [("Setup in the paper", &result.setup), ("How this run differs", &result.differences)] {
        if !text.is_empty() {
            let _ = writeln!(out, "<p><b>{what}.</b> {}</p>", escape(text));
        }
    }
    claims(out, result);
    result.tables.iter().for_each(|table| write_table(out, table));
    out.push_str("</section>\n");
}

fn claims(out: &mut String, result: &PaperResult) {
    if result.claims.is_empty() {
        return;
    }
    let _ = write!(out, "<h3>Claims</h3><p>{}</p><ul class=\"claims\">", escape(&paper::conclusion(result)));
    for claim in &result.claims {
        let own = match paper::agreement(claim) {
            "" => String::new(),
            agreement => format!(" The paper’s own numbers {agreement}."),
        };
        let _ = writeln!(
            out,
            "<li><span class=\"{}\">{}&#8239;{}</span> <b>{}</b> <span class=\"note\">{}</span><br><span class=\"note\">{}.{}</span></li>",
            class(claim),
            paper::mark(claim.verdict),
            paper::word(claim.verdict),
            escape(&claim.text),
            escape(&claim.place),
            escape(&claim.because),
            escape(&own)
        );
    }
    out.push_str("</ul>\n");
}

fn class(claim: &ClaimResult) -> &'static str {
    match claim.verdict {
        Verdict::Holds => "good",
        Verdict::DoesNotHold => "bad",
        Verdict::CannotBeTested | Verdict::Inconclusive => "untested",
    }
}

fn write_table(out: &mut String, table: &TableResult) {
    let mut remarks = Listed { head: Vec::new(), rows: Vec::new(), remarks: Vec::new() };
    let _ = write!(
        out,
        "<h3>{0}</h3><div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\"><table class=\"beside\"><thead><tr><th rowspan=\"2\"></th>",
        escape(&paper::caption(table))
    );
    let parts = if table.computed {
        "<th>paper</th><th>formula</th><th>here</th><th>ratio</th>"
    } else {
        "<th>paper</th><th>here</th><th>ratio</th>"
    };
    let span = if table.computed { 4 } else { 3 };
    for column in &table.columns {
        let _ = write!(out, "<th colspan=\"{span}\" scope=\"colgroup\">{}</th>", escape(column));
    }
    let _ = write!(out, "</tr><tr>{}</tr></thead><tbody>", parts.repeat(table.columns.len()));
    for (row, cells) in table.rows.iter().zip(&table.cells) {
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escape(row));
        cells.iter().for_each(|cell| write_cell(out, table, cell, &mut remarks));
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    let notes: Vec<String> = paper::numbered(&remarks.remarks).chain(table.notes.iter().cloned()).collect();
    if !notes.is_empty() {
        out.push_str("<ul class=\"note\">");
        notes.iter().for_each(|note| {
            let _ = write!(out, "<li>{}</li>", escape(note));
        });
        out.push_str("</ul>\n");
    }
}

fn write_cell(out: &mut String, table: &TableResult, cell: &Cell, remarks: &mut Listed) {
    let unit = if cell.unit.is_empty() || cell.unit == table.unit { String::new() } else { format!(" {}", cell.unit) };
    let _ = write!(out, "<td class=\"theirs\">{}<small>{}</small></td>", escape(&paper::printed(cell)), escape(&unit));
    if table.computed {
        let computed = cell.computed.map(|value| crate::report::number::PLAIN.value(value)).unwrap_or_default();
        let _ = write!(out, "<td>{}</td>", escape(&computed));
    }
    let remark = remarks.remark(cell);
    let _ = write!(
        out,
        "<td class=\"ours\">{}</td><td>{}<small>{}</small></td>",
        escape(&paper::measured(cell)),
        escape(&paper::ratio(cell)),
        escape(&remark)
    );
}
