//! CSV (RFC 4180): one line for each repetition, for programs that compute their own statistics.

use std::collections::BTreeSet;

use super::figure::Figure;
use super::label::{self, Keys};
use crate::outcome::{Outcome, Run};

type Count = fn(&Outcome) -> u64;

/// Columns that are counts of the repetition itself, in this order before the figures.
const COUNTS: [(&str, Count); 8] = [
    ("sent", |outcome| outcome.sent),
    ("acknowledged", |outcome| outcome.acknowledged),
    ("expected", |outcome| outcome.expected),
    ("delivered", |outcome| outcome.delivered),
    ("conflated", |outcome| outcome.conflated),
    ("disconnects", |outcome| outcome.disconnects),
    ("socket_bytes_up", |outcome| outcome.bytes.socket_up),
    ("socket_bytes_down", |outcome| outcome.bytes.socket_down),
];

/// All repetitions; a column without a value is empty.
#[must_use]
pub fn table(runs: &[Run]) -> String {
    let keys: Vec<Keys> = runs.iter().map(label::keys).collect();
    let names: BTreeSet<&str> = keys.iter().flat_map(|keys| keys.keys().map(String::as_str)).collect();
    let more: BTreeSet<&str> =
        runs.iter().flat_map(|run| &run.outcomes).flat_map(|outcome| outcome.more.keys().map(String::as_str)).collect();
    let head = ["run", "repetition"]
        .into_iter()
        .chain(names.iter().copied())
        .chain(["began_unix_ms", "gateway_affinity", "configuration_sha256", "cipher", "measured_seconds"])
        .chain(COUNTS.map(|(name, _)| name))
        .chain(Figure::ALL.map(|figure| figure.meaning().key))
        .chain(["others_cpu_s", "limited_by_generator", "first_error"])
        .chain(more.iter().copied());
    let mut out = line(head);
    for (index, (run, keys)) in runs.iter().zip(&keys).enumerate() {
        for (repetition, outcome) in run.outcomes.iter().enumerate() {
            let mut fields = vec![(index + 1).to_string(), (repetition + 1).to_string()];
            fields.extend(names.iter().map(|name| keys.get(*name).cloned().unwrap_or_default()));
            fields.extend(measured(run, outcome));
            fields.extend(more.iter().map(|name| number(outcome.more.get(*name).copied())));
            out.push_str(&line(fields.iter().map(String::as_str)));
        }
    }
    out
}

fn measured(run: &Run, outcome: &Outcome) -> Vec<String> {
    let configuration = outcome.configuration_sha256().unwrap_or_default();
    let began = outcome.began_unix_ms.map(|began| began.to_string()).unwrap_or_default();
    let affinity = outcome.gateway_affinity.clone().unwrap_or_default();
    let mut fields = vec![began, affinity, configuration, outcome.cipher.clone(), outcome.seconds.to_string()];
    fields.extend(COUNTS.map(|(_, count)| count(outcome).to_string()));
    fields.extend(Figure::ALL.map(|figure| number(figure.of(&run.experiment, outcome))));
    fields.push(outcome.others_cpu_s.to_string());
    fields.push(outcome.limited_by_generator.clone().unwrap_or_default());
    fields.push(outcome.first_error.clone().unwrap_or_default());
    fields
}

fn number(value: Option<f64>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

fn line<'a>(fields: impl IntoIterator<Item = &'a str>) -> String {
    let mut line = fields.into_iter().map(quoted).collect::<Vec<_>>().join(",");
    line.push_str("\r\n");
    line
}

/// RFC 4180 §2, rules 5 to 7. A field that a spreadsheet would take for a formula is text: what a peer answered is in
/// `first_error`.
fn quoted(field: &str) -> String {
    let is_formula = field.starts_with(['=', '+', '-', '@', '\t']) && field.parse::<f64>().is_err();
    let guard = if is_formula { "'" } else { "" };
    if is_formula || field.contains([',', '"', '\r', '\n']) {
        format!("\"{guard}{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_commas_quotes_and_lines_are_quoted() {
        assert_eq!(line(["a", "b,c", "d\"e", "f\ng", ""]), "a,\"b,c\",\"d\"\"e\",\"f\ng\",\r\n");
    }

    #[test]
    fn what_a_peer_says_is_no_formula() {
        assert_eq!(quoted("=HYPERLINK(\"x\")"), "\"'=HYPERLINK(\"\"x\"\")\"");
        assert_eq!(quoted("-1.5"), "-1.5");
    }
}
