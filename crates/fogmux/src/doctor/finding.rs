//! Findings of an examination, each with a name that stays the same from version to version and the command that mends
//! it.

use serde_json::{Value, json};

use crate::terminal::is_hidden;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// As it should be.
    Ok,
    /// It could not be found out: no permission, or another kind of system.
    Unknown,
    /// It works, and may not for long, or grants more than intended.
    Warning,
    /// Something does not work.
    Problem,
}

impl Level {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// The names of all findings; `docs/operating/doctor.md` explains each.
pub(super) const NAMES: [&str; 35] = [
    "configuration",
    "configuration-remark",
    "data-directory",
    "gateway",
    "gateway-not-ready",
    "listener",
    "link-down",
    "listener-not-open",
    "listener-address",
    "listener-port",
    "listener-privileged",
    "listener-exposed",
    "access",
    "files-kind",
    "files-open",
    "files-owner",
    "files-left",
    "certificate",
    "authority",
    "certificate-key",
    "acme-certificate",
    "acme-failure",
    "revocation-list",
    "waits-for-clock",
    "clock",
    "clock-synchronised",
    "disk-space",
    "disk-read-only",
    "disk-errors",
    "disk-wear",
    "store-losses",
    "udp-buffers",
    "open-files",
    "memory",
    "raspberry-pi",
];

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) name: &'static str,
    pub(super) level: Level,
    /// One sentence, or clause.
    pub(super) text: String,
    /// A command, or what to change.
    pub(super) mend: Option<String>,
}

/// Makes a word of others harmless that is to be shown on one line: the name of a file or of a process.
pub(super) fn printable(word: &str) -> String {
    word.chars().flat_map(|c| if is_hidden(c) { c.escape_default().collect() } else { vec![c] }).collect()
}

/// Control characters would let what other users have named move the cursor of root's terminal, or worse. Line feeds
/// are between sentences of ours.
fn without_controls(text: &str) -> String {
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}

/// All findings, in the order of the examination.
#[derive(Debug, Default)]
pub(super) struct Report(pub(super) Vec<Finding>);

impl Report {
    pub(super) fn ok(&mut self, name: &'static str, text: impl Into<String>) {
        self.add(name, Level::Ok, text.into(), None);
    }

    pub(super) fn unknown(&mut self, name: &'static str, text: impl Into<String>) {
        self.add(name, Level::Unknown, text.into(), None);
    }

    pub(super) fn warning(&mut self, name: &'static str, text: impl Into<String>, mend: impl Into<String>) {
        self.add(name, Level::Warning, text.into(), Some(mend.into()));
    }

    pub(super) fn problem(&mut self, name: &'static str, text: impl Into<String>, mend: impl Into<String>) {
        self.add(name, Level::Problem, text.into(), Some(mend.into()));
    }

    fn add(&mut self, name: &'static str, level: Level, text: String, mend: Option<String>) {
        debug_assert!(NAMES.contains(&name), "{name} is not in the list");
        let mend = mend.filter(|mend| !mend.is_empty()).map(|mend| without_controls(&mend));
        self.0.push(Finding { name, level, text: without_controls(&text), mend });
    }

    /// The worst level; `Ok` without findings.
    pub(super) fn worst(&self) -> Level {
        self.0.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok)
    }

    /// Whether one of this name is a problem.
    pub(super) fn has_problem(&self, name: &str) -> bool {
        self.0.iter().any(|finding| finding.name == name && finding.level == Level::Problem)
    }

    /// `LEVEL  NAME  TEXT`, the worst at the end, where a terminal shows it; the command that mends on a second line.
    pub(super) fn text(&self) -> String {
        let mut sorted: Vec<&Finding> = self.0.iter().collect();
        sorted.sort_by_key(|finding| finding.level);
        let mut text = String::new();
        for Finding { name, level, text: said, mend } in sorted {
            text += &format!("{:<8} {name:<21} {said}\n", level.name());
            if let Some(mend) = mend {
                text += &format!("{:>30} {mend}\n", "->");
            }
        }
        let count = |level| self.0.iter().filter(|finding| finding.level == level).count();
        let plural = |number: usize, word: &str| format!("{number} {word}{}", if number == 1 { "" } else { "s" });
        text += &format!(
            "{}, {}, {} could not be examined\n",
            plural(count(Level::Problem), "problem"),
            plural(count(Level::Warning), "warning"),
            count(Level::Unknown)
        );
        text
    }

    pub(super) fn json(&self) -> Value {
        let findings: Vec<Value> = self
            .0
            .iter()
            .map(|Finding { name, level, text, mend }| {
                json!({"name": name, "level": level.name(), "text": text, "mend": mend})
            })
            .collect();
        json!({"level": self.worst().name(), "findings": findings})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_explains_every_name_and_no_other() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operating/doctor.md");
        let text = std::fs::read_to_string(file).unwrap();
        let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
        let explained: Vec<&str> = rows.map(|(name, _)| name).filter(|name| !name.starts_with('-')).collect();
        assert_eq!(explained, NAMES);
    }

    #[test]
    fn names_that_others_have_chosen_give_a_terminal_no_orders() {
        let mut report = Report::default();
        report.problem("listener-port", "taken by \u{1b}]0;owned\u{7}\r", "ls -l a\u{9b}2Jb");
        assert_eq!(printable("a\nok b"), "a\\nok b");
        let text = report.text() + &report.json().to_string();
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
        assert!(text.contains("\\u{1b}]0;owned"), "{text:?}");
    }

    #[test]
    fn the_worst_is_at_the_end_and_counts() {
        let mut report = Report::default();
        assert_eq!(report.worst(), Level::Ok);
        report.problem("clock", "wrong", "date");
        report.ok("disk-space", "enough");
        assert_eq!(report.worst(), Level::Problem);
        let text = report.text();
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("ok") && lines[1].starts_with("problem") && lines[2].ends_with("-> date"));
        assert_eq!(lines[3], "1 problem, 0 warnings, 0 could not be examined");
    }

    #[test]
    fn characters_that_are_not_seen_are_spelt_out() {
        assert_eq!(printable("a\u{1b}[2J\u{202e}b\u{200b}\u{e9}"), "a\\u{1b}[2J\\u{202e}b\\u{200b}\u{e9}");
    }
}
