//! The end of a session: its subscriptions are removed, in portions if there are many (ADR 0020).

use std::{collections::HashMap, iter::once, rc::Rc, sync::Arc};

use fogmux_bus::{SessionKey, Slot, Subscription};
use tokio::task::spawn_local;

use super::{
    context::MqttContext,
    mailbox::{Leaves, MqttMailbox},
    session::{LeftGroups, MqttDoor, hand_on, share_tag, tag},
};
use crate::turn::Portion;

/// The work of removing a subscription, in deliveries: it takes some two microseconds.
pub(super) const UNSUBSCRIBED: u64 = 32;

/// The subscriptions of a session that are removed at its end without a task: about as many as fit a turn.
const UNSUBSCRIBED_AT_ONCE: usize = 256;

impl MqttDoor {
    /// Ends a session: nothing is delivered to it any more. Messages of its shared subscriptions that it has not taken
    /// go to other members (§4.8.2). Many subscriptions are removed by a task of its own, with turns of others in
    /// between; the next connection of the client waits for that.
    pub(super) fn end_session(&self, ctx: &Rc<MqttContext>, key: &SessionKey, slot: &Arc<Slot<MqttMailbox>>) {
        let (mut groups, mut left) = (HashMap::new(), subscriptions_of(slot));
        for subscription in left.by_ref().take(UNSUBSCRIBED_AT_ONCE) {
            unsubscribe(ctx, slot, subscription, &mut groups);
        }
        let Some(next) = left.next() else { return close(ctx, slot, &groups) };
        // Nobody reads it any more: other members of its groups go before it.
        slot.release(slot.claim(ctx.id));
        let departure = self.sessions.depart(key);
        let (ctx, key, slot) = (Rc::clone(ctx), key.clone(), Arc::clone(slot));
        spawn_local(async move {
            let mut portion = Portion::new();
            for subscription in once(next).chain(left) {
                unsubscribe(&ctx, &slot, subscription, &mut groups);
                portion.spend(UNSUBSCRIBED).await;
            }
            close(&ctx, &slot, &groups);
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
        let mut groups = HashMap::new();
        for subscription in subscriptions_of(slot) {
            unsubscribe(ctx, slot, subscription, &mut groups);
            portion.spend(UNSUBSCRIBED).await;
        }
        close(ctx, slot, &groups);
        portion.spend(UNSUBSCRIBED).await;
    }
}

fn subscriptions_of(slot: &Slot<MqttMailbox>) -> impl Iterator<Item = Subscription> + use<> {
    let subscriptions = slot.with(|mailbox| mailbox.subscriptions.take());
    subscriptions.into_iter().flat_map(|subscriptions| subscriptions.into_all())
}

fn unsubscribe(ctx: &MqttContext, slot: &Arc<Slot<MqttMailbox>>, subscription: Subscription, groups: &mut LeftGroups) {
    ctx.bus().unsubscribe(slot, &subscription, tag(&subscription));
    if subscription.group.is_some() {
        groups.insert(share_tag(&subscription), Arc::new(subscription));
    }
}

/// Ends a session without subscriptions; it has left these shared ones.
fn close(ctx: &MqttContext, slot: &Arc<Slot<MqttMailbox>>, groups: &LeftGroups) {
    if !groups.is_empty() {
        hand_on(ctx, slot.with(|mailbox| mailbox.take_shared(Leaves::Session)), groups);
    }
    ctx.bus().close(slot);
}
