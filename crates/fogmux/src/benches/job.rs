//! A job: what is to be measured, for whom, and what came of it.

use std::time::{SystemTime, UNIX_EPOCH};

use fogmux_http::api::{BenchJob, BenchState, Moment};
use serde::{Deserialize, Serialize};

/// The record of a job, as its file has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) id: u64,
    pub(super) state: BenchState,
    /// The words behind the name of the program.
    pub(super) arguments: Vec<String>,
    /// Repetitions of all experiments.
    pub(super) repetitions: u32,
    /// Whether it is done on a loaded gateway as well.
    pub(super) anyway: bool,
    /// The principal that has submitted it.
    pub(super) by: String,
    pub(super) submitted_unix_ms: u64,
    pub(super) started_unix_ms: Option<u64>,
    pub(super) ended_unix_ms: Option<u64>,
    pub(super) reason: Option<String>,
}

pub(super) fn now_unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Job {
    /// The command line that does the same by hand.
    pub(super) fn command(&self) -> String {
        format!("fogmux {}", self.arguments.join(" "))
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state, BenchState::Done | BenchState::Failed)
    }

    /// Notes the end.
    pub(super) fn end(&mut self, state: BenchState, reason: Option<String>) {
        self.state = state;
        self.reason = reason;
        self.ended_unix_ms = Some(now_unix_ms());
    }

    /// The document of the API.
    pub(super) fn document(&self, report: bool) -> BenchJob {
        BenchJob {
            id: self.id,
            state: self.state,
            command: self.command(),
            by: self.by.clone(),
            submitted: Moment(self.submitted_unix_ms),
            started: self.started_unix_ms.map(Moment),
            ended: self.ended_unix_ms.map(Moment),
            reason: self.reason.clone(),
            report,
            repetitions: self.repetitions,
            progress: None,
        }
    }
}
