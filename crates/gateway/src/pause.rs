//! Pauses of publishers, at every door, for subscribers that read more slowly than is published (ADR 0018).

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use fogmux_bus::{SlowDown, Timestamp};
use tokio::time::Sleep;

use crate::WorkerContext;

/// A subscriber reads if it took something within this time: long enough for one that waits for a busy processor.
/// Publishers wait for no other.
pub(crate) const READS: Duration = Duration::from_secs(2);
/// The times after which a publisher looks whether the subscriber has caught up: the first, doubled until the last.
const LOOK_FIRST: Duration = Duration::from_millis(4);
const LOOK_LAST: Duration = Duration::from_millis(50);
/// The time that a subscriber takes for a turn of a publisher that keeps to its pace.
pub(crate) const TURN: Duration = Duration::from_millis(100);
/// The least that a publisher is read in a turn.
const TURN_BYTES_MIN: usize = 2 << 10;
/// The part of a turn that the next one may have while the subscriber's pace is not known.
const SHORTER: usize = 16;

/// When a publisher that pauses looks whether it may go on.
#[derive(Debug)]
pub(crate) struct Plan {
    look: Duration,
    /// The most that is left of the pause after this look, or was after the first.
    left: Duration,
    /// When the pause is over whatever the subscriber does, known from the first look on: looks are late on a busy
    /// machine, and the pause must not become longer with each.
    over: Option<Timestamp>,
    /// When it was last looked whether the subscriber reads a fair amount, and what it had read by then.
    judged: Option<(Timestamp, u64)>,
    asked: SlowDown,
}

impl Plan {
    pub(crate) fn new(asked: SlowDown) -> Self {
        let left = asked.longest;
        // A pause for a pace is as long as it is; only one that a subscriber ends needs early looks.
        let look = if asked.until.as_ref().is_some_and(|until| until.excess > 0) { LOOK_FIRST } else { LOOK_LAST };
        let look = look.min(left);
        Self { look, left: left - look, over: None, judged: None, asked }
    }

    /// The time until the publisher looks.
    pub(crate) const fn look(&self) -> Duration {
        self.look
    }

    /// Whether it pauses on after a look. The gateway has run since `went_on`.
    pub(crate) fn goes_on(&mut self, now: Timestamp, went_on: Timestamp) -> bool {
        let Some(until) = &self.asked.until else { return false };
        let over = *self.over.get_or_insert(now + self.left);
        self.left = self.left.min(over.since(now));
        if self.left.is_zero() || !until.is_waiting(now, went_on) {
            return false;
        }
        let (at, before) = *self.judged.get_or_insert((now, until.all_read()));
        if now.since(at.max(went_on)) >= until.patience {
            if !until.is_fair(before) {
                return false;
            }
            self.judged = Some((now, until.all_read()));
        }
        self.look = (self.look * 2).min(LOOK_LAST).min(self.left);
        self.left -= self.look;
        true
    }

    /// The bytes to be read at most in each of the publisher's next turns, if there is a limit. The last turn had
    /// `bytes`, and `limit` was the limit.
    pub(crate) fn next_turn(&self, bytes: usize, limit: Option<usize>) -> Option<usize> {
        let excess = self.asked.until.as_ref().map_or(0, |until| until.excess);
        let next = match (self.asked.paced.as_nanos(), excess) {
            // A subscriber that hardly reads does not make the turns of others short.
            (0, 0) => return limit.filter(|_| !self.asked.unfair),
            (0, _) => bytes / SHORTER,
            (paced, _) => usize::try_from(bytes as u128 * TURN.as_nanos() / paced).unwrap_or(usize::MAX),
        };
        Some(next.max(TURN_BYTES_MIN))
    }
}

/// A pause of a publisher.
#[derive(Debug)]
pub(crate) struct Pause {
    sleep: Pin<Box<Sleep>>,
    plan: Plan,
}

impl Pause {
    /// The pause after a publication.
    pub(crate) fn new(asked: SlowDown) -> Self {
        let plan = Plan::new(asked);
        Self { sleep: Box::pin(tokio::time::sleep(plan.look())), plan }
    }

    /// The pause that the subscribers of a publication ask for, if any.
    pub(crate) fn of(asked: Option<SlowDown>) -> Option<Self> {
        asked.map(Self::new)
    }

    /// The pause after a single message, which is too little for a pause of a few milliseconds.
    pub(crate) fn after_one(asked: Option<SlowDown>) -> Option<Self> {
        Self::of(asked.filter(|asked| asked.until.is_some()))
    }

    /// Ends this soon, whatever the subscriber does.
    pub(crate) fn shorten(&mut self) {
        self.plan.left = self.plan.left.min(LOOK_LAST);
    }

    /// Whether the publisher should stop where it is, instead of finishing its turn.
    pub(crate) const fn is_stop(&self) -> bool {
        self.plan.asked.until.is_some()
    }

    /// Whether it has lasted for so long that a client may miss the answer to its PINGREQ.
    pub(crate) fn is_long(&self) -> bool {
        self.plan.asked.longest - self.plan.left > LOOK_LAST * 2
    }

    /// See [`Plan::next_turn`].
    pub(crate) fn next_turn(&self, bytes: usize, limit: Option<usize>) -> Option<usize> {
        self.plan.next_turn(bytes, limit)
    }

    /// Whether it is over.
    pub(crate) fn poll(&mut self, ctx: &WorkerContext, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.sleep.as_mut().poll(cx));
            let now = ctx.now();
            if !self.plan.goes_on(now, ctx.went_on()) {
                return Poll::Ready(());
            }
            self.sleep = Box::pin(tokio::time::sleep(self.plan.look()));
        }
    }

    /// Waits until it is over, or the gateway shuts down.
    pub(crate) async fn keep(mut self, ctx: &WorkerContext) {
        std::future::poll_fn(|cx| if ctx.is_draining() { Poll::Ready(()) } else { self.poll(ctx, cx) }).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fogmux_bus::{Progress, Until};

    use super::*;

    /// How long a publisher pauses for a subscriber that reads and never catches up, if each look is so late.
    fn pause(late: Duration, longest: Duration, excess: usize) -> Duration {
        let mut now = Timestamp::from_millis(1_000);
        let began = now;
        let progress = Arc::new(Progress::new(now));
        progress.set_far(true);
        let patience = Duration::from_secs(2);
        let until = Until { progress: Arc::clone(&progress), taken: u64::MAX, excess, fair: 1, patience };
        let mut plan = Plan::new(SlowDown { longest, until: Some(until), ..SlowDown::default() });
        loop {
            now = now + plan.look() + late;
            progress.read(1, now);
            if !plan.goes_on(now, Timestamp::ZERO) {
                return now.since(began);
            }
        }
    }

    #[test]
    fn looks_that_are_late_make_a_pause_late_and_not_longer() {
        for longest in [1, 4, 50, 51, 1_000, 2_000] {
            for late in [0, 1, 10, 50, 400, 3_000] {
                for excess in [0, 1 << 20] {
                    let (longest, late) = (Duration::from_millis(longest), Duration::from_millis(late));
                    let took = pause(late, longest, excess);
                    assert!(took >= longest, "{took:?} of {longest:?}, {late:?} late");
                    // The first look and the last.
                    assert!(took <= longest + 2 * late, "{took:?} of {longest:?}, {late:?} late");
                }
            }
        }
    }
}
