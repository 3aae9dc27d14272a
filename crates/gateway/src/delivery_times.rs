//! Times of deliveries, from when a publication was taken until a delivery of it was written, for each pair of doors
//! (ADR 0054). Each worker has its own, so that none waits for a counter of another.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use fogmux_bus::{Door, Message, Publication, Sample, Timestamp};
use smallvec::SmallVec;

#[cfg(feature = "traces")]
use crate::traces::Traced;

const DOORS: usize = Door::ALL.len();

/// The upper bounds of the buckets, in microseconds: from what an idle gateway needs to what a person calls broken, two
/// and a half apart, so that a quantile is known to that factor.
const BOUNDS_US: [u64; 16] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000,
];

/// The times of one pair of doors.
#[derive(Debug, Default)]
struct Histogram {
    /// Those of each bound, without those of the bounds before; the last are above all bounds.
    counts: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Histogram {
    fn note(&self, us: u64, count: u64) {
        if let Some(bucket) = self.counts.get(BOUNDS_US.partition_point(|bound| *bound < us)) {
            bucket.fetch_add(count, Relaxed);
        }
        self.sum_us.fetch_add(us.saturating_mul(count), Relaxed);
    }
}

/// The times of deliveries of one worker, by the doors of publisher and subscriber.
#[derive(Debug, Default)]
pub(crate) struct DeliveryTimes([[Histogram; DOORS]; DOORS]);

impl DeliveryTimes {
    fn note(&self, mark: &Mark, to: Door, now_us: u64) {
        let &Mark { from, ingest, sample, .. } = mark;
        if let Some(pair) = self.0.get(from.place()).and_then(|pairs| pairs.get(to.place())) {
            pair.note(sample.elapsed_us(ingest, now_us), sample.stands_for());
        }
    }
}

/// The times of all workers.
#[derive(Debug, Default)]
pub struct AllDeliveryTimes(Mutex<Vec<Arc<DeliveryTimes>>>);

/// A reading of the times of one pair of doors.
#[derive(Clone, Debug, PartialEq)]
pub struct PairTimes {
    /// The publisher's door.
    pub from: Door,
    /// The subscriber's door.
    pub to: Door,
    /// The upper bounds in seconds, the last infinite, each with the number of deliveries above the bound before.
    pub buckets: Vec<(f64, u64)>,
    /// The sum of all times.
    pub sum: Duration,
}

impl PairTimes {
    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

impl AllDeliveryTimes {
    /// Those of one more worker.
    pub(crate) fn of_worker(&self) -> Arc<DeliveryTimes> {
        let times = Arc::<DeliveryTimes>::default();
        self.workers().push(Arc::clone(&times));
        times
    }

    fn workers(&self) -> std::sync::MutexGuard<'_, Vec<Arc<DeliveryTimes>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads those of all pairs.
    #[must_use]
    pub fn read(&self) -> Vec<PairTimes> {
        let workers = self.workers();
        let pairs = Door::ALL.into_iter().flat_map(|from| Door::ALL.map(|to| (from, to)));
        let sum =
            |counters: &mut dyn Iterator<Item = &AtomicU64>| -> u64 { counters.map(|one| one.load(Relaxed)).sum() };
        pairs
            .map(|(from, to)| {
                let each = || workers.iter().filter_map(|times| times.0.get(from.place())?.get(to.place()));
                let count = |place| sum(&mut each().filter_map(|pair| pair.counts.get(place)));
                let bounds = BOUNDS_US.map(|us| Duration::from_micros(us).as_secs_f64()).into_iter();
                let buckets = bounds.chain([f64::INFINITY]).enumerate().map(|(place, bound)| (bound, count(place)));
                let sum = Duration::from_micros(sum(&mut each().map(|pair| &pair.sum_us)));
                PairTimes { from, to, buckets: buckets.collect(), sum }
            })
            .collect()
    }
}

/// A delivery to be timed when it is written.
#[derive(Clone, Debug)]
struct Mark {
    from: Door,
    ingest: Timestamp,
    sample: Sample,
    #[cfg(feature = "traces")]
    traced: Option<Box<Traced>>,
    /// It was retained before it was wanted, and takes no time.
    #[cfg(feature = "traces")]
    read: bool,
}

impl Mark {
    fn new(from: Option<Door>, ingest: Timestamp, sample: Option<Sample>) -> Option<Self> {
        Some(Self {
            from: from?,
            ingest,
            sample: sample?,
            #[cfg(feature = "traces")]
            traced: None,
            #[cfg(feature = "traces")]
            read: false,
        })
    }

    fn of(message: &Message) -> Option<Self> {
        Self::new(message.publisher.door, message.ingest, message.sample)
    }

    fn of_publication(publication: &Publication<'_>) -> Option<Self> {
        Self::new(publication.publisher.door, publication.ingest, publication.sample())
    }
}

/// The deliveries in an output that are to be timed when it is written. One word while there are none.
#[derive(Debug, Default)]
pub(crate) struct Marks(Option<Box<SmallVec<[Mark; 4]>>>);

impl Marks {
    /// Notes a delivery that was encoded from a publication.
    pub(crate) fn note_publication(&mut self, publication: &Publication<'_>) {
        if publication.sample().is_some() {
            let mark = Mark::of_publication(publication);
            #[cfg(feature = "traces")]
            let mark = mark.map(|mark| mark.traced(|| Traced::of_publication(publication)));
            self.note(mark);
        }
    }

    /// Notes a delivery that was encoded from a message.
    pub(crate) fn note_message(&mut self, message: &Message) {
        if message.sample.is_some() {
            let mark = Mark::of(message);
            #[cfg(feature = "traces")]
            let mark = mark.map(|mark| mark.traced(|| Traced::of_message(message)));
            self.note(mark);
        }
    }

    #[cold]
    fn note(&mut self, mark: Option<Mark>) {
        self.0.get_or_insert_default().extend(mark);
    }

    /// Adds those of a part of the output that was written apart.
    pub(crate) fn append(&mut self, later: Self) {
        match (&mut self.0, later.0) {
            (_, None) => {}
            (none @ None, later) => *none = later,
            (Some(marks), Some(later)) => marks.extend(*later),
        }
    }

    /// Notes that the output was dropped.
    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }

    /// Whether there are none.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Notes that the output was written to a subscriber at a door.
    #[cold]
    pub(crate) fn written(&mut self, times: &DeliveryTimes, to: Door, now_us: u64) {
        let Some(marks) = self.0.take() else { return };
        marks.iter().for_each(|mark| times.note(mark, to, now_us));
    }
}

#[cfg(feature = "traces")]
impl Mark {
    /// The same with what a span needs, if it is traced.
    fn traced(self, of: impl FnOnce() -> Option<Traced>) -> Self {
        let traced = self.sample.is_traced().then(of).flatten().map(Box::new);
        Self { traced, ..self }
    }
}

#[cfg(feature = "traces")]
impl Marks {
    /// Notes a delivery that is traced, but not counted: it waited for its client, or was `retained` before the client
    /// wanted it.
    pub(crate) fn note_uncounted(&mut self, message: &Message, retained: bool) {
        if message.is_traced() {
            let mark = Mark::of(message).map(|mark| mark.traced(|| Traced::of_message(message)));
            self.note(mark.map(|mark| Mark { sample: mark.sample.uncounted(), read: retained, ..mark }));
        }
    }

    /// Whether any of them is traced.
    pub(crate) fn is_traced(&self) -> bool {
        self.0.iter().flat_map(|marks| marks.iter()).any(|mark| mark.traced.is_some())
    }

    /// Those that are traced, with the microseconds that they took until `now_us`; `None` for a read.
    pub(crate) fn traced(&self, now_us: u64) -> impl Iterator<Item = (&Traced, Option<u64>)> {
        let marks = self.0.iter().flat_map(|marks| marks.iter());
        marks.filter_map(move |mark| {
            let elapsed = (!mark.read).then(|| mark.sample.elapsed_us(mark.ingest, now_us));
            Some((mark.traced.as_deref()?, elapsed))
        })
    }
}

impl DeliveryTimes {
    /// Notes that a message was written to a subscriber at a door.
    pub(crate) fn delivered(&self, message: &Message, to: Door, now_us: impl FnOnce() -> u64) {
        if let Some(mark) = Mark::of(message) {
            self.note(&mark, to, now_us());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_counts_at_the_first_bound_that_it_does_not_exceed() {
        let all = AllDeliveryTimes::default();
        let (one, other) = (all.of_worker(), all.of_worker());
        let pair = |times: &Arc<DeliveryTimes>, us, count| times.0[3][0].note(us, count);
        for us in [0, 100, 101, 10_000_000, 10_000_001] {
            pair(&one, us, 1);
        }
        pair(&other, 100, 128);
        let read = all.read();
        assert_eq!(read.len(), 16);
        for times in read {
            let counted: Vec<_> = times.buckets.iter().copied().filter(|(_, count)| *count > 0).collect();
            if (times.from, times.to) == (Door::Xmpp, Door::Mqtt) {
                assert_eq!(counted, [(0.0001, 130), (0.000_25, 1), (10.0, 1), (f64::INFINITY, 1)]);
                assert_eq!((times.count(), times.sum), (133, Duration::from_micros(20_000_202 + 12_800)));
            } else {
                assert_eq!(counted, [], "{times:?}");
            }
        }
    }
}
