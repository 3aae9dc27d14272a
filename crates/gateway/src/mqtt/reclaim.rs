//! Reclaims memory from MQTT sessions when memory is nearly gone: above the bus's own mark all publishers of all doors
//! pause, so no client may hold memory without limit of time.
//!
//! Once a second, while mailboxes hold more than [`is_very_tight`](super::bounds::Bounds::is_very_tight) allows: sessions
//! without a connection are cut down to a common level, the oldest messages first, so that those that hold little lose
//! nothing; a session whose messages in flight alone are above the level ends, which its client sees at its next CONNECT.
//! Connected clients that take hardly anything of what they hold are disconnected, down to a level of their own. If
//! publishers have to pause nevertheless, those are that hold most, however much they read: nobody's queue keeps
//! publishers of other topics waiting.

use std::{collections::HashMap, rc::Rc, sync::Arc, time::Duration};

use fogmux_bus::{SessionKey, Slot, SlotId, Timestamp};

use super::{context::MqttContext, mailbox::MqttMailbox};

/// How often it is looked.
const INTERVAL: Duration = Duration::from_secs(1);
/// Mailboxes looked at before others of the worker have their turn.
const LOOKED_AT: usize = 256;
/// How long a client that is connected has to take a fair part of what it holds.
const PATIENCE: Duration = Duration::from_secs(2);
/// That part.
const FAIR: usize = 8;
/// The part of the memory that is not yet tight which absent sessions keep among them in any case, and slow clients too.
const KEPT: usize = 4;

/// The contents of a mailbox, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) bytes: usize,
    pub(super) connected: bool,
    /// Bytes taken by its client, ever; wraps.
    pub(super) taken: u32,
}

/// The bytes that connected clients had taken at an earlier check, and the time of that check.
#[derive(Debug)]
pub(super) struct Reclaim {
    /// The bound of a queue. A client that reads may hold more for a while, and is not asked to read faster for that.
    queue_bytes: usize,
    next: Timestamp,
    taken: HashMap<SlotId, (u32, Timestamp)>,
    /// Since when publishers have had to pause at each check.
    pressed_since: Timestamp,
}

struct Holder {
    key: SessionKey,
    slot: Arc<Slot<MqttMailbox>>,
    held: Held,
}

impl Reclaim {
    pub(super) fn new(queue_bytes: usize) -> Self {
        Self { queue_bytes, next: Timestamp::default(), taken: HashMap::new(), pressed_since: Timestamp::NEVER }
    }

    /// Looks whether memory is nearly gone, and has some of it given back if it is.
    pub(super) async fn run(&mut self, ctx: &Rc<MqttContext>) {
        let now = ctx.now();
        if now < self.next {
            return;
        }
        self.next = now + INTERVAL;
        let door = &ctx.door;
        let bounds = door.bounds(ctx);
        // An equal share of what absent sessions keep among them in any case: if all of them hold it, memory is no
        // tighter than that allows.
        bounds.set_absent_bytes(door.config.tight_bytes / KEPT / door.sessions_away().max(1));
        if !bounds.is_very_tight() {
            self.taken = HashMap::new();
            self.pressed_since = Timestamp::NEVER;
            return;
        }
        let (connected, absent): (Vec<Holder>, _) = holders(ctx).await.into_iter().partition(|h| h.held.connected);
        let trimmed = trim(ctx, &absent).await;
        let mut cut = 0;
        if self.is_pressed(ctx, now) {
            let held: usize = connected.iter().map(|holder| holder.held.bytes).sum();
            cut += disconnect(&connected, held / 2, self.queue_bytes / 2);
        }
        cut += disconnect(&self.slow(connected, now), door.config.tight_bytes / KEPT, 0);
        if trimmed + cut > 0 {
            let bytes = ctx.bus().memory().used();
            tracing::warn!(
                absent = trimmed,
                disconnected = cut,
                bytes,
                "memory is nearly gone: MQTT sessions and clients that hold most of it gave way"
            );
        }
    }

    /// Whether publishers have had to pause for some time.
    fn is_pressed(&mut self, ctx: &MqttContext, now: Timestamp) -> bool {
        if !ctx.bus().memory().pressure() {
            self.pressed_since = Timestamp::NEVER;
            return false;
        }
        self.pressed_since = self.pressed_since.min(now);
        now.since(self.pressed_since) >= PATIENCE
    }

    /// Those that took hardly anything of what they hold for some time.
    fn slow(&mut self, connected: Vec<Holder>, now: Timestamp) -> Vec<Holder> {
        let before = std::mem::take(&mut self.taken);
        let is_slow = |holder: &Holder| {
            let Held { bytes, taken, .. } = holder.held;
            let (then, since) = before.get(&holder.slot.id()).copied().unwrap_or((taken, now));
            let took = usize::try_from(taken.wrapping_sub(then)).unwrap_or(usize::MAX);
            let is_over = now.since(since) >= PATIENCE;
            let start = if is_over { (taken, now) } else { (then, since) };
            self.taken.insert(holder.slot.id(), start);
            is_over && took < bytes.min(self.queue_bytes) / FAIR
        };
        connected.into_iter().filter(is_slow).collect()
    }
}

/// Every mailbox that holds something.
async fn holders(ctx: &MqttContext) -> Vec<Holder> {
    let mut holders = Vec::new();
    for (number, (key, slot)) in ctx.door.sessions.all().into_iter().enumerate() {
        if number % LOOKED_AT == LOOKED_AT - 1 {
            tokio::task::yield_now().await;
        }
        let held = slot.with(|mailbox| mailbox.held());
        if held.bytes > 0 {
            holders.push(Holder { key, slot, held });
        }
    }
    holders
}

/// Cuts absent sessions down to a common level. Returns how many lost something.
async fn trim(ctx: &MqttContext, absent: &[Holder]) -> usize {
    let door = &ctx.door;
    let tight = door.config.tight_bytes;
    let mut sizes: Vec<usize> = absent.iter().map(|holder| holder.held.bytes).collect();
    let others = ctx.bus().memory().used().saturating_sub(sizes.iter().sum());
    let level = level(&mut sizes, tight.saturating_sub(others).max(tight / KEPT));
    let mut trimmed = 0;
    for Holder { key, slot, .. } in absent.iter().filter(|holder| holder.held.bytes > level) {
        if trimmed % LOOKED_AT == LOOKED_AT - 1 {
            tokio::task::yield_now().await;
        }
        trimmed += 1;
        let (dropped, left) = slot.with(|mailbox| mailbox.trim(level));
        ctx.bus().counters().full(dropped);
        if left > level
            && let Some(slot) = door.sessions.remove_absent(key, slot)
        {
            door.end_session(ctx, &slot);
            door.publish_will_of(ctx, key);
        }
    }
    trimmed
}

/// Disconnects the clients that hold more than the rest, for all together to hold `budget` at most; none that holds
/// less than `least`. Returns how many.
fn disconnect(clients: &[Holder], budget: usize, least: usize) -> usize {
    let mut sizes: Vec<usize> = clients.iter().map(|holder| holder.held.bytes).collect();
    let level = level(&mut sizes, budget).max(least);
    let heavy = clients.iter().filter(|holder| holder.held.bytes > level);
    heavy.inspect(|holder| holder.slot.with_wake(|mailbox| mailbox.evict())).count()
}

/// The largest size to which all have to come down for their sum to be `budget` at most; sorts them.
fn level(sizes: &mut [usize], budget: usize) -> usize {
    sizes.sort_unstable();
    let mut left = budget;
    for (index, size) in sizes.iter().enumerate() {
        let share = left / (sizes.len() - index);
        if *size > share {
            return share;
        }
        left -= size;
    }
    usize::MAX
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_level_fits_the_budget_and_is_the_largest_that_does(
            mut sizes in proptest::collection::vec(0_usize..1000, 1..50), budget in 0_usize..20_000
        ) {
            let level = level(&mut sizes, budget);
            let sum = |level: usize| sizes.iter().map(|size| *size.min(&level)).sum::<usize>();
            prop_assert!(sum(level) <= budget);
            if level < usize::MAX {
                prop_assert!(sum(level + 1) > budget);
            }
        }
    }
}
