//! A list of cases run one after the other, filtered by the words on the command line as `cargo test` does.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;

/// One case: a name that reads as a sentence, and what it does; the text of a success is shown.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The sentence.
    pub name: &'static str,
    /// Runs it.
    pub run: fn() -> Result<String>,
}

/// Runs the cases whose name contains one of the words, or all.
#[must_use]
pub fn run(suite: &str, cases: &[Case]) -> ExitCode {
    let outcome = run_cases(suite, cases);
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
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let chosen = cases.iter().filter(|case| words.is_empty() || words.iter().any(|word| case.name.contains(word)));
    let (mut passed, mut failed) = (BTreeSet::new(), Vec::new());
    for case in chosen {
        let began = Instant::now();
        let outcome = (case.run)();
        let seconds = began.elapsed().as_secs_f32();
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
    for failure in &failed {
        println!("failed: {suite} {}", failure.replace('\n', " | "));
    }
    println!("{} passed, {} failed", passed.len(), failed.len());
    Outcome { passed, failed: failed.len() }
}
