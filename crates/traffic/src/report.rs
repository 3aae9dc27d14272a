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
    let written = create_private(&tried).and_then(|mut file| file.write_all(b"to be removed"));
    let removed = fs::remove_file(&tried);
    written.and(removed)
}

/// Writes a file that its owner alone reads: whoever publishes it decides to. What has the name is replaced when all of
/// the text is written, so that a full disk leaves the earlier file; a symbolic link is replaced and not followed.
///
/// # Errors
/// The file cannot be written. The error names it.
pub(crate) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let (mut file, beside) = create_beside(path)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| fs::rename(&beside, path));
    written.map_err(|error| left_undone(path, &beside, &error))
}

/// Makes a file beside another one, which it is to replace.
pub(crate) fn create_beside(path: &Path) -> io::Result<(File, PathBuf)> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}-{}", std::process::id()));
    // One that a process of this number has left.
    let _ = fs::remove_file(&beside);
    let file = File::options().write(true).create_new(true).mode(OWNER_ONLY).open(&beside);
    Ok((file.map_err(|error| of_file(path, &error))?, beside))
}

/// Removes a file that could not be written, and names the one that it was to replace.
pub(crate) fn left_undone(path: &Path, beside: &Path, error: &io::Error) -> io::Error {
    // If it cannot be removed there is nobody to tell.
    let _ = fs::remove_file(beside);
    of_file(path, error)
}

fn of_file(path: &Path, error: &io::Error) -> io::Error {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    io::Error::new(error.kind(), format!("{name}: {error}"))
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_or_not_at_all() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        fs::write(at("victim"), "another's").unwrap();
        fs::set_permissions(at("victim"), Permissions::from_mode(0o644)).unwrap();
        symlink(at("victim"), at("report.csv")).unwrap();
        write_private(&at("report.csv"), "new").unwrap();
        assert_eq!(fs::read_to_string(at("report.csv")).unwrap(), "new");
        assert_eq!((fs::read_to_string(at("victim")).unwrap().as_str(), mode(&at("victim"))), ("another's", 0o644));
        assert_eq!(mode(&at("report.csv")), OWNER_ONLY);
        // Nothing can be renamed to a directory.
        fs::create_dir(at("report.md")).unwrap();
        let error = write_private(&at("report.md"), "new").unwrap_err();
        assert!(error.to_string().starts_with("report.md: "), "{error}");
        let mut left: Vec<_> = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["report.csv", "report.md", "victim"]);
    }

    #[test]
    fn a_full_disk_leaves_the_earlier_file() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("report.json");
        write_private(&path, "earlier").unwrap();
        // As write(2) fails there: before all is written, and with the earlier file in its place.
        let (file, beside) = create_beside(&path).unwrap();
        drop(file);
        let error = left_undone(&path, &beside, &io::ErrorKind::StorageFull.into());
        assert_eq!((error.kind(), beside.exists()), (io::ErrorKind::StorageFull, false));
        assert!(error.to_string().starts_with("report.json: "), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "earlier");
    }
}
