//! Lines of JSON for those who watch a measurement: a sample of each second, and the end of each repetition.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::rc::Rc;

use serde::Serialize;

use super::now_unix_ms;
use crate::experiment::Experiment;
use crate::pattern::{Live, Sample};

/// A file that lines are appended to, such as a pipe.
#[derive(Clone, Debug)]
pub struct Watcher(Rc<RefCell<File>>);

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
    /// Of this file, which is made if it is not there.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn of(path: &Path) -> io::Result<Self> {
        File::options().append(true).create(true).open(path).map(|file| Self(Rc::new(RefCell::new(file))))
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
        // A watcher that has gone ends no measurement.
        let _ = self.0.borrow_mut().write_all(&text);
    }
}
