//! Lines of JSON for those who watch a measurement: a sample of each second, and the end of each repetition.
//!
//! A watcher holds up nothing. The file is opened and written without waiting; a line for which there is no room, as in
//! a pipe that nobody reads, is left out as a whole and counted.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::rc::Rc;

use rustix::fs::OFlags;
use serde::Serialize;

use super::now_unix_ms;
use crate::experiment::Experiment;
use crate::pattern::{Live, Sample};

/// A file that lines are appended to, such as a pipe.
#[derive(Clone, Debug)]
pub struct Watcher(Rc<RefCell<Lines>>);

#[derive(Debug)]
struct Lines {
    file: File,
    /// The end of a line whose beginning is written.
    rest: Vec<u8>,
    /// Lines for which there was no room.
    left_out: u64,
    /// Told at the end how many lines were left out, if any were.
    tell: fn(u64),
}

#[derive(Serialize)]
struct Line<'a> {
    unix_ms: u64,
    experiment: &'a str,
    /// From 1.
    repetition: u32,
    /// `running`, `done` or `failed`.
    state: &'static str,
    #[serde(flatten)]
    sample: Option<&'a Sample>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<&'a str>,
}

impl Watcher {
    /// Of this file, which is made if it is not there. `tell` is called when nobody writes to it any more, if lines
    /// were left out: with their number.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn of(path: &Path, tell: fn(u64)) -> io::Result<Self> {
        let lines = Lines { file: open(path)?, rest: Vec::new(), left_out: 0, tell };
        Ok(Self(Rc::new(RefCell::new(lines))))
    }

    /// Takes the samples of a repetition.
    pub(super) fn live(&self, experiment: &Experiment, number: u32) -> Live {
        let (title, watcher) = (experiment.title(), self.clone());
        Rc::new(move |sample| watcher.write(&title, number, "running", Some(sample), None))
    }

    /// Says that a repetition has ended, and how.
    pub(super) fn ended(&self, experiment: &Experiment, number: u32, problem: Option<&str>) {
        let state = if problem.is_none() { "done" } else { "failed" };
        self.write(&experiment.title(), number, state, None, problem);
    }

    fn write(
        &self,
        experiment: &str,
        number: u32,
        state: &'static str,
        sample: Option<&Sample>,
        problem: Option<&str>,
    ) {
        let (unix_ms, repetition) = (now_unix_ms().unwrap_or_default(), number.saturating_add(1));
        let line = Line { unix_ms, experiment, repetition, state, sample, problem };
        let Ok(mut text) = serde_json::to_vec(&line) else { return };
        text.push(b'\n');
        self.0.borrow_mut().write(text);
    }
}

/// Opens without waiting for a reader (fifo(7)).
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    match options.open(path) {
        // A FIFO that nobody reads yet. Linux opens it for both at once; a reader that comes later gets what is in it.
        Err(error) if is_without_reader(&error) && std::fs::metadata(path)?.file_type().is_fifo() => {
            options.read(true).open(path)
        }
        opened => opened,
    }
}

fn is_without_reader(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error())
}

impl Lines {
    fn write(&mut self, line: Vec<u8>) {
        let before = std::mem::take(&mut self.rest);
        self.rest = self.rest_of(before);
        if self.rest.is_empty() {
            let length = line.len();
            let rest = self.rest_of(line);
            if rest.len() == length {
                self.left_out += 1;
            } else {
                self.rest = rest;
            }
        } else {
            self.left_out += 1;
        }
    }

    /// Writes as much as there is room for, and returns the rest. A watcher that has gone ends no measurement, and is
    /// owed nothing.
    fn rest_of(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        let mut written = 0;
        while let Some(rest @ [_, ..]) = bytes.get(written..) {
            match self.file.write(rest) {
                Ok(0) => break,
                Ok(bytes) => written += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_full(&error) => break,
                Err(_) => return Vec::new(),
            }
        }
        bytes.drain(..written);
        bytes
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl Drop for Lines {
    fn drop(&mut self) {
        if self.left_out > 0 {
            (self.tell)(self.left_out);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::Read as _;

    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;

    thread_local! {
        static LEFT_OUT: Cell<u64> = const { Cell::new(0) };
    }

    fn told() -> u64 {
        LEFT_OUT.take()
    }

    #[test]
    fn a_pipe_that_nobody_reads_holds_up_nothing_and_has_whole_lines() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("live");
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        let watcher = Watcher::of(&path, |lines| LEFT_OUT.set(lines)).unwrap();
        let experiment = Experiment::default();
        for number in 0..5_000 {
            watcher.ended(&experiment, number, None);
        }
        // A line longer than what is written at once has a rest.
        let mut reader = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(&path);
        let reader = reader.as_mut().unwrap();
        let mut text = Vec::new();
        let mut read = |text: &mut Vec<u8>| reader.read_to_end(text).unwrap_err();
        assert_eq!(read(&mut text).kind(), io::ErrorKind::WouldBlock);
        watcher.ended(&experiment, 5_000, Some(&"x".repeat(100_000)));
        let _ = read(&mut text);
        watcher.ended(&experiment, 5_001, None);
        let _ = read(&mut text);
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(text.ends_with('\n') && lines.len() > 100, "{} lines", lines.len());
        assert_eq!(lines.last().unwrap()["repetition"], 5_002);
        drop(watcher);
        assert_eq!(told(), 5_002 - lines.len() as u64);
    }

    #[test]
    fn a_reader_that_has_gone_is_owed_nothing() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("live");
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        let reader = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(&path);
        let watcher = Watcher::of(&path, |lines| LEFT_OUT.set(lines)).unwrap();
        drop(reader);
        watcher.ended(&Experiment::default(), 0, None);
        drop(watcher);
        assert_eq!(told(), 0);
    }
}
