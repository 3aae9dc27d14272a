//! One HTML file that needs nothing else: no network, no script. Plots are drawings within the page.
//!
//! Everything that came from elsewhere – commands, answers of peers, names of targets – goes through
//! `escape`, and the page's own policy forbids it to load or run anything.

pub(crate) mod axis;
pub(crate) mod bars;
mod details;
pub(crate) mod escape;
mod legend;
pub(crate) mod lines;
mod panels;
mod paper;
mod plots;
mod ramp;
pub(crate) mod svg;

use std::fmt::Write as _;

use escape::escape;
use plots::Plots;
use svg::Svg;

use super::best;
use super::label::{self, Varying};
use super::number::{duration, moment};
use super::slices;
use super::summary::Summary;
use super::table;
use super::warning;
use crate::outcome::Report;

const STYLE: &str = include_str!("html/page.css");
/// Plots of one kind that stand open; more of them are a click away, and on paper.
const PANELS_OPEN: usize = 6;

/// The page.
#[must_use]
pub fn document(report: &Report, summaries: &[Summary<'_>]) -> String {
    let varying = Varying::among(&report.runs);
    let mut body = String::new();
    header(&mut body, report, summaries);
    warnings(&mut body, summaries);
    if let Some(result) = &report.paper {
        paper::write(&mut body, result);
    }
    results(&mut body, summaries);
    best_doors(&mut body, summaries);
    ramps(&mut body, summaries);
    for (index, plots) in plots::all(summaries, &varying).iter().enumerate() {
        figure(&mut body, index + 1, plots);
    }
    body.push_str(METHOD);
    details::write(&mut body, report, summaries);
    page(&format!("fogmux bench, {}", moment(report.began_unix_s)), &body)
}

/// The plots of a page as files of their own, by name.
#[must_use]
pub fn drawings(report: &Report, summaries: &[Summary<'_>]) -> Vec<(String, String)> {
    let varying = Varying::among(&report.runs);
    let plots = plots::all(summaries, &varying);
    let files = plots.iter().flat_map(|plots| {
        let name = |(index, _): (usize, &Svg)| format!("{}-{}", plots.id, index + 1);
        plots.panels.iter().enumerate().map(move |panel| (name(panel), panel.1.file()))
    });
    files.collect()
}

/// A page around this body.
pub(crate) fn page(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\
         <link rel=\"icon\" href=\"data:,\"><title>{title}</title>\n<style>{STYLE}\n{}</style></head>\n<body><main>\n{body}</main></body></html>\n",
        svg::STYLE
    )
}

fn header(out: &mut String, report: &Report, summaries: &[Summary<'_>]) {
    let measured: f64 = report.runs.iter().flat_map(|run| &run.outcomes).map(|outcome| outcome.seconds).sum();
    let repetitions: usize = report.runs.iter().map(|run| run.outcomes.len()).sum();
    let mut targets: Vec<&str> = report.runs.iter().map(|run| run.target.as_str()).collect();
    targets.dedup();
    let facts = [
        ("target", targets.join(", ")),
        ("began", moment(report.began_unix_s)),
        ("experiments", summaries.len().to_string()),
        ("repetitions", repetitions.to_string()),
        ("measured", duration(measured)),
    ];
    let _ = writeln!(
        out,
        "<header><h1>fogmux bench</h1><p class=\"command\"><code>{}</code></p><dl class=\"facts\">",
        escape(&report.command)
    );
    for (name, value) in facts {
        let _ = write!(out, "<div><dt>{name}</dt><dd>{}</dd></div>", escape(&value));
    }
    out.push_str("</dl></header>\n");
}

fn warnings(out: &mut String, summaries: &[Summary<'_>]) {
    let all = warning::warnings(summaries);
    if all.is_empty() {
        return;
    }
    out.push_str("<section class=\"warnings\" aria-label=\"Warnings\"><h2>Before you believe it</h2><ul>");
    for warning in all {
        let run = warning.run.map(|run| format!("<b>{}</b>: ", escape(&run))).unwrap_or_default();
        let _ = write!(out, "<li>{run}{}</li>", escape(&warning.text));
    }
    out.push_str("</ul></section>\n");
}

fn results(out: &mut String, summaries: &[Summary<'_>]) {
    let columns = table::columns(summaries);
    out.push_str(
        "<section class=\"wide\"><h2>Results</h2><p class=\"caption\">Medians of the repetitions; below them the 95 % interval.</p>\
         <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Results\"><table class=\"results\"><thead><tr><th scope=\"col\">experiment</th>",
    );
    for column in &columns {
        let _ = write!(
            out,
            "<th scope=\"col\">{}<small>{}</small></th>",
            escape(column.figure.meaning().title),
            escape(column.scale.name)
        );
    }
    out.push_str("</tr></thead><tbody>\n");
    for summary in summaries {
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escape(&summary.label));
        for column in &columns {
            let range = column.range(summary).map(|range| format!("<small>{}</small>", escape(&range)));
            let _ = write!(out, "<td>{}{}</td>", escape(&column.cell(summary)), range.unwrap_or_default());
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div></section>\n");
}

fn best_doors(out: &mut String, summaries: &[Summary<'_>]) {
    let all = best::best(summaries);
    if all.is_empty() {
        return;
    }
    let (head, rows) = best::table(&all);
    let caption = escape(best::CAPTION);
    let _ = write!(out, "<section class=\"wide\" id=\"best\"><h2>Best doors</h2><p class=\"caption\">{caption}</p>");
    grid(out, &head, &rows);
    out.push_str("</section>\n");
}

fn ramps(out: &mut String, summaries: &[Summary<'_>]) {
    for (title, head, lines) in slices::all(summaries) {
        let _ = write!(out, "<section class=\"wide\"><h2>Ramp</h2><p class=\"caption\">{}</p>", escape(&title));
        grid(out, &head, &lines);
        out.push_str("</section>\n");
    }
}

/// A table whose first column names its rows.
pub(crate) fn grid(out: &mut String, head: &[String], lines: &[Vec<String>]) {
    out.push_str("<div class=\"scroll\" tabindex=\"0\"><table class=\"results\"><thead><tr>");
    head.iter().for_each(|title| out.push_str(&format!("<th scope=\"col\">{}</th>", escape(title))));
    out.push_str("</tr></thead><tbody>\n");
    for line in lines {
        out.push_str("<tr>");
        for (column, cell) in line.iter().enumerate() {
            let (open, close) = if column == 0 { ("th scope=\"row\"", "th") } else { ("td", "td") };
            let _ = write!(out, "<{open}>{}</{close}>", escape(cell));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>");
}

fn figure(out: &mut String, number: usize, plots: &Plots) {
    let _ = writeln!(
        out,
        "<section id=\"{}\"><h2>{}</h2><p class=\"caption\"><b>Figure {number}.</b> {}</p><div class=\"panels\">",
        plots.id,
        escape(plots.title),
        escape(&plots.caption)
    );
    let (open, more) = plots.panels.split_at(plots.panels.len().min(PANELS_OPEN));
    open.iter().for_each(|panel| draw(out, panel));
    out.push_str("</div>");
    if !more.is_empty() {
        let _ = write!(out, "<details><summary>{} more</summary><div class=\"panels\">", more.len());
        more.iter().for_each(|panel| draw(out, panel));
        out.push_str("</div></details>");
    }
    out.push_str("</section>\n");
}

pub(crate) fn draw(out: &mut String, panel: &Svg) {
    let _ = writeln!(out, "<figure>{}</figure>", panel.inline());
}

/// A table of names and values.
pub(crate) fn pairs(out: &mut String, pairs: &label::Keys) {
    out.push_str("<dl class=\"keys\">");
    for (key, value) in pairs {
        let _ = write!(out, "<div><dt>{}</dt><dd>{}</dd></div>", escape(key), escape(value));
    }
    out.push_str("</dl>");
}

const METHOD: &str = "<section><h2>How to read this</h2>\
<p>A message counts where a subscriber received it; where nobody subscribes, where its operation was answered. All figures \
per message divide by that number. Latency begins when a message was <em>due</em>, not when there was time to send it: a \
gateway that stalls cannot hide the messages that it kept from being sent. Warm-up is not part of any figure, and neither is \
connecting, which has figures of its own.</p>\
<p>Each value is the median over repetitions that were run in turns with those of the other experiments, so that a slow minute \
of the machine touches all alike. Its interval of 95 % is one of order statistics, wider than these for fewer than six \
repetitions. Repetitions in which the generator itself set the pace are left out and named above. Only rows of equal semantics should be compared: QoS 1, a Confirmable message, an awaited \
2xx and the result of an IQ.</p></section>\n";
