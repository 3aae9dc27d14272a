//! The report of an import: lines that could not be translated and lines that have another meaning here.

use std::fmt;
use std::path::{Path, PathBuf};

/// The notes about one file.
#[derive(Clone, Debug)]
pub(super) struct Report {
    file: PathBuf,
    notes: Vec<Note>,
}

#[derive(Clone, Debug)]
struct Note {
    /// 0: the file as a whole.
    line: usize,
    lost: bool,
    text: String,
}

impl Report {
    /// Creates an empty report.
    pub(super) fn new(file: &Path) -> Self {
        Self { file: file.to_owned(), notes: Vec::new() }
    }

    /// Notes that this line has no counterpart and is left out.
    pub(super) fn lost(&mut self, line: usize, text: impl Into<String>) {
        self.notes.push(Note { line, lost: true, text: text.into() });
    }

    /// Notes that this line was imported with another meaning.
    pub(super) fn differs(&mut self, line: usize, text: impl Into<String>) {
        self.notes.push(Note { line, lost: false, text: text.into() });
    }

    /// Returns the number of lines left out.
    pub(super) fn lost_lines(&self) -> impl Iterator<Item = usize> {
        self.notes.iter().filter(|note| note.lost).map(|note| note.line)
    }

    /// Returns the notes as JSON.
    pub(super) fn to_json(&self) -> Vec<serde_json::Value> {
        let note = |note: &Note| {
            serde_json::json!({
                "file": self.file.display().to_string(),
                "line": note.line,
                "kind": note.kind(),
                "text": note.text,
            })
        };
        self.notes.iter().map(note).collect()
    }
}

impl Note {
    const fn kind(&self) -> &'static str {
        if self.lost { "left out" } else { "differs" }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for note in &self.notes {
            let file = self.file.display();
            match note.line {
                0 => writeln!(f, "{file}: {}: {}", note.kind(), note.text)?,
                line => writeln!(f, "{file}:{line}: {}: {}", note.kind(), note.text)?,
            }
        }
        Ok(())
    }
}
