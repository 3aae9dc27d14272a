//! The details that a reader needs to repeat a run: the machine, the command, all keys of all experiments, all
//! repetitions.

use std::fmt::Write as _;

use super::escape::escape;
use super::pairs;
use crate::outcome::{Outcome, Report};
use crate::report::figure::Figure;
use crate::report::label;
use crate::report::number::{Scale, moment};
use crate::report::summary::Summary;

/// The figures of a repetition that are shown. The CSV has all of them.
const SHOWN: [Figure; 6] =
    [Figure::Rate, Figure::LatencyP50, Figure::LatencyP99, Figure::LatencyMax, Figure::Lost, Figure::GatewayCpu];

/// Writes the section.
pub(crate) fn write(out: &mut String, report: &Report, summaries: &[Summary<'_>]) {
    out.push_str("<section><h2>Details</h2><h3>Machine</h3>");
    pairs(out, &label::pairs(&report.environment));
    if let Some(environment) = &report.gateway_environment {
        out.push_str("<h3>The gateway's machine</h3>");
        pairs(out, &label::pairs(environment));
    }
    let _ = writeln!(out, "<h3>Command</h3><p><code>{}</code></p><h3>Experiments</h3>", escape(&report.command));
    for summary in summaries {
        experiment(out, summary);
    }
    out.push_str("</section>\n");
}

fn experiment(out: &mut String, summary: &Summary<'_>) {
    let _ = write!(out, "<details class=\"experiment\"><summary>{}</summary>", escape(&summary.label));
    if let Some(problem) = &summary.run.problem {
        let _ = write!(out, "<p class=\"problem\">{}</p>", escape(problem));
    }
    let mut keys = label::keys(summary.run);
    if let Some(cipher) = summary.run.outcomes.iter().map(|outcome| &outcome.cipher).find(|cipher| !cipher.is_empty()) {
        keys.insert("cipher".to_owned(), cipher.clone());
    }
    if let Some(outcome) = summary.run.outcomes.first()
        && let Some(hash) = outcome.configuration_sha256()
    {
        keys.insert("settings".to_owned(), outcome.settings.join(", "));
        keys.insert("configuration_sha256".to_owned(), hash);
    }
    pairs(out, &keys);
    repetitions(out, summary);
    out.push_str("</details>\n");
}

fn repetitions(out: &mut String, summary: &Summary<'_>) {
    if summary.run.outcomes.is_empty() {
        return;
    }
    let scales = SHOWN.map(|figure| (figure, figure.meaning().unit.scale(values(summary, figure))));
    out.push_str("<div class=\"scroll\"><table><thead><tr><th scope=\"col\">repetition</th><th scope=\"col\">began</th><th scope=\"col\">sent</th><th scope=\"col\">seconds</th>");
    for (figure, scale) in scales {
        let _ = write!(
            out,
            "<th scope=\"col\">{}<small>{}</small></th>",
            escape(figure.meaning().title),
            escape(scale.name)
        );
    }
    out.push_str("<th scope=\"col\"></th></tr></thead><tbody>");
    for (index, outcome) in summary.run.outcomes.iter().enumerate() {
        let _ = write!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{:.2}</td>",
            index + 1,
            outcome.began_unix_ms.map(|began| moment(began / 1_000)).unwrap_or_default(),
            outcome.sent,
            outcome.seconds
        );
        for (figure, scale) in scales {
            let _ = write!(out, "<td>{}</td>", escape(&cell(summary, outcome, figure, scale)));
        }
        let remark = outcome.limited_by_generator.as_deref().map(|why| format!("left out: {why}"));
        let _ = write!(out, "<td class=\"words\">{}</td></tr>", escape(&remark.unwrap_or_default()));
    }
    out.push_str("</tbody></table></div>");
}

fn values(summary: &Summary<'_>, figure: Figure) -> Vec<f64> {
    summary.run.outcomes.iter().filter_map(|outcome| figure.of(&summary.run.experiment, outcome)).collect()
}

fn cell(summary: &Summary<'_>, outcome: &Outcome, figure: Figure, scale: Scale) -> String {
    figure.of(&summary.run.experiment, outcome).map(|value| scale.value(value)).unwrap_or_default()
}
