//! The backlog of observers: topics whose newest value they have not been notified of.
//!
//! Topics are queued, not messages: the newest retained message is looked up when the observer can be notified. Only a
//! message that is not retained is held, once for all observers of its topic. Memory is bounded by observers and
//! topics.

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet, VecDeque},
    rc::Rc,
    sync::Arc,
};

use fogmux_bus::{Bus, Message, Timestamp, Topic};
use foldhash::quality::RandomState;

/// Bytes of a topic in the backlog of one observer: an entry in each of two tables.
const MARKER_BYTES: usize = 64;

/// Bytes of a topic in any backlog, without its name.
const TOPIC_BYTES: usize = 96;

/// A topic in a backlog, shared by all observers that wait for it.
pub(super) struct Newest {
    topic: Topic,
    /// The newest message if it is not retained.
    transient: RefCell<Option<Arc<Message>>>,
}

/// A reference to a topic from the backlog of an observer.
pub(super) type Marker = Rc<Newest>;

impl Newest {
    pub(super) const fn topic(&self) -> &Topic {
        &self.topic
    }

    /// The newest message; `None` when the topic has none any more.
    pub(super) fn value(&self, bus: &Bus, now: Timestamp) -> Option<Arc<Message>> {
        let transient = self.transient.borrow().clone().filter(|message| !message.is_expired(now));
        transient.or_else(|| bus.latest(&self.topic, now))
    }

    fn bytes(&self) -> usize {
        let held = self.transient.borrow().as_ref().map_or(0, |message| message.size());
        TOPIC_BYTES + self.topic.len() + held
    }
}

/// All topics in the backlog of some observer of a socket.
#[derive(Default)]
pub(super) struct Waiting {
    topics: HashMap<Topic, Marker, RandomState>,
    /// Markers that were not taken back yet.
    markers: usize,
    bytes: usize,
}

impl Waiting {
    /// Bytes of all markers and of the messages held.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of all markers: messages that wait for an observer each.
    pub(super) const fn len(&self) -> usize {
        self.markers
    }

    /// A marker for the topic of a message, which is now its newest.
    pub(super) fn mark(&mut self, message: &Arc<Message>) -> Marker {
        let newest = self.topics.entry(message.topic.clone()).or_insert_with(|| {
            let newest = Newest { topic: message.topic.clone(), transient: RefCell::default() };
            self.bytes += newest.bytes();
            Rc::new(newest)
        });
        self.markers += 1;
        let before = newest.bytes();
        *newest.transient.borrow_mut() = (!message.meaning.is_state()).then(|| Arc::clone(message));
        self.bytes = (self.bytes + newest.bytes() + MARKER_BYTES).saturating_sub(before);
        Rc::clone(newest)
    }

    /// Takes a marker back after its observer was notified or is gone.
    pub(super) fn release(&mut self, marker: Marker) {
        self.markers = self.markers.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(MARKER_BYTES);
        // One reference is the table's, one is this.
        if Rc::strong_count(&marker) == 2
            && let Some(newest) = self.topics.remove(&marker.topic)
        {
            self.bytes = self.bytes.saturating_sub(newest.bytes());
        }
    }
}

/// The topics that one observer waits for, in the order in which they changed.
pub(super) enum Backlog {
    /// For an observer of one topic.
    One(Option<Marker>),
    /// For an observer of a filter.
    Many(Option<Box<Topics>>),
}

/// The topics of [`Backlog::Many`].
#[derive(Default)]
pub(super) struct Topics {
    order: VecDeque<Marker>,
    names: HashSet<Topic, RandomState>,
}

/// The outcome of adding a topic.
pub(super) enum Added {
    /// It was added.
    Waits,
    /// It was there already.
    Known(Marker),
    /// The backlog is full.
    Full(Marker),
}

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::One(marker) => marker.is_none(),
            Self::Many(topics) => topics.as_ref().is_none_or(|topics| topics.order.is_empty()),
        }
    }

    pub(super) fn push(&mut self, marker: Marker, max: usize) -> Added {
        match self {
            Self::One(Some(_)) => Added::Known(marker),
            Self::One(none) => {
                *none = Some(marker);
                Added::Waits
            }
            Self::Many(topics) => {
                let topics = topics.get_or_insert_default();
                if topics.names.contains(&marker.topic) {
                    return Added::Known(marker);
                }
                if topics.order.len() >= max {
                    return Added::Full(marker);
                }
                topics.names.insert(marker.topic.clone());
                topics.order.push_back(marker);
                Added::Waits
            }
        }
    }

    /// Takes the topic that has waited longest.
    pub(super) fn pop(&mut self) -> Option<Marker> {
        match self {
            Self::One(marker) => marker.take(),
            Self::Many(topics) => {
                let marker = topics.as_mut()?.order.pop_front();
                match (&marker, topics.as_mut()) {
                    (Some(marker), Some(topics)) => {
                        topics.names.remove(&marker.topic);
                    }
                    // An observer that has caught up holds no memory for this.
                    (None, _) | (_, None) => *topics = None,
                }
                marker
            }
        }
    }

    /// Puts a topic back to the front.
    pub(super) fn restore(&mut self, marker: Marker) {
        match self {
            Self::One(place) => *place = Some(marker),
            Self::Many(topics) => {
                let topics = topics.get_or_insert_default();
                topics.names.insert(marker.topic.clone());
                topics.order.push_front(marker);
            }
        }
    }

    /// Bytes of the topics and messages in it, and its part of shared ones.
    pub(super) fn bytes(&self) -> usize {
        // One reference is the table's.
        let part = |marker: &Marker| marker.bytes() / Rc::strong_count(marker).saturating_sub(1).max(1);
        let cost = |marker: &Marker| MARKER_BYTES + part(marker);
        match self {
            Self::One(marker) => marker.iter().map(cost).sum(),
            Self::Many(topics) => topics.iter().flat_map(|topics| &topics.order).map(cost).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use fogmux_bus::{Meaning, Payload, Publication, Publisher, TopicRef};

    use super::*;

    fn message(topic: &str, payload: &[u8], retain: bool) -> Arc<Message> {
        let publisher = Publisher::internal();
        let topic = TopicRef::new(topic).unwrap();
        let mut publication = Publication::new(topic, Payload::Slice(payload), &publisher, Timestamp::ZERO, 0);
        publication.meaning = Meaning::of_flag(retain, payload);
        Arc::clone(publication.share())
    }

    #[test]
    fn what_nobody_retains_is_held_once_and_nothing_is_left() {
        let mut waiting = Waiting::default();
        let markers: Vec<Marker> = (0..100).map(|_| waiting.mark(&message("a", &[7; 10_000], false))).collect();
        assert!((10_000..20_000).contains(&waiting.bytes()), "{}", waiting.bytes());
        markers.into_iter().for_each(|marker| waiting.release(marker));
        assert_eq!((waiting.bytes(), waiting.topics.len()), (0, 0));
    }

    #[test]
    fn a_retained_message_costs_no_more_than_its_topic() {
        let mut waiting = Waiting::default();
        let transient = waiting.mark(&message("a", &[7; 10_000], false));
        let retained = waiting.mark(&message("a", &[7; 10_000], true));
        assert!(waiting.bytes() < 500, "{}", waiting.bytes());
        waiting.release(transient);
        waiting.release(retained);
        assert_eq!(waiting.bytes(), 0);
    }

    #[test]
    fn a_filter_s_topics_keep_their_order_and_wait_once() {
        let (mut waiting, mut backlog) = (Waiting::default(), Backlog::Many(None));
        let topics = ["a", "b", "a", "c", "d"];
        let mut full = 0;
        for topic in topics {
            match backlog.push(waiting.mark(&message(topic, b"x", true)), 3) {
                Added::Waits => {}
                Added::Known(marker) => waiting.release(marker),
                Added::Full(marker) => {
                    waiting.release(marker);
                    full += 1;
                }
            }
        }
        let mut popped = Vec::new();
        while let Some(marker) = backlog.pop() {
            popped.push(marker.topic().to_string());
            waiting.release(marker);
        }
        assert_eq!((popped.join(""), full, waiting.bytes()), ("abc".to_owned(), 1, 0));
    }
}
