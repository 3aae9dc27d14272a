//! Shared subscriptions (§4.8.2): the readiness of a member, and the messages that it leaves.

use std::{cell::RefCell, collections::HashMap, sync::Arc};

use fogmux_bus::{Message, Qos, Readiness, Subscription, durable::StoredDelivery};

use super::{
    super::{kept::Kept, unreadable::Asked},
    MqttMailbox,
};

/// Unacknowledged messages, and unwritten bytes, above which a member counts as busy: others get messages first.
const BUSY_IN_FLIGHT: usize = 16;
const BUSY_BYTES: usize = 16 << 10;

/// The part of its shared subscriptions that a client leaves.
#[derive(Clone, Copy, Debug)]
pub(in crate::mqtt) enum Leaves<'g> {
    /// The shared subscriptions with these tags; what is in flight is completed.
    Groups(&'g HashMap<u32, Arc<Subscription>>),
    /// Those of which it may not read the messages any more.
    Unreadable(&'g RefCell<Asked>),
    /// All, because its session ends.
    Session,
}

/// The messages that a client has not taken.
#[derive(Debug, Default)]
pub(in crate::mqtt) struct Left {
    /// With the tag of the subscription.
    pub(in crate::mqtt) messages: Vec<(u32, Arc<Message>)>,
    /// Those among them that were not sent.
    pub(in crate::mqtt) waited: u64,
    /// The records of those that waited, to be forgotten in the batch that puts them for other members.
    pub(in crate::mqtt) stored: Vec<StoredDelivery>,
    /// Messages that were dropped, because the store had refused them: their publishers know.
    pub(in crate::mqtt) refused: u32,
    /// Whether others still wait.
    pub(in crate::mqtt) more: bool,
}

impl MqttMailbox {
    /// The messages of shared subscriptions that are in flight with QoS 1. When a session is over nobody will
    /// acknowledge them, and they go to other members. One of QoS 2 goes to nobody else ([MQTT-4.8.2-5]).
    pub(in crate::mqtt) fn shared_in_flight(&self) -> Vec<(u32, Arc<Message>)> {
        let shared = self.outbound.messages().filter(|kept| kept.share != 0 && kept.qos == Qos::AtLeastOnce);
        shared.map(|kept| (kept.share, Arc::clone(&kept.message))).collect()
    }

    /// Takes out the first messages of QoS 1 and 2, `max` at most, that wait for some shared subscriptions of a session
    /// that goes on, or for all of one that is over. They go to other members.
    pub(in crate::mqtt) fn take_shared(&mut self, leaves: Leaves<'_>, max: usize) -> Left {
        let mut left = Left { refused: self.drop_refused(), ..Left::default() };
        let is_left = |kept: &Kept| match leaves {
            Leaves::Groups(groups) => kept.share != 0 && groups.contains_key(&kept.share),
            Leaves::Unreadable(asked) => kept.share != 0 && !asked.borrow_mut().may_read(&kept.message.topic),
            Leaves::Session => kept.share != 0,
        };
        let queue_bytes = &mut self.queue_bytes;
        self.queue.retain_mut(|kept| {
            if !is_left(kept) || kept.qos == Qos::AtMostOnce {
                return true;
            }
            if left.messages.len() == max {
                left.more = true;
                return true;
            }
            *queue_bytes = queue_bytes.saturating_sub(kept.cost());
            left.waited += 1;
            left.messages.push((kept.share, Arc::clone(&kept.message)));
            left.stored.extend(kept.stored.take().map(|stored| *stored));
            false
        });
        left
    }

    /// The shared subscriptions of the session.
    pub(in crate::mqtt) fn shared_subscriptions(&self) -> impl Iterator<Item = Subscription> + '_ {
        let all = self.subscriptions.iter().flat_map(|subscriptions| subscriptions.each());
        all.filter(|one| one.group.is_some()).cloned()
    }

    /// Drops the messages that the client may not read any more: those that wait, and those that were to be sent again.
    /// Returns how many waited; the others have been sent once, and are counted so. Those among them that came by
    /// shared subscriptions with QoS 1 are returned for other members.
    pub(in crate::mqtt) fn drop_unreadable(&mut self, asked: &RefCell<Asked>) -> (u64, Left) {
        let may_read = |kept: &Kept| asked.borrow_mut().may_read(&kept.message.topic);
        let mut dropped = self.outbound.withdraw(may_read);
        let mut left = Left::default();
        dropped.retain_mut(|kept| {
            let is_for_others = kept.share != 0 && kept.qos == Qos::AtLeastOnce;
            if is_for_others {
                left.messages.push((kept.share, Arc::clone(&kept.message)));
                left.stored.extend(kept.stored.take().map(|stored| *stored));
            }
            !is_for_others
        });
        let again = dropped.len();
        self.inflight_bytes = self.outbound.messages().map(Kept::cost).sum();
        let queue_bytes = &mut self.queue_bytes;
        self.queue.retain_mut(|kept| {
            let stays = may_read(kept);
            if !stays {
                *queue_bytes = queue_bytes.saturating_sub(kept.cost());
                let stored = kept.stored.take();
                dropped.push(kept.with(stored));
            }
            stays
        });
        let count = (dropped.len() - again) as u64;
        self.finish(dropped.into_iter().filter_map(|kept| kept.stored).map(|stored| *stored));
        // Nothing waits for the end of these.
        drop(self.append());
        (count, left)
    }

    /// How well the client keeps up.
    pub(super) fn shared_readiness(&self) -> Readiness {
        if !self.may_encode(Qos::AtLeastOnce) {
            Readiness::Congested
        } else if self.outbound.in_flight() > BUSY_IN_FLIGHT || self.out.len() + self.unwritten > BUSY_BYTES {
            Readiness::Busy
        } else {
            Readiness::Ready
        }
    }
}
