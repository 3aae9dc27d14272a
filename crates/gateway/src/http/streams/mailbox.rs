//! The mailbox of an event stream: what waits to be sent, and the tail of what was sent, in case the reader comes back
//! without having seen it.
//!
//! Bounded in messages and bytes. What was sent goes first, then the oldest that waits, which the reader is told as a
//! gap; whatever its QoS, for a page that sleeps must not make publishers fail.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use fogmux_bus::{Delivered, Delivery, Mailbox, Message, Publication, Qos, Readiness, Topic};

/// Bytes and messages of the sent tail.
const TAIL_BYTES: usize = 64 << 10;
const TAIL_MESSAGES: usize = 256;
/// Waiting messages above which a member of a shared subscription counts as busy.
const BUSY_MESSAGES: usize = 64;
/// What each stream keeps at least when all together have too much: this fraction of its own limit.
const SHORT: usize = 32;

/// Bounds of a mailbox.
#[derive(Clone, Copy, Debug)]
pub(in crate::http) struct Limits {
    pub(in crate::http) messages: usize,
    pub(in crate::http) bytes: usize,
    /// Of all streams together; above it each is held shorter.
    pub(in crate::http) all_bytes: usize,
}

/// How far a stream is with the messages that topics keep.
#[derive(Clone, Debug, Default)]
pub(in crate::http) struct Kept {
    /// Which of the stream's subscriptions.
    pub(in crate::http) subscription: usize,
    /// The last topic of it that was sent.
    pub(in crate::http) after: Option<Topic>,
}

/// A message to send, with its number on the stream.
pub(in crate::http) struct Taken {
    pub(in crate::http) sequence: u64,
    pub(in crate::http) message: Arc<Message>,
    pub(in crate::http) qos: Qos,
}

struct Item {
    message: Arc<Message>,
    qos: Qos,
}

impl Item {
    fn bytes(&self) -> usize {
        self.message.size() + size_of::<Self>()
    }
}

/// See the module.
pub(in crate::http) struct StreamMailbox {
    limits: Limits,
    all: Arc<AtomicUsize>,
    /// Numbered from `first`; those from `cursor` on are to be sent again.
    sent: VecDeque<Item>,
    first: u64,
    cursor: u64,
    waiting: VecDeque<Item>,
    bytes: usize,
    accounted: usize,
    lost: u64,
    kept: Option<Kept>,
}

impl StreamMailbox {
    pub(in crate::http) fn new(limits: Limits, all: Arc<AtomicUsize>, kept: Option<Kept>) -> Self {
        Self {
            limits,
            all,
            sent: VecDeque::new(),
            first: 1,
            cursor: 1,
            waiting: VecDeque::new(),
            bytes: 0,
            accounted: 0,
            lost: 0,
            kept,
        }
    }

    /// How many messages are missing before the next one.
    pub(in crate::http) fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    /// The next message to send; it stays for a while in case it has to be sent again.
    pub(in crate::http) fn take(&mut self) -> Option<Taken> {
        if self.cursor == self.next() {
            let item = self.waiting.pop_front()?;
            self.sent.push_back(item);
        }
        let index = usize::try_from(self.cursor - self.first).ok()?;
        let item = self.sent.get(index)?;
        let taken = Taken { sequence: self.cursor, message: Arc::clone(&item.message), qos: item.qos };
        self.cursor += 1;
        self.trim();
        Some(taken)
    }

    /// Numbers a message that a topic keeps and that goes out now.
    pub(in crate::http) fn take_kept(&mut self, message: &Arc<Message>, qos: Qos) -> Taken {
        let item = Item { message: Arc::clone(message), qos };
        self.bytes += item.bytes();
        self.sent.push_back(item);
        self.cursor = self.next();
        let taken = Taken { sequence: self.cursor - 1, message: Arc::clone(message), qos };
        self.trim();
        self.settle();
        taken
    }

    /// Whether everything was sent that came in.
    pub(in crate::http) fn is_drained(&self) -> bool {
        self.waiting.is_empty() && self.cursor == self.next()
    }

    /// How far the stream is with kept messages; nothing when it is through with them.
    pub(in crate::http) fn kept(&self) -> Option<&Kept> {
        self.kept.as_ref()
    }

    pub(in crate::http) fn set_kept(&mut self, kept: Option<Kept>) {
        self.kept = kept;
    }

    /// Goes back to after `sequence`. False if that was never sent.
    pub(in crate::http) fn rewind(&mut self, sequence: u64) -> bool {
        let wanted = sequence.saturating_add(1);
        if wanted > self.next() {
            return false;
        }
        self.lost += self.first.saturating_sub(wanted);
        self.cursor = wanted.max(self.first);
        true
    }

    /// Gives how many that waited had to go.
    pub(in crate::http) fn set_limits(&mut self, limits: Limits) -> u64 {
        self.limits = limits;
        let displaced = self.make_room(0);
        self.settle();
        u64::from(displaced)
    }

    fn next(&self) -> u64 {
        self.first + self.sent.len() as u64
    }

    /// Forgets sent messages beyond the tail.
    fn trim(&mut self) {
        while self.first < self.cursor
            && (self.sent.len() > TAIL_MESSAGES || (self.sent_only() && self.bytes > TAIL_BYTES))
        {
            if !self.forget_sent() {
                break;
            }
        }
        self.settle();
    }

    fn sent_only(&self) -> bool {
        self.waiting.is_empty()
    }

    fn forget_sent(&mut self) -> bool {
        let Some(item) = self.sent.pop_front() else { return false };
        self.bytes -= item.bytes();
        self.first += 1;
        if self.cursor < self.first {
            self.lost += self.first - self.cursor;
            self.cursor = self.first;
        }
        true
    }

    /// Makes room for another message of so many bytes; gives how many that waited had to go.
    fn make_room(&mut self, bytes: usize) -> u32 {
        let short = self.all.load(Relaxed) > self.limits.all_bytes;
        let limit = if short { self.limits.bytes / SHORT } else { self.limits.bytes };
        let mut displaced = 0;
        while self.bytes + bytes > limit || self.sent.len() + self.waiting.len() >= self.limits.messages {
            if self.forget_sent() {
                continue;
            }
            let Some(item) = self.waiting.pop_front() else { break };
            self.bytes -= item.bytes();
            self.lost += 1;
            displaced += 1;
        }
        displaced
    }

    fn settle(&mut self) {
        if self.bytes >= self.accounted {
            self.all.fetch_add(self.bytes - self.accounted, Relaxed);
        } else {
            self.all.fetch_sub(self.accounted - self.bytes, Relaxed);
        }
        self.accounted = self.bytes;
    }
}

impl Mailbox for StreamMailbox {
    fn deliver(&mut self, publication: &Publication<'_>, delivery: &Delivery<'_>) -> Delivered {
        let item = Item { message: Arc::clone(delivery.share(publication)), qos: delivery.qos(publication) };
        let bytes = item.bytes();
        // One message always fits, or a large one would never arrive.
        let displaced = self.make_room(bytes);
        self.bytes += bytes;
        self.waiting.push_back(item);
        self.settle();
        if displaced == 0 { Delivered::Queued } else { Delivered::Displaced(displaced) }
    }

    fn buffered_bytes(&self) -> usize {
        self.bytes
    }

    fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn close(&mut self) {
        (self.sent, self.waiting) = (VecDeque::new(), VecDeque::new());
        (self.bytes, self.kept) = (0, None);
        self.settle();
    }

    fn readiness(&self) -> Readiness {
        if self.waiting.len() > BUSY_MESSAGES { Readiness::Busy } else { Readiness::Ready }
    }
}

impl Drop for StreamMailbox {
    fn drop(&mut self) {
        self.all.fetch_sub(self.accounted, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use fogmux_bus::{Payload, Publisher, Timestamp, TopicRef};
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits { messages: 8, bytes: 4096, all_bytes: 1 << 20 };
    const DELIVERY: Delivery<'_> =
        Delivery { tag: 0, max_qos: Qos::ExactlyOnce, retain_as_published: true, ids: &[], shared: false, topic: None };

    fn mailbox() -> StreamMailbox {
        StreamMailbox::new(LIMITS, Arc::default(), None)
    }

    fn deliver(mailbox: &mut StreamMailbox, payload: &[u8]) -> Delivered {
        let publisher = Publisher::internal();
        let topic = TopicRef::new("a").unwrap();
        let publication = Publication::new(topic, Payload::Slice(payload), &publisher, Timestamp::ZERO, 0);
        mailbox.deliver(&publication, &DELIVERY)
    }

    fn take(mailbox: &mut StreamMailbox) -> Option<(u64, u8)> {
        mailbox.take().map(|taken| (taken.sequence, taken.message.payload[0]))
    }

    #[test]
    fn a_reader_that_comes_back_gets_what_it_has_not_seen() {
        let mut mailbox = mailbox();
        for n in 1..=3 {
            deliver(&mut mailbox, &[n]);
        }
        assert_eq!(take(&mut mailbox), Some((1, 1)));
        assert_eq!(take(&mut mailbox), Some((2, 2)));
        assert!(mailbox.rewind(1));
        deliver(&mut mailbox, &[4]);
        let rest: Vec<_> = std::iter::from_fn(|| take(&mut mailbox)).collect();
        assert_eq!(rest, [(2, 2), (3, 3), (4, 4)]);
        assert_eq!(mailbox.take_lost(), 0);
        assert!(!mailbox.rewind(5), "the fifth was never sent");
        assert!(mailbox.rewind(4));
    }

    #[test]
    fn a_slow_reader_loses_the_oldest_and_learns_how_many() {
        let mut mailbox = mailbox();
        for n in 1..=12 {
            deliver(&mut mailbox, &[n]);
        }
        assert_eq!(mailbox.take_lost(), 4);
        assert_eq!(take(&mut mailbox), Some((1, 5)));
    }

    #[test]
    fn what_was_sent_makes_room_first() {
        let mut mailbox = mailbox();
        for n in 1..=8 {
            deliver(&mut mailbox, &[n]);
        }
        while take(&mut mailbox).is_some() {}
        for n in 9..=16 {
            deliver(&mut mailbox, &[n]);
        }
        assert_eq!(mailbox.take_lost(), 0);
        assert!(mailbox.rewind(2));
        assert_eq!(mailbox.take_lost(), 6, "the third to the eighth are gone");
        assert_eq!(take(&mut mailbox), Some((9, 9)));
    }

    #[test]
    fn a_message_above_the_limit_still_arrives() {
        let mut mailbox = mailbox();
        deliver(&mut mailbox, &[1]);
        deliver(&mut mailbox, &[2; 10_000]);
        assert_eq!(mailbox.take_lost(), 1);
        assert_eq!(take(&mut mailbox), Some((1, 2)));
    }

    proptest! {
        #[test]
        fn the_bounds_hold_and_nothing_is_lost_quietly(
            steps in prop::collection::vec((0_u8..4, 0_usize..1500, 0_u64..20), 0..200),
        ) {
            let mut mailbox = mailbox();
            let (mut delivered, mut seen, mut lost) = (0_u64, 0_u64, 0_u64);
            for (what, size, back) in steps {
                match what {
                    0 | 1 => {
                        deliver(&mut mailbox, &vec![7; size + 1]);
                        delivered += 1;
                    }
                    2 => {
                        lost += mailbox.take_lost();
                        if mailbox.take().is_some() { seen += 1; }
                    }
                    _ => {
                        let to = (mailbox.cursor - 1).saturating_sub(back).max(mailbox.first - 1);
                        let before = mailbox.cursor;
                        prop_assert!(mailbox.rewind(to));
                        // What is sent again is seen again.
                        seen -= before - (to + 1);
                    }
                }
                prop_assert!(mailbox.sent.len() + mailbox.waiting.len() <= LIMITS.messages);
                prop_assert!(mailbox.bytes <= LIMITS.bytes || mailbox.sent.len() + mailbox.waiting.len() == 1);
                let items = mailbox.sent.iter().chain(&mailbox.waiting).map(Item::bytes).sum::<usize>();
                prop_assert_eq!(mailbox.bytes, items);
                prop_assert_eq!(mailbox.all.load(Relaxed), mailbox.bytes);
            }
            lost += mailbox.take_lost();
            while mailbox.take().is_some() { seen += 1; }
            prop_assert_eq!(delivered, seen + lost);
        }
    }
}
