//! Traffic patterns: publishers and subscribers, requests, repeated connections, idle connections.
//!
//! One repetition of an [`Experiment`] is one call of [`run`] on each thread, mostly on one: every client is a task of
//! a `tokio::runtime::LocalRuntime`, except that a crew serves all clients that only send requests. All clients of a
//! thread share one stage, which counts operations that may be sent and messages that have arrived. An operation is due
//! at its time whether or not the previous one was answered, and its latency counts from then, so that a pause of the
//! gateway shows in full (no coordinated omission).

mod alarm;
mod comings;
mod company;
mod connect;
mod connections;
mod content;
mod course;
mod crew;
mod deliver;
mod hold;
mod ledger;
mod live;
mod offer;
mod pacer;
mod pause;
mod publisher;
mod schedule;
mod slices;
mod stage;
mod stamp;
mod subscriber;
mod unconnected;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

pub use company::Member;
pub use live::{Live, Sample};
pub use schedule::Draw;
pub(crate) use stage::is_stamped;
pub(crate) use stamp::{PUBLISHERS_MAX, STAMP_BYTES, Stamp};

use crate::driver::{Driver, DriverError};
use crate::experiment::{Experiment, ExperimentError, Operation};
use crate::measure::gateway::GatewayProbe;
use crate::measure::process::{MachineProbe, ProcessProbe};
use crate::outcome::{Outcome, Wire};

/// Connections that are being made at the same time.
const CONNECTING_MAX: usize = 64;

/// Longer than a delayed acknowledgement of TCP (Linux: 40 ms, at most 200 ms), and than a process waits for a
/// processor that others want, too: after what is sent and forgotten, nobody waits for the answer but this.
const SETTLING: Duration = Duration::from_millis(250);
/// How often it is looked again.
const SETTLING_MAX: u32 = 5;

/// Ends the recording of frames, and says what they were: keys of [`Outcome::more`].
pub type Recording = Box<dyn FnOnce() -> BTreeMap<String, f64>>;

/// When the last interval of a repetition began, for those who look on.
pub type Since = Rc<Cell<Option<Instant>>>;

/// Where one repetition runs.
pub struct Bench<'a> {
    /// Connects publishers and askers.
    pub publishers: Rc<dyn Driver>,
    /// Connects subscribers.
    pub subscribers: Rc<dyn Driver>,
    /// The processes of the gateway, where they are known.
    pub gateway: Option<GatewayProbe>,
    /// The generator's own process.
    pub generator: ProcessProbe,
    /// Returns the traffic that the link has counted since its creation.
    pub wire: Option<Box<dyn Fn() -> Wire>>,
    /// Begins to record frames, if requested.
    pub record: Option<Box<dyn Fn() -> Option<Recording> + 'a>>,
    /// Whether the CoAP door omits superseded values.
    pub conflates: bool,
    /// When the last interval began.
    pub since: Since,
    /// Takes samples, if anybody watches.
    pub live: Option<Live>,
    /// Which of the threads this is.
    pub member: Member,
}

impl Bench<'_> {
    /// Begins the interval of both processes.
    fn start(&mut self) {
        self.generator.start();
        self.since.set(Some(Instant::now()));
        if let Some(gateway) = &mut self.gateway {
            gateway.start();
        }
    }

    /// Ends it: what both have used, and everybody else on this machine.
    fn end(&self, machine: MachineProbe, outcome: &mut Outcome) {
        outcome.generator = self.generator.read();
        outcome.gateway = self.gateway.as_ref().map(GatewayProbe::read);
        let known: Vec<_> = outcome.gateway.into_iter().chain([outcome.generator]).collect();
        outcome.others_cpu_s = machine.others_cpu_s(&known);
    }

    fn record(&self) -> Option<Recording> {
        self.record.as_ref().and_then(|begin| begin())
    }

    fn wire(&self) -> Option<Wire> {
        self.wire.as_ref().map(|read| read())
    }

    fn wire_since(&self, earlier: Option<Wire>) -> Option<Wire> {
        Some(self.wire()?.since(earlier?))
    }

    /// The same, when nothing has passed for a while: acknowledgements of TCP may come later than what they answer.
    async fn settled_wire_since(&self, earlier: Option<Wire>) -> Option<Wire> {
        let mut last = self.wire_since(earlier)?;
        for _ in 0..SETTLING_MAX {
            tokio::time::sleep(SETTLING).await;
            let now = self.wire_since(earlier)?;
            if now == last {
                break;
            }
            last = now;
        }
        Some(last)
    }
}

/// Why there is no outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// A client could not be connected, or broke.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The experiment cannot be done.
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    /// A thread of the generator could not be started, or did not come to its end.
    #[error("a thread of the generator: {0}")]
    Thread(String),
    /// One of several experiments that were done at the same time.
    #[error("group {name:?}: {why}")]
    Group {
        /// Its name.
        name: String,
        /// Its error.
        why: Box<PatternError>,
    },
    /// There is no timer for operations at a rate.
    #[error("no timer: {0}")]
    Timer(String),
    /// The other end closed a connection, or it broke, while it was measured.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// The other end accepted and then was silent.
    #[error("no answer within {0} s")]
    Silence(u64),
}

/// A connection that ended before it should, which voids a repetition: from then on something else was measured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection of {who} ended {}: {why}", moment(*after))]
pub struct Closed {
    /// The client.
    pub who: String,
    /// How long after the beginning of the measurement; nothing before it.
    pub after: Option<Duration>,
    /// The reason, as the client noticed it.
    pub why: String,
}

/// When something happened.
#[must_use]
pub fn moment(after: Option<Duration>) -> String {
    after.map_or_else(
        || "before the measurement began".to_owned(),
        |after| format!("{:.3} s after the measurement began", after.as_secs_f64()),
    )
}

/// Does one repetition. Has to be called within a `LocalRuntime` with time and I/O.
///
/// # Errors
/// Nothing was measured: connections could not be made, or the experiment is none.
pub async fn run(experiment: &Experiment, bench: &mut Bench<'_>) -> Result<Outcome, PatternError> {
    experiment.check()?;
    match experiment.operation {
        Operation::Deliver | Operation::Get | Operation::Put | Operation::Post => deliver::run(experiment, bench).await,
        Operation::Connect => connect::run(experiment, bench).await,
        Operation::Hold => hold::run(experiment, bench).await,
    }
}
