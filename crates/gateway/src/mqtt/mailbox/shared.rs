//! Shared subscriptions (§4.8.2): the readiness of a member, and the messages that it leaves.

use std::{cell::RefCell, sync::Arc};

use fogmux_bus::{Completer, Completion, Message, Qos, Readiness, Subscription, durable::StoredDelivery};
use fogmux_mqtt::PacketId;

use super::{
    super::{
        kept::Kept,
        session::{LeftGroups, share_tag},
        unreadable::Asked,
    },
    MqttMailbox,
    subscriptions::Leaving,
};

/// Unacknowledged messages, and unwritten bytes, above which a member counts as busy: others get messages first.
const BUSY_IN_FLIGHT: usize = 16;
const BUSY_BYTES: usize = 16 << 10;

/// Messages of a queue that are looked at in the time of a delivery.
const LOOKED_AT_PER_DELIVERY: u64 = 4;
/// The work of handing a message on, in deliveries: it takes about a microsecond.
const HANDED_ON: u64 = 16;

/// A message that a member of a shared subscription has not taken.
#[derive(Debug)]
pub(in crate::mqtt) struct ForOthers {
    pub(in crate::mqtt) message: Arc<Message>,
    pub(in crate::mqtt) subscription: Arc<Subscription>,
    /// Its record, to be forgotten in the batch that puts it for another member.
    pub(in crate::mqtt) stored: Option<Box<StoredDelivery>>,
}

/// The messages that a client has not taken.
#[derive(Debug, Default)]
pub(in crate::mqtt) struct Left {
    pub(in crate::mqtt) messages: Vec<ForOthers>,
    /// Those among them that were not sent.
    pub(in crate::mqtt) waited: u64,
    /// Messages that were dropped, because the store had refused them: their publishers know.
    pub(in crate::mqtt) refused: u32,
    /// Messages that were looked at.
    looked: u64,
    /// Whether others may still wait.
    pub(in crate::mqtt) more: bool,
}

impl Left {
    /// The work of handing them on, in deliveries.
    pub(in crate::mqtt) fn work(&self) -> u64 {
        let count = u64::try_from(self.messages.len()).unwrap_or(u64::MAX);
        count.saturating_mul(HANDED_ON).saturating_add(self.looked / LOOKED_AT_PER_DELIVERY)
    }

    /// Takes the first messages, with the other counts.
    pub(in crate::mqtt) fn take_first(&mut self, count: usize) -> Self {
        let rest = self.messages.split_off(count.min(self.messages.len()));
        let rest = Self { messages: rest, ..Self::default() };
        std::mem::replace(self, rest)
    }
}

/// The messages that a client may not read any more, which were dropped.
#[derive(Debug)]
pub(in crate::mqtt) struct Unread {
    /// Those that waited. The others have been sent once, and are counted so.
    pub(in crate::mqtt) waited: u64,
    /// Those among the others that came by shared subscriptions with QoS 1, for other members.
    pub(in crate::mqtt) left: Left,
    /// The identifiers of QoS 2 among the others, whose PUBRELs wait for the store.
    pub(in crate::mqtt) released: Vec<PacketId>,
    /// When the store has all of that.
    pub(in crate::mqtt) committed: Completion,
}

/// The messages that wait for a client by the shared subscriptions that it has left.
#[derive(Debug)]
pub(in crate::mqtt) enum Remainder {
    /// These, and perhaps more.
    Some(Left),
    /// Nothing: it has left them for good.
    Nothing {
        /// When the store has forgotten the subscriptions.
        forgotten: Completion,
        /// To be told of that.
        over: Option<Arc<Completer>>,
    },
}

impl MqttMailbox {
    /// The messages of shared subscriptions that are in flight with QoS 1. When a session is over nobody will
    /// acknowledge them, and they go to other members. One of QoS 2 goes to nobody else ([MQTT-4.8.2-5]).
    pub(in crate::mqtt) fn shared_in_flight(&self, groups: &LeftGroups) -> Vec<ForOthers> {
        let shared = self.outbound.messages().filter(|kept| kept.share != 0 && kept.qos == Qos::AtLeastOnce);
        let for_others = |kept: &Kept| {
            let (message, subscription) = (Arc::clone(kept.message()?), Arc::clone(groups.get(&kept.share)?));
            // Its record is forgotten with the session.
            Some(ForOthers { message, subscription, stored: None })
        };
        shared.filter_map(for_others).collect()
    }

    /// Takes the first messages of QoS 1 and 2, `max` at most, out of the queue that go to other members: those for
    /// which `left` returns the shared subscription. Messages in flight are completed.
    pub(in crate::mqtt) fn take_shared(
        &mut self,
        left_by: impl Fn(&Kept) -> Option<Arc<Subscription>>,
        max: usize,
    ) -> Left {
        let mut left = Left { refused: self.drop_refused(), ..Left::default() };
        let left_by = |kept: &Kept| left_by(kept).filter(|_| kept.qos > Qos::AtMostOnce);
        let before = self.queue.iter().take_while(|kept| left_by(kept).is_none()).count();
        left.looked = u64::try_from(before).unwrap_or(u64::MAX);
        if before == self.queue.len() {
            return left;
        }
        // Those that stay are put back in front of the ones that were not looked at.
        let mut stay = Vec::new();
        while left.messages.len() < max
            && let Some(mut kept) = self.queue.pop_front()
        {
            // Messages of shared subscriptions do not leave memory.
            let (Some(subscription), Some(message)) = (left_by(&kept), kept.message().cloned()) else {
                stay.push(kept);
                continue;
            };
            let stored = kept.stored.take();
            left.messages.push(ForOthers { message, subscription, stored });
        }
        left.waited = u64::try_from(left.messages.len()).unwrap_or(u64::MAX);
        left.looked = left.looked.saturating_add(u64::try_from(stay.len()).unwrap_or(u64::MAX));
        left.more = left.messages.len() == max;
        stay.into_iter().rev().for_each(|kept| self.queue.push_front(kept));
        left
    }

    /// Takes the first messages, `max` at most, that wait by shared subscriptions which the client has left. When there
    /// are none, the store is told to forget these subscriptions: not before, or nobody would know after a restart
    /// which others get their messages.
    pub(in crate::mqtt) fn take_left(&mut self, max: usize) -> Remainder {
        let Some(leaving) = self.subscriptions.as_mut().and_then(|all| all.leaving.take()) else {
            return Remainder::Nothing { forgotten: Completion::Ready, over: None };
        };
        let left = self.take_shared(|kept| leaving.groups.get(&kept.share).cloned(), max);
        if !left.messages.is_empty() || left.refused > 0 {
            self.subscriptions.get_or_insert_default().leaving = Some(leaving);
            return Remainder::Some(left);
        }
        let Leaving { groups, over } = *leaving;
        if let Some(durable) = &mut self.durable {
            groups.values().for_each(|subscription| durable.unsubscribe(subscription));
        }
        Remainder::Nothing { forgotten: self.append(), over }
    }

    /// The completion of what is under way for shared subscriptions that the client has left.
    pub(in crate::mqtt) fn leaving(&self) -> Option<Completion> {
        let over = self.subscriptions.as_ref()?.leaving.as_ref()?.over.as_ref()?;
        Some(Completion::Waiting(Arc::clone(over)))
    }

    /// Notes that it is under way. `None` if there is nothing to do.
    pub(in crate::mqtt) fn begin_leaving(&mut self) -> Option<Completion> {
        let leaving = self.subscriptions.as_mut()?.leaving.as_mut()?;
        Some(Completion::Waiting(Arc::clone(leaving.over.get_or_insert_default())))
    }

    /// The shared subscriptions of the session, by their tags, with those that it is leaving.
    pub(in crate::mqtt) fn shared_subscriptions(&self) -> LeftGroups {
        let Some(all) = &self.subscriptions else { return LeftGroups::default() };
        let left = all.leaving.iter().flat_map(|leaving| &leaving.groups);
        let left = left.map(|(tag, subscription)| (*tag, Arc::clone(subscription)));
        let shared = all.each().filter(|one| one.group.is_some());
        left.chain(shared.map(|one| (share_tag(one), Arc::new(one.clone())))).collect()
    }

    /// Drops the messages that the client may not read any more: those that wait, and those that were to be sent again.
    pub(in crate::mqtt) fn drop_unreadable(&mut self, asked: &RefCell<Asked>, groups: &LeftGroups) -> Unread {
        // Those that are in the store only are looked at when they are read back.
        let may_read = |kept: &Kept| kept.message().is_none_or(|one| asked.borrow_mut().may_read(&one.topic));
        let mut dropped = self.outbound.withdraw(may_read);
        let mut left = Left::default();
        dropped.retain_mut(|kept| {
            let of_group = groups.get(&kept.share).filter(|_| kept.qos == Qos::AtLeastOnce);
            let (Some(subscription), Some(message)) = (of_group.cloned(), kept.message().cloned()) else { return true };
            left.messages.push(ForOthers { message, subscription, stored: kept.stored.take() });
            false
        });
        self.inflight_bytes = self.outbound.messages().map(Kept::cost).sum();
        let waited = self.queue.take_unless(may_read);
        let count = u64::try_from(waited.len()).unwrap_or(u64::MAX);
        let released = self.give_up(dropped);
        self.finish(waited.into_iter().filter_map(|kept| kept.stored).map(|stored| *stored));
        Unread { waited: count, left, released, committed: self.append() }
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
