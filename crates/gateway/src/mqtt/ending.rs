//! The end of a session, in portions if it is large (ADR 0020): its subscriptions are removed, and the messages of
//! shared ones go to other members.

use std::{collections::hash_set, rc::Rc, sync::Arc, vec};

use fogmux_bus::{SessionKey, Slot, Subscription};
use tokio::task::spawn_local;

use super::{
    context::MqttContext,
    leaving::{HANDED_ON_AT_ONCE, hand_on},
    mailbox::{ForOthers, MqttMailbox},
    session::{LeftGroups, MqttDoor, share_tag, tag},
};
use crate::turn::Portion;

/// The work of removing a subscription, in deliveries: it takes some two microseconds.
pub(super) const UNSUBSCRIBED: u64 = 32;

/// The subscriptions of a session that are removed at its end without a task: about as many as fit a turn.
const UNSUBSCRIBED_AT_ONCE: usize = 256;

impl MqttDoor {
    /// Ends a session: nothing is delivered to it any more. Messages of its shared subscriptions that it has not taken
    /// go to other members (§4.8.2). Many subscriptions are removed, and many messages handed on, by a task of its own,
    /// with turns of others in between; the next connection of the client waits for that.
    pub(super) fn end_session(&self, ctx: &Rc<MqttContext>, key: &SessionKey, slot: &Arc<Slot<MqttMailbox>>) {
        let (mut leaving, mut left) = Leaving::begin(slot);
        for subscription in left.by_ref().take(UNSUBSCRIBED_AT_ONCE) {
            leaving.unsubscribe(ctx, slot, subscription);
        }
        let next = left.next();
        if next.is_none() && leaving.hand_on(ctx, slot).is_none() {
            return ctx.bus().close(slot);
        }
        // Nobody reads it any more: other members of its groups go before it.
        slot.release(slot.claim(ctx.id));
        let departure = self.sessions.depart(key);
        let (ctx, key, slot) = (Rc::clone(ctx), key.clone(), Arc::clone(slot));
        spawn_local(async move {
            let mut portion = Portion::new();
            for subscription in next.into_iter().chain(left) {
                leaving.unsubscribe(&ctx, &slot, subscription);
                portion.spend(UNSUBSCRIBED).await;
            }
            leaving.close(&ctx, &slot, &mut portion).await;
            ctx.door.sessions.departed(&key, &departure);
        });
    }

    /// As [`end_session`](Self::end_session), for a task that nobody waits for.
    pub(super) async fn end_session_in_portions(
        &self,
        ctx: &MqttContext,
        slot: &Arc<Slot<MqttMailbox>>,
        portion: &mut Portion,
    ) {
        let (mut leaving, left) = Leaving::begin(slot);
        for subscription in left {
            leaving.unsubscribe(ctx, slot, subscription);
            portion.spend(UNSUBSCRIBED).await;
        }
        leaving.close(ctx, slot, portion).await;
        portion.spend(UNSUBSCRIBED).await;
    }
}

/// A session that ends: the shared subscriptions that it has left.
#[derive(Debug, Default)]
struct Leaving {
    groups: LeftGroups,
    /// Their messages that are in flight, as far as they are not handed on; `None` before the first is.
    in_flight: Option<vec::IntoIter<ForOthers>>,
}

impl Leaving {
    /// Takes the subscriptions of a session, which are to be removed.
    fn begin(slot: &Slot<MqttMailbox>) -> (Self, hash_set::IntoIter<Subscription>) {
        let subscriptions = slot.with(|mailbox| mailbox.subscriptions.take());
        let (all, groups) = subscriptions.map(|subscriptions| subscriptions.into_all()).unwrap_or_default();
        (Self { groups, in_flight: None }, all.into_iter())
    }

    fn unsubscribe(&mut self, ctx: &MqttContext, slot: &Arc<Slot<MqttMailbox>>, subscription: Subscription) {
        ctx.bus().unsubscribe(slot, &subscription, tag(&subscription));
        if subscription.group.is_some() {
            self.groups.insert(share_tag(&subscription), Arc::new(subscription));
        }
    }

    /// Hands on as many messages as others have to wait for. The others stay where they are, in memory and in the
    /// store. Returns the work, in deliveries, unless these were the last.
    fn hand_on(&mut self, ctx: &MqttContext, slot: &Slot<MqttMailbox>) -> Option<u64> {
        if self.groups.is_empty() {
            return None;
        }
        let groups = &self.groups;
        let in_flight = self.in_flight.get_or_insert_with(|| slot.with(|it| it.shared_in_flight(groups)).into_iter());
        let mut messages: Vec<_> = in_flight.by_ref().take(HANDED_ON_AT_ONCE).collect();
        let room = HANDED_ON_AT_ONCE - messages.len();
        let mut left = slot.with(|mailbox| mailbox.take_shared(|kept| groups.get(&kept.share).cloned(), room));
        let more = left.more || in_flight.len() > 0;
        messages.append(&mut left.messages);
        left.messages = messages;
        let work = left.work();
        hand_on(ctx, left);
        more.then_some(work)
    }

    /// Hands on all messages, and ends the session, which has no subscriptions any more.
    async fn close(mut self, ctx: &MqttContext, slot: &Slot<MqttMailbox>, portion: &mut Portion) {
        while let Some(work) = self.hand_on(ctx, slot) {
            portion.spend(work).await;
        }
        ctx.bus().close(slot);
    }
}
