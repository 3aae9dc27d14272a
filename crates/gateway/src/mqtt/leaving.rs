//! Messages of shared subscriptions that go to other members, because the client leaves the subscriptions or may not
//! read them any more (§4.8.2). A queue has a hundred thousand: they go in portions (ADR 0020, ADR 0064).
//!
//! Until their portion comes they stay in the session's queue and in its records, and the client may be sent some of
//! them (§3.10.4 allows it). The store forgets the subscription behind the last, and UNSUBACK waits for that.

use std::{rc::Rc, sync::Arc};

use fogmux_bus::{Completion, DELIVERIES_PER_TURN, Slot, durable::StoredDelivery};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::spawn_local,
};

use super::{
    connection::Connection,
    context::MqttContext,
    durable::forgets,
    mailbox::{Left, MqttMailbox, Remainder},
};
use crate::turn::Portion;

/// The messages of shared subscriptions that go to other members at once.
pub(super) const HANDED_ON_AT_ONCE: usize = 1024;

/// Hands messages of shared subscriptions to other members. Each is in the store for one of them at any time, or in
/// memory alone if the store does not take it.
pub(super) fn hand_on(ctx: &MqttContext, left: Left) {
    let counters = ctx.bus().counters();
    counters.full(u64::from(left.refused));
    if left.messages.is_empty() {
        return;
    }
    counters.handed_on(left.waited);
    let now = ctx.now();
    let (mut messages, mut stored) = (Vec::with_capacity(left.messages.len()), Vec::new());
    for one in left.messages {
        stored.extend(one.stored.map(|stored| *stored));
        if !one.message.is_expired(now) {
            messages.push((one.message, one.subscription));
        }
    }
    let store = ctx.door.config.store.as_ref().filter(|_| !stored.is_empty());
    let Some(store) = store.map(Arc::clone) else {
        // The members that have them now keep them, stored or not.
        return drop(ctx.worker.borrow_mut().hand_on(&messages, None));
    };
    // Of what another worker is publishing, that batch would be without the message, and might be on the disk before
    // the others have it there: its publisher would have its acknowledgement too early.
    let (unpublished, stored): (Vec<_>, _) = stored.into_iter().partition(StoredDelivery::is_unpublished);
    let (batch, again) = forgets(&*store, stored);
    let completion = ctx.worker.borrow_mut().hand_on(&messages, Some(batch));
    if !unpublished.is_empty() {
        // Those that only forget are always taken.
        drop(forgets(&*store, unpublished).0.append());
    }
    match completion {
        Completion::Ready => {}
        Completion::Failed => again.forget(&*store),
        Completion::Waiting(_) | Completion::Both(_) | Completion::Sooner(_) => drop(spawn_local(async move {
            if completion.await.is_err() {
                again.forget(&*store);
            }
        })),
    }
}

/// The same for messages that were taken out of the queue: a part of them now, the others in turns of their own. Their
/// records stay until then.
pub(super) fn hand_on_in_portions(ctx: &Rc<MqttContext>, mut left: Left) {
    hand_on(ctx, left.take_first(HANDED_ON_AT_ONCE));
    if left.messages.is_empty() {
        return;
    }
    let ctx = Rc::clone(ctx);
    spawn_local(async move {
        let mut portion = Portion::new();
        while !left.messages.is_empty() {
            let first = left.take_first(HANDED_ON_AT_ONCE);
            portion.spend(first.work()).await;
            hand_on(&ctx, first);
        }
    });
}

/// The progress of a session on the shared subscriptions that it has left.
enum Step {
    /// So much work, in deliveries, and there may be more.
    More(u64),
    /// All is done when the store has forgotten them.
    Over(Completion),
}

/// Hands on as many messages as others have to wait for.
fn step(ctx: &MqttContext, slot: &Slot<MqttMailbox>) -> Step {
    match slot.with(|mailbox| mailbox.take_left(HANDED_ON_AT_ONCE)) {
        Remainder::Some(left) => {
            let work = left.work();
            hand_on(ctx, left);
            Step::More(work)
        }
        Remainder::Nothing { forgotten, over } => {
            if let Some(over) = over {
                let forgotten = forgotten.clone();
                spawn_local(async move { over.complete(forgotten.await) });
            }
            Step::Over(forgotten)
        }
    }
}

/// Hands on, in portions, what waits by shared subscriptions that the client of a session has left. What happens to the
/// session and its connection meanwhile does not matter.
async fn leave(ctx: Rc<MqttContext>, slot: Arc<Slot<MqttMailbox>>) {
    let mut portion = Portion::new();
    while let Step::More(work) = step(&ctx, &slot) {
        portion.spend(work).await;
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Hands on what waits for the client by the shared subscriptions that it has left: some of it at once, the rest by
    /// a task. Returns what UNSUBACK waits for. Delivery is completed of what it has begun with ([MQTT-3.10.4-3]).
    pub(super) fn leave_groups(&mut self) -> Completion {
        let slot = &self.mailbox.slot;
        if let Some(under_way) = slot.with(|mailbox| mailbox.leaving()) {
            return under_way;
        }
        let mut all = 0;
        while all < DELIVERIES_PER_TURN {
            match step(&self.ctx, slot) {
                Step::More(work) => all += work,
                Step::Over(forgotten) => {
                    self.work.deliveries.add(all);
                    return forgotten;
                }
            }
        }
        self.work.deliveries.add(all);
        let Some(over) = slot.with(MqttMailbox::begin_leaving) else { return Completion::Ready };
        spawn_local(leave(Rc::clone(&self.ctx), Arc::clone(slot)));
        over
    }
}
