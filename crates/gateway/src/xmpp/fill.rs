//! What goes out without having been asked for in this turn: deliveries, notices, and the values new subscriptions find.

use std::task::Context;

use fogmux_bus::{Bus, Claim, Displaced, Queued, ReadGate as _, RetainedChunk, Subscription, Timestamp, Topic};
use fogmux_xmpp::{Jid, pubsub};

use super::{accounts::is_full, core::Core, translate};

/// Output above which nothing is added before it is written.
const OUT_BYTES_HIGH: usize = 64 << 10;
/// Deliveries taken at once.
const DELIVERIES_PER_TURN: usize = 256;
/// Retained messages looked up at once.
const RETAINED_PER_TURN: usize = 32;

/// The values that a new subscription finds, sent as there is room.
#[derive(Debug)]
pub(super) struct Replay {
    subscription: Subscription,
    to: Jid,
    after: Option<Topic>,
}

impl Replay {
    pub(super) fn new(subscription: Subscription, to: &Jid) -> Self {
        Self { subscription, to: to.clone(), after: None }
    }

    fn look_up(&self, bus: &Bus, now: Timestamp) -> RetainedChunk {
        bus.retained(&self.subscription.filter, self.after.as_ref(), RETAINED_PER_TURN, now)
    }
}

impl Core {
    /// Whether more may be put into the output now.
    fn has_room(&self) -> bool {
        self.out.len() < OUT_BYTES_HIGH && self.machine.management().has_room() && !self.machine.is_closed()
    }

    /// Moves deliveries from the mailbox to the output; says whether some are left.
    ///
    /// # Errors
    /// [`Displaced`], which cannot be: nobody else claims the mailbox.
    pub(super) fn fill(&mut self, claim: Claim, cx: &Context<'_>) -> Result<bool, Displaced> {
        if !self.has_room() {
            return Ok(false);
        }
        self.send_notices();
        let mut left = false;
        let (bus, replay, now) = (self.ctx.bus(), self.replays.last(), self.ctx.now());
        let (taken, chunk) = self.me.inbox.poll_with(claim, cx, |inbox| {
            let count = inbox.len().min(DELIVERIES_PER_TURN);
            left = inbox.len() > count;
            let taken: Vec<Queued> = std::iter::from_fn(|| inbox.pop()).take(count).collect();
            // Behind all that is in the mailbox, which is locked: an older value does not follow a newer one.
            let chunk = replay.filter(|_| !left).map(|replay| replay.look_up(bus, now));
            (taken, chunk)
        })?;
        if !taken.is_empty() {
            self.reserve();
            self.send_deliveries(&taken);
        }
        if let Some(chunk) = chunk {
            self.send_owed(&chunk);
        }
        Ok(left || !self.replays.is_empty())
    }

    fn send_deliveries(&mut self, taken: &[Queued]) {
        let (mut bare, mut full) = (Vec::new(), Vec::new());
        let now = self.ctx.now();
        let (mut sent, mut expired) = (0, 0);
        for queued in taken {
            if queued.message.is_expired(now) {
                expired += 1;
                continue;
            }
            let head = if is_full(queued.tag) { &mut full } else { &mut bare };
            if head.is_empty() {
                let jid = &self.me.jid;
                let to = if is_full(queued.tag) { jid.as_str() } else { jid.bare_str() };
                pubsub::write_head(head, self.ctx.shared.xmpp.service.as_str(), to);
            }
            sent += u32::from(translate::notify(&mut self.out, head, &queued.message, &self.ctx.shared.xmpp.nodes));
        }
        self.machine.sent(sent, &mut self.out);
        self.ctx.bus().counters().drained(taken.len() as u64 - expired, expired, 0);
    }

    /// Borrows the worker's spare buffer for what is to be written.
    pub(super) fn reserve(&mut self) {
        if self.out.capacity() == 0 {
            std::mem::swap(&mut self.out, &mut self.ctx.spare.borrow_mut());
        }
    }

    /// Gives an empty buffer back to the worker, the larger of two.
    pub(super) fn give_back(&mut self) {
        self.out.clear();
        let mut spare = self.ctx.spare.borrow_mut();
        if self.out.capacity() > spare.capacity() && self.out.capacity() <= 4 * OUT_BYTES_HIGH {
            std::mem::swap(&mut self.out, &mut spare);
        }
        self.out = Vec::new();
    }

    fn send_notices(&mut self) {
        while let Some(event) = self.me.control.next_notice() {
            pubsub::write_head(&mut self.out, self.ctx.shared.xmpp.service.as_str(), self.me.jid.as_str());
            self.out.extend_from_slice(&event);
            self.machine.sent(1, &mut self.out);
        }
    }

    /// Sends values that a new subscription finds (§6.1.7).
    fn send_owed(&mut self, chunk: &RetainedChunk) {
        let Some(mut replay) = self.replays.pop() else { return };
        let mut head = Vec::new();
        pubsub::write_head(&mut head, self.ctx.shared.xmpp.service.as_str(), replay.to.as_str());
        let mut sent = 0;
        for message in &chunk.messages {
            if self.me.gate.may_read(&message.topic) {
                let nodes = &self.ctx.shared.xmpp.nodes;
                sent += u32::from(translate::notify(&mut self.out, &head, message, nodes));
            }
        }
        self.machine.sent(sent, &mut self.out);
        if chunk.next.is_some() {
            replay.after.clone_from(&chunk.next);
            self.replays.push(replay);
        }
    }
}
