//! The record of a measurement while it lasts, from which `--resume` goes on.

use std::path::Path;

use fogmux_traffic::Outcome;
use fogmux_traffic::measure::environment::Environment;
use fogmux_traffic::outcome::{Report, Run};
use fogmux_traffic::paper::PaperResult;
use fogmux_traffic::repetition::{Round, Side, Void, keep_whole_rounds};
use fogmux_traffic::report::command::shown;
use fogmux_traffic::report::journal::{self, Entry, Journal};
use fogmux_traffic::text::plain;

use super::arguments::Output;
use crate::exit::{Failure, Status};

/// Version of the JSON format.
const VERSION: u32 = 1;
/// The only flag in which the command that goes on differs from the one that has begun.
const RESUME: &str = "--resume";
/// How a gateway starts a measurement. It is no part of what is measured.
const END_WITH: &str = "--end-with=";

/// The report as far as it came, and its journal where there is a directory for one.
pub(super) struct Record {
    report: Report,
    journal: Option<Journal>,
}

impl Record {
    /// Begins the record of these runs or, with `--resume`, goes on with the one in the directory of the report.
    ///
    /// # Errors
    /// The directory cannot be written; or there is nothing to go on with, or it is of another program, machine of the
    /// gateway or command.
    pub(super) fn open(output: &Output, runs: Vec<Run>, gateway: Option<Environment>) -> Result<Self, Failure> {
        Self::begun(output, runs, gateway, |_| {})
    }

    /// The same for runs that are done together, `each` repetitions of every run in a round. What the journal has of a
    /// round that was interrupted is dropped from it: later rounds would be beside it.
    pub(super) fn of_rounds(output: &Output, runs: Vec<Run>, each: usize) -> Result<Self, Failure> {
        Self::begun(output, runs, None, |runs| keep_whole_rounds(runs, each))
    }

    fn begun(
        output: &Output,
        runs: Vec<Run>,
        gateway: Option<Environment>,
        keep: impl FnOnce(&mut [Run]),
    ) -> Result<Self, Failure> {
        let fresh = Report {
            version: VERSION,
            command: shown(std::env::args_os().map(|word| word.to_string_lossy().into_owned()).filter(is_of_both)),
            began_unix_s: super::now_unix_s(),
            resumed_unix_s: Vec::new(),
            environment: Environment::here(),
            gateway_environment: gateway,
            runs,
            paper: None,
        };
        let Some(directory) = &output.out else { return Ok(Self { report: fresh, journal: None }) };
        let mut report = if output.resume { continued(directory, fresh)? } else { fresh };
        keep(&mut report.runs);
        let begun = Journal::begin(directory, &report);
        let journal = begun.map_err(|error| Failure::io(directory.display(), &error))?;
        Ok(Self { report, journal: Some(journal) })
    }

    /// The runs with the repetitions that they have.
    pub(super) fn runs(&self) -> Vec<Run> {
        self.report.runs.clone()
    }

    /// How many repetitions there are already.
    pub(super) fn done(&self) -> usize {
        self.report.runs.iter().map(|run| run.outcomes.len() + run.failed.len()).sum()
    }

    /// Notes what a repetition of a run came to.
    pub(super) fn note(&mut self, run: usize, done: &Result<Outcome, Void>) {
        match done {
            Ok(outcome) => self.add(run, Entry::Outcome(Box::new(outcome.clone()))),
            Err(Void::Failed(why)) => self.add(run, Entry::Failed(why.clone())),
            // It is done when the measurement goes on.
            Err(Void::Stopped(_)) => {}
        }
    }

    /// Notes what a round of a pair came to.
    pub(super) fn note_round(&mut self, round: Round<'_>) {
        match round {
            Round::Done(sides) => {
                for (run, outcomes) in sides.into_iter().enumerate() {
                    outcomes.iter().for_each(|outcome| self.add(run, Entry::Outcome(Box::new(outcome.clone()))));
                }
            }
            Round::Failed(side, why) => self.add(usize::from(side == Side::B), Entry::Failed(why.to_owned())),
        }
    }

    /// A record that cannot be written on ends no measurement, and keeps the repetitions that it has.
    fn add(&mut self, run: usize, entry: Entry) {
        let Some(journal) = &mut self.journal else { return };
        if let Err(error) = journal.add(run, entry) {
            eprintln!("{}: {error}: --resume would do the repetitions from here on again", journal::NAME);
        }
    }

    /// The report of these runs.
    pub(super) fn report(&self, runs: Vec<Run>, gateway: Option<Environment>, paper: Option<PaperResult>) -> Report {
        let environment = Environment::here();
        Report { environment, gateway_environment: gateway, runs, paper, ..self.report.clone() }
    }

    /// The report is written. Its record is removed, unless the measurement is to be gone on with.
    pub(super) fn end(self, stopped: Option<&'static str>) {
        let Some(journal) = self.journal.filter(|_| stopped.is_none()) else { return };
        if let Err(error) = journal.finish() {
            eprintln!("{}: {error}", journal::NAME);
        }
    }
}

fn is_of_both(word: &String) -> bool {
    word != RESUME && !word.starts_with(END_WITH)
}

/// The report in the journal of a directory, if it is of the same measurement.
fn continued(directory: &Path, fresh: Report) -> Result<Report, Failure> {
    if !journal::is_in(directory) {
        let why = format!("{}: there is no interrupted measurement to go on with", directory.display());
        return Err(Failure::new(Status::NoInput, why));
    }
    let mut begun = journal::read(directory).map_err(|error| Failure::new(Status::DataErr, error))?;
    if let Some(why) = difference(&begun, &fresh) {
        return Err(Failure::new(Status::Config, format!("{} cannot be resumed: {why}", directory.display())));
    }
    begun.resumed_unix_s.push(fresh.began_unix_s);
    Ok(begun)
}

/// Why the measurement that has begun is another one.
fn difference(begun: &Report, fresh: &Report) -> Option<String> {
    let program = |environment: &Environment| environment.build.binary_sha256.clone();
    let gateway = |report: &Report| report.gateway_environment.as_ref().map(program);
    let what = |run: &Run| (run.experiment.clone(), run.target.clone());
    if program(&begun.environment) != program(&fresh.environment) {
        let commit = |report: &Report| report.environment.build.commit.chars().take(12).collect::<String>();
        let (one, other) = (commit(begun), commit(fresh));
        return Some(format!("another program has begun it (of commit {one}; this one is of {other})"));
    }
    if gateway(begun) != gateway(fresh) {
        return Some("another program of the agent has begun it".to_owned());
    }
    if begun.command != fresh.command {
        return Some(format!("it was begun by `{}`, and other flags measure something else", plain(&begun.command)));
    }
    if !begun.runs.iter().map(what).eq(fresh.runs.iter().map(what)) {
        return Some("its experiments or their targets are others".to_owned());
    }
    None
}
