//! The bus as all workers share it: subscriptions, retained messages, counters and limits.

use std::{
    hash::BuildHasher,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Waker,
};

use foldhash::quality::RandomState;

use crate::{
    Timestamp,
    counters::Counters,
    filter::Filter,
    id::{SlotIds, WorkerId},
    mailbox::Mailbox,
    memory::Memory,
    message::Message,
    order::Order,
    retained::{ClockSet, Retained, RetainedChunk, RetainedStore},
    route::{Sub, Subscriber},
    share::{NoRoom, RESERVE_PERCENT, Room},
    slot::Slot,
    subscription::{SubscribeOptions, Subscription},
    topic::Topic,
    tree::{Matched, Tree},
};

/// Bounds of a bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusConfig {
    /// Workers that publish.
    pub workers: usize,
    /// Bytes in all mailboxes together above which publishers are paused.
    pub memory_high_bytes: usize,
    /// Most retained messages.
    pub retained_messages_max: usize,
    /// Most bytes of retained messages, overhead included.
    pub retained_bytes_max: usize,
    /// Most subscriptions of all subscribers together.
    pub subscriptions_max: usize,
    /// Most bytes of subscriptions; each level of a filter that no other shares counts some two hundred.
    pub subscriptions_bytes_max: usize,
    /// The part of every table that is reserved for principals who have little of it, in percent ([`Room`]).
    pub reserve_percent: u8,
}

impl Default for BusConfig {
    fn default() -> Self {
        Self {
            workers: 1,
            memory_high_bytes: 128 << 20,
            retained_messages_max: 100_000,
            retained_bytes_max: 64 << 20,
            subscriptions_max: 1_000_000,
            subscriptions_bytes_max: 128 << 20,
            reserve_percent: RESERVE_PERCENT,
        }
    }
}

/// More subscriptions than [`BusConfig::subscriptions_max`], or more bytes of them than
/// [`BusConfig::subscriptions_bytes_max`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many subscriptions")]
pub struct TooManySubscriptions;

const SHARDS: usize = 64;

/// Stamps of the subscriptions below each first topic level. A cached route is valid as long as its topic's stamp is
/// unchanged.
struct Generations {
    shards: [AtomicU64; SHARDS],
    /// Of filters whose first level is a wildcard, and of all rules.
    root: AtomicU64,
    hasher: RandomState,
}

impl Generations {
    fn shard(&self, first_level: &str) -> &AtomicU64 {
        let index = usize::try_from(self.hasher.hash_one(first_level) % SHARDS as u64).unwrap_or_default();
        self.shards.get(index).unwrap_or(&self.root)
    }

    fn bump(&self, filter: &str) {
        let first = filter.split('/').next().unwrap_or_default();
        let shard = if matches!(first, "+" | "#") { &self.root } else { self.shard(first) };
        shard.fetch_add(1, Ordering::SeqCst);
    }

    // Each of the two only grows, so their sum is the same only if both are.
    fn stamp(&self, topic: &str) -> u64 {
        let length = topic.bytes().position(|byte| byte == b'/').unwrap_or(topic.len());
        let first = topic.get(..length).unwrap_or_default();
        self.shard(first).load(Ordering::SeqCst) + self.root.load(Ordering::SeqCst)
    }

    fn all(&self) -> u64 {
        self.shards.iter().chain([&self.root]).map(|stamp| stamp.load(Ordering::SeqCst)).sum()
    }
}

/// Slots of a worker that other workers have delivered to, and the waker of the task that wakes their owners.
#[derive(Default)]
pub(crate) struct Inbox {
    pub(crate) ready: Vec<Arc<dyn Subscriber>>,
    /// Owners beyond the first [`WAKES_PER_TURN`](crate::limits::WAKES_PER_TURN) of a large publication.
    pub(crate) later: Vec<Arc<dyn Subscriber>>,
    pub(crate) waker: Option<Waker>,
}

/// The state shared by all workers; see the crate's documentation.
pub struct Bus {
    tree: RwLock<Tree>,
    generations: Generations,
    retained: Retained,
    order: Order,
    memory: Arc<Memory>,
    counters: Counters,
    pub(crate) slots: Arc<SlotIds>,
    pub(crate) inboxes: Vec<Mutex<Inbox>>,
    subscriptions_room: Room,
    subscriptions_bytes_room: Room,
    reserve_percent: u8,
    shut_down: AtomicBool,
}

impl Bus {
    /// Creates a bus with the retained messages of `store`. `now` and `now_unix_ms` are the same moment on both clocks.
    #[must_use]
    pub fn new(config: &BusConfig, store: Box<dyn RetainedStore>, now: Timestamp, now_unix_ms: u64) -> Arc<Self> {
        let room = |max| Room::new(max, config.reserve_percent);
        let retained = Retained::new(store, room(config.retained_messages_max), room(config.retained_bytes_max));
        retained.load(now, now_unix_ms);
        Arc::new(Self {
            tree: RwLock::default(),
            generations: Generations {
                shards: [const { AtomicU64::new(0) }; SHARDS],
                root: AtomicU64::new(0),
                hasher: RandomState::default(),
            },
            retained,
            order: Order::default(),
            memory: Arc::new(Memory::new(config.memory_high_bytes)),
            counters: Counters::default(),
            slots: Arc::default(),
            inboxes: (0..config.workers.max(1)).map(|_| Mutex::default()).collect(),
            subscriptions_room: room(config.subscriptions_max),
            subscriptions_bytes_room: room(config.subscriptions_bytes_max),
            reserve_percent: config.reserve_percent,
            shut_down: AtomicBool::new(false),
        })
    }

    /// Creates a slot for a subscriber whose connection lives on `worker`.
    pub fn slot<M: Mailbox>(&self, mailbox: M, worker: WorkerId) -> Arc<Slot<M>> {
        Slot::new(Arc::clone(&self.slots), Arc::clone(&self.memory), worker, mailbox)
    }

    /// Adds or replaces a subscription. Returns whether there was one with the same filter and tag. The subscriber
    /// pulls retained messages afterwards, by [`Bus::retained`].
    ///
    /// # Errors
    /// [`TooManySubscriptions`] if a new subscription would exceed [`BusConfig::subscriptions_max`].
    pub fn subscribe<M: Mailbox>(
        &self,
        slot: &Arc<Slot<M>>,
        subscription: &Subscription,
        options: SubscribeOptions,
    ) -> Result<bool, TooManySubscriptions> {
        let subscriber: Arc<dyn Subscriber> = Arc::<Slot<M>>::clone(slot);
        let mut tree = self.tree.write().unwrap_or_else(PoisonError::into_inner);
        let key = (slot.id(), options.tag);
        if let Err(why) = self.room_for(&tree, subscription, &options)
            && !tree.contains(subscription, key)
        {
            if why == NoRoom::Share {
                Counters::beyond_share(&self.counters.share_subscriptions);
            }
            return Err(TooManySubscriptions);
        }
        let existed = tree.insert(subscription, Sub { slot: slot.id(), subscriber, options });
        drop(tree);
        self.generations.bump(&subscription.filter);
        Ok(existed)
    }

    /// Whether there is room for one more subscription of its principal. The last one may exceed the limit of bytes.
    fn room_for(&self, tree: &Tree, subscription: &Subscription, options: &SubscribeOptions) -> Result<(), NoRoom> {
        let principal = options.gate.as_ref().and_then(|gate| gate.principal());
        let own = principal.map(|principal| tree.share(&principal)).unwrap_or_default();
        let left = self.subscriptions_bytes_room.left(tree.bytes());
        self.subscriptions_room.admit(tree.len(), own.count, 1)?;
        if left == 0 {
            return Err(NoRoom::Full);
        }
        self.subscriptions_bytes_room.admit(tree.bytes(), own.bytes, subscription.cost().min(left))
    }

    /// A table of `max` with the reserve that all tables have.
    #[must_use]
    pub const fn room(&self, max: usize) -> Room {
        Room::new(max, self.reserve_percent)
    }

    /// Removes a subscription. Returns whether there was one.
    pub fn unsubscribe<M: Mailbox>(&self, slot: &Arc<Slot<M>>, subscription: &Subscription, tag: u64) -> bool {
        let mut tree = self.tree.write().unwrap_or_else(PoisonError::into_inner);
        let existed = tree.remove(subscription, slot.id(), tag);
        drop(tree);
        if existed {
            self.generations.bump(&subscription.filter);
        }
        existed
    }

    /// Refuses all publications from now on except wills, so that everything delivered afterwards was accepted before.
    /// A batch that another worker publishes at this moment may still be delivered.
    pub fn shut_down(&self) {
        self.shut_down.store(true, Ordering::SeqCst);
    }

    /// Whether [`Bus::shut_down`] was called.
    #[must_use]
    pub fn is_shut_down(&self) -> bool {
        self.shut_down.load(Ordering::Relaxed)
    }

    /// Ends a slot for good: its mailbox drops what it holds. To be called after its subscriptions are removed, when
    /// nobody will claim it again.
    pub fn close<M: Mailbox>(&self, slot: &Slot<M>) {
        self.counters.gone(slot.close() as u64);
    }

    /// The number of subscriptions.
    #[must_use]
    pub fn subscriptions(&self) -> usize {
        self.tree.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The largest number of subscriptions, and of retained messages, that one principal has.
    #[must_use]
    pub fn largest_shares(&self) -> (usize, usize) {
        let subscriptions = self.tree.read().unwrap_or_else(PoisonError::into_inner).largest_share();
        (subscriptions, self.retained.largest_share())
    }

    /// Bytes that they take up, levels of filters included.
    #[must_use]
    pub fn subscriptions_bytes(&self) -> usize {
        self.tree.read().unwrap_or_else(PoisonError::into_inner).bytes()
    }

    /// The number of shared subscriptions ([`Subscription::group`]).
    #[must_use]
    pub fn shared_subscriptions(&self) -> usize {
        self.tree.read().unwrap_or_else(PoisonError::into_inner).shared()
    }

    /// Invalidates all cached routes: the topics that subscribers may read have changed.
    pub fn invalidate(&self) {
        self.generations.root.fetch_add(1, Ordering::SeqCst);
    }

    /// The retained message of a topic.
    #[must_use]
    pub fn latest(&self, topic: &str, now: Timestamp) -> Option<Arc<Message>> {
        self.retained.latest(topic, now)
    }

    /// Up to `limit` retained messages that match a filter, in order of topic, of topics behind `after`.
    ///
    /// A subscriber that must not see an older value after a newer one calls this while its slot is locked and its
    /// mailbox is empty: a retained publication that is not in the mailbox by then is no older than the value found
    /// here.
    #[must_use]
    pub fn retained(&self, filter: &Filter, after: Option<&Topic>, limit: usize, now: Timestamp) -> RetainedChunk {
        self.retained.chunk(filter, after, limit, now)
    }

    /// Up to `limit` retained messages whose topics begin with `prefix`, in order of topic, of topics behind `after`.
    /// Unlike a filter, a prefix may end within a level, and the empty one includes topics that begin with `$`.
    #[must_use]
    pub fn retained_page(&self, prefix: &str, after: Option<&str>, limit: usize, now: Timestamp) -> RetainedChunk {
        self.retained.page(prefix, after, limit, now)
    }

    /// Removes expired retained messages among up to `limit` behind `after`. Returns where to go on, `None` at the end.
    #[must_use]
    pub fn sweep(&self, after: Option<&Topic>, limit: usize, now: Timestamp) -> Option<Topic> {
        self.retained.sweep(after, limit, now)
    }

    /// Brings up to `limit` retained messages behind `after` in line with a wall clock that was set, and their stored
    /// expiries with it. Returns where to go on, `None` at the end.
    #[must_use]
    pub fn restamp(&self, clock: ClockSet, after: Option<&Topic>, limit: usize, now: Timestamp) -> Option<Topic> {
        self.retained.restamp(clock, after, limit, now)
    }

    /// Number of retained messages and their bytes.
    #[must_use]
    pub fn retained_size(&self) -> (usize, usize) {
        self.retained.size()
    }

    /// The memory that mailboxes hold together.
    #[must_use]
    pub const fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// The counters.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) const fn order(&self) -> &Order {
        &self.order
    }

    pub(crate) const fn keep(&self) -> &Retained {
        &self.retained
    }

    /// Changes whenever a stamp does.
    pub(crate) fn generation(&self) -> u64 {
        self.generations.all()
    }

    pub(crate) fn members(&self, subscription: &Subscription) -> Vec<Arc<Sub>> {
        self.tree.read().unwrap_or_else(PoisonError::into_inner).members(subscription)
    }

    pub(crate) fn stamp(&self, topic: &str) -> u64 {
        self.generations.stamp(topic)
    }

    pub(crate) fn matching(&self, topic: &str) -> Matched {
        self.tree.read().unwrap_or_else(PoisonError::into_inner).matching(topic)
    }
}

impl std::fmt::Debug for Bus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bus").field("retained", &self.retained).finish_non_exhaustive()
    }
}
