//! How far a connected client may be sent what waits for it, by the record of its session (ADR 0073): so a restart
//! knows what was not sent.

use std::{
    future::Future as _,
    pin::Pin,
    task::{Context, Poll},
};

use fogmux_bus::{Completion, durable::Sequence};

/// Deliveries that a mark allows at most before it is moved.
const STEP_MAX: u64 = 4096;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Mark {
    /// Deliveries below this may be sent; `None`: all.
    below: Option<Sequence>,
    /// How many more the next one allows.
    step: u64,
    /// The next one, and the commit that it waits for.
    next: Option<(Option<Sequence>, Completion)>,
}

impl Mark {
    /// Begins for a client that so many deliveries wait for, from `first` on. There is no need for a mark if these are
    /// few.
    pub(super) fn begin(first: Option<Sequence>, queued: usize, step: u64) -> Self {
        let below = first.filter(|_| is_more(queued, step)).map(|first| Sequence(first.0 + step));
        Self { below, step, next: None }
    }

    /// The number below which deliveries may be sent.
    pub(super) const fn below(&self) -> Option<Sequence> {
        self.below
    }

    /// Whether a delivery may be sent.
    pub(super) fn allows(&self, sequence: Sequence) -> bool {
        self.below.is_none_or(|below| sequence < below)
    }

    /// Whether it is to be moved before long: half of what it allows has been sent.
    pub(super) fn is_near(&self, sequence: Sequence) -> bool {
        self.next.is_none() && self.below.is_some_and(|below| sequence.0 + self.step / 2 >= below.0)
    }

    /// The next mark where so many deliveries wait from `first` on, to be followed by [`move_to`](Self::move_to).
    pub(super) fn further(&mut self, first: Sequence, queued: usize) -> Option<Sequence> {
        self.step = self.step.saturating_mul(2).min(STEP_MAX);
        is_more(queued, self.step).then(|| Sequence(first.0 + self.step))
    }

    /// Moves it as soon as the store has it there.
    pub(super) fn move_to(&mut self, below: Option<Sequence>, stored: Completion) {
        self.next = Some((below, stored));
    }

    /// Whether it is being moved.
    pub(super) const fn is_moving(&self) -> bool {
        self.next.is_some()
    }

    /// Ready when it was moved. If the store does not take that, all may be sent nevertheless: a client that is behind
    /// would otherwise get nothing while the disk fails.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some((below, stored)) = &mut self.next else { return Poll::Ready(()) };
        let below = std::task::ready!(Pin::new(stored).poll(cx)).map_or(None, |()| *below);
        (self.below, self.next) = (below, None);
        Poll::Ready(())
    }

    /// Whether [`poll`](Self::poll) would be ready.
    pub(super) fn is_moved(&self) -> bool {
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        self.next.as_ref().is_none_or(|(_, stored)| Pin::new(&mut stored.clone()).poll(cx).is_ready())
    }
}

fn is_more(queued: usize, step: u64) -> bool {
    u64::try_from(queued).is_ok_and(|queued| queued > step)
}
