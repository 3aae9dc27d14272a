//! The journal of a measurement that is not finished: what is needed to go on with it, in its report's directory.
//!
//! One line of JSON at the beginning is the report without outcomes, then there is one for each repetition, appended
//! when it has ended. So a generator that was killed, or a machine that lost its power, loses the repetition at hand
//! and no other. The last line may be torn, and counts as not written then.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::json::{ReadError, VERSION, cleaned};
use crate::outcome::{Outcome, Report};

/// The name of the file in the directory of a report.
pub const NAME: &str = "unfinished.jsonl";

/// The outcome of a repetition, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// It was measured.
    Outcome(Box<Outcome>),
    /// It failed, for this reason.
    Failed(String),
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    /// The place of its run in the report.
    run: usize,
    #[serde(flatten)]
    entry: Entry,
}

/// An open journal.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// An entry could not be written. Those before it are whole, and none follows: the record ends there.
    is_broken: bool,
}

impl Journal {
    /// Begins the journal of this report in its directory. One that is there is replaced when this one is written.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn begin(directory: &Path, report: &Report) -> io::Result<Self> {
        let path = directory.join(NAME);
        let (mut file, beside) = super::create_beside(&path)?;
        let written = write_all(&mut file, report).and_then(|()| fs::rename(&beside, &path));
        written.map_err(|error| super::left_undone(&path, &beside, &error))?;
        Ok(Self { path, file, is_broken: false })
    }

    /// Appends the entry of a repetition of this run, unless one before it could not be written.
    ///
    /// # Errors
    /// The file cannot be written. It keeps the entries before.
    pub fn add(&mut self, run: usize, entry: Entry) -> io::Result<()> {
        if self.is_broken {
            return Ok(());
        }
        write(&mut self.file, &Line { run, entry }).inspect_err(|_| self.is_broken = true)
    }

    /// Removes it: the measurement is finished, and its report written.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn finish(self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

fn write_all(file: &mut File, report: &Report) -> io::Result<()> {
    write(file, report)?;
    for (run, of) in report.runs.iter().enumerate() {
        let failed = of.failed.iter().cloned().map(Entry::Failed);
        let done = of.outcomes.iter().cloned().map(|outcome| Entry::Outcome(Box::new(outcome)));
        for entry in failed.chain(done) {
            write(file, &Line { run, entry })?;
        }
    }
    Ok(())
}

/// A line is written at once, so that a process that is killed leaves whole ones.
fn write(file: &mut File, record: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(&record)?;
    line.push(b'\n');
    file.write_all(&line)
}

/// Whether a directory has the journal of an unfinished measurement.
#[must_use]
pub fn is_in(directory: &Path) -> bool {
    directory.join(NAME).exists()
}

/// Reads the journal of a directory: the report as far as it came.
///
/// # Errors
/// There is none, or it is of a later fogmux, or a line before the last is none.
pub fn read(directory: &Path) -> Result<Report, ReadError> {
    let path = directory.join(NAME);
    let text = fogmux_file::read_to_string(&path).map_err(|source| ReadError::File { path: path.clone(), source })?;
    let content = |source| ReadError::Content { path: path.clone(), source };
    let mut lines = text.split_inclusive('\n');
    let mut report: Report = serde_json::from_str(lines.next().unwrap_or_default()).map_err(content)?;
    if report.version > VERSION {
        return Err(ReadError::Newer { path, version: report.version });
    }
    report.runs.iter_mut().for_each(|run| (run.outcomes, run.failed) = (Vec::new(), Vec::new()));
    for line in lines.filter(|line| line.ends_with('\n')) {
        let Line { run, entry } = serde_json::from_str(line).map_err(content)?;
        let Some(run) = report.runs.get_mut(run) else { continue };
        match entry {
            Entry::Outcome(outcome) => run.outcomes.push(*outcome),
            Entry::Failed(why) => run.failed.push(why),
        }
    }
    Ok(report)
}

/// The same for a report: another may have written it, and its text has no control characters then.
///
/// # Errors
/// As there.
pub fn read_plain(directory: &Path) -> Result<Report, ReadError> {
    let report = read(directory)?;
    cleaned(&report).map_err(|source| ReadError::Content { path: directory.join(NAME), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;
    use crate::measure::environment::Environment;
    use crate::outcome::Run;

    fn report() -> Report {
        let run = || Run::of(Experiment::default(), "a test".to_owned());
        let (environment, command) = (Environment::default(), "fogmux bench run".to_owned());
        let (gateway_environment, paper, resumed_unix_s) = (None, None, Vec::new());
        let runs = vec![run(), run()];
        Report { version: 1, command, began_unix_s: 7, resumed_unix_s, environment, gateway_environment, runs, paper }
    }

    fn outcome(sent: u64) -> Outcome {
        Outcome { sent, ..Outcome::default() }
    }

    #[test]
    fn what_was_written_is_read_again_without_a_torn_line() {
        let place = tempfile::tempdir().unwrap();
        let mut journal = Journal::begin(place.path(), &report()).unwrap();
        journal.add(1, Entry::Outcome(Box::new(outcome(3)))).unwrap();
        journal.add(0, Entry::Failed("no gateway".to_owned())).unwrap();
        journal.add(1, Entry::Outcome(Box::new(outcome(4)))).unwrap();
        let path = place.path().join(NAME);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 5]).unwrap();
        let read = read(place.path()).unwrap();
        assert_eq!((read.began_unix_s, read.command.as_str()), (7, "fogmux bench run"));
        assert_eq!((read.runs[0].failed.as_slice(), read.runs[0].outcomes.len()), (&["no gateway".to_owned()][..], 0));
        assert_eq!(read.runs[1].outcomes, [outcome(3)]);
        // A measurement that goes on begins with all of it.
        drop(Journal::begin(place.path(), &read).unwrap());
        assert_eq!(super::read(place.path()).unwrap(), read);
    }

    #[test]
    fn an_entry_that_cannot_be_written_ends_the_record_and_keeps_it() {
        let place = tempfile::tempdir().unwrap();
        let mut journal = Journal::begin(place.path(), &report()).unwrap();
        journal.add(0, Entry::Failed("first".to_owned())).unwrap();
        let writable = std::mem::replace(&mut journal.file, File::options().write(true).open("/dev/full").unwrap());
        assert_eq!(journal.add(0, Entry::Failed("second".to_owned())).unwrap_err().kind(), io::ErrorKind::StorageFull);
        journal.file = writable;
        // There is room again, but the record has a gap.
        journal.add(0, Entry::Failed("third".to_owned())).unwrap();
        assert_eq!(read(place.path()).unwrap().runs[0].failed, ["first"]);
        journal.finish().unwrap();
        assert!(!is_in(place.path()));
    }

    #[test]
    fn a_finished_measurement_leaves_none() {
        let place = tempfile::tempdir().unwrap();
        let journal = Journal::begin(place.path(), &report()).unwrap();
        assert!(is_in(place.path()));
        journal.finish().unwrap();
        assert!(!is_in(place.path()) && read(place.path()).is_err());
    }

    #[test]
    fn a_line_in_the_middle_that_is_none_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        drop(Journal::begin(place.path(), &report()).unwrap());
        let path = place.path().join(NAME);
        let text = fs::read_to_string(&path).unwrap() + "{\"run\":\n{}\n";
        fs::write(&path, text).unwrap();
        assert!(read(place.path()).is_err());
    }
}
