//! A problem of a configuration, with its place, the value found and the values accepted. Problems are collected and
//! reported together.

use std::fmt;
use std::path::{Path, PathBuf};

/// A place in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    /// The file as the operator named it.
    pub(crate) file: PathBuf,
    /// Counted from one; zero for the file as a whole.
    pub(crate) line: usize,
}

/// One error to correct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// `None` for a value that no file set, such as a clash of built-in defaults.
    pub(crate) location: Option<Location>,
    /// Dotted, as `listeners.mqtt.address`; empty when the file could not be read as TOML.
    pub(crate) key: String,
    /// The value found.
    pub(crate) found: String,
    /// The values accepted.
    pub(crate) accepted: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.location {
            Some(at) if at.line == 0 => write!(f, "{}: ", at.file.display())?,
            Some(at) => write!(f, "{}:{}: ", at.file.display(), at.line)?,
            None => write!(f, "built-in default: ")?,
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "{}", self.found)?;
        if !self.accepted.is_empty() {
            write!(f, "; accepted: {}", self.accepted)?;
        }
        Ok(())
    }
}

impl Problem {
    /// The problem as JSON, for `check --json`.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "file": self.location.as_ref().map(|at| at.file.display().to_string()),
            "line": self.location.as_ref().map(|at| at.line),
            "key": self.key,
            "found": self.found,
            "accepted": self.accepted,
        })
    }
}

/// Every problem of a configuration, in the order of the files and lines.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) struct Problems(pub(crate) Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

/// A configuration text and its origin.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// The name given in problems.
    pub(crate) file: PathBuf,
    /// The TOML.
    pub(crate) text: String,
}

impl Source {
    /// Creates a source from text in memory.
    pub(crate) fn new(file: impl AsRef<Path>, text: impl Into<String>) -> Self {
        Self { file: file.as_ref().to_owned(), text: text.into() }
    }

    /// Returns the location of the byte `offset`.
    pub(crate) fn location(&self, offset: usize) -> Location {
        let before = self.text.as_bytes().iter().take(offset);
        Location { file: self.file.clone(), line: 1 + before.filter(|byte| **byte == b'\n').count() }
    }
}
