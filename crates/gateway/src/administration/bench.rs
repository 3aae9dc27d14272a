//! Commands about measurements, which the process around the gateway has made by a process of its own.

use fogmux_auth::Principal;
use fogmux_http::api::{BenchRequest, ReportFormat};

use super::refusal::Answer;

/// A command. Answers are documents of the API.
#[derive(Debug)]
pub enum BenchCommand {
    /// Asks for all jobs.
    List(Answer<Vec<u8>>),
    /// Asks for what may be measured.
    Choices(Answer<Vec<u8>>),
    /// Submits a job.
    Submit(Submit, Answer<Submitted>),
    /// Asks for one job and its progress.
    Show(u64, Answer<Vec<u8>>),
    /// Ends a job that waits or runs, and removes one that has ended.
    End(u64, Principal, Answer<Ended>),
    /// Asks for a report.
    Report(u64, ReportFormat, Answer<Vec<u8>>),
    /// Asks for the comparison of a report with another one, the earlier first.
    Compare(u64, u64, Answer<Vec<u8>>),
}

/// A job to be done.
#[derive(Debug)]
pub struct Submit {
    /// The request, whose words are not checked yet.
    pub request: BenchRequest,
    /// The requester.
    pub by: Principal,
}

/// A job that waits.
#[derive(Debug)]
pub struct Submitted {
    /// Its number.
    pub id: u64,
    /// Its command line.
    pub command: String,
    /// Its document.
    pub document: Vec<u8>,
}

/// The effect of the end of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It waited or ran, and is failed now.
    Cancelled,
    /// It had ended, and is forgotten with its results.
    Removed,
}
