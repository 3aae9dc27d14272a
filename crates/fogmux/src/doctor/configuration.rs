//! The configuration, as `fogmux check` reads it.

use std::path::Path;

use super::finding::Report;
use crate::check::{self, ReadError};
use crate::config::{Config, Problems};
use crate::modes::quoted;

/// Returns it if it is valid, with all files that it names.
pub(super) fn examine(file: Option<&Path>, directory: &Path, report: &mut Report) -> Option<Config> {
    let named = file.map_or_else(|| "the built-in defaults".to_owned(), |file| file.display().to_string());
    let mend = file.map(|file| format!("fogmux check {}", quoted(file))).unwrap_or_default();
    let mut refuse = |problems: Problems| {
        for problem in problems.0 {
            report.problem("configuration", problem.to_string(), mend.as_str());
        }
    };
    let config = match check::read(file, &[]) {
        Ok(config) => config,
        Err(ReadError::Problems(problems)) => {
            refuse(problems);
            return None;
        }
        Err(ReadError::Unreadable(failure)) => {
            report.problem("configuration", failure.message().unwrap_or_default(), mend);
            return None;
        }
    };
    let problems = check::problems_of_files(&config);
    if !problems.0.is_empty() {
        refuse(problems);
        return None;
    }
    report.ok("configuration", format!("{named}: valid"));
    for remark in check::remarks(&config, Some(directory)) {
        report.warning("configuration-remark", remark, "");
    }
    Some(config)
}
