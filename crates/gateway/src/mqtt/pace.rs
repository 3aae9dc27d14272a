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

use std::{sync::Arc, time::Duration};

use fogmux_bus::{Progress, SlowDown, Timestamp, Until};

use crate::pause::READS;

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
/// Not longer, because a publisher's own subscriptions and its PINGREQ wait as well.
const NEARLY_MAX: Duration = Duration::from_secs(2);
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

/// The bytes sent to a client, and those it has taken, in some time.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    began: Timestamp,
    came: usize,
    taken: usize,
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
    /// The bytes queued since publishers were last asked to pause, and when.
    came: usize,
    came_at: Timestamp,
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
    /// Assumes a fair pace at first.
    pub(super) fn new(now: Timestamp) -> Self {
        let flow = Flow { began: now, ..Flow::default() };
        Self {
            progress: Arc::new(Progress::new(now)),
            came: 0,
            came_at: now,
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
        as_of.since(self.progress.read_at()) < READS
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

    /// Notes that this many bytes were queued.
    pub(super) const fn came(&mut self, bytes: usize, now: Timestamp) {
        self.came = self.came.saturating_add(bytes);
        self.came_at = now;
        if matches!(self.turn, Turn::Had) {
            self.turn = Turn::Due(now);
        }
    }

    /// The pause for the publisher of what came since the last call; `queue_bytes_max` is the bound of the queue.
    pub(super) fn slow_down(&mut self, distance: Distance, queue_bytes_max: usize) -> Option<SlowDown> {
        let (bytes, now) = (std::mem::take(&mut self.came), self.came_at);
        if bytes == 0 {
            return None;
        }
        self.now.came = self.now.came.saturating_add(bytes);
        if now.since(self.fair.began) >= READS {
            self.is_fair = self.fair.taken >= queue_bytes_max / FAIR;
            self.fair = Flow { began: now, ..Flow::default() };
        }
        if now.since(self.now.began) >= MEASURED {
            self.measure(now);
        }
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
            (Some(_), _) => NEARLY_MAX,
            (None, Some(_)) => paced.clamp(PAUSE, PACED_MAX),
            (None, None) => LONG_PAUSE,
        };
        let fair = (queue_bytes_max / FAIR) as u64;
        let taken = excess.map_or(u64::MAX, |excess| self.progress.taken().saturating_add(excess as u64));
        let until = Until { progress: Arc::clone(&self.progress), taken, excess: excess.unwrap_or_default(), fair };
        Some(SlowDown { paced, longest, unfair: false, until: Some(until) })
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
        self.before = Some(std::mem::replace(&mut self.now, Flow { began: now, ..Flow::default() }));
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
