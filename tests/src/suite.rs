//! A list of cases, filtered by the words on the command line as `cargo test` does.

use std::any::Any;
use std::collections::BTreeSet;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Result, anyhow};

/// One case: a name that reads as a sentence, and what it does; the text of a success is shown.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The sentence.
    pub name: &'static str,
    /// Runs it.
    pub run: fn() -> Result<String>,
}

/// Runs the cases whose name contains one of the words, or all, one after the other.
#[must_use]
pub fn run(suite: &str, cases: &[Case]) -> ExitCode {
    code(&run_cases(suite, cases))
}

/// The same, but with as many cases at once as there are processors, and one more: most of a case's time it waits.
/// Only for cases that share nothing and judge no time that the others' load could stretch.
#[must_use]
pub fn run_side_by_side(suite: &str, cases: &[Case]) -> ExitCode {
    let lanes = thread::available_parallelism().map_or(1, |processors| processors.get() + 1);
    code(&run_in_lanes(suite, cases, lanes))
}

fn code(outcome: &Outcome) -> ExitCode {
    if outcome.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The outcome of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The names of the cases that passed.
    pub passed: BTreeSet<&'static str>,
    failed: usize,
}

impl Outcome {
    /// Whether something ran and all of it passed.
    #[must_use]
    pub fn is_good(&self) -> bool {
        !self.passed.is_empty() && self.failed == 0
    }
}

/// As [`run`], and says which cases passed.
#[must_use]
pub fn run_cases(suite: &str, cases: &[Case]) -> Outcome {
    run_in_lanes(suite, cases, 1)
}

/// Runs the chosen cases in their order, in so many threads.
fn run_in_lanes(suite: &str, cases: &[Case], lanes: usize) -> Outcome {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let chosen = |case: &&Case| words.is_empty() || words.iter().any(|word| case.name.contains(word));
    let chosen: Vec<&Case> = cases.iter().filter(chosen).collect();
    let next = AtomicUsize::new(0);
    let results = Mutex::new((BTreeSet::new(), Vec::new()));
    thread::scope(|scope| {
        for _ in 0..lanes {
            scope.spawn(|| {
                while let Some(case) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let began = Instant::now();
                    // A case that panics fails; it does not end the suite.
                    let outcome = panic::catch_unwind(AssertUnwindSafe(case.run));
                    let outcome = outcome.unwrap_or_else(|panic| Err(anyhow!("panicked: {}", message(&*panic))));
                    let seconds = began.elapsed().as_secs_f32();
                    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                    let (passed, failed) = &mut *results;
                    match outcome {
                        Ok(text) => {
                            passed.insert(case.name);
                            println!("{suite} {}: ok in {seconds:.1} s {text}", case.name);
                        }
                        Err(error) => {
                            println!("{suite} {}: FAILED in {seconds:.1} s: {error:#}", case.name);
                            failed.push(format!("{}: {error:#}", case.name));
                        }
                    }
                }
            });
        }
    });
    let (passed, failed) = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    for failure in &failed {
        println!("failed: {suite} {}", failure.replace('\n', " | "));
    }
    println!("{} passed, {} failed", passed.len(), failed.len());
    Outcome { passed, failed: failed.len() }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}
