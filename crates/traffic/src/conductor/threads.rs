//! The further threads of the generator, where an experiment has several or several are done at the same time.

use std::rc::Rc;
use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::oneshot;

use crate::driver::{self, Driver};
use crate::experiment::Experiment;
use crate::measure::process::ProcessProbe;
use crate::outcome::Outcome;
use crate::pattern::{self, Bench, Live, Member, PatternError};
use crate::target::Access;

/// The work of each thread of an experiment.
#[derive(Clone)]
pub(super) struct Work {
    /// The name of the experiment, where there are several.
    pub(super) group: Option<String>,
    pub(super) experiment: Experiment,
    pub(super) publishers: Access,
    pub(super) subscribers: Access,
    pub(super) conflates: bool,
    /// Whether somebody watches.
    pub(super) is_watched: bool,
}

/// Threads at work. They end with this.
pub(super) struct Threads {
    first: Member,
    all: Vec<(JoinHandle<()>, oneshot::Receiver<Outcome>)>,
}

/// Connects publishers, and connects subscribers.
pub(super) type Drivers = (Rc<dyn Driver>, Rc<dyn Driver>);

impl Work {
    /// The drivers of one thread.
    pub(super) fn drivers(&self) -> Result<Drivers, PatternError> {
        let Self { experiment, publishers, subscribers, .. } = self;
        let writer: Rc<dyn Driver> = driver::open(experiment.door, experiment, publishers)?.into();
        let reader = match experiment.reader_door() {
            door if door == experiment.door => Rc::clone(&writer),
            door => driver::open(door, experiment, subscribers)?.into(),
        };
        Ok((writer, reader))
    }

    /// An error, with the name of the experiment that it is of.
    pub(super) fn named(&self, why: PatternError) -> PatternError {
        match &self.group {
            Some(name) => PatternError::Group { name: name.clone(), why: Box::new(why) },
            None => why,
        }
    }

    async fn perform(&self, member: &Member) -> Result<Outcome, PatternError> {
        let (publishers, subscribers) = self.drivers()?;
        let noting = member.clone();
        let mut bench = Bench {
            publishers,
            subscribers,
            gateway: None,
            generator: ProcessProbe::of(&[]),
            wire: None,
            record: None,
            conflates: self.conflates,
            since: Rc::default(),
            live: self.is_watched.then(|| Rc::new(move |sample: &_| noting.note(sample)) as Live),
            member: member.clone(),
        };
        pattern::run(&self.experiment, &mut bench).await
    }
}

impl Threads {
    /// Starts all but the first, in the network of this one.
    pub(super) fn start(first: &Member, rest: impl IntoIterator<Item = (Work, Member)>) -> Result<Self, PatternError> {
        let mut threads = Self { first: first.clone(), all: Vec::new() };
        for (number, (work, member)) in rest.into_iter().enumerate() {
            let (done, outcome) = oneshot::channel();
            let name = format!("bench-{}", number + 1);
            let started = thread::Builder::new().name(name).spawn(move || run(&work, &member, done));
            threads.all.push((started.map_err(|error| PatternError::Thread(error.to_string()))?, outcome));
        }
        Ok(threads)
    }

    /// The outcomes of all of them.
    pub(super) async fn join(mut self) -> Result<Vec<Outcome>, PatternError> {
        let mut outcomes = Vec::new();
        for (_, done) in &mut self.all {
            match done.await {
                Ok(outcome) => outcomes.push(outcome),
                // It has ended without an outcome, and has said why.
                Err(_) => return Err(self.first.failed().await),
            }
        }
        Ok(outcomes)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.first.fail(PatternError::Thread("it was ended".to_owned()));
        for (thread, _) in self.all.drain(..) {
            // One that has panicked has said so.
            let _ = thread.join();
        }
    }
}

fn run(work: &Work, member: &Member, done: oneshot::Sender<Outcome>) {
    let _guard = Guard(member);
    let runtime = match Builder::new_current_thread().enable_all().build_local(LocalOptions::default()) {
        Ok(runtime) => runtime,
        Err(error) => return member.fail(PatternError::Thread(error.to_string())),
    };
    runtime.block_on(async {
        let performed = tokio::select! {
            biased;
            why = member.failed() => Err(why),
            performed = work.perform(member) => performed,
        };
        match performed {
            // Nobody waits for it if the first thread has failed.
            Ok(outcome) => drop(done.send(outcome)),
            Err(why) => member.fail(work.named(why)),
        }
    });
}

/// The others do not wait for a thread that has panicked.
struct Guard<'a>(&'a Member);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail(PatternError::Thread("it panicked".to_owned()));
        }
    }
}
