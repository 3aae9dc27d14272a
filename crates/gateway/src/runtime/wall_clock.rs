//! Retained messages follow the wall clock when it is set.

use std::{cell::RefCell, rc::Rc, time::Duration};

use fogmux_bus::{ClockSet, Topic};

use crate::worker::WorkerContext;

/// Retained messages that are looked at in one turn.
const TURN: usize = 256;
const LOOK: Duration = Duration::from_secs(1);

/// The clock that retained messages are being brought in line with, and how far that has come.
#[derive(Debug, Default)]
pub(super) struct WallClock(RefCell<Option<(ClockSet, Option<Topic>)>>);

impl WallClock {
    /// Looks at the clock once a second.
    pub(super) async fn follow(self: Rc<Self>, ctx: Rc<WorkerContext>) {
        let mut ticks = tokio::time::interval(LOOK);
        loop {
            ticks.tick().await;
            while self.turn(&ctx) {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Does what is left before the gateway ends. A message that is stored with an expiry by a clock that was wrong
    /// would have expired at the next start.
    pub(super) fn finish(&self, ctx: &WorkerContext) {
        // A change under way first, then one within the last second.
        while self.turn(ctx) {}
        while self.turn(ctx) {}
    }

    /// Returns whether more is left to do.
    fn turn(&self, ctx: &WorkerContext) -> bool {
        let mut under_way = self.0.borrow_mut();
        let begun = || ctx.shared.clock.look().map(|clock| (clock, None));
        let Some((clock, after)) = under_way.take().or_else(begun) else { return false };
        let after = ctx.bus().restamp(clock, after.as_ref(), TURN, ctx.now());
        *under_way = after.map(|after| (clock, Some(after)));
        under_way.is_some()
    }
}
