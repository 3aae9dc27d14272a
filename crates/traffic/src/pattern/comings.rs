//! Clients that leave and come back while something is measured: some of them each second, or all at once.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::{sleep, sleep_until, timeout};

use super::connections::{CLOSE_MAX, CONNECT_MAX, Shared};
use super::stage::nanoseconds;
use crate::driver::{Connected, Driver, DriverError, Role};
use crate::experiment::Experiment;
use crate::outcome::{self, Bytes, ProcessUse};

/// The pause before another attempt to come back.
const AGAIN: Duration = Duration::from_millis(100);

/// How a client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// With the goodbye of its protocol.
    Properly,
    /// Without one, as when its power is cut.
    Abruptly,
}

/// One of those that may leave.
#[derive(Default)]
struct One {
    is_away: Cell<bool>,
    told: Cell<Option<Leaving>>,
    bell: Notify,
}

/// All of them, and what came of it.
#[derive(Default)]
pub(crate) struct Comings {
    all: Vec<One>,
    /// From whom on the next one to leave is looked for.
    next: Cell<usize>,
    away: Cell<u64>,
    counted: RefCell<outcome::Comings>,
    /// Bytes of connections that are no more.
    gone: Cell<Bytes>,
    /// All are back that left at once.
    calm: Notify,
    /// When all left at once, and when the last was back.
    storm: Cell<Option<(Instant, Option<Instant>)>>,
}

impl Comings {
    /// Of so many clients; of none in an experiment in which nobody leaves.
    pub(crate) fn new(experiment: &Experiment, clients: u32) -> Self {
        let is_any = experiment.churn.is_some() || experiment.storm_seconds.is_some();
        let clients = if is_any { usize::try_from(clients).unwrap_or_default() } else { 0 };
        Self { all: std::iter::repeat_with(One::default).take(clients).collect(), ..Self::default() }
    }

    /// Waits until this client is to leave.
    pub(crate) async fn told(&self, number: usize) -> Leaving {
        let Some(one) = self.all.get(number) else { return std::future::pending().await };
        loop {
            if let Some(how) = one.told.take() {
                return how;
            }
            one.bell.notified().await;
        }
    }

    /// Tells the next one that is there to leave. Whether there was any.
    fn one_leaves(&self) -> bool {
        let count = self.all.len();
        let places = (0..count).map(|place| (self.next.get() + place) % count.max(1));
        let Some(place) = places.into_iter().find(|place| self.tell(*place, Leaving::Properly)) else { return false };
        self.next.set((place + 1) % count.max(1));
        true
    }

    /// Tells all that are there. Those that are away come back as before.
    fn all_leave(&self) {
        self.storm.set(Some((Instant::now(), None)));
        for place in 0..self.all.len() {
            self.tell(place, Leaving::Abruptly);
        }
    }

    fn tell(&self, place: usize, how: Leaving) -> bool {
        let Some(one) = self.all.get(place).filter(|one| !one.is_away.get()) else { return false };
        one.is_away.set(true);
        one.told.set(Some(how));
        one.bell.notify_one();
        self.away.set(self.away.get() + 1);
        self.counted.borrow_mut().left += 1;
        true
    }

    /// Leaves, and connects again: as often as it takes. The connection is then another one.
    pub(crate) async fn reconnect(&self, driver: &dyn Driver, role: Role, number: u32, client: &Shared, how: Leaving) {
        let Connected { client: new, took, .. } = {
            let old = client.replace(Box::new(Nothing));
            self.gone.set(self.gone.get().plus(old.bytes()));
            match how {
                Leaving::Properly => drop(timeout(CLOSE_MAX, old.close()).await),
                Leaving::Abruptly => drop(old),
            }
            loop {
                match timeout(CONNECT_MAX, driver.connect(role, number)).await {
                    Ok(Ok(connected)) => break connected,
                    Ok(Err(_)) | Err(_) => self.failed().await,
                }
            }
        };
        let mut counted = self.counted.borrow_mut();
        counted.connect.record_ns(nanoseconds(took).max(1));
        counted.connect_bytes = counted.connect_bytes.plus(new.bytes());
        client.replace(new);
    }

    /// An attempt to come back has failed: there is a pause before another.
    pub(crate) async fn failed(&self) {
        self.counted.borrow_mut().failed += 1;
        sleep(AGAIN).await;
    }

    /// A client that left then is back.
    pub(crate) fn returned(&self, number: usize, left: Instant) {
        let Some(one) = self.all.get(number) else { return };
        one.is_away.set(false);
        self.away.set(self.away.get().saturating_sub(1));
        let mut counted = self.counted.borrow_mut();
        counted.returned += 1;
        counted.away.record_ns(nanoseconds(left.elapsed()).max(1));
        if let Some((at, None)) = self.storm.get().filter(|_| self.away.get() == 0) {
            self.storm.set(Some((at, Some(Instant::now()))));
            self.calm.notify_one();
        }
    }

    /// Waits until all are back that left at once.
    pub(crate) async fn calm(&self) {
        self.calm.notified().await;
    }

    /// The bytes of connections that are no more.
    pub(crate) fn gone(&self) -> Bytes {
        self.gone.get()
    }

    /// The counts; nothing where nobody leaves.
    fn finish(&self) -> Option<outcome::Comings> {
        (!self.all.is_empty()).then(|| self.counted.take())
    }
}

/// When who leaves, and what the gateway had used by then.
pub(crate) struct Departures {
    began: Instant,
    /// Clients a second.
    per_s: Option<f64>,
    done: u32,
    /// Nobody leaves after that.
    seconds: f64,
    storm_s: Option<f64>,
    /// The gateway's use when all left, and when all were back.
    used: (Option<ProcessUse>, Option<ProcessUse>),
    was_storm: bool,
    was_calm: bool,
}

/// A change that has just happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// All have left.
    Storm,
    /// All are back.
    Calm,
}

impl Departures {
    /// Of a measurement that begins now.
    pub(crate) fn new(experiment: &Experiment, clients: u32) -> Self {
        Self {
            began: Instant::now(),
            per_s: experiment.churn.map(|share| share * f64::from(clients)),
            done: 0,
            seconds: experiment.seconds,
            storm_s: experiment.storm_seconds,
            used: (None, None),
            was_storm: false,
            was_calm: false,
        }
    }

    fn next(&self) -> Option<Duration> {
        let one = self.per_s.map(|per_s| f64::from(self.done + 1) / per_s);
        let all = self.storm_s.filter(|_| !self.was_storm);
        let next = one.into_iter().chain(all).filter(|next| *next < self.seconds).reduce(f64::min);
        next.map(Duration::from_secs_f64)
    }

    /// Waits until somebody is to leave.
    pub(crate) async fn due(&self) {
        match self.next() {
            Some(next) => sleep_until((self.began + next).into()).await,
            None => std::future::pending().await,
        }
    }

    /// Has those leave who are due to.
    pub(crate) fn look(&mut self, comings: &Comings, used: impl FnOnce() -> Option<ProcessUse>) -> Option<Change> {
        let seconds = self.began.elapsed().as_secs_f64().min(self.seconds);
        while let Some(per_s) = self.per_s.filter(|per_s| {
            f64::from(self.done + 1) / per_s <= seconds && f64::from(self.done + 1) / per_s < self.seconds
        }) {
            self.done += 1;
            if !comings.one_leaves() {
                // All are away: those that would have left since then cannot.
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most what is due")]
                let due = (seconds * per_s) as u32;
                self.done = self.done.max(due);
            }
        }
        if !self.was_storm && self.storm_s.is_some_and(|at| at <= seconds) {
            self.was_storm = true;
            self.used.0 = used();
            comings.all_leave();
            return Some(Change::Storm);
        }
        self.look_back(comings, used)
    }

    /// Looks whether all are back.
    pub(crate) fn look_back(&mut self, comings: &Comings, used: impl FnOnce() -> Option<ProcessUse>) -> Option<Change> {
        let is_calm = comings.storm.get().is_some_and(|(_, back)| back.is_some());
        if is_calm && !self.was_calm {
            self.was_calm = true;
            self.used.1 = used();
            return Some(Change::Calm);
        }
        None
    }

    /// Writes what came of it. `under_way` are the deliveries still to come when the storm began, `meanwhile` the
    /// messages of the storm: expected, delivered and doubled.
    pub(crate) fn write(&self, comings: &Comings, under_way: u64, meanwhile: [u64; 3], outcome: &mut outcome::Outcome) {
        let Some(mut counted) = comings.finish() else { return };
        let [expected, delivered, duplicates] = meanwhile;
        counted.storm = comings.storm.get().map(|(at, back)| outcome::Storm {
            at_s: at.saturating_duration_since(self.began).as_secs_f64(),
            all_back_s: back.map(|back| back.saturating_duration_since(at).as_secs_f64()),
            under_way,
            expected,
            delivered,
            duplicates,
            gateway_cpu_us: outcome::Comings::cpu_us(self.used.0, self.used.1),
        });
        outcome.bytes = counted.without(outcome.bytes);
        outcome.comings = Some(counted);
    }
}

/// In the place of a connection that is being made again.
struct Nothing;

impl crate::driver::Client for Nothing {
    fn submit(&mut self, _: crate::driver::Request<'_>, _: u64) -> Result<(), DriverError> {
        Err(DriverError::Connection("the client is away".to_owned()))
    }

    fn poll_turn(
        &mut self,
        _: &mut std::task::Context<'_>,
        _: &mut dyn crate::driver::Sink,
    ) -> std::task::Poll<Result<(), DriverError>> {
        std::task::Poll::Pending
    }

    fn bytes(&self) -> Bytes {
        Bytes::default()
    }

    fn close(self: Box<Self>) -> crate::driver::Pending<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}
