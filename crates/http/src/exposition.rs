//! The text formats of metrics: OpenMetrics 1.0 and Prometheus' own, version 0.0.4.
//!
//! A client without a preference gets version 0.0.4, as from the exporters of Prometheus; Prometheus itself asks for
//! OpenMetrics.

use std::fmt::Write as _;

use crate::accept;

const OPENMETRICS: &str = "application/openmetrics-text";
const TEXT: &str = "text/plain";

/// A text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' text format, version 0.0.4.
    Text,
}

impl Format {
    /// The format for these `Accept` lines. OpenMetrics has to be asked for by name; a client that accepts neither gets
    /// [`Format::Text`].
    #[must_use]
    pub fn choose<'a>(lines: impl Iterator<Item = &'a str>) -> Self {
        let lines: Vec<&str> = lines.collect();
        let quality = |media_type| accept::quality(lines.iter().copied(), media_type);
        let mut ranges = lines.iter().flat_map(|line| line.split(','));
        let named = ranges.any(|range| accept::essence(range).eq_ignore_ascii_case(OPENMETRICS));
        let preferred = quality(OPENMETRICS) > 0 && quality(OPENMETRICS) >= quality(TEXT);
        if named && preferred { Self::OpenMetrics } else { Self::Text }
    }

    /// The value of `Content-Type`.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Converts OpenMetrics text to version 0.0.4, in which a counter is described under the name of its samples, with
/// `_total`, and neither units nor `# EOF` exist.
#[must_use]
pub fn text(openmetrics: &str) -> String {
    let mut out = String::with_capacity(openmetrics.len() + 1024);
    let mut help = None;
    for line in openmetrics.lines() {
        let Some(described) = line.strip_prefix("# ") else {
            out.push_str(line);
            out.push('\n');
            continue;
        };
        let mut words = described.splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("HELP"), Some(_), Some(text)) => help = Some(text),
            (Some("TYPE"), Some(name), Some(kind)) => {
                let (suffix, kind) = match kind {
                    "counter" => ("_total", kind),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    _ => ("", kind),
                };
                // Writing to a `String` cannot fail.
                if let Some(help) = help.take() {
                    let _ = writeln!(out, "# HELP {name}{suffix} {help}");
                }
                let _ = writeln!(out, "# TYPE {name}{suffix} {kind}");
            }
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_for_who_asks_for_it() {
        let choose = |lines: &[&'static str]| Format::choose(lines.iter().copied());
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;\
                          version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        assert_eq!(choose(&[prometheus]), Format::OpenMetrics);
        assert_eq!(choose(&["application/openmetrics-text"]), Format::OpenMetrics);
        assert_eq!(choose(&["application/openmetrics-text, text/plain"]), Format::OpenMetrics);
        assert_eq!(choose(&["application/openmetrics-text;q=0.1, text/plain;q=0.5"]), Format::Text);
        assert_eq!(choose(&["application/openmetrics-text;q=0"]), Format::Text);
        for text in [&[][..], &["*/*"], &["text/plain;version=0.0.4"], &["text/html"], &["text/html, */*;q=0.8"]] {
            assert_eq!(choose(text), Format::Text, "{text:?}");
        }
    }

    #[test]
    fn a_counter_is_described_by_the_name_of_its_samples() {
        let openmetrics = "# HELP a_read_bytes Bytes read.\n# TYPE a_read_bytes counter\n# UNIT a_read_bytes bytes\n\
                           a_read_bytes_total{door=\"x\"} 1\n# HELP b Things.\n# TYPE b gauge\nb 2\n# EOF\n";
        let expected = "# HELP a_read_bytes_total Bytes read.\n# TYPE a_read_bytes_total counter\n\
                        a_read_bytes_total{door=\"x\"} 1\n# HELP b Things.\n# TYPE b gauge\nb 2\n";
        assert_eq!(text(openmetrics), expected);
    }
}
