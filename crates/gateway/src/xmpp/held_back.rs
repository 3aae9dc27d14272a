//! The reasons for which a publisher is not read for a while.

use std::task::{Context, Poll};

use fogmux_bus::SlowDown;

use super::{core::Core, divided::Divided};
use crate::{WorkerContext, fan_out::FanOut, pause::Pause};

/// The reasons for which a publisher is not read, of its last publications.
#[derive(Default)]
pub(super) struct HeldBack {
    /// Subscribers have still to be woken.
    fan_out: Option<FanOut>,
    /// Subscribers have to catch up.
    pause: Option<Pause>,
    /// Requests of which a part is published.
    divided: Option<Divided>,
}

impl HeldBack {
    /// Ends the pause soon, whatever the subscribers do.
    pub(super) fn shorten(&mut self) {
        if let Some(pause) = &mut self.pause {
            pause.shorten();
        }
    }

    /// Ready when nothing holds any more, but what is divided.
    pub(super) fn poll(&mut self, ctx: &WorkerContext, cx: &mut Context<'_>) -> Poll<()> {
        if self.fan_out.as_mut().is_some_and(|fan_out| fan_out.goes_on(ctx, cx)) {
            return Poll::Pending;
        }
        self.fan_out = None;
        self.pause.as_mut().map_or(Poll::Ready(()), |pause| pause.poll(ctx, cx))
    }
}

impl Core {
    /// Goes on with these requests before it reads.
    pub(super) fn divide(&mut self, divided: Divided) {
        self.held_back.get_or_insert_default().divided = Some(divided);
    }

    /// The requests of which a part is published.
    pub(super) fn divided(&self) -> Option<&Divided> {
        self.held_back.as_ref()?.divided.as_ref()
    }

    /// The same, to be changed.
    pub(super) fn divided_mut(&mut self) -> Option<&mut Divided> {
        self.held_back.as_mut()?.divided.as_mut()
    }

    /// Takes them, with every reason not to read: they have been waited for.
    pub(super) fn take_divided(&mut self) -> Option<Divided> {
        self.held_back.take()?.divided
    }

    /// Does not read this publisher while subscribers of a publication have to be woken or to catch up.
    pub(super) fn hold_back(&mut self, fan_out: Option<FanOut>, slow_down: Option<SlowDown>) {
        if fan_out.is_some() || slow_down.is_some() {
            let held_back = self.held_back.get_or_insert_default();
            held_back.fan_out = fan_out.or(held_back.fan_out.take());
            held_back.pause = Pause::of(slow_down).or(held_back.pause.take());
        }
    }
}
