//! Room for another message, by forgetting those that were sent and losing the oldest that wait.

use std::sync::atomic::Ordering::Relaxed;

use fogmux_bus::Message;

use super::{Missed, SHORT, StreamMailbox, TAIL_BYTES, TAIL_MESSAGES};

impl StreamMailbox {
    /// Forgets sent messages beyond the tail.
    pub(super) fn trim(&mut self) {
        while self.first < self.cursor
            && (self.sent.len() > TAIL_MESSAGES || (self.waiting.is_empty() && self.bytes > TAIL_BYTES))
        {
            if !self.forget_sent() {
                break;
            }
        }
        self.settle();
    }

    pub(super) fn forget_sent(&mut self) -> bool {
        let Some(item) = self.sent.pop_front() else { return false };
        self.bytes -= item.bytes();
        let number = self.first;
        self.first += 1;
        // Whether it was still to be sent again.
        let owed = self.cursor < self.first;
        self.cursor = self.cursor.max(self.first);
        if item.retained {
            self.retained_forgotten = number;
            if owed {
                self.walk.begin_again(number - 1);
            }
        } else {
            self.live_forgotten = number;
            if owed {
                self.miss_one(&item.message);
            }
        }
        true
    }

    pub(super) fn miss_one(&mut self, message: &Message) {
        self.missed_state |= message.meaning.is_state();
        self.missed = match self.missed {
            None => Some(Missed::Exactly(1)),
            Some(Missed::Exactly(count)) => Some(Missed::Exactly(count + 1)),
            Some(Missed::Unknown) => Some(Missed::Unknown),
        };
    }

    /// Makes room for a message of this size. Returns how many waiting messages were dropped.
    pub(super) fn make_room(&mut self, bytes: usize, gives_way: bool) -> u32 {
        let limit = self.limit(gives_way);
        let mut displaced = 0;
        while self.bytes + bytes > limit || self.sent.len() + self.waiting.len() >= self.limits.messages {
            if self.forget_sent() {
                continue;
            }
            if !self.lose_oldest() {
                break;
            }
            displaced += 1;
        }
        displaced
    }

    /// The bytes that it may hold: few when all streams together hold too much, or its owner has to give way.
    pub(super) fn limit(&self, gives_way: bool) -> usize {
        let short = gives_way || self.all.load(Relaxed) > self.limits.all_bytes;
        if short { self.limits.bytes / SHORT } else { self.limits.bytes }
    }

    /// Drops the oldest message that waits; nothing that was sent is kept any more.
    pub(super) fn lose_oldest(&mut self) -> bool {
        let Some(item) = self.waiting.pop_front() else { return false };
        self.bytes -= item.bytes();
        // The number is used up.
        self.live_forgotten = self.first;
        self.first += 1;
        self.cursor = self.first;
        self.miss_one(&item.message);
        true
    }
}
