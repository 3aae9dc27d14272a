//! Messages of shared subscriptions that a member has left behind, at the doors that have no sessions.

use std::sync::Arc;

use fogmux_bus::{Message, Subscription};
use tokio::task::spawn_local;

use crate::{WorkerContext, turn::Portion};

/// The messages that go to other members at once, and their work in deliveries: each takes about a microsecond.
const HANDED_ON_AT_ONCE: usize = 1024;
const HANDED_ON: u64 = 16 * HANDED_ON_AT_ONCE as u64;

/// Hands messages that waited for a member, by the tags of its shared subscriptions, to other members.
pub(crate) fn hand_on_tagged(
    ctx: &WorkerContext,
    left: Vec<(u64, Arc<Message>)>,
    of_tag: impl Fn(u64) -> Option<Arc<Subscription>>,
) {
    let waited = left.len();
    let left: Vec<_> = left.into_iter().filter_map(|(tag, message)| Some((message, of_tag(tag)?))).collect();
    // A subscription that has ended is not found, and its messages are dropped.
    ctx.bus().counters().gone((waited - left.len()) as u64);
    hand_on(ctx, left);
}

/// Hands messages that waited for a member to other members: a part of them now, the others in turns of their own (ADR
/// 0064). To be called when it is not connected any more, or may not read them any more.
pub(crate) fn hand_on(ctx: &WorkerContext, left: Vec<(Arc<Message>, Arc<Subscription>)>) {
    let mut left = left.into_iter();
    hand_on_some(ctx, left.by_ref().take(HANDED_ON_AT_ONCE).collect());
    let Some(ctx) = ctx.itself().filter(|_| left.len() > 0) else { return };
    spawn_local(async move {
        let mut portion = Portion::new();
        while left.len() > 0 {
            portion.spend(HANDED_ON).await;
            hand_on_some(&ctx, left.by_ref().take(HANDED_ON_AT_ONCE).collect());
        }
    });
}

fn hand_on_some(ctx: &WorkerContext, mut left: Vec<(Arc<Message>, Arc<Subscription>)>) {
    if left.is_empty() {
        return;
    }
    let now = ctx.now();
    let waited = left.len();
    left.retain(|(message, _)| !message.is_expired(now));
    let counters = ctx.bus().counters();
    counters.handed_on(left.len() as u64);
    counters.expired((waited - left.len()) as u64);
    // The members that have them now keep them, stored or not.
    drop(ctx.worker.borrow_mut().hand_on(&left, None));
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use fogmux_auth::{Authority, Rules};
    use fogmux_bus::{
        Bus, BusConfig, FifoLimits, FifoMailbox, Forgetful, Payload, Publication, Publisher, Qos, SubscribeOptions,
        TopicRef, WorkerId,
    };
    use tokio::{
        runtime::{Builder, LocalOptions},
        sync::watch,
    };

    use super::*;
    use crate::{Clock, Shared, phase::Phase};

    #[test]
    fn many_messages_go_to_others_in_portions_and_in_order() {
        const MESSAGES: u32 = 5000;
        let clock = Clock::start();
        let now = clock.now();
        let bus = Bus::new(&BusConfig::default(), Box::new(Forgetful), now, clock.unix_ms(now));
        let (_drain, draining) = watch::channel(Phase::Open);
        let authority = Arc::new(Authority::new(Rules::default()));
        let shared = Arc::new(Shared::new(Arc::clone(&bus), authority, clock, draining));
        let ctx = WorkerContext::new(shared, WorkerId(0));
        let subscription = Arc::new(Subscription::parse("$share/g/q").unwrap());
        let other = bus.slot(FifoMailbox::new(FifoLimits { messages: 10_000, bytes: 10 << 20 }), WorkerId(0));
        bus.subscribe(
            &other,
            &subscription,
            SubscribeOptions { max_qos: Qos::AtLeastOnce, ..SubscribeOptions::default() },
        )
        .unwrap();
        let publisher = Publisher::internal();
        let message = |number: u32| {
            let (topic, bytes) = (TopicRef::new("q").unwrap(), number.to_be_bytes());
            let mut publication = Publication::new(topic, Payload::Slice(&bytes), &publisher, now, 0);
            publication.qos = Qos::AtLeastOnce;
            (Arc::clone(publication.share()), Arc::clone(&subscription))
        };
        let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
        runtime.block_on(async {
            hand_on(&ctx, (0..MESSAGES).map(message).collect());
            let mut before = 0;
            while before < u64::from(MESSAGES) {
                let now = bus.counters().handed_on.load(Relaxed);
                assert!(now - before <= HANDED_ON_AT_ONCE as u64, "{} in one turn", now - before);
                before = now;
                tokio::task::yield_now().await;
            }
        });
        for number in 0..MESSAGES {
            let queued = other.with(FifoMailbox::pop).unwrap();
            assert_eq!(queued.message.payload, number.to_be_bytes().as_slice());
        }
    }
}
