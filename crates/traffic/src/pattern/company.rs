//! Several threads that do one experiment together, each with some of the topics, and their publishers and subscribers.
//!
//! A message is sent and received on one thread, so that each counts what is its own and nothing is counted twice or by
//! halves. Threads have one clock. They meet before they begin, when the measurement begins, and when it has ended; the
//! first of them reads the processes and the link.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::watch;

use super::PatternError;
use super::live::Sample;
use super::schedule::Draw;
use super::stage::nanoseconds;
use crate::experiment::Experiment;

/// The state that the threads share.
#[derive(Debug)]
struct Company {
    /// The zero of the clock of all.
    epoch: Instant,
    /// How many there are.
    of: u32,
    state: Mutex<State>,
    /// How often all have met.
    met: watch::Sender<u64>,
}

impl Company {
    fn of(of: u32) -> Self {
        let epoch = Instant::now();
        let state = Mutex::new(State { arrived: 0, at: epoch, samples: BTreeMap::new(), failed: None });
        Self { epoch, of, state, met: watch::Sender::new(0) }
    }
}

#[derive(Debug)]
struct State {
    arrived: u32,
    /// When they met last.
    at: Instant,
    /// The last samples of all but the first.
    samples: BTreeMap<u32, Sample>,
    /// Why it is over.
    failed: Option<PatternError>,
}

/// One thread of them.
#[derive(Clone, Debug)]
pub struct Member {
    index: u32,
    /// Which part of its experiment's clients are its own, and of how many.
    part: (u32, u32),
    draw: Draw,
    company: Arc<Company>,
}

impl Member {
    /// The only thread there is.
    #[must_use]
    pub fn alone() -> Self {
        Self::first(1)
    }

    /// The first of so many threads.
    #[must_use]
    pub fn first(of: u32) -> Self {
        Self { index: 0, part: (0, of), draw: Draw::default(), company: Arc::new(Company::of(of)) }
    }

    /// The threads of experiments that are done at the same time, of each so many, in a repetition of this number.
    #[must_use]
    pub fn together(threads: &[u32], repetition: u32) -> Vec<Self> {
        let company = Arc::new(Company::of(threads.iter().sum()));
        let draws = (0..).map(|group| Draw { repetition, group });
        let parts = threads.iter().zip(draws).flat_map(|(of, draw)| (0..*of).map(move |part| ((part, *of), draw)));
        let member = |(index, (part, draw))| Self { index, part, draw, company: Arc::clone(&company) };
        (0..).zip(parts).map(member).collect()
    }

    /// The others, of one experiment.
    pub fn others(&self) -> impl Iterator<Item = Self> {
        let of = self.company.of;
        (1..of).map(move |index| Self { index, part: (index, of), ..self.clone() })
    }

    /// Tells the draws of its experiment from those of others.
    pub(crate) fn draw(&self) -> Draw {
        self.draw
    }

    /// Whether it is one of several.
    pub(crate) fn has_others(&self) -> bool {
        self.company.of > 1
    }

    /// The zero of the clock of all threads.
    pub(crate) fn epoch(&self) -> Instant {
        self.company.epoch
    }

    /// Its publishers, or other clients, by number.
    pub(crate) fn publishers(&self, experiment: &Experiment) -> Vec<u32> {
        self.own(experiment, experiment.publishers)
    }

    /// Its subscribers, by number.
    pub(crate) fn subscribers(&self, experiment: &Experiment) -> Vec<u32> {
        self.own(experiment, experiment.subscribers)
    }

    fn own(&self, experiment: &Experiment, clients: u32) -> Vec<u32> {
        // By topic, where there are enough; else nobody receives, and it does not matter.
        let (part, of) = self.part;
        let key = |number: u32| if experiment.topics < of { number } else { number % experiment.topics };
        (0..clients).filter(|number| key(*number) % of == part).collect()
    }

    /// Waits for all threads. Returns the time at which the last came, in nanoseconds on the clock of all.
    ///
    /// # Errors
    /// One of them has failed.
    pub(crate) async fn meet(&self) -> Result<u64, PatternError> {
        let mut met = self.company.met.subscribe();
        let round = *met.borrow_and_update();
        {
            let mut state = self.state();
            state.arrived += 1;
            if state.arrived == self.company.of {
                (state.arrived, state.at) = (0, Instant::now());
                self.company.met.send_modify(|met| *met += 1);
            }
        }
        while *met.borrow() == round && self.state().failed.is_none() {
            if met.changed().await.is_err() {
                break;
            }
        }
        let state = self.state();
        match &state.failed {
            Some(why) => Err(why.clone()),
            None => Ok(nanoseconds(state.at.saturating_duration_since(self.company.epoch))),
        }
    }

    /// It has failed, and all others have with it.
    pub fn fail(&self, why: PatternError) {
        self.state().failed.get_or_insert(why);
        self.company.met.send_modify(|_| {});
    }

    /// Takes a sample of this thread.
    pub fn note(&self, sample: &Sample) {
        self.state().samples.insert(self.index, *sample);
    }

    /// The sample of the first thread with the last ones of the others. Percentiles of all are not known.
    #[must_use]
    pub fn sum(&self, first: &Sample) -> Sample {
        let mut all = Sample { latency_p50_us: None, latency_p99_us: None, ..*first };
        for other in self.state().samples.values() {
            all.sent += other.sent;
            all.acknowledged += other.acknowledged;
            all.delivered += other.delivered;
            all.errors += other.errors;
            all.per_s += other.per_s;
        }
        all
    }

    /// Waits until one of the threads has failed.
    pub async fn failed(&self) -> PatternError {
        let mut met = self.company.met.subscribe();
        loop {
            if let Some(why) = self.state().failed.clone() {
                return why;
            }
            if met.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // It is consistent at any time.
        self.company.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_belongs_to_one_thread_and_is_where_its_topic_is() {
        for (of, topics) in [(1, 1), (2, 2), (3, 7), (4, 1_000), (5, 2)] {
            let experiment =
                Experiment { publishers: 100, subscribers: 60, topics, threads: of, ..Experiment::default() };
            let first = Member::first(of);
            let all: Vec<Member> = std::iter::once(first.clone()).chain(first.others()).collect();
            assert_eq!(all.len(), usize::try_from(of).unwrap());
            let mut publishers: Vec<u32> = all.iter().flat_map(|member| member.publishers(&experiment)).collect();
            publishers.sort_unstable();
            assert!(publishers.into_iter().eq(0..100), "{of} threads, {topics} topics");
            for member in all.iter().filter(|_| topics >= of) {
                let of_publishers = member.publishers(&experiment).into_iter().map(|number| number % topics);
                let topics_of: std::collections::BTreeSet<u32> = of_publishers.collect();
                let subscribers = member.subscribers(&experiment);
                assert!(subscribers.into_iter().all(|number| topics_of.contains(&(number % topics))));
            }
        }
    }

    #[tokio::test]
    async fn all_have_the_time_at_which_the_last_came_and_one_that_fails_ends_all() {
        let first = Member::first(2);
        let second = first.others().next().unwrap();
        for _ in 0..3 {
            let (one, other) = tokio::join!(first.meet(), second.meet());
            assert_eq!(one, other);
        }
        let waiting = async {
            let met = first.meet().await;
            (met, first.failed().await)
        };
        let failing = async {
            tokio::task::yield_now().await;
            second.fail(PatternError::Timer("none".to_owned()));
        };
        let ((met, failed), ()) = tokio::join!(waiting, failing);
        assert_eq!(met.map_err(|error| error.to_string()), Err("no timer: none".to_owned()));
        assert_eq!(failed, PatternError::Timer("none".to_owned()));
    }

    #[test]
    fn threads_of_one_experiment_draw_alike_and_those_of_others_do_not() {
        let draws = |repetition| Member::together(&[2, 1], repetition).iter().map(Member::draw).collect::<Vec<_>>();
        let of = |repetition, group| Draw { repetition, group };
        assert_eq!(draws(0), [of(0, 0), of(0, 0), of(0, 1)]);
        assert_eq!(draws(3), [of(3, 0), of(3, 0), of(3, 1)]);
    }
}
