//! The mailbox of an event stream: messages to be sent, and the tail of those sent, in case the reader returns without
//! having received them.
//!
//! Bounded in messages and bytes. Sent messages are dropped first, then the oldest waiting ones, of any QoS, and the
//! reader is told of a gap: a page that sleeps must not make publishers fail. Every message has a number on the stream,
//! lost ones too, so that the last number a reader has received says exactly what it is missing.

mod room;

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use fogmux_bus::{Account, Delivered, Delivery, Door, Mailbox, Message, Publication, Qos, Readiness, Topic};
use smallvec::SmallVec;

use super::walk::{Place, Walk};

/// Bytes and messages of the sent tail.
const TAIL_BYTES: usize = 64 << 10;
const TAIL_MESSAGES: usize = 256;
/// Waiting messages above which a member of a shared subscription counts as busy.
const BUSY_MESSAGES: usize = 64;
/// The fraction of its own limit that each stream keeps when all streams together hold too much.
const SHORT: usize = 32;
/// Capacity of an empty queue that is kept.
const SPARE_PLACES: usize = 64;

/// Bounds of a mailbox.
#[derive(Clone, Copy, Debug)]
pub(in crate::http) struct Limits {
    pub(in crate::http) messages: usize,
    pub(in crate::http) bytes: usize,
    /// Bytes of all streams together above which each is held shorter.
    pub(in crate::http) all_bytes: usize,
}

/// A message to send, with its number on the stream.
pub(in crate::http) struct Taken {
    pub(in crate::http) sequence: u64,
    pub(in crate::http) message: Arc<Message>,
    pub(in crate::http) qos: Qos,
    /// The tag of the shared subscription that it came by and may be handed on in; 0: none.
    pub(in crate::http) share: u64,
}

/// Messages that are lost before the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) struct Gap {
    /// The number of the last of them.
    pub(in crate::http) sequence: u64,
    /// Their number; `None` if retained messages are among them, which are sent again.
    pub(in crate::http) missed: Option<u64>,
}

/// Retained messages that were looked up, in the order of their topics.
pub(in crate::http) struct Chunk {
    /// Where the lookup began.
    pub(in crate::http) place: Place,
    pub(in crate::http) messages: Vec<Arc<Message>>,
    /// Where to continue; `None` at the end.
    pub(in crate::http) next: Option<Place>,
}

/// The most to take at a time.
#[derive(Clone, Copy)]
pub(in crate::http) struct Portion {
    pub(in crate::http) messages: usize,
    pub(in crate::http) bytes: usize,
}

struct Item {
    message: Arc<Message>,
    qos: Qos,
    /// Whether it comes from the walk over the retained messages.
    retained: bool,
    /// The tag of the shared subscription that it came by and may be handed on in; 0: none.
    share: u64,
}

impl Item {
    fn bytes(&self) -> usize {
        self.message.size() + size_of::<Self>()
    }
}

/// The mailbox; see the module's documentation.
pub(in crate::http) struct StreamMailbox {
    limits: Limits,
    account: Option<Arc<Account>>,
    all: Arc<AtomicUsize>,
    /// Numbered from `first`; those from `cursor` on are to be sent again.
    sent: VecDeque<Item>,
    first: u64,
    cursor: u64,
    waiting: VecDeque<Item>,
    bytes: usize,
    accounted: usize,
    /// Lost messages before `cursor` that the reader has not been told of.
    missed: Option<Missed>,
    /// Whether a retained publication may be among them.
    missed_state: bool,
    /// Whether the reader wants the retained messages.
    wants_retained: bool,
    walk: Walk,
    /// The last numbers dropped from `sent`: of a retained message, and of a live one.
    retained_forgotten: u64,
    live_forgotten: u64,
    ended: bool,
}

#[derive(Clone, Copy)]
enum Missed {
    Exactly(u64),
    Unknown,
}

impl StreamMailbox {
    /// `walk` is where the walk over the retained messages begins; `None`: there is none.
    pub(in crate::http) fn new(limits: Limits, all: Arc<AtomicUsize>, walk: Option<Place>) -> Self {
        Self {
            limits,
            account: None,
            all,
            sent: VecDeque::new(),
            first: 1,
            cursor: 1,
            waiting: VecDeque::new(),
            bytes: 0,
            accounted: 0,
            missed: None,
            missed_state: false,
            wants_retained: walk.is_some(),
            walk: Walk::new(walk),
            retained_forgotten: 0,
            live_forgotten: 0,
            ended: false,
        }
    }

    /// Has it count to this account.
    pub(in crate::http) fn of(mut self, account: Arc<Account>) -> Self {
        self.account = Some(account);
        self
    }

    /// Drops everything and takes nothing any more, because the stream has ended.
    fn end(&mut self) {
        self.sent = VecDeque::new();
        self.waiting = VecDeque::new();
        self.walk = Walk::default();
        self.bytes = 0;
        self.ended = true;
        self.settle();
    }

    /// Takes the gap before the next message, of which the reader is told now. If a retained publication was lost, the
    /// walk over the retained messages begins again.
    pub(in crate::http) fn take_gap(&mut self) -> Option<Gap> {
        let missed = match self.missed.take()? {
            Missed::Exactly(count) => Some(count),
            Missed::Unknown => None,
        };
        if std::mem::take(&mut self.missed_state) && self.wants_retained {
            self.walk.begin_again(0);
        }
        Some(Gap { sequence: self.cursor - 1, missed })
    }

    /// Takes the next message to send; it stays for a while in case it has to be sent again.
    pub(in crate::http) fn take(&mut self) -> Option<Taken> {
        if self.cursor == self.next() {
            let item = self.waiting.pop_front()?;
            if self.waiting.is_empty() && self.waiting.capacity() > SPARE_PLACES {
                self.waiting = VecDeque::new();
            }
            self.sent.push_back(item);
        }
        let index = usize::try_from(self.cursor - self.first).ok()?;
        let item = self.sent.get(index)?;
        let message = Arc::clone(&item.message);
        let taken = Taken { sequence: self.cursor, message, qos: item.qos, share: item.share };
        self.cursor += 1;
        self.trim();
        Some(taken)
    }

    /// Takes a portion of the messages that wait.
    pub(in crate::http) fn take_some(&mut self, portion: Portion) -> SmallVec<[Taken; 8]> {
        let mut taken = SmallVec::new();
        let mut bytes = 0;
        while taken.len() < portion.messages && bytes < portion.bytes {
            let Some(next) = self.take() else { break };
            bytes += next.message.size();
            taken.push(next);
        }
        taken
    }

    /// Numbers a portion of the retained messages that were looked up, to be sent after `live`, and continues the walk.
    ///
    /// A topic is left out if a retained publication on it is in `live` or waits. Such a publication is either not
    /// older than the retained message, or the retained message was delivered behind it, because one retained after
    /// this stream had subscribed is delivered to it, too. In both cases the reader gets the newest value last.
    pub(in crate::http) fn take_retained(
        &mut self,
        chunk: &Chunk,
        live: &[Taken],
        portion: Portion,
        max_qos: Qos,
    ) -> SmallVec<[Taken; 8]> {
        let mut taken = SmallVec::new();
        // Messages to be sent again are older than those looked up; and the walk may have begun again meanwhile.
        if self.cursor != self.next() || self.walk.place() != Some(&chunk.place) {
            return taken;
        }
        let overtaken = self.overtaken(chunk, live);
        let mut bytes = 0;
        for (index, message) in chunk.messages.iter().enumerate() {
            if overtaken.contains(&index) {
                continue;
            }
            if bytes >= portion.bytes || taken.len() >= portion.messages {
                return taken;
            }
            bytes += message.size();
            taken.push(self.number(message, max_qos));
            self.walk.pass(self.cursor - 1, chunk.place.subscription, &message.topic);
        }
        self.walk.move_to(chunk.next.clone());
        taken
    }

    /// The indices of the messages whose topics have a retained publication in `live` or in the queue.
    fn overtaken(&self, chunk: &Chunk, live: &[Taken]) -> SmallVec<[usize; 8]> {
        let at = |topic: &Topic| chunk.messages.binary_search_by(|message| message.topic.cmp(topic)).ok();
        let live = live.iter().map(|taken| &taken.message);
        let waiting = self.waiting.iter().map(|item| &item.message);
        let states = live.chain(waiting).filter(|message| message.meaning.is_state());
        states.filter_map(|message| at(&message.topic)).collect()
    }

    fn number(&mut self, message: &Arc<Message>, max_qos: Qos) -> Taken {
        let item = Item { message: Arc::clone(message), qos: message.qos.min(max_qos), retained: true, share: 0 };
        let taken = Taken { sequence: self.cursor, message: Arc::clone(message), qos: item.qos, share: 0 };
        self.bytes += item.bytes();
        self.sent.push_back(item);
        self.cursor += 1;
        self.trim();
        taken
    }

    /// Takes out what waits of shared subscriptions, by their tags, and was published with QoS 1 or 2.
    pub(in crate::http) fn take_shared(&mut self) -> Vec<(u64, Arc<Message>)> {
        let (left, kept): (VecDeque<Item>, _) = self.waiting.drain(..).partition(|item| item.share != 0);
        self.waiting = kept;
        self.bytes -= left.iter().map(Item::bytes).sum::<usize>();
        self.settle();
        left.into_iter().map(|item| (item.share, item.message)).collect()
    }

    /// Whether there is anything to send.
    pub(in crate::http) fn has_output(&self) -> bool {
        !self.waiting.is_empty() || self.cursor != self.next() || self.missed.is_some() || self.walk.place().is_some()
    }

    /// Where to look up the next retained messages; `None` when all were sent.
    pub(in crate::http) fn place(&self) -> Option<&Place> {
        self.walk.place()
    }

    /// Whether this number was sent, or is the one before the first.
    pub(in crate::http) fn has_sent(&self, sequence: u64) -> bool {
        sequence.saturating_add(1) <= self.next()
    }

    /// Rewinds to the events after `sequence`, the last number the reader has received. Returns `false` if that was
    /// never sent.
    pub(in crate::http) fn rewind(&mut self, sequence: u64) -> bool {
        if !self.has_sent(sequence) {
            return false;
        }
        let wanted = sequence.saturating_add(1);
        self.missed = None;
        if self.live_forgotten >= wanted {
            // Their meanings are not remembered.
            self.missed_state = true;
            let exact = self.retained_forgotten < wanted;
            self.missed = Some(if exact { Missed::Exactly(self.first - wanted) } else { Missed::Unknown });
        }
        if self.retained_forgotten >= wanted {
            self.walk.begin_again(sequence);
        }
        self.cursor = wanted.max(self.first);
        true
    }

    /// Changes the limits. Returns how many waiting messages were dropped.
    pub(in crate::http) fn set_limits(&mut self, limits: Limits) -> u64 {
        self.limits = limits;
        let displaced = self.make_room(0, false);
        self.settle();
        u64::from(displaced)
    }

    fn next(&self) -> u64 {
        self.first + self.sent.len() as u64
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
        if self.ended {
            return Delivered::Gone;
        }
        let (message, qos) = (Arc::clone(delivery.share(publication)), delivery.qos(publication));
        let share = if message.qos == Qos::AtMostOnce { 0 } else { delivery.tag };
        let item = Item { message, qos, retained: false, share };
        let bytes = item.bytes();
        // One message always fits, or a large one would never arrive; unless the owner has to give way.
        let gives_way = self.account.as_ref().is_some_and(|account| account.gives_way(delivery.held));
        let mut displaced = self.make_room(bytes, gives_way);
        self.bytes += bytes;
        self.waiting.push_back(item);
        if gives_way && bytes > self.limit(gives_way) {
            displaced += u32::from(self.lose_oldest());
        }
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
        self.end();
    }

    fn door(&self) -> Option<Door> {
        Some(Door::Http)
    }

    fn account(&self) -> Option<&Arc<Account>> {
        self.account.as_ref()
    }

    fn readiness(&self) -> Readiness {
        // The bytes of what was sent already count as well: they displace messages that wait.
        let Limits { messages, bytes, .. } = self.limits;
        Readiness::of_queue((self.waiting.len(), messages), (self.bytes, bytes), BUSY_MESSAGES)
    }
}

impl Drop for StreamMailbox {
    fn drop(&mut self) {
        self.all.fetch_sub(self.accounted, Relaxed);
    }
}

#[cfg(test)]
mod tests;
