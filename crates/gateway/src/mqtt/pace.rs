//! The pace at which a client takes its queue, and the pauses that it asks of its publishers (ADR 0018).
//!
//! A subscriber that keeps reading must not be disconnected because publishers are faster; one that hardly reads must
//! not slow them. So publishers pause only for subscribers that take a fair share of their queue.
//!
//! From half of the queue on the pause is the time that the subscriber needs for what was published, at the pace at
//! which it reads; if others publish as well, so many times longer that all together keep to that pace. The publisher's
//! next turn is as short as the subscriber can take within a tenth of a second. So publishers go on at the pace of the
//! slowest reader, instead of stopping and starting.
//!
//! When the queue is nearly full, a publisher stops until the subscriber has taken as much as its queue was above that
//! mark, which is when all that was published before has left again. So each publisher has one turn above the mark at
//! most, however many there are.
//!
//! A large message is a step of its own: the socket takes all of it at once, and the client acknowledges it when it has
//! read the last byte. For such messages everything takes as long as a client of the least fair pace needs for one: the
//! time in which it may seem to take nothing, the time in which its pace is judged, and the stop of their publisher.

use std::{sync::Arc, time::Duration};

use fogmux_bus::{Progress, SlowDown, Timestamp, Until};

use crate::{pause::READS, stops::Stops};

/// The fraction of its queue that a client must take within [`READS`] for publishers to wait for it.
const FAIR: usize = 32;
/// The pause for subscribers that are behind. A turn is 64 KiB at most, so this still allows some ten megabytes a
/// second.
const PAUSE: Duration = Duration::from_millis(4);
/// The pause for subscribers that are far behind and whose pace is not known or not fair.
const LONG_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause after one turn for a pace: after a single large message.
const PACED_MAX: Duration = Duration::from_secs(1);
/// The longest pause for a subscriber whose queue is nearly full. It ends as soon as the subscriber has taken enough.
/// Not longer, because a publisher's own subscriptions wait as well, and its PINGREQ behind a PUBLISH.
const NEARLY_MAX: Duration = Duration::from_secs(2);
/// The same for the publisher of a large message, which would otherwise come faster than the subscriber reads it.
const NEARLY_LARGE_MAX: Duration = Duration::from_secs(8);
/// A message is large if a client of the least fair pace needs so long for it.
const LARGE: Duration = Duration::from_secs(1);
/// The longest time for a single message that is allowed for.
const LARGE_MAX: Duration = Duration::from_secs(5);
/// A publisher waits until the subscriber has taken so many times what it brought itself, at most: others fill the
/// queue, and perhaps the subscriber itself does.
const OWN: u128 = 128;
/// The most by which that is multiplied if more comes than is taken nevertheless.
const OWN_SHARES: u128 = 4;
/// The time in which the pace is measured, twice: long enough for a socket that takes much at a time.
const MEASURED: Duration = Duration::from_secs(1);
/// The most publishers that share a pace evenly.
const SHARES_MAX: u128 = 512;
/// The unit of shares.
const SHARE: u128 = 16;
/// The least share: a little less than the pace, so that the queue becomes shorter.
const SHARES_MIN: u128 = SHARE * 5 / 4;

/// How far a subscriber is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Distance {
    /// Behind: publishers slow down.
    Behind,
    /// So far that its queue will soon be full.
    Far,
    /// So far above the mark at which its queue, or the memory of all, is nearly full: publishers stop.
    Nearly(usize),
}

/// The bytes sent to a client, those it has taken and those it has acknowledged, in some time.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    began: Timestamp,
    came: usize,
    taken: usize,
    acknowledged: usize,
}

impl Flow {
    fn begun(now: Timestamp) -> Self {
        Self { began: now, ..Self::default() }
    }
}

/// Whether the client's connection has run since something was queued.
#[derive(Clone, Copy, Debug)]
enum Turn {
    /// It has, and took what it could.
    Had,
    /// It was woken then and has not run.
    Due(Timestamp),
    /// Its socket has no room, which ends its turns until there is some.
    Blocked,
}

/// The pace at which a client takes its queue; exists while the queue is not empty.
#[derive(Debug)]
pub(super) struct Pace {
    progress: Arc<Progress>,
    stops: Arc<Stops>,
    /// The bytes that the client must take within [`READS`] for publishers to wait for it.
    fair_bytes: usize,
    /// The bytes queued since publishers were last asked to pause, those of the largest message, and when.
    came: usize,
    came_largest: usize,
    came_at: Timestamp,
    /// The bytes of the largest message that was queued.
    largest: usize,
    turn: Turn,
    /// For the fairness of its pace.
    fair: Flow,
    is_fair: bool,
    now: Flow,
    before: Option<Flow>,
    /// The part of the pace that a publisher gets, as its reciprocal in units of [`SHARE`].
    shares: u128,
}

impl Pace {
    /// Assumes a fair pace at first. `queue_bytes_max` is the bound of the queue.
    pub(super) fn new(now: Timestamp, queue_bytes_max: usize, stops: Arc<Stops>) -> Self {
        let flow = Flow::begun(now);
        Self {
            progress: Arc::new(Progress::new(now)),
            stops,
            fair_bytes: queue_bytes_max / FAIR,
            came: 0,
            came_largest: 0,
            came_at: now,
            largest: 0,
            turn: Turn::Had,
            fair: flow,
            is_fair: true,
            now: flow,
            before: None,
            shares: SHARE,
        }
    }

    /// Whether it has taken something recently, and publishers wait for it if it is far behind.
    pub(super) fn is_fair(&self, now: Timestamp) -> bool {
        self.is_fair && self.reads(now)
    }

    /// Whether it has taken something recently. While its connection waits for a turn on a busy worker, that is the
    /// time before: the client may have taken everything meanwhile.
    pub(super) fn reads(&self, now: Timestamp) -> bool {
        let as_of = match self.turn {
            Turn::Due(since) => since,
            Turn::Had | Turn::Blocked => now,
        };
        as_of.since(self.progress.read_at().max(self.stops.last())) < self.patience()
    }

    /// The time that a client of the least fair pace needs for so many bytes.
    fn at_fair_pace(&self, bytes: usize) -> Duration {
        let nanos = READS.as_nanos() * bytes as u128 / self.fair_bytes.max(1) as u128;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The time that it needs for the largest message.
    fn step(&self) -> Duration {
        self.at_fair_pace(self.largest).min(LARGE_MAX)
    }

    /// The longest time in which a client that reads takes nothing: it reads a message, and half of it for good
    /// measure.
    fn patience(&self) -> Duration {
        READS.max(self.step() * 3 / 2)
    }

    /// Whether it took a fair amount in so long, less a message that may be under way.
    fn took_enough(&self, elapsed: Duration) -> bool {
        let counted = elapsed.saturating_sub(self.step()).as_nanos();
        // The client takes many messages into a buffer at a time, and acknowledges each when it has read it.
        let taken = self.fair.taken.max(self.fair.acknowledged);
        taken as u128 >= self.fair_bytes as u128 * counted / READS.as_nanos()
    }

    /// Notes that the connection's socket has no room.
    pub(super) const fn blocked(&mut self) {
        self.turn = Turn::Blocked;
    }

    /// Notes a turn of the connection, in which it took this many bytes, and whether it is still far behind.
    pub(super) fn took(&mut self, bytes: usize, is_far: bool, now: Timestamp) {
        self.turn = Turn::Had;
        if bytes > 0 {
            self.progress.took(bytes, now);
            self.fair.taken = self.fair.taken.saturating_add(bytes);
            self.now.taken = self.now.taken.saturating_add(bytes);
        }
        if !is_far {
            self.progress.set_far(false);
        }
    }

    /// Notes that the client read this many bytes of what it had taken.
    pub(super) fn read(&mut self, bytes: usize, now: Timestamp) {
        self.progress.read(bytes, now);
        self.fair.taken = self.fair.taken.saturating_add(bytes);
    }

    /// Notes that the client acknowledged messages of this many bytes, and so has read them.
    pub(super) fn acknowledged(&mut self, bytes: usize, now: Timestamp) {
        // They were counted when it took them.
        self.progress.read(0, now);
        self.fair.acknowledged = self.fair.acknowledged.saturating_add(bytes);
    }

    /// Notes that a message of this many bytes was queued.
    pub(super) fn came(&mut self, bytes: usize, now: Timestamp) {
        self.came = self.came.saturating_add(bytes);
        self.came_largest = self.came_largest.max(bytes);
        self.came_at = now;
        self.largest = self.largest.max(bytes);
        if matches!(self.turn, Turn::Had) {
            self.turn = Turn::Due(now);
        }
    }

    /// Judges its pace again when it is time.
    fn judge(&mut self, now: Timestamp) {
        let went_on = self.stops.last();
        if went_on > self.fair.began {
            // Nobody sent it anything for a part of that time.
            (self.fair, self.now, self.before) = (Flow::begun(now), Flow::begun(now), None);
        }
        // Two large messages at least, of which one may be under way.
        let window = READS.max(self.step() * 5 / 2);
        if now.since(self.fair.began) >= window {
            self.is_fair = self.took_enough(window);
            self.fair = Flow::begun(now);
        }
        if now.since(self.now.began) >= MEASURED {
            self.measure(now);
        }
    }

    /// The pause for the publisher of what came since the last call.
    pub(super) fn slow_down(&mut self, distance: Distance) -> Option<SlowDown> {
        let (bytes, now) = (std::mem::take(&mut self.came), self.came_at);
        let largest = std::mem::take(&mut self.came_largest);
        if bytes == 0 {
            return None;
        }
        self.now.came = self.now.came.saturating_add(bytes);
        self.judge(now);
        if !self.reads(now) {
            return None;
        }
        let for_a_time = |longest, unfair| Some(SlowDown { longest, unfair, ..SlowDown::default() });
        let excess = match distance {
            Distance::Behind => return for_a_time(PAUSE, false),
            Distance::Far | Distance::Nearly(_) if !self.is_fair => return for_a_time(LONG_PAUSE, true),
            Distance::Far => None,
            Distance::Nearly(excess) => Some(excess),
        };
        // The whole excess, unless this publisher brought next to nothing of it.
        let own =
            usize::try_from(bytes as u128 * OWN * self.shares.min(SHARE * OWN_SHARES) / SHARE).unwrap_or(usize::MAX);
        let excess = excess.map(|excess| excess.min(own));
        self.progress.set_far(true);
        let per_byte = self.per_byte(now);
        let nanos = per_byte.unwrap_or_default();
        // For a stop it is the time until what was there before has left.
        let paced = match excess {
            Some(excess) => nanos.saturating_mul(excess as u64),
            None => {
                u64::try_from(u128::from(nanos).saturating_mul(bytes as u128 * self.shares) / SHARE).unwrap_or(u64::MAX)
            }
        };
        let paced = Duration::from_nanos(paced);
        let longest = match (excess, per_byte) {
            (Some(_), _) => self.stop_max(largest),
            (None, Some(_)) => paced.clamp(PAUSE, PACED_MAX),
            (None, None) => LONG_PAUSE,
        };
        let (fair, patience) = (self.fair_bytes as u64, self.patience());
        let taken = excess.map_or(u64::MAX, |excess| self.progress.taken().saturating_add(excess as u64));
        let (progress, excess) = (Arc::clone(&self.progress), excess.unwrap_or_default());
        let until = Until { progress, taken, excess, fair, patience };
        Some(SlowDown { paced, longest, unfair: false, until: Some(until) })
    }

    /// The longest stop of a publisher whose largest message has so many bytes.
    fn stop_max(&self, largest: usize) -> Duration {
        let alone = self.at_fair_pace(largest);
        if alone < LARGE {
            return NEARLY_MAX;
        }
        // With others it gets a part of the pace.
        let shared = alone.as_nanos() * self.shares / SHARE;
        Duration::from_nanos(u64::try_from(shared).unwrap_or(u64::MAX)).clamp(NEARLY_MAX, NEARLY_LARGE_MAX)
    }

    /// Begins the next measurement. If more came than was taken, publishers get a smaller part of the pace each.
    fn measure(&mut self, now: Timestamp) {
        let before = self.before.unwrap_or_default();
        let (came, taken) = (before.came.saturating_add(self.now.came), before.taken.saturating_add(self.now.taken));
        if taken > 0 {
            let shares = self.shares.saturating_mul(came as u128) / taken as u128;
            // A socket takes much at a time, which must not count for much.
            self.shares = shares.clamp(self.shares * 3 / 4, self.shares * 2).clamp(SHARES_MIN, SHARE * SHARES_MAX);
        }
        self.before = Some(std::mem::replace(&mut self.now, Flow::begun(now)));
    }

    /// Nanoseconds that the client takes for a byte, if that is known.
    fn per_byte(&self, now: Timestamp) -> Option<u64> {
        let before = self.before?;
        let taken = before.taken.saturating_add(self.now.taken);
        let elapsed = now.since(before.began);
        let nanos = elapsed.as_nanos();
        (taken > 0).then(|| u64::try_from(nanos / taken as u128).unwrap_or(u64::MAX))
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.progress.set_far(false);
    }
}

#[cfg(test)]
mod tests;
