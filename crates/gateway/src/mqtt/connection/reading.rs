//! Reads of a connection: when it may, and when it pauses.

use std::task::Context;

use tokio::io::{AsyncRead, AsyncWrite};

use super::{Connection, OUTPUT_BYTES_MAX, PENDING_MAX};
use crate::pause::Pause;

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Pauses this publisher for a subscriber that reads more slowly.
    pub(in crate::mqtt) fn pause(&mut self, pause: Pause) {
        self.rare().pause = Some(Box::new(pause));
    }

    /// Whether it still pauses; if so, the task is woken when it is over.
    pub(super) fn poll_pause(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(rare) = &mut self.rare else { return false };
        let Some(pause) = &mut rare.pause else { return false };
        // A client that owes acknowledgements is read again soon: other publishers may wait for those.
        if self.facts.awaiting {
            pause.shorten();
        }
        if pause.poll(&self.ctx, cx).is_pending() {
            return true;
        }
        rare.pause = None;
        false
    }

    /// Whether this publisher stops where it is, and the rest of what was read already is held: until others have had
    /// their turn, or until its pause is over. Not for a pause when that has to give way to unfinished packets of
    /// others.
    pub(in crate::mqtt) fn holds_input(&self) -> bool {
        if self.work.deliveries.are_enough() || self.has_set_aside() {
            return true;
        }
        let is_stopped = self.rare.as_ref().and_then(|rare| rare.pause.as_ref()).is_some_and(|pause| pause.is_stop());
        is_stopped && !self.reading.unfinished.as_ref().is_some_and(|place| place.waiter().has_given_way())
    }

    /// Whether this publisher has paused for so long that its PINGREQ should be answered meanwhile.
    pub(super) fn pauses_long(&self) -> bool {
        let pause = self.rare.as_ref().and_then(|rare| rare.pause.as_ref());
        pause.is_some_and(|pause| pause.is_long()) && self.holds_input() && !self.is_held_back()
    }

    /// Whether the client is not read because of its own unread output.
    pub(super) fn is_held_back(&self) -> bool {
        self.output.len() > OUTPUT_BYTES_MAX || self.pending() > PENDING_MAX
    }

    /// Whether the client may be read: not while it pauses, does not read its output, or has too many acknowledgements
    /// waiting; and publishers not while memory is tight.
    pub(super) fn may_read(&mut self, cx: &mut Context<'_>) -> bool {
        if self.poll_pause(cx) || self.is_fanning_out(cx) {
            return false;
        }
        if self.is_held_back() {
            return false;
        }
        let memory = self.ctx.bus().memory();
        if !(self.facts.publishes || self.reading.input.is_large()) || self.facts.awaiting || !memory.pressure() {
            return true;
        }
        let owner = self.mailbox.slot.with(|mailbox| mailbox.owned_by().owner().clone());
        std::pin::pin!(memory.relieved(owner)).poll(cx).is_ready()
    }
}
