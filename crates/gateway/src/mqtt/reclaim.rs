//! Reclaims memory from MQTT sessions when memory is nearly gone, from those of the principals that hold most (ADR 0028
//! and 0038).
//!
//! Once a second, while mailboxes hold more than [`is_very_tight`](super::bounds::Bounds::is_very_tight) allows, the
//! memory that is not yet tight is divided among owners. Those that hold no more than their share are left alone. Of
//! each other one sessions without a connection are cut down to a common level, the oldest messages first, so that
//! those that hold little lose nothing; a session whose messages in flight alone are above the level ends, which its
//! client sees at its next CONNECT. Connected clients that take hardly anything of what they hold are disconnected,
//! down to a level of their own; if publishers have had to wait for some time nevertheless, those that hold most are,
//! however much they read.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use fogmux_bus::{Account, SessionKey, Slot, SlotId, Timestamp};
use fogmux_fair::{Owner, divide, level};

use super::{context::MqttContext, mailbox::MqttMailbox};
use crate::{stops::Running, turn::Portion};

/// How often it is looked.
const INTERVAL: Duration = Duration::from_secs(1);
/// Mailboxes looked at before others of the worker have their turn.
const LOOKED_AT: usize = 256;
/// How long a client that is connected has to take a fair part of what it holds.
const PATIENCE: Duration = Duration::from_secs(2);
/// That part.
const FAIR: usize = 8;
/// The part of an owner's share which its absent sessions keep among them in any case, and its slow clients too.
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
type Taken<Id> = HashMap<Id, (u32, Running)>;

/// The state of the checks.
#[derive(Debug)]
pub(super) struct Reclaim<Id = SlotId> {
    /// The bound of a queue. A client that reads may hold more for a while, and is not asked to read faster for that.
    queue_bytes: usize,
    next: Timestamp,
    taken: Taken<Id>,
    /// Since when publishers have had to pause at each check.
    pressed_since: Running,
}

/// The circumstances of a look at all mailboxes.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// The time in which all workers ran: this is about the clients of each.
    now: Running,
    /// Whether publishers have to pause.
    is_pressed: bool,
}

/// The connected clients of one owner that holds more than its share.
#[derive(Debug)]
struct Clients<Id> {
    /// The bytes that the slow clients may hold together.
    slow_bytes: usize,
    held: Vec<(Id, Held)>,
}

/// The mailboxes of one owner that holds more than its share.
#[derive(Default)]
struct Holders {
    /// Its share in bytes.
    share: usize,
    /// The bytes that it holds at all doors.
    used: usize,
    connected: Vec<Holder>,
    absent: Vec<Holder>,
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
        let bounds = door.bounds(&ctx.shared);
        if bounds.take_waits_for_memory() {
            door.ring_all();
        }
        // An equal share of what absent sessions keep among them in any case: if all of them hold it, memory is no
        // tighter than that allows.
        bounds.set_absent_bytes(door.config.tight_bytes / KEPT / door.sessions_away().max(1));
        if !bounds.is_very_tight() {
            self.taken = HashMap::new();
            self.pressed_since = Running::NEVER;
            return;
        }
        let owners = holders(ctx).await;
        let mut trimmed = 0;
        for holders in &owners {
            trimmed += trim(ctx, holders).await;
        }
        let now = ctx.shared.clock.stops().running(now);
        let look = Look { now, is_pressed: ctx.bus().memory().pressure() };
        let clients = |holders: &Holders| Clients {
            slow_bytes: holders.share / KEPT,
            held: holders.connected.iter().map(|holder| (holder.slot.id(), holder.held)).collect(),
        };
        let go = self.judge(look, &owners.iter().map(clients).collect::<Vec<_>>());
        let connected = owners.iter().flat_map(|holders| &holders.connected);
        for holder in connected.filter(|holder| go.contains(&holder.slot.id())) {
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
        Self { queue_bytes, next: Timestamp::default(), taken: HashMap::new(), pressed_since: Running::NEVER }
    }

    /// The connected clients that have to go. Of each owner those that hold most, once publishers have had to pause for
    /// some time, down to half of what its clients hold; and of those that take hardly anything, down to `slow_bytes`
    /// together.
    fn judge(&mut self, look: Look, owners: &[Clients<Id>]) -> HashSet<Id> {
        let mut go = HashSet::new();
        let is_pressed = self.is_pressed(look);
        let before = std::mem::take(&mut self.taken);
        for Clients { slow_bytes, held } in owners {
            if is_pressed {
                let all: usize = held.iter().map(|(_, held)| held.bytes).sum();
                go.extend(heaviest(held, all / 2, self.queue_bytes / 2));
            }
            go.extend(heaviest(&self.slow(look, &before, held), *slow_bytes, 0));
        }
        go
    }

    /// Whether publishers have had to pause for some time.
    fn is_pressed(&mut self, Look { now, is_pressed }: Look) -> bool {
        if !is_pressed {
            self.pressed_since = Running::NEVER;
            return false;
        }
        self.pressed_since = self.pressed_since.min(now);
        now.since(self.pressed_since) >= PATIENCE
    }

    /// Those that took hardly anything of what they hold for some time.
    fn slow(&mut self, look: Look, before: &Taken<Id>, connected: &[(Id, Held)]) -> Vec<(Id, Held)> {
        let Look { now, .. } = look;
        let mut is_slow = |(id, held): &(Id, Held)| {
            let Held { bytes, taken, .. } = *held;
            let (then, since) = before.get(id).copied().unwrap_or((taken, now));
            let took = usize::try_from(taken.wrapping_sub(then)).unwrap_or(usize::MAX);
            let is_over = now.since(since) >= PATIENCE;
            let start = if is_over { (taken, now) } else { (then, since) };
            self.taken.insert(*id, start);
            is_over && took < bytes.min(self.queue_bytes) / FAIR
        };
        connected.iter().filter(|one| is_slow(one)).copied().collect()
    }
}

/// The mailboxes that hold something, of each owner that holds more than its share of the memory that is not yet tight.
async fn holders(ctx: &MqttContext) -> Vec<Holders> {
    let all = ctx.bus().memory().held_by_owner();
    let shares = divide(&all, ctx.door.config.tight_bytes);
    let heavy = all.into_iter().zip(shares).filter(|((_, used), share)| used > share);
    let heavy = heavy.map(|((owner, used), share)| (owner, Holders { share, used, ..Holders::default() }));
    let mut owners: HashMap<Owner, Holders> = heavy.collect();
    for (number, (key, slot)) in ctx.door.sessions.all().into_iter().enumerate() {
        if number % LOOKED_AT == LOOKED_AT - 1 {
            tokio::task::yield_now().await;
        }
        let (account, held): (Arc<Account>, Held) =
            slot.with(|mailbox| (Arc::clone(mailbox.owned_by()), mailbox.held()));
        let Some(holders) = owners.get_mut(account.owner()).filter(|_| held.bytes > 0) else { continue };
        let holders = if held.connected { &mut holders.connected } else { &mut holders.absent };
        holders.push(Holder { key, slot, held });
    }
    owners.into_values().collect()
}

/// Cuts the absent sessions of an owner down to a common level. Returns how many lost something.
async fn trim(ctx: &MqttContext, Holders { share, used, absent, .. }: &Holders) -> usize {
    let door = &ctx.door;
    let mut sizes: Vec<usize> = absent.iter().map(|holder| holder.held.bytes).collect();
    let others = used.saturating_sub(sizes.iter().sum());
    let level = level(&mut sizes, share.saturating_sub(others).max(share / KEPT));
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
            door.end_session_in_portions(ctx, &slot, &mut Portion::new()).await;
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

#[cfg(test)]
mod tests;
