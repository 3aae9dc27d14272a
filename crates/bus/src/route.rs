//! Routes: the subscribers of a topic, computed once and cached per worker; and the deliveries of a batch, grouped by
//! destination.

mod staging;

use std::{rc::Rc, sync::Arc};

use hashbrown::HashMap;
use smallvec::SmallVec;

pub(crate) use self::staging::{Batch, Pick, Picks, Staging};
use crate::{
    counters::Tally,
    group::Group,
    id::{SlotId, SlotIds, WorkerId},
    limits::{CACHED_TOPIC_BYTES_MAX, COPIED_FROM, ROUTE_CACHE_BYTES_MAX, SWEPT_MAX},
    mailbox::Readiness,
    message::Qos,
    slow_down::SlowDown,
    subscription::SubscribeOptions,
    topic::{Topic, TopicRef},
};

/// The wake that is left to do after a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// None, or it is under way already.
    Done,
    /// The owner lives on this worker and was woken.
    Woken,
    /// The owner lives on this worker and is to be woken when it is its turn.
    Later,
    /// The owner lives on this other worker.
    Remote(WorkerId),
}

/// Whether a subscriber takes messages now; the best is the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    /// It is connected.
    Here(Readiness),
    /// It has no connection.
    Away,
}

/// The results of the pushes of a batch.
#[derive(Debug, Default)]
pub(crate) struct Pushed {
    pub(crate) tally: Tally,
    pub(crate) slow_down: Option<SlowDown>,
}

/// A slot of any mailbox type; implemented by [`crate::Slot`] only.
pub(crate) trait Subscriber: Send + Sync {
    /// Whether it takes messages, as of its last delivery or drain.
    fn standing(&self) -> Standing;
    /// Delivers the picked publications of a batch to the mailbox. Wakes an owner on `me` only if `may_wake`.
    fn push(&self, me: WorkerId, may_wake: bool, batch: &Batch<'_, '_>, picks: Picks<'_>, pushed: &mut Pushed) -> Wake;
    /// Wakes the owner.
    fn wake(&self);
}

/// A subscription in the tree.
pub(crate) struct Sub {
    pub(crate) subscriber: Arc<dyn Subscriber>,
    pub(crate) slot: SlotId,
    pub(crate) options: SubscribeOptions,
}

impl Sub {
    /// The principal whose share it counts to.
    pub(crate) fn principal(&self) -> Option<Arc<str>> {
        self.options.gate.as_ref()?.principal()
    }

    pub(crate) const fn key(&self) -> (SlotId, u64) {
        (self.slot, self.options.tag)
    }
}

/// One destination of a topic: all subscriptions of one (slot, tag) that match it, merged.
pub(crate) struct Entry {
    pub(crate) subscriber: Arc<dyn Subscriber>,
    pub(crate) slot: SlotId,
    pub(crate) tag: u64,
    pub(crate) max_qos: Qos,
    pub(crate) no_local: bool,
    pub(crate) retain_as_published: bool,
    pub(crate) ids: SmallVec<[u32; 2]>,
}

impl Entry {
    fn of(sub: &Sub) -> Self {
        Self {
            subscriber: Arc::clone(&sub.subscriber),
            slot: sub.slot,
            tag: sub.options.tag,
            max_qos: sub.options.max_qos,
            no_local: sub.options.no_local,
            retain_as_published: sub.options.retain_as_published,
            ids: sub.options.id.into_iter().collect(),
        }
    }

    // MQTT 5.0 §3.3.4: one copy with the highest QoS and every identifier.
    fn merge(&mut self, sub: &Sub) {
        self.max_qos = self.max_qos.max(sub.options.max_qos);
        self.no_local &= sub.options.no_local;
        self.retain_as_published |= sub.options.retain_as_published;
        self.ids.extend(sub.options.id);
    }
}

/// The destinations of a topic.
#[derive(Default)]
pub(crate) struct Routes {
    /// The topic, in the copy that its messages share.
    topic: Option<Topic>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) direct: usize,
    pub(crate) groups: Vec<Group>,
}

impl Routes {
    /// Merges what the tree found for a topic: `direct` subscriptions in any order, `groups` each with its members.
    pub(crate) fn build(topic: TopicRef<'_>, mut direct: Vec<Arc<Sub>>, groups: Vec<Vec<Arc<Sub>>>) -> Self {
        let allowed = |sub: &Arc<Sub>| sub.options.gate.as_ref().is_none_or(|gate| gate.may_read(topic.as_str()));
        direct.retain(allowed);
        direct.sort_unstable_by_key(|sub| (sub.slot, sub.options.tag));
        let mut routes =
            Self { topic: Some(topic.to_topic()), entries: Vec::with_capacity(direct.len()), ..Self::default() };
        for sub in &direct {
            match routes.entries.last_mut() {
                Some(last) if last.slot == sub.slot && last.tag == sub.options.tag => last.merge(sub),
                _ => routes.entries.push(Entry::of(sub)),
            }
        }
        routes.direct = routes.entries.len();
        for members in groups {
            let first = routes.entries.len();
            routes.entries.extend(members.iter().filter(|sub| allowed(sub)).map(|sub| Entry::of(sub)));
            let count = routes.entries.len() - first;
            if count > 0 {
                routes.groups.push(Group::new(first, count));
            }
        }
        routes
    }

    /// Chooses the entry of a group that gets the next message: the next member that is ready, otherwise the next of
    /// those that keep up best, and one without a connection only if none has one (MQTT 5.0 §4.8.2 leaves the choice to
    /// the server).
    pub(crate) fn choose(&self, group: &Group, ids: &SlotIds) -> Option<usize> {
        let standing = |member: usize| Some(self.entries.get(group.first + member)?.subscriber.standing());
        group.choose(ids, standing).map(|member| group.first + member)
    }

    /// Whether each worker has its own copies of the messages.
    pub(crate) const fn is_wide(&self) -> bool {
        self.direct >= COPIED_FROM
    }

    fn cost(&self) -> usize {
        let topic = self.topic.as_deref().map_or(0, str::len);
        size_of::<Self>() + topic + self.entries.len() * size_of::<Entry>() + self.groups.len() * size_of::<Group>()
    }
}

impl std::fmt::Debug for Routes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Routes").field("entries", &self.entries.len()).field("groups", &self.groups.len()).finish()
    }
}

/// A worker's cache from topics to routes. An entry is valid as long as the stamp of its topic is unchanged.
#[derive(Debug, Default)]
pub(crate) struct RouteCache {
    routes: Cached,
    bytes: usize,
    /// Evicted entries, which are freed little by little: freeing tens of thousands at once would delay other
    /// connections by milliseconds.
    leaving: Option<<Cached as IntoIterator>::IntoIter>,
}

type Cached = HashMap<Box<str>, (u64, Rc<Routes>), foldhash::fast::RandomState>;

/// The cost of an entry beside its topic and its routes, in bytes.
const ENTRY_BYTES: usize = 48;
/// Evicted entries that are freed for each new entry, so that they are gone before the cache is full again.
const LEAVE_AT_ONCE: usize = 4;

impl RouteCache {
    pub(crate) fn get(&self, topic: &str, stamp: u64) -> Option<Rc<Routes>> {
        let (cached, routes) = self.routes.get(topic)?;
        (*cached == stamp).then(|| Rc::clone(routes))
    }

    pub(crate) fn put(&mut self, topic: &str, stamp: u64, routes: &Rc<Routes>) {
        if topic.len() > CACHED_TOPIC_BYTES_MAX {
            return;
        }
        self.leave();
        let cost = topic.len() + routes.cost() + ENTRY_BYTES;
        if self.bytes + cost > ROUTE_CACHE_BYTES_MAX {
            self.throw_out();
        }
        self.bytes += cost;
        if let Some((_, old)) = self.routes.insert(Box::from(topic), (stamp, Rc::clone(routes))) {
            self.bytes = self.bytes.saturating_sub(topic.len() + old.cost() + ENTRY_BYTES);
        }
    }

    /// Drops entries whose topic has another stamp now, and with them the last references to subscribers that are gone.
    /// Stops after [`SWEPT_MAX`] destinations; returns whether all entries were looked at.
    pub(crate) fn sweep(&mut self, stamp: impl Fn(&str) -> u64) -> bool {
        let mut left = SWEPT_MAX;
        while let Some(leaving) = &mut self.leaving {
            match leaving.next() {
                Some((_, (_, routes))) => left = left.saturating_sub(1 + routes.entries.len()),
                None => self.leaving = None,
            }
            if left == 0 {
                return false;
            }
        }
        let (mut done, bytes) = (true, &mut self.bytes);
        self.routes.retain(|topic, (cached, routes)| {
            if *cached == stamp(topic) {
                return true;
            }
            if left == 0 {
                done = false;
                return true;
            }
            left = left.saturating_sub(1 + routes.entries.len());
            *bytes = bytes.saturating_sub(topic.len() + routes.cost() + ENTRY_BYTES);
            false
        });
        if self.routes.len() < self.routes.capacity() / 8 {
            self.routes.shrink_to(self.routes.len() * 2);
        }
        done
    }

    fn throw_out(&mut self) {
        // As large as before: a growing table would move all its entries.
        let fresh = Cached::with_capacity_and_hasher(self.routes.len(), foldhash::fast::RandomState::default());
        self.leaving = Some(std::mem::replace(&mut self.routes, fresh).into_iter());
        self.bytes = 0;
    }

    fn leave(&mut self) {
        if let Some(leaving) = &mut self.leaving
            && leaving.by_ref().take(LEAVE_AT_ONCE).count() < LEAVE_AT_ONCE
        {
            self.leaving = None;
        }
    }
}
