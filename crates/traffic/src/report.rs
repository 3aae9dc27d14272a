//! Everything that people and programs read of a bench.
//!
//! The JSON keeps all that was counted; every other format shows [`Summary`]s, which are computed once from it. So any
//! report can be rendered again, later and elsewhere, by a version that knows better plots.

pub mod best;
pub mod command;
pub mod compare;
pub mod csv;
pub mod document;
pub mod figure;
mod grid;
pub mod html;
pub mod journal;
pub mod json;
mod label;
pub mod markdown;
pub mod number;
pub mod paper;
pub mod progress;
pub mod slices;
pub mod summary;
mod table;
pub mod terminal;
pub mod threshold;
pub mod warning;

use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use figure::Figure;
use label::Varying;
use number::{Unit, with_unit};
use summary::Summary;

use crate::outcome::{Report, Run};

/// Read and written by the owner.
const OWNER_ONLY: u32 = 0o600;

/// The default name of files.
const NAME: &str = "report";

/// The runs in numbers, each by the keys in which it differs from the others. A run that fell behind its schedule is
/// named by what it achieved, too.
#[must_use]
pub fn summaries(runs: &[Run]) -> Vec<Summary<'_>> {
    let varying = Varying::among(runs);
    runs.iter().map(|run| named(Summary::of(run, varying.label(run)))).collect()
}

fn named(mut summary: Summary<'_>) -> Summary<'_> {
    if summary.used.iter().any(|outcome| outcome.fell_behind()) {
        let rate = |figure| summary.get(figure).map(|rate| with_unit(Unit::PerSecond, rate.median));
        if let Some((achieved, offered)) = rate(Figure::Achieved).zip(rate(Figure::Offered)) {
            summary.label = format!("{} (behind: {achieved} of {offered})", summary.label);
        }
    }
    summary
}

/// Writes `report.csv`, `report.md` and `report.html` into a directory, and returns their paths.
///
/// # Errors
/// The directory cannot be created or a file cannot be written.
pub fn render(report: &Report, directory: &Path) -> io::Result<Vec<PathBuf>> {
    render_as(report, directory, NAME)
}

/// Whether reports can be written into a directory, which is made if it is not there.
///
/// # Errors
/// They cannot.
pub fn try_directory(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let tried = directory.join(format!(".{NAME}-{}", std::process::id()));
    let written = write_private(&tried, "to be removed");
    let removed = fs::remove_file(&tried);
    written.and(removed)
}

/// Writes a file that its owner alone reads: whoever publishes it decides to.
pub(crate) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    create_private(path)?.write_all(text.as_bytes())
}

/// Makes such a file, or empties one that is there, whatever its mode was.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    let file = File::options().write(true).create(true).truncate(true).mode(OWNER_ONLY).open(path)?;
    if file.metadata()?.is_file() {
        file.set_permissions(Permissions::from_mode(OWNER_ONLY))?;
    }
    Ok(file)
}

/// The same by another name.
///
/// # Errors
/// The directory cannot be created or a file cannot be written.
pub fn render_as(report: &Report, directory: &Path, name: &str) -> io::Result<Vec<PathBuf>> {
    fs::create_dir_all(directory)?;
    let summaries = summaries(&report.runs);
    let files = [
        ("csv".to_owned(), csv::table(&report.runs)),
        ("md".to_owned(), markdown::document(report, &summaries)),
        ("html".to_owned(), html::document(report, &summaries)),
    ];
    let drawings = html::drawings(report, &summaries).into_iter().map(|(plot, text)| (format!("{plot}.svg"), text));
    let write = |(ending, text): (String, String)| {
        let path = directory.join(format!("{name}.{ending}"));
        write_private(&path, &text)?;
        Ok(path)
    };
    files.into_iter().chain(drawings).map(write).collect()
}
