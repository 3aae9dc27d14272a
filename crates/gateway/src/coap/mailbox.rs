//! The queue of messages for the observers of one socket, in the order of publication.
//!
//! Bounded in entries and bytes. When it is full, only the newest message of each observer and topic stays (an observer
//! follows a state, RFC 7641 §1.3). If that is not enough, observations of the owner with the most bytes are ended.
//! Publishers are never refused because of an observer.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use fogmux_bus::{Delivered, Delivery, Door, Mailbox, Message, Publication, Qos, Readiness, Topic};
use fogmux_fair::Owner;
use foldhash::quality::RandomState;

use super::heaviest::Heaviest;

/// One message for one observer.
pub(super) struct Entry {
    /// The observation.
    pub(super) tag: u64,
    /// The number of entries that had ever been queued before it.
    pub(super) index: u64,
    pub(super) message: Arc<Message>,
    /// Whether its QoS is 1 or 2.
    pub(super) assured: bool,
}

impl Entry {
    /// Its bytes if it is the newest of its topic: a retained message is in the retained map anyway, another one is
    /// shared by its observers.
    fn least_cost(&self) -> usize {
        let held = if self.message.meaning.is_state() { 0 } else { self.message.size() };
        size_of::<Self>() + held / Arc::strong_count(&self.message).max(1)
    }
}

/// The queue.
pub(super) struct Notifications {
    entries: VecDeque<Entry>,
    bytes: usize,
    bytes_max: usize,
    /// Most entries. Beyond that, only the newest of each observer and topic stay.
    entries_max: usize,
    /// Entries queued since the queue was last thinned out, which walks the whole queue and is not done for each entry.
    since_thinned: usize,
    /// Bytes left by that.
    bytes_thinned: usize,
    /// The owner of each observation.
    owners: HashMap<u64, Owner, RandomState>,
    /// Observers whose messages were dropped, so that the observation has to end.
    overloaded: Vec<(Owner, u64)>,
    /// Entries replaced by newer ones since the queue was last emptied.
    overtaken: u64,
    /// Entries ever queued.
    pushed: u64,
    /// Messages that were taken and that observers have not been notified of yet.
    outside: usize,
}

/// The result of emptying the queue, besides its entries.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// Observers whose observation has to end, and their owners.
    pub(super) overloaded: Vec<(Owner, u64)>,
    /// Entries replaced by newer ones.
    pub(super) overtaken: u64,
}

/// Entries above which the socket counts as busy.
const BUSY_ENTRIES: usize = 1024;

/// Entries whose memory an empty queue keeps for the next ones.
const EMPTY_ENTRIES: usize = 4096;

/// Returns the memory of a queue that was long, once it is empty.
pub(super) fn give_back(entries: &mut VecDeque<Entry>) {
    if entries.is_empty() && entries.capacity() > EMPTY_ENTRIES {
        entries.shrink_to(EMPTY_ENTRIES);
    }
}

impl Notifications {
    pub(super) fn new(bytes_max: usize, entries_max: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            bytes: 0,
            bytes_max,
            entries_max,
            since_thinned: 0,
            bytes_thinned: 0,
            owners: HashMap::default(),
            overloaded: Vec::new(),
            overtaken: 0,
            pushed: 0,
            outside: 0,
        }
    }

    /// Notes whose an observation is. It ends with [`Notifications::forget`].
    pub(super) fn belongs_to(&mut self, tag: u64, owner: Owner) {
        self.owners.insert(tag, owner);
    }

    /// An observation has ended.
    pub(super) fn forget(&mut self, tag: u64) {
        self.owners.remove(&tag);
    }

    /// The number of entries ever queued.
    pub(super) const fn pushed(&self) -> u64 {
        self.pushed
    }

    /// Notes how many messages that were taken still wait for their observers.
    pub(super) const fn note_outside(&mut self, messages: usize) {
        self.outside = messages;
    }

    /// Takes all entries. `into` is empty; its memory is used for the next ones.
    pub(super) fn take(&mut self, into: &mut VecDeque<Entry>) -> Taken {
        std::mem::swap(&mut self.entries, into);
        (self.bytes, self.since_thinned, self.bytes_thinned) = (0, 0, 0);
        Taken { overloaded: std::mem::take(&mut self.overloaded), overtaken: std::mem::take(&mut self.overtaken) }
    }

    fn is_full(&self, more: usize) -> bool {
        self.entries.len() >= self.entries_max || self.bytes + more > self.bytes_max
    }

    /// Drops all but the newest entry of each observer and topic.
    fn thin(&mut self) {
        self.since_thinned = 0;
        self.overtaken += thin(&mut self.entries);
        self.bytes = self.entries.iter().map(Entry::least_cost).sum();
        self.bytes_thinned = self.bytes;
    }

    /// Drops the entries of observers, of the owner with most at first, until half of the room is free. Returns how
    /// many were dropped.
    fn shed(&mut self) -> u32 {
        let mut costs: HashMap<u64, (usize, usize), RandomState> = HashMap::default();
        for entry in &self.entries {
            let (bytes, count) = costs.entry(entry.tag).or_default();
            (*bytes, *count) = (*bytes + entry.least_cost(), *count + 1);
        }
        // By the larger share of the two bounds.
        let share =
            |bytes: usize, count: usize| (bytes.saturating_mul(self.entries_max) / self.bytes_max.max(1)).max(count);
        // An observation that has just ended is nobody's.
        let nobody = Owner::nameless(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let holders = costs.iter().map(|(tag, (bytes, count))| {
            (self.owners.get(tag).unwrap_or(&nobody).clone(), share(*bytes, *count), *tag)
        });
        let mut heaviest = Heaviest::of(holders);
        let (mut bytes, mut count) = (self.bytes, self.entries.len());
        let mut ended: HashSet<u64, RandomState> = HashSet::default();
        while (bytes > self.bytes_max / 2 || count > self.entries_max / 2)
            && let Some((owner, tag)) = heaviest.next()
        {
            let (of_bytes, of_count) = costs.get(&tag).copied().unwrap_or_default();
            (bytes, count) = (bytes.saturating_sub(of_bytes), count - of_count);
            ended.insert(tag);
            self.overloaded.push((owner, tag));
        }
        let before = self.entries.len();
        self.entries.retain(|entry| !ended.contains(&entry.tag));
        self.bytes = bytes;
        u32::try_from(before - self.entries.len()).unwrap_or(u32::MAX)
    }
}

/// Keeps the newest entry of each observer and topic, in order. Returns how many were dropped.
pub(super) fn thin(entries: &mut VecDeque<Entry>) -> u64 {
    let before = entries.len();
    let mut seen: HashSet<(u64, Topic), RandomState> = HashSet::with_hasher(RandomState::default());
    // Grows: few may be kept of many, and its memory stays.
    let mut kept = VecDeque::new();
    while let Some(entry) = entries.pop_back() {
        if seen.insert((entry.tag, entry.message.topic.clone())) {
            kept.push_front(entry);
        }
    }
    *entries = kept;
    (before - entries.len()) as u64
}

impl Mailbox for Notifications {
    fn deliver(&mut self, publication: &Publication<'_>, delivery: &Delivery<'_>) -> Delivered {
        let message = delivery.share(publication);
        // The entries of a message's observers are next to each other and share it.
        let shared = self.entries.back().is_some_and(|last| Arc::ptr_eq(&last.message, message));
        let more = size_of::<Entry>() + if shared { 0 } else { message.size() };
        let mut displaced = 0;
        if self.is_full(more) {
            // Walking the queue pays only after it has grown by a quarter.
            let grown = self.bytes.saturating_sub(self.bytes_thinned);
            if self.since_thinned > self.entries.len() / 4 || grown > self.bytes_max / 4 {
                self.thin();
            }
            if self.is_full(more) && !self.entries.is_empty() {
                displaced = self.shed();
            }
        }
        self.bytes += more;
        self.since_thinned += 1;
        self.entries.push_back(Entry {
            tag: delivery.tag,
            index: self.pushed,
            message: Arc::clone(message),
            assured: delivery.qos(publication) > Qos::AtMostOnce,
        });
        self.pushed += 1;
        if displaced > 0 { Delivered::Displaced(displaced) } else { Delivered::Queued }
    }

    fn buffered_bytes(&self) -> usize {
        self.bytes
    }

    fn waiting(&self) -> usize {
        self.entries.len() + self.outside
    }

    fn close(&mut self) {
        (self.entries, self.bytes, self.outside) = (VecDeque::new(), 0, 0);
    }

    fn door(&self) -> Option<Door> {
        Some(Door::Coap)
    }

    fn readiness(&self) -> Readiness {
        if self.entries.len() > BUSY_ENTRIES { Readiness::Busy } else { Readiness::Ready }
    }
}

#[cfg(test)]
mod tests {
    use fogmux_bus::{Payload, Publisher, Timestamp, TopicRef};

    use super::*;

    fn deliver(queue: &mut Notifications, tag: u64, payload: &[u8], qos: Qos) -> Delivered {
        deliver_to(queue, tag, "a/b", payload, qos)
    }

    fn deliver_to(queue: &mut Notifications, tag: u64, topic: &str, payload: &[u8], qos: Qos) -> Delivered {
        let publisher = Publisher::internal();
        let topic = TopicRef::new(topic).unwrap();
        let mut publication = Publication::new(topic, Payload::Slice(payload), &publisher, Timestamp::ZERO, 0);
        publication.qos = qos;
        let delivery = Delivery {
            tag,
            max_qos: Qos::ExactlyOnce,
            retain_as_published: true,
            ids: &[],
            shared: false,
            topic: None,
            held: 0,
            copy: None,
            gather: None,
        };
        queue.deliver(&publication, &delivery)
    }

    #[test]
    fn full_it_keeps_the_newest_of_each_observer() {
        const ENTRIES_MAX: u32 = 65_536;
        let mut queue = Notifications::new(usize::MAX, ENTRIES_MAX as usize);
        for value in 0..ENTRIES_MAX * 2 {
            let delivered = deliver(&mut queue, u64::from(value % 7), &value.to_be_bytes(), Qos::AtMostOnce);
            assert!(matches!(delivered, Delivered::Queued | Delivered::Displaced(_)));
            assert!(queue.entries.len() <= ENTRIES_MAX as usize);
        }
        let mut newest = [0; 7];
        for entry in &queue.entries {
            newest[usize::try_from(entry.tag).unwrap()] =
                u32::from_be_bytes(entry.message.payload.as_ref().try_into().unwrap());
        }
        assert!(newest.iter().all(|value| *value >= ENTRIES_MAX * 2 - 7));
    }

    #[test]
    fn it_is_bounded_in_bytes_refuses_nobody_and_ends_the_observer_that_holds_most() {
        let mut queue = Notifications::new(10_000, 65_536);
        deliver(&mut queue, 7, &[0; 100], Qos::AtLeastOnce);
        for topic in 0..1000 {
            let delivered = deliver_to(&mut queue, 1, &format!("hog/{topic}"), &[0; 100], Qos::AtLeastOnce);
            assert!(matches!(delivered, Delivered::Queued | Delivered::Displaced(_)));
            assert!(queue.buffered_bytes() <= 10_000);
        }
        let mut entries = VecDeque::new();
        assert!(queue.take(&mut entries).overloaded.iter().all(|(_, tag)| *tag == 1));
        assert!(entries.iter().any(|entry| entry.tag == 7));
    }

    #[test]
    fn the_memory_of_a_long_queue_does_not_stay() {
        let mut queue = Notifications::new(usize::MAX, 65_536);
        let fill = |queue: &mut Notifications| {
            (0..65_536).for_each(|n: u64| {
                let _ = deliver(queue, n % 7, b"value", Qos::AtMostOnce);
            });
        };
        fill(&mut queue);
        queue.thin();
        assert!(queue.entries.capacity() < 64, "{} for {}", queue.entries.capacity(), queue.entries.len());

        fill(&mut queue);
        let mut entries = VecDeque::new();
        queue.take(&mut entries);
        entries.clear();
        give_back(&mut entries);
        assert!(entries.capacity() <= EMPTY_ENTRIES);
    }

    #[test]
    fn many_observations_with_little_each_do_not_end_one_of_another_with_more() {
        let mut queue = Notifications::new(usize::MAX, 1000);
        let owner = |last: u8| Owner::nameless([192, 0, 2, last].into());
        queue.belongs_to(7, owner(7));
        for topic in 0..50 {
            deliver_to(&mut queue, 7, &format!("own/{topic}"), &[0; 10], Qos::AtMostOnce);
        }
        for tag in 1000..1100 {
            queue.belongs_to(tag, owner(1));
        }
        for topic in 0..20 {
            for tag in 1000..1100 {
                deliver_to(&mut queue, tag, &format!("hog/{topic}"), &[0; 10], Qos::AtMostOnce);
            }
        }
        let mut entries = VecDeque::new();
        let ended = queue.take(&mut entries).overloaded;
        assert!(!ended.is_empty() && ended.iter().all(|(of, tag)| *of == owner(1) && *tag >= 1000));
        assert_eq!(entries.iter().filter(|entry| entry.tag == 7).count(), 50);
    }
}
