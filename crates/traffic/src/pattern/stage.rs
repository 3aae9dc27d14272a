//! The state that all clients of one repetition share.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::task::Waker;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::sleep_until;

use super::Closed;
use super::comings::Comings;
use super::company::Member;
use super::content::Content;
use super::ledger::{Followed, Ledger, Topics};
use super::offer::Offer;
use super::schedule::Draw;
use super::slices::Slices;
use super::stamp::{STAMP_BYTES, Stamp};
use crate::experiment::{Experiment, Follow, Operation};
use crate::link::Conditions;
use crate::measure::latency::Latency;

/// Shared by every task of one thread.
pub(crate) struct Stage {
    pub(crate) experiment: Experiment,
    /// Tells the draws of Poisson arrivals from those of other repetitions and groups.
    pub(crate) draw: Draw,
    pub(crate) ledger: RefCell<Ledger>,
    /// How messages are known again.
    pub(crate) stamp: Stamp,
    epoch: Instant,
    /// Publishers may send.
    pub(crate) open: Cell<bool>,
    /// From when on they might. The generator is not late with what was due before.
    pub(crate) opened_ns: Cell<u64>,
    /// Publishers that are at work.
    pub(crate) publishers: Cell<u32>,
    /// Publishers that have begun all that they should.
    pub(crate) finished: Cell<u32>,
    /// From when an operation was due to when it was sent, where nothing but the generator held it back.
    pub(crate) lateness: RefCell<Latency>,
    /// The operations that come at a rate.
    pub(crate) offer: Offer,
    /// Subscribers that leave and come back.
    pub(crate) comings: Comings,
    /// The connection that ended first, and must not have.
    closed: RefCell<Option<Closed>>,
    /// Connections may break: the link loses frames, and how many break is a result.
    may_break: bool,
    /// Publishers that wait for others' deliveries.
    waiting: RefCell<Vec<Waker>>,
    /// The tasks of these, so that none is there twice.
    known: RefCell<HashSet<usize>>,
    /// Something that the conductor may wait for has happened.
    pub(crate) changed: Notify,
}

impl Stage {
    /// Of the clients of one thread.
    pub(crate) fn new(experiment: &Experiment, conflates: bool, member: &Member) -> Self {
        let (publishers, subscribers) = (member.publishers(experiment), member.subscribers(experiment));
        let mut ledger = Ledger::new(lanes(experiment), Content::of(experiment));
        let stamp = Stamp::of(experiment.publishers);
        ledger.stamped(stamp);
        ledger.named(Topics::of(experiment));
        ledger.slice(Slices::each_ns(experiment));
        if experiment.operation == Operation::Deliver {
            for subscriber in &subscribers {
                let followed = followed(experiment, *subscriber);
                ledger.add_reader(followed, is_stamped(experiment), conflates);
            }
        }
        Self {
            experiment: experiment.clone(),
            draw: member.draw(),
            ledger: RefCell::new(ledger),
            stamp,
            epoch: member.epoch(),
            open: Cell::new(false),
            opened_ns: Cell::new(0),
            publishers: Cell::new(count(&publishers)),
            finished: Cell::new(0),
            lateness: RefCell::default(),
            offer: Offer::new(experiment, member.draw(), &publishers),
            comings: Comings::new(experiment, count(&subscribers)),
            closed: RefCell::default(),
            may_break: may_break(experiment),
            waiting: RefCell::default(),
            known: RefCell::default(),
            changed: Notify::new(),
        }
    }

    /// Nanoseconds since this stage was set up.
    pub(crate) fn now_ns(&self) -> u64 {
        nanoseconds(self.epoch.elapsed())
    }

    /// Wakes this task when deliveries have made room.
    pub(crate) fn wait(&self, waker: &Waker) {
        // Of one task there is one address.
        if self.known.borrow_mut().insert(waker.data().addr()) {
            self.waiting.borrow_mut().push(waker.clone());
        }
    }

    /// There is room, or the rules have changed.
    pub(crate) fn wake(&self) {
        // Woken tasks run later, and may wait again: the list must not be borrowed then, nor is it.
        self.known.borrow_mut().clear();
        self.waiting.borrow_mut().drain(..).for_each(Waker::wake);
    }

    /// Whether a count was asked for, and everything has begun.
    pub(crate) fn all_begun(&self) -> bool {
        self.finished.get() >= self.publishers.get()
    }

    /// How late operations were, where they come at a rate.
    pub(crate) fn late(&self) -> Option<Latency> {
        self.experiment.rate.map(|_| self.lateness.take())
    }

    /// How long missing messages are waited for.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_secs_f64(self.experiment.drain_seconds)
    }

    /// A connection has ended before it should, as its client noticed now.
    pub(crate) fn disconnected(&self, who: String, why: &str) {
        let mut ledger = self.ledger.borrow_mut();
        ledger.disconnected(why);
        if !self.may_break {
            let after = ledger.since_began(self.now_ns()).map(Duration::from_nanos);
            self.closed.borrow_mut().get_or_insert_with(|| Closed { who, after, why: why.to_owned() });
        }
        self.changed.notify_one();
    }

    /// Whether the repetition is void.
    pub(crate) fn is_void(&self) -> bool {
        self.closed.borrow().is_some()
    }

    /// Why it is.
    pub(crate) fn check(&self) -> Result<(), Closed> {
        self.closed.borrow().clone().map_or(Ok(()), Err)
    }

    /// Waits so long, or until the repetition is void.
    pub(crate) async fn pass(&self, time: Duration) {
        let end = tokio::time::Instant::now() + time;
        while !self.is_void() {
            tokio::select! {
                () = self.changed.notified() => {}
                () = sleep_until(end) => return,
            }
        }
    }

    /// How many latencies one operation of a publisher makes: of its deliveries, else of its answer.
    pub(crate) fn weight(&self, publisher: u32) -> u64 {
        u64::from(self.ledger.borrow().fan_out(self.lane(publisher))).max(1)
    }

    /// The lane of a publisher's messages.
    pub(crate) fn lane(&self, publisher: u32) -> u32 {
        if is_stamped(&self.experiment) { publisher } else { publisher % self.experiment.topics }
    }

    /// The topic of publisher, or subscriber, `number`.
    pub(crate) fn topic(&self, number: u32) -> String {
        self.experiment.topic.replace("{}", &(number % self.experiment.topics).to_string())
    }

    /// The topic, or the filter, that subscriber `number` follows.
    pub(crate) fn followed(&self, number: u32) -> String {
        match self.experiment.follow {
            Follow::Topic => self.topic(number),
            Follow::All => self.experiment.filter(),
        }
    }
}

fn count(numbers: &[u32]) -> u32 {
    u32::try_from(numbers.len()).unwrap_or(u32::MAX)
}

/// Whether connections may break without a fault of the other end.
pub(crate) fn may_break(experiment: &Experiment) -> bool {
    experiment.link.parse::<Conditions>().is_ok_and(|conditions| conditions.is_lossy())
}

/// A duration as it is counted here.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Whether payloads have room for a stamp. What nobody receives needs none.
pub(crate) fn is_stamped(experiment: &Experiment) -> bool {
    experiment.operation != Operation::Deliver || experiment.payload_bytes >= STAMP_BYTES
}

fn lanes(experiment: &Experiment) -> u32 {
    if is_stamped(experiment) { experiment.publishers } else { experiment.topics }
}

/// The lanes of a subscriber.
fn followed(experiment: &Experiment, subscriber: u32) -> Followed {
    let topic = subscriber % experiment.topics;
    match experiment.follow {
        Follow::All => Followed::every(0, 1),
        Follow::Topic if is_stamped(experiment) => Followed::every(topic, experiment.topics),
        Follow::Topic => Followed::one(topic),
    }
}
