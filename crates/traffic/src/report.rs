//! Everything that people and programs read of a bench.
//!
//! The JSON keeps all that was counted; every other format shows [`Summary`]s, which are computed once from it. So any
//! report can be rendered again, later and elsewhere, by a version that knows better plots.

pub mod compare;
pub mod csv;
pub mod document;
pub mod figure;
mod grid;
pub mod html;
pub mod json;
mod label;
pub mod markdown;
pub mod number;
pub mod paper;
pub mod progress;
pub mod summary;
mod table;
pub mod terminal;
pub mod warning;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use label::Varying;
use summary::Summary;

use crate::outcome::{Report, Run};

/// The default name of files.
const NAME: &str = "report";

/// The runs in numbers, each by the keys in which it differs from the others.
#[must_use]
pub fn summaries(runs: &[Run]) -> Vec<Summary<'_>> {
    let varying = Varying::among(runs);
    runs.iter().map(|run| Summary::of(run, varying.label(run))).collect()
}

/// Writes `report.csv`, `report.md` and `report.html` into a directory, and returns their paths.
///
/// # Errors
/// The directory cannot be created or a file cannot be written.
pub fn render(report: &Report, directory: &Path) -> io::Result<Vec<PathBuf>> {
    render_as(report, directory, NAME)
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
        fs::write(&path, text)?;
        Ok(path)
    };
    files.into_iter().chain(drawings).map(write).collect()
}
