//! Filling the output with deliveries, notices, and retained messages.
//!
//! The order is always the same: while the output has room, deliveries, and retained messages once the mailbox is
//! empty. Whether more is left is asked again *after* the output was written ([`Core::has_more`]), because there is
//! room again then.

use std::{sync::Arc, task::Context};

use fogmux_bus::{
    Bus, Claim, Displaced, Door, FifoMailbox, Message, Queued, ReadGate as _, RetainedChunk, Subscription, Timestamp,
    Topic,
};
use fogmux_xmpp::pubsub::{self, SendLast};

use super::{
    core::Core,
    followed::{Followed, has_body, is_full},
    translate,
};

/// Output above which nothing is added before it is written.
pub(super) const OUT_BYTES_HIGH: usize = 64 << 10;
/// Deliveries taken at once.
const DELIVERIES_PER_TURN: usize = 256;
/// Retained messages looked up at once.
const RETAINED_PER_TURN: usize = 32;
/// Retained messages looked at before others of the worker have their turn, whether they match or not.
const LOOKS_PER_TURN: usize = 1024;
/// Portions of each before the output is written: retained messages that may not be read add nothing to the output, and
/// other tasks of the worker must have their turn.
const ROUNDS: usize = 8;

/// Retained messages to be sent for a subscription, as there is room.
#[derive(Debug)]
pub(super) struct Replay {
    subscription: Subscription,
    tag: u64,
    why: Why,
    after: Option<Topic>,
}

/// Why retained messages are sent; owners may disallow it (`pubsub#send_last_published_item`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// The subscription is new.
    Subscribed,
    /// The subscriber has become available.
    Present,
    /// Deliveries were dropped for lack of room: the latest values make up for them.
    Lost,
}

impl Why {
    fn sends(self, when: SendLast) -> bool {
        match self {
            Self::Subscribed => when != SendLast::Never,
            Self::Present => when == SendLast::OnSubscribeAndPresence,
            Self::Lost => true,
        }
    }
}

impl Replay {
    pub(super) fn new(followed: &Followed, why: Why) -> Self {
        Self { subscription: followed.subscription.clone(), tag: followed.tag, why, after: None }
    }

    fn look_up(&self, bus: &Bus, now: Timestamp) -> RetainedChunk {
        bus.retained(&self.subscription.filter, self.after.as_ref(), RETAINED_PER_TURN, now)
    }
}

/// The heads of notifications of one turn, written once each.
#[derive(Default)]
struct Heads {
    bare: Vec<u8>,
    full: Vec<u8>,
}

impl Core {
    /// Whether the output has room and the client takes more.
    fn has_room(&self) -> bool {
        self.out.len() < OUT_BYTES_HIGH && self.may_send()
    }

    /// Whether the client takes more, considering the stanzas that it has not acknowledged.
    pub(super) fn may_send(&self) -> bool {
        self.machine.management().has_room() && !self.machine.is_closed()
    }

    /// Whether [`Core::fill`] would add to the output now.
    pub(super) fn has_more(&self) -> bool {
        self.has_room() && self.owes()
    }

    /// Whether there is output for which nothing will wake the task.
    pub(super) fn owes(&self) -> bool {
        self.backlog || self.due.is_some() || !self.replays.is_empty()
    }

    /// Moves notices, deliveries and retained messages to the output, as far as there is room.
    ///
    /// # Errors
    /// [`Displaced`], which does not happen: no other task claims the mailbox.
    pub(super) fn fill(&mut self, claim: Claim, cx: &Context<'_>) -> Result<(), Displaced> {
        if !self.has_room() {
            // The mailbox's ready flag may be set, so the mailbox has to be read again without a wake.
            self.backlog = true;
            return Ok(());
        }
        self.send_notices();
        let mut heads = Heads::default();
        let mut looks = 0;
        for _ in 0..ROUNDS {
            looks += self.send_share(claim, cx, &mut heads)?;
            if looks >= LOOKS_PER_TURN || !self.has_more() {
                break;
            }
        }
        Ok(())
    }

    /// One share of each, under one lock of the mailbox. Returns how many retained messages were looked at.
    fn send_share(&mut self, claim: Claim, cx: &Context<'_>, heads: &mut Heads) -> Result<usize, Displaced> {
        let (mut left, mut lost) = (false, false);
        self.note_rules();
        let (bus, replay, now) = (self.ctx.bus(), self.replays.last(), self.ctx.now());
        let (taken, chunk) = self.me.inbox.poll_with(claim, cx, |inbox| {
            let taken = take(inbox);
            left = !inbox.is_empty();
            lost = inbox.take_lost() > 0;
            // Looked up while the mailbox is locked and empty, so that an older value does not follow a newer one.
            let chunk = replay.filter(|_| !left).map(|replay| replay.look_up(bus, now));
            (taken, chunk)
        })?;
        self.backlog = left;
        if lost {
            self.due = Some(Why::Lost);
        }
        if !taken.is_empty() {
            self.reserve();
            let (mut sent, mut expired, mut withdrawn) = (0, 0, 0);
            let mut for_others = Vec::new();
            for queued in &taken {
                if queued.message.is_expired(now) {
                    expired += 1;
                } else if !self.recheck.is_due() || self.me.gate.may_read(&queued.message.topic) {
                    let notified = self.notify(heads, queued.tag, &queued.message);
                    if notified > 0 {
                        self.marks.note_message(&queued.message);
                    }
                    sent += notified;
                } else if queued.is_for_others() {
                    for_others.push((queued.tag, Arc::clone(&queued.message)));
                } else {
                    withdrawn += 1;
                }
            }
            self.machine.sent(sent, &mut self.out);
            let counters = self.ctx.bus().counters();
            counters.drained((taken.len() - for_others.len()) as u64 - expired - withdrawn, expired, 0);
            counters.gone(withdrawn);
            if !for_others.is_empty() {
                let shared = self.door().accounts.shared(&self.me.jid);
                crate::left::hand_on_tagged(&self.ctx, for_others, |tag| shared.get(&tag).cloned());
            }
        }
        if !left {
            self.recheck.emptied();
        }
        let looks = chunk.as_ref().map_or(0, |chunk| chunk.scanned);
        if let Some(chunk) = chunk {
            self.reserve();
            self.send_retained(chunk, heads);
        }
        if !left
            && self.replays.is_empty()
            && let Some(why) = self.due.take()
        {
            self.replay(why);
        }
        Ok(looks)
    }

    /// Queues the retained messages of all subscriptions to be sent.
    fn replay(&mut self, why: Why) {
        let followed = self.door().accounts.delivered_to(&self.me.jid);
        // A member of a shared subscription gets a part of the messages only.
        let whole = followed.iter().filter(|followed| followed.subscription.group.is_none());
        self.replays.extend(whole.map(|followed| Replay::new(followed, why)));
    }

    /// Appends a notification. Returns how many were appended, 0 or 1.
    fn notify(&mut self, heads: &mut Heads, tag: u64, message: &Message) -> u32 {
        let (head, to) = if is_full(tag) {
            (&mut heads.full, self.me.jid.as_str())
        } else {
            (&mut heads.bare, self.me.jid.bare_str())
        };
        let (door, encodings) = (&self.ctx.door, &self.ctx.notifications);
        if head.is_empty() {
            pubsub::write_head(head, door.service.as_str(), to);
        }
        u32::from(translate::notify(&mut self.out, (head, has_body(tag)), message, &door.nodes, encodings))
    }

    /// Borrows the worker's spare buffer for the output.
    pub(super) fn reserve(&mut self) {
        if self.out.capacity() == 0 {
            std::mem::swap(&mut self.out, &mut self.ctx.spare.borrow_mut());
        }
    }

    /// Returns an empty buffer to the worker, which keeps the larger of two.
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
            pubsub::write_head(&mut self.out, self.ctx.door.service.as_str(), self.me.jid.as_str());
            self.out.extend_from_slice(&event);
            self.machine.sent(1, &mut self.out);
        }
    }

    /// Sends retained messages of one subscription (§6.1.7), as far as there is room.
    fn send_retained(&mut self, chunk: RetainedChunk, heads: &mut Heads) {
        let Some(mut replay) = self.replays.pop() else { return };
        let mut next = chunk.next;
        let mut sent = 0;
        let mut messages = chunk.messages.iter();
        for message in &mut messages {
            let when = || self.door().nodes.config(&message.topic).send_last;
            if self.me.gate.may_read(&message.topic) && (replay.why == Why::Lost || replay.why.sends(when())) {
                sent += self.notify(heads, replay.tag, message);
                self.ctx.read(message, Door::Xmpp, || &self.me.publisher);
            }
            if self.out.len() >= OUT_BYTES_HIGH {
                if messages.len() > 0 {
                    // The others are looked up again later, because they may change.
                    next = Some(message.topic.clone());
                }
                break;
            }
        }
        self.machine.sent(sent, &mut self.out);
        if next.is_some() {
            replay.after = next;
            self.replays.push(replay);
        }
    }
}

/// Takes a portion of the oldest deliveries.
fn take(inbox: &mut FifoMailbox) -> Vec<Queued> {
    let mut bytes = 0;
    let mut taken = Vec::with_capacity(inbox.len().min(DELIVERIES_PER_TURN));
    while taken.len() < DELIVERIES_PER_TURN
        && bytes < OUT_BYTES_HIGH
        && let Some(queued) = inbox.pop()
    {
        bytes += queued.message.size();
        taken.push(queued);
    }
    taken
}
