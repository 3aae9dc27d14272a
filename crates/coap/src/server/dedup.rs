//! Message deduplication (RFC 7252 §4.5): the recent messages of one peer and the replies to them, so that a duplicate
//! is answered and not processed again.
//!
//! The exchanges are a ring. When it has as many as are remembered, and those that are under way beside them, the
//! oldest exchange that is not under way is overwritten and its buffer reused.

use std::time::Duration;

use smallvec::SmallVec;

use crate::Timestamp;
use crate::code::Code;

/// The exchanges of one peer.
#[derive(Debug, Default)]
pub(crate) struct Exchanges {
    /// Apart from the rest, so that a search touches few cache lines.
    ids: SmallVec<[u16; 8]>,
    slots: Vec<Slot>,
    next: usize,
    /// Where the last one that began is: mostly the one that is asked about.
    newest: usize,
    /// How many the application has.
    under_way: usize,
}

#[derive(Debug)]
struct Slot {
    since: Timestamp,
    state: State,
    /// Confirmable, and with the application.
    under_way: bool,
    /// The answer to a PUT or POST is rarely longer. An allocation for each, kept for four minutes (RFC 7252 §4.8.2),
    /// would hold a page of the heap that is free otherwise.
    reply: SmallVec<[u8; 16]>,
}

impl Slot {
    /// Bytes beside the slot.
    fn heap_bytes(&self) -> usize {
        if self.reply.spilled() { self.reply.capacity() } else { 0 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// With the application.
    Pending,
    /// With the application, and the peer has an empty acknowledgement; the answer goes, or went, on its own.
    Acknowledged,
    /// Answered; the reply is stored.
    Answered,
    /// Answered with this code; the reply is not stored.
    CodeOnly(Code),
    /// A duplicate is to be processed again.
    Forgotten,
}

/// The result of looking a message identifier up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    /// The identifier is new, or was last used more than the lifetime ago.
    New,
    /// A duplicate; the request is still being processed.
    Pending,
    /// A duplicate that had an empty acknowledgement.
    Acknowledged,
    /// A duplicate, with the reply.
    Answered(&'a [u8]),
    /// A duplicate; the reply had this code.
    CodeOnly(Code),
}

/// Bytes of remembered exchanges over all peers.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(crate) used: usize,
    pub(crate) max: usize,
}

impl Budget {
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let fits = self.used.saturating_add(bytes) <= self.max;
        if fits {
            self.used += bytes;
        }
        fits
    }

    pub(crate) fn give(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes);
    }
}

/// The number of identifiers that are compared at once.
const CHUNK: usize = 16;

/// The memory of a slot in bytes, without its reply.
const SLOT_BYTES: usize = size_of::<Slot>() + size_of::<u16>();

impl Exchanges {
    /// Looks an identifier up.
    #[cfg(test)]
    fn find(&self, now: Timestamp, message_id: u16, lifetime: Duration) -> Found<'_> {
        self.found(now, self.position(message_id), lifetime)
    }

    /// Looks an identifier up, and adds a new one as pending. It replaces the oldest when the ring is full.
    pub(crate) fn find_or_begin(
        &mut self,
        now: Timestamp,
        message_id: u16,
        lifetime: Duration,
        max: usize,
        budget: &mut Budget,
    ) -> Found<'_> {
        let at = self.position(message_id);
        if matches!(self.found(now, at, lifetime), Found::New) {
            self.begin_at(now, message_id, at, max, budget);
            return Found::New;
        }
        self.found(now, at, lifetime)
    }

    fn found(&self, now: Timestamp, at: Option<usize>, lifetime: Duration) -> Found<'_> {
        let Some(slot) = at.and_then(|at| self.slots.get(at)) else {
            return Found::New;
        };
        if now.since(slot.since) >= lifetime {
            return Found::New;
        }
        match slot.state {
            State::Pending => Found::Pending,
            State::Acknowledged => Found::Acknowledged,
            State::Answered => Found::Answered(&slot.reply),
            State::CodeOnly(code) => Found::CodeOnly(code),
            State::Forgotten => Found::New,
        }
    }

    /// Remembers an identifier as being worked on. Takes the place of the oldest when there is no room.
    #[cfg(test)]
    fn begin(&mut self, now: Timestamp, message_id: u16, max: usize, budget: &mut Budget) {
        self.begin_at(now, message_id, self.position(message_id), max, budget);
    }

    /// Begins an identifier that is at this place, if it is known.
    fn begin_at(&mut self, now: Timestamp, message_id: u16, at: Option<usize>, max: usize, budget: &mut Budget) {
        let at = match at {
            Some(at) => at,
            None if self.ids.len() < max.saturating_add(self.under_way)
                && (budget.take(SLOT_BYTES) || self.ids.is_empty()) =>
            {
                return self.add(now, message_id);
            }
            None => match self.oldest() {
                Some(at) => at,
                // No more than the application has of all peers.
                None => {
                    budget.used += SLOT_BYTES;
                    return self.add(now, message_id);
                }
            },
        };
        self.take_back_at(at);
        if let (Some(id), Some(slot)) = (self.ids.get_mut(at), self.slots.get_mut(at)) {
            *id = message_id;
            (slot.since, slot.state) = (now, State::Pending);
        }
        self.newest = at;
    }

    fn add(&mut self, now: Timestamp, message_id: u16) {
        self.newest = self.ids.len();
        self.ids.push(message_id);
        self.slots.push(Slot { since: now, state: State::Pending, under_way: false, reply: SmallVec::new() });
    }

    /// The place of the oldest one that is not under way.
    fn oldest(&mut self) -> Option<usize> {
        for _ in 0..self.ids.len() {
            let at = self.next;
            self.next = if at + 1 < self.ids.len() { at + 1 } else { 0 };
            if self.slots.get(at).is_some_and(|slot| !slot.under_way) {
                return Some(at);
            }
        }
        None
    }

    /// The number of exchanges that are under way.
    pub(crate) const fn under_way(&self) -> usize {
        self.under_way
    }

    /// Notes that the application has a Confirmable request: it stays until [`Exchanges::take_back`].
    pub(crate) fn hand_out(&mut self, message_id: u16) {
        if let Some(slot) = self.slot(message_id)
            && !std::mem::replace(&mut slot.under_way, true)
        {
            self.under_way += 1;
        }
    }

    /// Notes that the application has answered.
    pub(crate) fn take_back(&mut self, message_id: u16) {
        if let Some(at) = self.position(message_id) {
            self.take_back_at(at);
        }
    }

    fn take_back_at(&mut self, at: usize) {
        if let Some(slot) = self.slots.get_mut(at)
            && std::mem::take(&mut slot.under_way)
        {
            self.under_way -= 1;
        }
    }

    /// Notes that an empty acknowledgement goes out; `false` when the answer came before or nobody knows of it.
    pub(crate) fn acknowledge(&mut self, message_id: u16) -> bool {
        match self.slot(message_id) {
            Some(slot) if slot.state == State::Pending => {
                slot.state = State::Acknowledged;
                true
            }
            Some(_) | None => false,
        }
    }

    /// Whether the peer has an empty acknowledgement for this.
    pub(crate) fn is_acknowledged(&self, message_id: u16) -> bool {
        let slot = self.position(message_id).and_then(|at| self.slots.get(at));
        slot.is_some_and(|slot| slot.state == State::Acknowledged)
    }

    /// Keeps the answer, and says whether there was room for it; of one that was no datagram of its own (to a
    /// Non-confirmable request) only the code, for a Confirmable one that wrongly comes with the same identifier.
    pub(crate) fn answer(&mut self, message_id: u16, code: Code, reply: &[u8], budget: &mut Budget) -> bool {
        let Some(slot) = self.slot(message_id) else { return false };
        let missing = match reply.len() {
            length if length <= slot.reply.capacity() => 0,
            length => length - slot.heap_bytes(),
        };
        if reply.is_empty() || (missing > 0 && !budget.take(missing)) {
            slot.state = State::CodeOnly(code);
            return false;
        }
        slot.reply.clear();
        slot.reply.reserve_exact(reply.len());
        slot.reply.extend_from_slice(reply);
        slot.state = State::Answered;
        true
    }

    /// A repeat of this is not answered: what it was answered could not be kept, and must not be made again.
    pub(crate) fn silence(&mut self, message_id: u16) {
        if let Some(slot) = self.slot(message_id) {
            slot.state = State::Pending;
        }
    }

    /// Marks an exchange so that a duplicate is processed again.
    pub(crate) fn forget(&mut self, message_id: u16) {
        if let Some(slot) = self.slot(message_id) {
            slot.state = State::Forgotten;
        }
    }

    /// The memory of all exchanges in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.slots.iter().map(|slot| SLOT_BYTES + slot.heap_bytes()).sum()
    }

    fn position(&self, message_id: u16) -> Option<usize> {
        if self.ids.get(self.newest) == Some(&message_id) {
            return Some(self.newest);
        }
        // The compiler vectorises the comparison of a whole chunk. Most searches find nothing.
        let (chunks, rest) = self.ids.as_chunks::<CHUNK>();
        let holds = |chunk: &[u16; CHUNK]| chunk.iter().fold(false, |found, id| found | (*id == message_id));
        let start = chunks.iter().position(holds).map_or(self.ids.len() - rest.len(), |chunk| chunk * CHUNK);
        let at = self.ids.get(start..)?.iter().position(|id| *id == message_id)?;
        Some(start + at)
    }

    fn slot(&mut self, message_id: u16) -> Option<&mut Slot> {
        let at = self.position(message_id)?;
        self.slots.get_mut(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Duration = Duration::from_secs(247);

    #[test]
    fn s4_5_a_repeat_finds_its_answer_until_the_lifetime_is_over() {
        let (mut exchanges, mut budget) = (Exchanges::default(), Budget { used: 0, max: 4096 });
        let now = Timestamp::from_millis(1000);
        assert_eq!(exchanges.find(now, 7, LIFETIME), Found::New);
        exchanges.begin(now, 7, 4, &mut budget);
        assert_eq!(exchanges.find(now, 7, LIFETIME), Found::Pending);
        assert!(exchanges.acknowledge(7));
        assert_eq!(exchanges.find(now, 7, LIFETIME), Found::Acknowledged);
        exchanges.answer(7, Code::CHANGED, b"reply", &mut budget);
        assert_eq!(exchanges.find(now, 7, LIFETIME), Found::Answered(b"reply"));
        assert_eq!(exchanges.find(now + LIFETIME, 7, LIFETIME), Found::New);
    }

    #[test]
    fn each_is_found_wherever_it_is_in_the_ring() {
        let (mut exchanges, mut budget) = (Exchanges::default(), Budget { used: 0, max: usize::MAX });
        for id in 0..200_u16 {
            exchanges.begin(Timestamp::ZERO, id, 50, &mut budget);
            assert!(exchanges.answer(id, Code::CONTENT, &id.to_be_bytes(), &mut budget));
            let kept = (id.saturating_sub(49)..=id).collect::<Vec<_>>();
            for old in kept {
                assert_eq!(exchanges.find(Timestamp::ZERO, old, LIFETIME), Found::Answered(&old.to_be_bytes()));
            }
            assert_eq!(exchanges.find(Timestamp::ZERO, id + 1, LIFETIME), Found::New);
            assert_eq!(exchanges.find(Timestamp::ZERO, id.wrapping_sub(50), LIFETIME), Found::New);
        }
    }

    #[test]
    fn a_short_answer_needs_no_room_of_its_own_and_a_longer_one_is_counted_whole() {
        let (mut exchanges, mut budget) = (Exchanges::default(), Budget { used: 0, max: usize::MAX });
        exchanges.begin(Timestamp::ZERO, 7, 4, &mut budget);
        for (length, room) in [(1, 0), (16, 0), (17, 17), (16, 17), (40, 40), (3, 40)] {
            assert!(exchanges.answer(7, Code::CHANGED, &vec![7; length], &mut budget));
            assert_eq!(exchanges.find(Timestamp::ZERO, 7, LIFETIME), Found::Answered(&vec![7; length]));
            assert_eq!((exchanges.bytes(), budget.used), (SLOT_BYTES + room, SLOT_BYTES + room));
        }
    }

    #[test]
    fn the_ring_is_bounded_in_count_and_bytes() {
        let (mut exchanges, mut budget) = (Exchanges::default(), Budget { used: 0, max: SLOT_BYTES * 3 });
        for id in 0..100 {
            exchanges.begin(Timestamp::ZERO, id, 4, &mut budget);
            exchanges.answer(id, Code::CREATED, &[0; 500], &mut budget);
            assert_eq!(exchanges.find(Timestamp::ZERO, id, LIFETIME), Found::CodeOnly(Code::CREATED));
        }
        assert_eq!(exchanges.ids.len(), 3);
        assert_eq!(exchanges.find(Timestamp::ZERO, 90, LIFETIME), Found::New);
        assert_eq!(exchanges.bytes(), budget.used);
    }
}
