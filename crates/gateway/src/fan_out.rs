//! A publication whose subscribers are woken in portions (ADR 0020). Until they are awake its publisher is not read,
//! because its next messages would only fill the mailboxes at the end of the list.

use std::task::Context;

use fogmux_bus::{Place, Published};

use crate::WorkerContext;

/// The place of the last of those subscribers in the worker's wake list.
#[derive(Debug)]
pub(crate) struct FanOut {
    place: Place,
    /// Whether the publisher is in the list behind them.
    waits: bool,
}

impl FanOut {
    /// That of a batch; `None` if all its subscribers are awake.
    pub(crate) fn of(published: &Published) -> Option<Self> {
        published.unwoken.map(|place| Self { place, waits: false })
    }

    /// Whether subscribers have still to be woken. The task is woken behind them then.
    pub(crate) fn goes_on(&mut self, ctx: &WorkerContext, cx: &Context<'_>) -> bool {
        let mut worker = ctx.worker.borrow_mut();
        if worker.has_woken(self.place) {
            return false;
        }
        if !std::mem::replace(&mut self.waits, true) {
            worker.wake_behind(cx.waker());
        }
        true
    }
}
