//! Sending: the mailbox is written to the stream in turns, as [`Egress`](crate::egress::Egress) decides.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    connection::{Connection, End, LOOKS_PER_TURN, OUTPUT_BYTES_MAX, TURNS},
    mailbox::MqttMailbox,
    retained::Room,
};
use crate::egress::Step;

/// Subscriptions whose retained messages are looked up in one turn, as long as few are found.
const PULLS_MAX: usize = 32;

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Sends until nothing is left, the peer takes no more, or it is time to read; `self.egress` knows which.
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        self.egress.wake();
        let mut fills = 0;
        loop {
            match self.egress.step() {
                Step::Fill if fills == TURNS => return Ok(()),
                Step::Fill => {
                    fills += 1;
                    let more = self.fill(cx)?;
                    self.egress.filled(more);
                }
                Step::Write => self.poll_write(cx)?,
                Step::Flush => self.poll_flush(cx)?,
                Step::Sleep => break,
            }
        }
        if self.egress.is_idle() {
            self.output.release(&self.ctx);
            return Ok(());
        }
        self.look_in()
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        let is_large = self.output.has_tail();
        match self.output.poll_write(&mut self.stream, cx) {
            Poll::Ready(Ok(0)) => self.egress.nothing_to_write(),
            Poll::Ready(Ok(written)) => {
                self.ctx.shared.metrics.mqtt.bytes_out.add(u64::try_from(written).unwrap_or_default());
                if self.output.is_empty() {
                    self.output.note_written(&self.ctx, &self.client.publisher);
                }
                self.egress.wrote(self.output.is_empty());
                self.note_progress();
                if is_large {
                    // It takes nothing else of its queue meanwhile.
                    let now = self.now;
                    let noted = self.mailbox.with(|mailbox| mailbox.note_read(written, now));
                    noted.map_err(|_| End::Displaced)?;
                }
            }
            Poll::Ready(Err(error)) => return Err(End::of(&error)),
            Poll::Pending => self.egress.write_blocked(self.running()),
        }
        Ok(())
    }

    /// Notes that the client reads or acknowledges, which a shutdown waits for.
    pub(super) fn note_progress(&self) {
        if self.draining.is_some() {
            self.ctx.shared.shutdown.note_progress();
        }
    }

    /// Flushes the stream. TLS takes records as written that the socket has no room for yet; without this the last of
    /// them would wait for the next message.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        match Pin::new(&mut self.stream).poll_flush(cx) {
            Poll::Ready(Ok(())) => self.egress.flushed(),
            Poll::Ready(Err(error)) => return Err(End::of(&error)),
            Poll::Pending => self.egress.flush_blocked(self.running()),
        }
        Ok(())
    }

    /// Notes what the socket has no room for, and checks whether the session was taken over or its queue overran. Does
    /// not clear the mailbox's ready flag: as long as that stays set, deliveries do not wake the task.
    fn look_in(&self) -> Result<(), End> {
        let unwritten = self.output.len();
        match self.mailbox.with(|mailbox| mailbox.note_blocked(unwritten)) {
            Err(_) => Err(End::Displaced),
            Ok(true) => Err(End::Overrun),
            Ok(false) => Ok(()),
        }
    }

    /// Drains the mailbox into the output, unless that is still full. Returns whether there may be more.
    fn fill(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        if self.output.has_tail() || self.output.len() > OUTPUT_BYTES_MAX {
            return self.look_in().map(|()| true);
        }
        let (ctx, now, output) = (&self.ctx, self.now, &mut self.output);
        let waker = &mut Context::from_waker(cx.waker());
        let drain = |mailbox: &mut MqttMailbox| mailbox.drain(output.buffer(ctx), now, waker);
        let drained = self.mailbox.poll_with(cx, drain).map_err(|_| End::Displaced)?;
        // Also what is encoded for a client that is disconnected now: it is in no queue any more.
        self.ctx.bus().counters().drained(drained.sent, drained.expired, drained.too_large);
        self.ctx.bus().counters().full(drained.refused + drained.lost_in_store);
        self.ctx.bus().counters().gone(drained.unreadable);
        self.withhold_pubrels(&drained.released, drained.committed);
        if drained.overrun {
            return Err(End::Overrun);
        }
        if drained.lost {
            self.log_slow("its queue is full, the oldest messages are dropped");
        }
        self.facts.awaiting = drained.awaiting;
        self.output.mark(drained.marks);
        if let Some(tail) = drained.tail {
            self.output.set_tail(tail);
            // Messages behind a large one are pulled when the client has taken it.
            return Ok(drained.more || self.pulls() > 0);
        }
        let pulled = drained.queue_empty && self.pull_some()?;
        Ok(pulled || drained.more)
    }

    /// Queues a chunk of retained messages, of several subscriptions if each has few. Returns whether a subscription
    /// was looked at.
    fn pull_some(&mut self) -> Result<bool, End> {
        let mut room = Room::new();
        for round in 0..PULLS_MAX {
            if self.pulls() == 0 || room.is_used_up() {
                return Ok(round > 0);
            }
            if self.work.looks >= LOOKS_PER_TURN {
                // A filter may match none of a hundred thousand topics, and a client have thousands of such filters.
                return Ok(true);
            }
            self.pull(&mut room)?;
        }
        Ok(true)
    }

    /// Output that could be sent now although the task is about to sleep and nothing would wake it; asked by the
    /// liveness oracle.
    pub(super) fn missed_wake(&self) -> Option<String> {
        let (egress, output, pulls) = (&self.egress, self.output.len(), self.pulls());
        if !egress.is_runnable() && !egress.is_idle() {
            // The stream wakes the task.
            return None;
        }
        let waiting = self.mailbox.with_asleep(|mailbox| mailbox.is_forgotten() || (pulls > 0 && mailbox.is_empty()));
        let stuck = egress.is_runnable() || output > 0 || waiting == Some(true);
        stuck.then(|| format!("{egress:?}, {output} bytes, {pulls} filters to pull, mailbox {waiting:?}"))
    }
}
