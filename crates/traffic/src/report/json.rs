//! JSON: everything that was counted, with whole histograms. The keys are those of [`crate::outcome`]; they are only
//! added to, so that a report of today is read by the versions to come.

use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::command;
use crate::outcome::Report;
use crate::text::{is_acted_on, plain};

/// The format that is written, and the newest that is read.
pub const VERSION: u32 = 1;

/// Why a file is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// It is something else.
    #[error("{}: no report of `fogmux bench`: {source}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The place and the fault.
        source: serde_json::Error,
    },
    /// A later fogmux has written it.
    #[error("{}: format {version} is newer than {VERSION}, the newest that this version reads", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        version: u32,
    },
}

/// Writes a report.
///
/// # Errors
/// The file cannot be written.
pub fn write(report: &Report, path: &Path) -> io::Result<()> {
    let mut text = serde_json::to_string(report)?;
    text.push('\n');
    super::write_private(path, &text)
}

/// Reads a report. Another may have written it: its text has no control characters then.
///
/// # Errors
/// It cannot be read, or is none.
pub fn read(path: &Path) -> Result<Report, ReadError> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let text = fogmux_file::read_to_string(path).map_err(|source| ReadError::File { path: path.to_owned(), source })?;
    let content = |source| ReadError::Content { path: path.to_owned(), source };
    // First, since the rest of a later format may be anything.
    let Version { version } = serde_json::from_str(&text).map_err(content)?;
    if version > VERSION {
        return Err(ReadError::Newer { path: path.to_owned(), version });
    }
    let report: Report = serde_json::from_str(&text).map_err(content)?;
    let mut report = if is_plain(&text) { report } else { cleaned(&report).map_err(content)? };
    report.command = command::redacted(&report.command);
    Ok(report)
}

/// Whether no string of a JSON text can contain a control character.
fn is_plain(text: &str) -> bool {
    !text.contains('\\') && !text.trim_end().contains(is_acted_on)
}

/// The same, as a report or a part of one, with text that has no control characters.
///
/// # Errors
/// It has a number that JSON has not.
pub(crate) fn cleaned<T: Serialize + DeserializeOwned>(of: &T) -> Result<T, serde_json::Error> {
    serde_json::from_value(clean(serde_json::to_value(of)?))
}

fn clean(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(plain(&text)),
        Value::Array(values) => Value::Array(values.into_iter().map(clean).collect()),
        Value::Object(members) => {
            Value::Object(members.into_iter().map(|(name, value)| (plain(&name), clean(value))).collect())
        }
        other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => other,
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;
    use crate::experiment::Experiment;
    use crate::measure::environment::Environment;
    use crate::outcome::{Outcome, Run};

    /// Clears the screen, sets a title, and begins to write red.
    const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;pwned\u{7}\u{9b}31mEVIL\n";

    fn report() -> Report {
        let hostile = || HOSTILE.to_owned();
        let outcome = Outcome {
            first_error: Some(hostile()),
            errors: 1,
            cipher: hostile(),
            settings: vec![hostile()],
            more: [(hostile(), 0.1)].into(),
            ..Outcome::default()
        };
        let mut run = Run::of(Experiment { topic: hostile(), ..Experiment::default() }, hostile());
        (run.name, run.problem, run.failed) = (Some(hostile()), Some(hostile()), vec![hostile()]);
        run.outcomes = vec![outcome];
        Report {
            version: VERSION,
            command: hostile(),
            began_unix_s: 7,
            resumed_unix_s: Vec::new(),
            environment: Environment::default(),
            gateway_environment: None,
            runs: vec![run],
            paper: None,
        }
    }

    #[test]
    fn a_report_of_others_moves_no_cursor() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("report.json");
        write(&report(), &path).unwrap();
        let read = read(&path).unwrap();
        let run = &read.runs[0];
        let outcome = &run.outcomes[0];
        let words = [&read.command, &run.target, &run.failed[0], &run.experiment.topic, &outcome.cipher];
        let others =
            [run.name.as_ref(), run.problem.as_ref(), outcome.first_error.as_ref(), outcome.more.keys().next()];
        for text in words.into_iter().chain(others.into_iter().flatten()).chain(&outcome.settings) {
            assert!(text.contains("EVIL") && !text.contains(char::is_control), "{text:?}");
        }
        assert_eq!(outcome.more.values().copied().collect::<Vec<_>>(), [0.1]);
        // Plain text is the same again.
        let path = place.path().join("again.json");
        write(&read, &path).unwrap();
        assert_eq!(super::read(&path).unwrap(), read);
    }

    #[test]
    fn what_is_no_file_is_not_waited_for() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.json");
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        assert!(matches!(read(&path), Err(ReadError::File { .. })));
    }
}
