//! How far a connected client may be sent what waits for it, by the record of its session (ADR 0073): so a restart
//! knows what was not sent.

use std::{
    future::Future as _,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use fogmux_bus::{Completion, durable::Sequence};
use tokio::time::{Sleep, sleep};

/// Deliveries that a mark allows at most before it is moved.
const STEP_MAX: u64 = 4096;
/// The time after which a record is put again that the store has not taken.
const AGAIN: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Mark {
    /// Deliveries below this may be sent; `None`: all.
    below: Option<Sequence>,
    /// How many more the next one allows.
    step: u64,
    /// The next one, and the commit that it waits for.
    next: Option<(Option<Sequence>, Completion)>,
    /// The store has not taken the last record of the session: it does not know what `below` would allow.
    refused: bool,
    /// When it is put again.
    again: Option<Pin<Box<Sleep>>>,
}

impl Mark {
    /// Begins for a client that so many deliveries wait for, from `first` on. There is no need for a mark if these are
    /// few.
    pub(super) fn begin(first: Option<Sequence>, queued: usize, step: u64) -> Self {
        let below = first.filter(|_| is_more(queued, step)).map(|first| Sequence(first.0 + step));
        Self { below, step, ..Self::default() }
    }

    /// The store has not taken that the client is connected: by what is on the disk nothing was sent.
    pub(super) fn refuse(&mut self) {
        self.below = Some(Sequence::default());
        self.note_refused();
    }

    fn note_refused(&mut self) {
        (self.next, self.refused, self.again) = (None, true, Some(Box::pin(sleep(AGAIN))));
    }

    /// Whether the store has not taken the last record.
    pub(super) const fn is_refused(&self) -> bool {
        self.refused
    }

    /// Whether the next record may be put now. Else the task is woken when it may.
    pub(super) fn is_due(&mut self, cx: &mut Context<'_>) -> bool {
        if self.again.as_mut().is_some_and(|again| again.as_mut().poll(cx).is_pending()) {
            return false;
        }
        self.again = None;
        true
    }

    /// The number below which deliveries may be sent.
    pub(super) const fn below(&self) -> Option<Sequence> {
        self.below
    }

    /// Whether a delivery may be sent.
    pub(super) fn allows(&self, sequence: Sequence) -> bool {
        self.below.is_none_or(|below| sequence < below)
    }

    /// Whether a delivery of QoS 1 may be sent nevertheless: a client that is behind would get nothing while the disk
    /// fails. After a crash it counts as unsent, so it has no DUP when it is sent again.
    pub(super) fn lets_pass(&self, sequence: Sequence) -> bool {
        let next = self.next.as_ref().and_then(|(below, _)| *below);
        self.refused && next.is_none_or(|below| sequence < below)
    }

    /// Whether it is to be moved before long: half of what it allows has been sent.
    pub(super) fn is_near(&self, sequence: Sequence) -> bool {
        let is_still = self.next.is_none() && !self.refused;
        is_still && self.below.is_some_and(|below| sequence.0 + self.step / 2 >= below.0)
    }

    /// The next mark where so many deliveries wait from `first` on, to be followed by [`move_to`](Self::move_to).
    pub(super) fn further(&mut self, first: Sequence, queued: usize) -> Option<Sequence> {
        // A second try allows no more than the first, or a disk that fails for long would allow all.
        if !self.refused {
            self.step = self.step.saturating_mul(2).min(STEP_MAX);
        }
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

    /// Whether the store has to answer, or time to pass.
    pub(super) const fn is_waiting(&self) -> bool {
        self.next.is_some() || self.again.is_some()
    }

    /// Ready when it was moved, or is to be moved again later.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some((below, stored)) = &mut self.next else { return Poll::Ready(()) };
        match std::task::ready!(Pin::new(stored).poll(cx)) {
            Ok(()) => (self.below, self.next, self.refused) = (*below, None, false),
            Err(_) => self.note_refused(),
        }
        Poll::Ready(())
    }

    /// Whether a move would get on: [`poll`](Self::poll) would be ready, and it is time.
    pub(super) fn is_moved(&self) -> bool {
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        let is_time = self.again.as_ref().is_none_or(|again| again.is_elapsed());
        is_time && self.next.as_ref().is_none_or(|(_, stored)| Pin::new(&mut stored.clone()).poll(cx).is_ready())
    }
}

fn is_more(queued: usize, step: u64) -> bool {
    u64::try_from(queued).is_ok_and(|queued| queued > step)
}
