//! Reclaims memory from MQTT sessions when memory is nearly gone: above the bus's own mark all publishers of all doors
//! pause, so no client may hold memory without limit of time.
//!
//! Once a second, while mailboxes hold more than [`is_very_tight`](super::bounds::Bounds::is_very_tight) allows:
//! sessions without a connection are cut down to a common level, the oldest messages first, so that those that hold
//! little lose nothing; a session whose messages in flight alone are above the level ends, which its client sees at its
//! next CONNECT. Connected clients that take hardly anything of what they hold are disconnected, down to a level of
//! their own. If publishers have to pause nevertheless, those are that hold most, however much they read: nobody's
//! queue keeps publishers of other topics waiting.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

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
/// The part of the memory that is not yet tight which absent sessions keep among them in any case, and slow clients
/// too.
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
pub(super) struct Reclaim<Id = SlotId> {
    /// The bound of a queue. A client that reads may hold more for a while, and is not asked to read faster for that.
    queue_bytes: usize,
    next: Timestamp,
    taken: HashMap<Id, (u32, Timestamp)>,
    /// Since when publishers have had to pause at each check.
    pressed_since: Timestamp,
}

/// The circumstances of a look at all mailboxes.
#[derive(Clone, Copy, Debug)]
struct Look {
    now: Timestamp,
    /// When the gateway went on after it last had not run.
    went_on: Timestamp,
    /// Whether publishers have to pause.
    is_pressed: bool,
}

struct Holder {
    key: SessionKey,
    slot: Arc<Slot<MqttMailbox>>,
    held: Held,
}

impl Reclaim {
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
        let look = Look { now, went_on: ctx.went_on(), is_pressed: ctx.bus().memory().pressure() };
        let held: Vec<(SlotId, Held)> = connected.iter().map(|holder| (holder.slot.id(), holder.held)).collect();
        let go = self.judge(look, &held, door.config.tight_bytes / KEPT);
        for holder in connected.iter().filter(|holder| go.contains(&holder.slot.id())) {
            holder.slot.with_wake(|mailbox| mailbox.evict());
        }
        let cut = go.len();
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
}

impl<Id: Copy + Eq + Hash> Reclaim<Id> {
    pub(super) fn new(queue_bytes: usize) -> Self {
        Self { queue_bytes, next: Timestamp::default(), taken: HashMap::new(), pressed_since: Timestamp::NEVER }
    }

    /// The connected clients that have to go: those that hold most, once publishers have had to pause for some time,
    /// down to half of what all hold; and of those that take hardly anything, down to `slow_bytes` together.
    fn judge(&mut self, look: Look, connected: &[(Id, Held)], slow_bytes: usize) -> HashSet<Id> {
        let mut go = HashSet::new();
        if self.is_pressed(look) {
            let held: usize = connected.iter().map(|(_, held)| held.bytes).sum();
            go.extend(heaviest(connected, held / 2, self.queue_bytes / 2));
        }
        go.extend(heaviest(&self.slow(look, connected), slow_bytes, 0));
        go
    }

    /// Whether publishers have had to pause for some time.
    fn is_pressed(&mut self, Look { now, went_on, is_pressed }: Look) -> bool {
        if !is_pressed {
            self.pressed_since = Timestamp::NEVER;
            return false;
        }
        self.pressed_since = self.pressed_since.min(now).max(went_on);
        now.since(self.pressed_since) >= PATIENCE
    }

    /// Those that took hardly anything of what they hold for some time.
    fn slow(&mut self, Look { now, went_on, .. }: Look, connected: &[(Id, Held)]) -> Vec<(Id, Held)> {
        let before = std::mem::take(&mut self.taken);
        let mut is_slow = |(id, held): &(Id, Held)| {
            let Held { bytes, taken, .. } = *held;
            let (then, since) = before.get(id).copied().filter(|(_, since)| *since >= went_on).unwrap_or((taken, now));
            let took = usize::try_from(taken.wrapping_sub(then)).unwrap_or(usize::MAX);
            let is_over = now.since(since) >= PATIENCE;
            let start = if is_over { (taken, now) } else { (then, since) };
            self.taken.insert(*id, start);
            is_over && took < bytes.min(self.queue_bytes) / FAIR
        };
        connected.iter().filter(|one| is_slow(one)).copied().collect()
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

/// The clients that hold more than the rest, without whom all together hold `budget` at most; none that holds less than
/// `least`.
fn heaviest<Id: Copy>(clients: &[(Id, Held)], budget: usize, least: usize) -> impl Iterator<Item = Id> {
    let mut sizes: Vec<usize> = clients.iter().map(|(_, held)| held.bytes).collect();
    let level = level(&mut sizes, budget).max(least);
    clients.iter().filter(move |(_, held)| held.bytes > level).map(|(id, _)| *id)
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
mod tests;
