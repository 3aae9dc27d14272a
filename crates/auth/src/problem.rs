//! Problems in a file that an operator wrote: the file, the line, and what would be accepted.
//!
//! Everything that reads such a file collects all its problems before it gives up, so that one run shows them all.

use std::{
    fmt,
    ops::Range,
    path::{Path, PathBuf},
};

/// One problem at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file as it was named.
    pub file: PathBuf,
    /// The line, counted from 1; 0 when the file as a whole is meant.
    pub line: usize,
    /// The problem and what would be accepted. Never contains a secret.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file.display(), self.message),
            line => write!(f, "{}:{line}: {}", self.file.display(), self.message),
        }
    }
}

/// All problems, in the order of the file. Printed one a line.
#[derive(Debug, Clone, Default, PartialEq, Eq, thiserror::Error)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl Problems {
    /// One problem with a file as a whole.
    #[must_use]
    pub fn of_file(file: &Path, message: impl Into<String>) -> Self {
        Self(vec![Problem { file: file.into(), line: 0, message: message.into() }])
    }

    /// Returns `value` if there are no problems.
    pub(crate) fn unless_any<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }
}

/// Collects problems of one text and knows where its lines begin.
pub(crate) struct Review<'a> {
    file: &'a Path,
    text: &'a str,
    /// The offsets of line ends, so that the line of an offset is found without counting.
    line_ends: Vec<usize>,
    pub(crate) problems: Problems,
}

impl<'a> Review<'a> {
    pub(crate) fn new(file: &'a Path, text: &'a str) -> Self {
        let line_ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect();
        Self { file, text, line_ends, problems: Problems::default() }
    }

    /// The file as it is named in problems.
    pub(crate) fn file(&self) -> &Path {
        self.file
    }

    /// The line of a byte offset, counted from 1.
    pub(crate) fn line(&self, offset: usize) -> usize {
        self.line_ends.partition_point(|end| *end < offset) + 1
    }

    pub(crate) fn report(&mut self, span: Range<usize>, message: impl Into<String>) {
        let line = self.line(span.start);
        self.problems.0.push(Problem { file: self.file.into(), line, message: message.into() });
    }

    /// Parses as TOML and reports every syntax error there is.
    pub(crate) fn parse(&mut self) -> toml::de::DeTable<'a> {
        let (table, errors) = toml::de::DeTable::parse_recoverable(self.text);
        for error in errors {
            let span = error.span().unwrap_or(0..0);
            self.report(span, error.message());
        }
        table.into_inner()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A place is looked up among the ends of lines, so that a file of ten thousand rules is read in a time that
        /// grows with it (`benches/benches/acl.rs`).
        #[test]
        fn the_line_of_a_place_is_one_more_than_the_line_ends_before_it(text in "[a\n\r\u{e9}]{0,60}") {
            let review = Review::new(Path::new("f"), &text);
            for offset in 0..=text.len() {
                let before = text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count();
                prop_assert_eq!(review.line(offset), before + 1);
            }
        }
    }
}
