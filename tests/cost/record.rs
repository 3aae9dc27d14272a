//! The figures on record: one line for each trace, its name and its instructions a message.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

/// A trace may cost this much more than is on record, in percent.
const TOLERANCE_PERCENT: u64 = 3;
/// The same where another compiler, C library or processor has made the record, whose copies and ciphers are others.
const TOLERANCE_ELSEWHERE_PERCENT: u64 = 15;
/// How the line with those begins.
const ON: &str = "# Recorded on ";

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
        matches!(self, Self::Good(_))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |hundredths: i64| hundredths as f64 / 100.0;
        match self {
            Self::New => f.write_str("none on record"),
            Self::Good(change) => write!(f, "{:+.1} % against the record", percent(*change)),
            Self::Dearer(change) => {
                write!(f, "{:+.1} % against the record, too much", percent(*change))
            }
        }
    }
}

/// The figures of all traces.
pub(crate) struct Record {
    /// The comment at the top of the file.
    head: String,
    /// The compiler, the C library and the processor that the figures are of.
    on: Option<String>,
    here: String,
    figures: BTreeMap<String, u64>,
}

impl Record {
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let on = text.lines().find_map(|line| line.strip_prefix(ON)).map(str::to_owned);
        let lines = text.lines().filter(|line| !line.starts_with(ON));
        let (head, lines): (Vec<&str>, Vec<&str>) =
            lines.partition(|line| line.starts_with('#') || line.trim().is_empty());
        let figures = lines.into_iter().map(|line| {
            let (name, figure) = line.split_once(' ').with_context(|| format!("`{line}` is no name and number"))?;
            Ok((name.to_owned(), figure.trim().parse().with_context(|| format!("`{line}`"))?))
        });
        Ok(Self { head: head.join("\n"), on, here: here()?, figures: figures.collect::<Result<_>>()? })
    }

    /// The compiler, the C library and the processor.
    pub(crate) fn here(&self) -> &str {
        &self.here
    }

    /// How much more than is on record is allowed here, and why.
    pub(crate) fn tolerance(&self) -> String {
        let percent = self.tolerance_percent();
        match &self.on {
            Some(on) if *on != self.here => format!("recorded on {on}, so {percent} % more are allowed"),
            _ => format!("{percent} % more than is on record are allowed"),
        }
    }

    fn tolerance_percent(&self) -> u64 {
        if self.on.as_ref() == Some(&self.here) { TOLERANCE_PERCENT } else { TOLERANCE_ELSEWHERE_PERCENT }
    }

    /// Compares a figure.
    pub(crate) fn compare(&self, name: &str, figure: u64) -> Verdict {
        let Some(before) = self.figures.get(name).copied().filter(|before| *before > 0) else { return Verdict::New };
        let change = (figure as i64 - before as i64) * 10_000 / before as i64;
        let is_dearer = figure * 100 > before * (100 + self.tolerance_percent());
        if is_dearer { Verdict::Dearer(change) } else { Verdict::Good(change) }
    }

    /// Writes the figures that were measured in the place of those on record.
    pub(crate) fn write(mut self, file: &Path, measured: impl Iterator<Item = (&'static str, u64)>) -> Result<()> {
        self.figures.extend(measured.map(|(name, figure)| (name.to_owned(), figure)));
        let lines: String = self.figures.iter().map(|(name, figure)| format!("{name} {figure}\n")).collect();
        let text = format!("{}\n{ON}{}\n{lines}", self.head, self.here);
        fs::write(file, text).with_context(|| file.display().to_string())
    }
}

/// The compiler, the C library and the processor: with others, other instructions are chosen.
fn here() -> Result<String> {
    let first_line = |program: &str, argument: &str| -> Result<String> {
        let output = Command::new(program).arg(argument).output().with_context(|| program.to_owned())?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(said.lines().next().with_context(|| format!("{program} says nothing"))?.to_owned())
    };
    let processors = fs::read_to_string("/proc/cpuinfo")?;
    let processor = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let processor = processor.map_or(std::env::consts::ARCH, |(_, name)| name);
    Ok(format!("{}, {}, {processor}", first_line("rustc", "--version")?, first_line("ldd", "--version")?))
}
