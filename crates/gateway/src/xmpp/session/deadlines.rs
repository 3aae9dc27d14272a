//! The deadlines of a connection: for output that it does not take, unfinished stanzas, and acknowledgements.

use std::{
    future::Future as _,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, Sleep},
};

use super::Session;
use crate::{deadline::Deadline, stops::Running};

/// How often a client that reads nothing is checked.
const TICK: Duration = Duration::from_secs(2);

/// A client that reads nothing.
pub(super) struct Stalled {
    /// The deadline.
    until: Running,
    tick: Pin<Box<Sleep>>,
    /// It has read nothing for a tick.
    rests: bool,
}

impl Stalled {
    /// Whether it has read nothing for two seconds.
    pub(super) const fn rests(&self) -> bool {
        self.rests
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Session<S> {
    /// Cuts a client that reads nothing for too long, or at the next tick if the queues of its owner hold most of what
    /// is above the mark.
    pub(super) fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.check_sleep(!self.is_unwritten());
        let ctx = &self.core.ctx;
        let timeout = ctx.door.config.write_timeout;
        let tick = timeout.min(TICK);
        let fresh = || {
            Box::new(Stalled { until: ctx.running() + timeout, tick: Box::pin(tokio::time::sleep(tick)), rests: false })
        };
        let stalled = self.stalled.get_or_insert_with(fresh);
        loop {
            ready!(stalled.tick.as_mut().poll(cx));
            let memory = ctx.bus().memory();
            if ctx.has_passed(stalled.until) || (memory.pressure() && memory.is_held_by(&self.core.owner())) {
                ctx.shared.metrics.xmpp.timed_out.increment();
                return Poll::Ready(());
            }
            stalled.rests = true;
            stalled.tick.as_mut().reset(Instant::now() + tick);
        }
    }

    /// The client is not read now, for our own reasons.
    pub(super) fn note_unread(&mut self) {
        let ctx = &self.core.ctx;
        self.unread_since.get_or_insert_with(|| ctx.running());
    }

    /// The client is read again. The time in which it was not is none of its delays.
    pub(super) fn excuse(&mut self) {
        let Some(since) = self.unread_since.take() else { return };
        let open = [&mut self.open, &mut self.unacknowledged].into_iter().flatten();
        let ctx = &self.core.ctx;
        let held_back = ctx.running().since(since);
        open.for_each(|deadline| deadline.extend(ctx, held_back));
    }

    /// Whether a stanza has been incomplete for too long.
    pub(super) fn is_overdue(&mut self, cx: &mut Context<'_>) -> bool {
        if self.kept.is_empty() {
            self.open = None;
            return false;
        }
        let ctx = &self.core.ctx;
        let timeout = ctx.door.config.stanza_timeout;
        let overdue = self.open.get_or_insert_with(|| Box::new(Deadline::after(ctx, timeout)));
        let overdue = overdue.poll(ctx, cx).is_ready() && !self.core.machine.is_closed();
        if overdue {
            self.open = None;
            self.core.ctx.shared.metrics.xmpp.timed_out.increment();
        }
        overdue
    }

    /// Whether a client that uses stream management has not acknowledged stanzas for too long.
    pub(super) fn is_forgotten(&mut self, cx: &mut Context<'_>) -> bool {
        if self.core.machine.management().has_room() || self.core.machine.is_closed() {
            self.unacknowledged = None;
            return false;
        }
        let ctx = &self.core.ctx;
        let timeout = ctx.door.config.write_timeout;
        let waits = self.unacknowledged.get_or_insert_with(|| Box::new(Deadline::after(ctx, timeout)));
        let forgotten = waits.poll(ctx, cx).is_ready();
        if forgotten {
            self.unacknowledged = None;
            self.core.ctx.shared.metrics.xmpp.timed_out.increment();
        }
        forgotten
    }
}
