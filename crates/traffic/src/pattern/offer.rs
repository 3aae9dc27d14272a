//! The operations that a schedule offers in the time of a measurement: those that were due are sent, if need be after
//! the time, or else counted with the latency that they have reached by then.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::time::Duration;

use super::schedule::{Draw, Schedule};
use super::stage::nanoseconds;
use crate::experiment::{Experiment, Operation};
use crate::measure::latency::Latency;
use crate::outcome::Outcome;

/// Steps in which the latencies of operations that were never sent are counted. They rise evenly, and the histogram is
/// right to a thousandth.
const STEPS: u64 = 10_000;

/// The schedules of all publishers of a thread. Without a rate there are none, and nothing is offered.
#[derive(Debug)]
pub(crate) struct Offer {
    lines: RefCell<Vec<Line>>,
    /// Operations a second.
    rate: Option<f64>,
    /// Operations of all publishers together.
    count: u64,
    /// When the first operation was, or is, due.
    first_due_ns: Cell<u64>,
    /// When the measurement began.
    opened_ns: Cell<u64>,
    /// Operations that are due from then on are no part of it.
    closes_ns: Cell<u64>,
    /// Operations that had begun when the measurement began.
    before: Cell<u64>,
    /// When the last operation began.
    last_ns: Cell<u64>,
    /// Operations that were due and had not begun when the time was over.
    behind: Cell<u64>,
}

/// The schedule of one publisher.
#[derive(Clone, Debug)]
struct Line {
    publisher: u32,
    schedule: Schedule,
    begun: u64,
    /// Operations that it may begin in all.
    most: u64,
}

impl Line {
    fn due_before(&self, elapsed_ns: u64) -> u64 {
        self.schedule.due_before(elapsed_ns).min(self.most)
    }
}

impl Offer {
    pub(crate) fn new(experiment: &Experiment, draw: Draw, publishers: &[u32]) -> Self {
        let line = |rate: f64, number: u32| Line {
            publisher: number,
            schedule: Schedule::new(experiment, draw, rate, number),
            begun: 0,
            // Visitors share the count.
            most: if experiment.operation == Operation::Connect { u64::MAX } else { share(experiment, number) },
        };
        let lines = experiment.rate.map(|rate| publishers.iter().map(|number| line(rate, *number)).collect());
        Self {
            lines: RefCell::new(lines.unwrap_or_default()),
            rate: experiment.rate,
            count: experiment.count.unwrap_or(u64::MAX),
            first_due_ns: Cell::new(0),
            opened_ns: Cell::new(0),
            closes_ns: Cell::new(u64::MAX),
            before: Cell::new(0),
            last_ns: Cell::new(0),
            behind: Cell::new(0),
        }
    }

    /// The first operation is due now.
    pub(crate) fn start(&self, now_ns: u64) {
        self.first_due_ns.set(now_ns);
    }

    /// When the first operation was due.
    pub(crate) fn first_due_ns(&self) -> u64 {
        self.first_due_ns.get()
    }

    /// The measurement begins, and lasts so long.
    pub(crate) fn open(&self, now_ns: u64, lasts_ns: u64) {
        self.before.set(self.begun());
        self.opened_ns.set(now_ns);
        self.last_ns.set(now_ns);
        self.closes_ns.set(now_ns.saturating_add(lasts_ns));
    }

    /// Up to when operations may be due that begin now, since the first of all.
    pub(crate) fn horizon_ns(&self, now_ns: u64) -> u64 {
        self.elapsed_ns(self.closes_ns.get().min(now_ns.saturating_add(1)))
    }

    /// Whether there is nothing due at that time since the first of all, nor later.
    pub(crate) fn is_over_at(&self, due_ns: u64) -> bool {
        due_ns >= self.elapsed_ns(self.closes_ns.get())
    }

    fn elapsed_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.first_due_ns.get())
    }

    /// An operation of this publisher begins.
    pub(crate) fn begin(&self, publisher: u32, now_ns: u64) {
        let mut lines = self.lines.borrow_mut();
        // Of one thread all are there, each in its place.
        let place = usize::try_from(publisher)
            .ok()
            .filter(|place| lines.get(*place).is_some_and(|line| line.publisher == publisher));
        let place = place.or_else(|| lines.binary_search_by_key(&publisher, |line| line.publisher).ok());
        if let Some(line) = place.and_then(|place| lines.get_mut(place)) {
            line.begun += 1;
            self.last_ns.set(now_ns);
        }
    }

    /// Records what never began, all of it and by slice.
    fn record(&self, behind: &Behind<'_>, outcome: &mut Outcome) {
        let Behind { line, missing, .. } = behind;
        let (mut place, end) = (line.begun, line.begun + missing);
        behind.record(place..end, &mut outcome.unsent_latency);
        let last = outcome.slices.len().saturating_sub(1);
        for (number, slice) in outcome.slices.iter_mut().enumerate() {
            let ends_ns = self.opened_ns.get().saturating_add(nanoseconds(Duration::from_secs_f64(slice.to_s)));
            let due = if number == last { end } else { line.due_before(self.elapsed_ns(ends_ns)).clamp(place, end) };
            slice.unsent += due - place;
            slice.offered += due - place;
            behind.record(place..due, &mut slice.latency);
            place = due;
        }
    }

    fn begun(&self) -> u64 {
        self.lines.borrow().iter().map(|line| line.begun).sum()
    }

    /// How many were due before the end, and have not begun.
    pub(crate) fn backlog(&self) -> u64 {
        let elapsed_ns = self.elapsed_ns(self.closes_ns.get());
        let lines = self.lines.borrow();
        let due = lines.iter().map(|line| line.due_before(elapsed_ns).saturating_sub(line.begun)).sum::<u64>();
        due.min(self.count.saturating_sub(self.begun()))
    }

    /// The time is over: how far behind its schedule everything is.
    pub(crate) fn close(&self, now_ns: u64) {
        if now_ns < self.closes_ns.get() && self.backlog() > 0 {
            // It ends early, and has offered less.
            self.closes_ns.set(now_ns);
        }
        self.behind.set(self.backlog());
    }

    /// Writes the figures of an open loop. `weight` is how many latencies one operation would have had.
    pub(crate) fn write(&self, now_ns: u64, weight: impl Fn(u32) -> u64, outcome: &mut Outcome) {
        let Some(rate) = self.rate else { return };
        let unsent = self.backlog();
        let offered = self.begun() - self.before.get() + unsent;
        outcome.offered = Some(offered);
        outcome.behind = Some(self.behind.get());
        outcome.unsent = Some(unsent);
        let since_opened = |ns: u64| Duration::from_nanos(ns.saturating_sub(self.opened_ns.get())).as_secs_f64();
        // A ramp lasts as long as it lasts: no count ends it.
        let lasts = since_opened(self.closes_ns.get());
        #[expect(clippy::cast_precision_loss, reason = "2^53 operations are more than a run has")]
        let scheduled = if outcome.slices.is_empty() { (offered as f64 / rate).min(lasts) } else { lasts };
        outcome.sending_seconds = Some(scheduled.max(since_opened(self.last_ns.get())));
        let closes_ns = self.elapsed_ns(self.closes_ns.get());
        let mut left = unsent;
        for line in self.lines.borrow().iter() {
            let missing = line.due_before(closes_ns).saturating_sub(line.begun).min(left);
            left -= missing;
            let behind = Behind { line, missing, elapsed_ns: self.elapsed_ns(now_ns), weight: weight(line.publisher) };
            self.record(&behind, outcome);
        }
    }
}

/// The operations of a publisher where they are counted.
pub(crate) fn share(experiment: &Experiment, publisher: u32) -> u64 {
    let publishers = u64::from(experiment.publishers).max(1);
    let each = |count: u64| count / publishers + u64::from(u64::from(publisher) < count % publishers);
    experiment.count.map_or(u64::MAX, each)
}

/// Operations of one publisher that never began.
struct Behind<'a> {
    line: &'a Line,
    missing: u64,
    elapsed_ns: u64,
    weight: u64,
}

impl Behind<'_> {
    /// Records those of these places.
    fn record(&self, places: Range<u64>, to: &mut Latency) {
        let Range { start: mut place, end } = places;
        let step = end.saturating_sub(place).div_ceil(STEPS).max(1);
        while place < end {
            let times = step.min(end - place);
            let due_ns = self.line.schedule.at(place + times / 2);
            to.record_many_ns(self.elapsed_ns.saturating_sub(due_ns).max(1), times * self.weight);
            place += times;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn offer(change: impl FnOnce(&mut Experiment)) -> Offer {
        let mut experiment = Experiment { rate: Some(1_000.0), publishers: 4, ..Experiment::default() };
        change(&mut experiment);
        let numbers: Vec<u32> = (0..experiment.publishers).collect();
        let offer = Offer::new(&experiment, Draw::default(), &numbers);
        offer.start(SECOND);
        offer
    }

    fn written(offer: &Offer, now_ns: u64) -> Outcome {
        let mut outcome = Outcome::default();
        offer.write(now_ns, |_| 1, &mut outcome);
        outcome
    }

    #[test]
    fn what_was_due_and_never_sent_has_the_latency_of_the_end() {
        let offer = offer(|_| {});
        offer.open(SECOND, 5 * SECOND);
        // Each sends for four seconds and then no more.
        (0..4).for_each(|publisher| (0..1_000).for_each(|_| offer.begin(publisher, 5 * SECOND)));
        offer.close(6 * SECOND + 2_000_000);
        let outcome = written(&offer, 8 * SECOND);
        assert_eq!((outcome.offered, outcome.behind, outcome.unsent), (Some(5_000), Some(1_000), Some(1_000)));
        assert_eq!(outcome.unsent_latency.count(), 1_000);
        // Due from the fifth second to the sixth, counted at the eighth.
        assert_eq!(outcome.unsent_latency.max_us().map(|us| (us / 1e4).round()), Some(300.0));
        assert_eq!(outcome.unsent_latency.min_us().map(|us| (us / 1e4).round()), Some(200.0));
        assert_eq!(outcome.sending_seconds, Some(5.0));
    }

    #[test]
    fn what_is_sent_late_is_behind_and_not_unsent() {
        let offer = offer(|_| {});
        offer.open(SECOND, SECOND);
        offer.close(2 * SECOND);
        (0..4).for_each(|publisher| (0..250).for_each(|_| offer.begin(publisher, 3 * SECOND)));
        let outcome = written(&offer, 4 * SECOND);
        assert_eq!((outcome.offered, outcome.behind, outcome.unsent), (Some(1_000), Some(1_000), Some(0)));
        assert_eq!(outcome.sending_seconds, Some(2.0));
        assert_eq!(outcome.unsent_latency.count(), 0);
    }

    #[test]
    fn a_count_limits_what_is_offered() {
        let offer = offer(|experiment| experiment.count = Some(10));
        offer.open(SECOND, 5 * SECOND);
        // Of ten operations publishers have three, three, two and two.
        [0, 0, 0, 1, 1, 1, 2].into_iter().for_each(|publisher| offer.begin(publisher, SECOND));
        assert_eq!(offer.backlog(), 3);
        offer.begin(2, SECOND);
        (0..2).for_each(|_| offer.begin(3, SECOND));
        offer.close(2 * SECOND);
        // Ten at a rate of a thousand take ten milliseconds, however long their answers did.
        assert_eq!(written(&offer, 3 * SECOND).sending_seconds, Some(0.01));
    }

    #[test]
    fn the_warm_up_is_not_offered_but_what_it_left_is() {
        let offer = offer(|_| {});
        (0..300).for_each(|_| offer.begin(0, SECOND));
        offer.open(2 * SECOND, SECOND);
        offer.close(3 * SECOND);
        assert_eq!(written(&offer, 3 * SECOND).offered, Some(1_500 + 200));
    }

    #[test]
    fn a_closed_loop_offers_nothing() {
        let offer = offer(|experiment| experiment.rate = None);
        offer.open(SECOND, SECOND);
        offer.close(2 * SECOND);
        assert_eq!(written(&offer, 2 * SECOND), Outcome::default());
    }

    #[test]
    fn millions_are_counted_in_few_steps() {
        let offer = offer(|experiment| experiment.rate = Some(1e7));
        offer.open(SECOND, 100 * SECOND);
        offer.close(101 * SECOND);
        let outcome = written(&offer, 101 * SECOND);
        assert_eq!(outcome.unsent_latency.count(), 1_000_000_000);
        assert_eq!(outcome.unsent_latency.percentile_us(50.0).map(|us| (us / 1e6).round()), Some(50.0));
    }
}
