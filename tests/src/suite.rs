//! A list of cases, filtered by the words on the command line as `cargo test` does.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

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

/// The same, but with as many cases at once as there are processors, and one more: most of a case's time it waits. The
/// `idle` cases hardly do anything else, and have as many lanes of their own. Only for cases that share nothing, and
/// whose bounds on times have room for the load of the others.
#[must_use]
pub fn run_side_by_side(suite: &str, cases: &[Case], idle: &[Case]) -> ExitCode {
    let lanes = thread::available_parallelism().map_or(1, |processors| processors.get() + 1);
    code(&run_in_lanes(suite, [cases, idle].map(|cases| Queue::new(chosen(cases), lanes)).into(), CASE_MAX))
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
    run_in_lanes(suite, vec![Queue::new(chosen(cases), 1)], CASE_MAX)
}

/// Cases that so many lanes take one after the other.
struct Queue {
    cases: Vec<Case>,
    next: AtomicUsize,
    lanes: usize,
}

impl Queue {
    fn new(cases: Vec<Case>, lanes: usize) -> Self {
        Self { cases, next: AtomicUsize::new(0), lanes }
    }

    fn take(&self) -> Option<Case> {
        self.cases.get(self.next.fetch_add(1, Ordering::Relaxed)).copied()
    }
}

/// The longest that a case may take. The longest of ours take a minute on a machine with two processors.
const CASE_MAX: Duration = Duration::from_secs(600);

/// Reports of a lane, by the name of the case.
enum Said {
    Began(&'static str),
    Ended(&'static str, Result<String>),
}

/// The cases that the command line names.
fn chosen(cases: &[Case]) -> Vec<Case> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let is_chosen = |case: &&Case| words.is_empty() || words.iter().any(|word| case.name.contains(word));
    cases.iter().filter(is_chosen).copied().collect()
}

/// Runs the cases of each queue in their order, in the threads of its lanes. A case that does not end in time fails,
/// and the others go on: its thread is left behind, and ends with the process.
fn run_in_lanes(suite: &str, queues: Vec<Queue>, case_max: Duration) -> Outcome {
    let count: usize = queues.iter().map(|queue| queue.cases.len()).sum();
    let (say, hear) = mpsc::channel();
    let spawn_lane = |queue: &Arc<Queue>| {
        let (queue, say) = (Arc::clone(queue), say.clone());
        thread::spawn(move || run_lane(&queue, &say));
    };
    let mut of_case = BTreeMap::new();
    for queue in queues.into_iter().map(Arc::new) {
        of_case.extend(queue.cases.iter().map(|case| (case.name, Arc::clone(&queue))));
        (0..queue.lanes).for_each(|_| spawn_lane(&queue));
    }
    assert_eq!(of_case.len(), count, "two cases of {suite} have one name");
    let mut running: BTreeMap<&'static str, Instant> = BTreeMap::new();
    let mut failed = Vec::new();
    let mut passed = BTreeSet::new();
    while passed.len() + failed.len() < count {
        let oldest = running.iter().min_by_key(|(_, began)| **began).map(|(name, began)| (*name, *began));
        let patience = oldest.map_or(case_max, |(_, began)| case_max.saturating_sub(began.elapsed()));
        let (name, outcome) = match (hear.recv_timeout(patience), oldest) {
            (Ok(Said::Began(name)), _) => {
                running.insert(name, Instant::now());
                continue;
            }
            (Ok(Said::Ended(name, outcome)), _) => (name, outcome),
            (Err(_), Some((name, _))) => {
                of_case.get(name).into_iter().for_each(spawn_lane);
                (name, Err(anyhow!("it does not end")))
            }
            (Err(_), None) => continue,
        };
        // Nothing more is heard of a case that ended too late.
        let Some(began) = running.remove(name) else { continue };
        let seconds = began.elapsed().as_secs_f32();
        match outcome {
            Ok(text) => {
                passed.insert(name);
                println!("{suite} {name}: ok in {seconds:.1} s {text}");
            }
            Err(error) => {
                println!("{suite} {name}: FAILED in {seconds:.1} s: {error:#}");
                failed.push(format!("{name}: {error:#}"));
            }
        }
    }
    for failure in &failed {
        println!("failed: {suite} {}", failure.replace('\n', " | "));
    }
    println!("{} passed, {} failed", passed.len(), failed.len());
    Outcome { passed, failed: failed.len() }
}

/// Runs one case after the other.
fn run_lane(queue: &Queue, say: &Sender<Said>) {
    while let Some(case) = queue.take() {
        if say.send(Said::Began(case.name)).is_err() {
            return;
        }
        // A case that panics fails; it does not end the suite.
        let outcome = panic::catch_unwind(AssertUnwindSafe(case.run));
        let outcome = outcome.unwrap_or_else(|panic| Err(anyhow!("panicked: {}", message(&*panic))));
        if say.send(Said::Ended(case.name, outcome)).is_err() {
            return;
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: fn() -> Result<String> = || Ok(String::new());

    #[test]
    fn a_case_that_does_not_end_fails_and_the_others_are_run() {
        let hang = || loop {
            thread::park();
        };
        let panic = || panic!("a case of this test");
        let names = ["one", "hangs", "panics", "two", "hangs as well", "three"];
        let runs = [QUICK, hang, panic, QUICK, hang, QUICK];
        for lanes in 1..4 {
            let mut cases: Vec<_> = names.into_iter().zip(runs).map(|(name, run)| Case { name, run }).collect();
            let others = cases.split_off(2);
            let queues = [cases, others].map(|cases| Queue::new(cases, lanes)).into();
            let outcome = run_in_lanes("suite", queues, Duration::from_millis(200));
            assert_eq!(outcome.passed, BTreeSet::from(["one", "two", "three"]));
            assert_eq!(outcome.failed, 3);
        }
    }
}
