//! The figures on record: one line for each trace, its name and its instructions a message.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// A trace may cost this much more than is on record, in percent.
const TOLERANCE_PERCENT: u64 = 3;

/// How a figure compares with the one on record.
pub(crate) enum Verdict {
    /// There is none on record.
    New,
    /// The change in hundredths of a percent, within the tolerance or below it.
    Good(i64),
    /// It costs too much.
    Dearer(i64),
}

impl Verdict {
    pub(crate) const fn is_good(&self) -> bool {
        !matches!(self, Self::Dearer(_))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |hundredths: i64| hundredths as f64 / 100.0;
        match self {
            Self::New => f.write_str("none on record"),
            Self::Good(change) => write!(f, "{:+.1} % against the record", percent(*change)),
            Self::Dearer(change) => {
                write!(f, "{:+.1} % against the record, more than {TOLERANCE_PERCENT} %", percent(*change))
            }
        }
    }
}

/// The figures of all traces.
pub(crate) struct Record {
    /// The comment at the top of the file.
    head: String,
    figures: BTreeMap<String, u64>,
    measured: BTreeMap<String, u64>,
}

impl Record {
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let (head, lines): (Vec<&str>, Vec<&str>) =
            text.lines().partition(|line| line.starts_with('#') || line.trim().is_empty());
        let figures = lines.into_iter().map(|line| {
            let (name, figure) = line.split_once(' ').with_context(|| format!("`{line}` is no name and number"))?;
            Ok((name.to_owned(), figure.trim().parse().with_context(|| format!("`{line}`"))?))
        });
        Ok(Self { head: head.join("\n"), figures: figures.collect::<Result<_>>()?, measured: BTreeMap::new() })
    }

    /// Notes a figure, and compares it.
    pub(crate) fn compare(&mut self, name: &str, figure: u64) -> Verdict {
        self.measured.insert(name.to_owned(), figure);
        let Some(before) = self.figures.get(name).copied().filter(|before| *before > 0) else { return Verdict::New };
        let change = (figure as i64 - before as i64) * 10_000 / before as i64;
        if figure * 100 > before * (100 + TOLERANCE_PERCENT) { Verdict::Dearer(change) } else { Verdict::Good(change) }
    }

    /// Writes the figures that were measured in the place of those on record.
    pub(crate) fn write(mut self, file: &Path) -> Result<()> {
        self.figures.append(&mut self.measured);
        let lines: String = self.figures.iter().map(|(name, figure)| format!("{name} {figure}\n")).collect();
        fs::write(file, format!("{}\n{lines}", self.head)).with_context(|| file.display().to_string())
    }
}
