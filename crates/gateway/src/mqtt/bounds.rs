//! The bounds of a client's mailbox, and how they shrink when memory is tight.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

use fogmux_bus::{Account, Memory, Timestamp};

use super::{
    config::{MqttConfig, SlowSubscriber},
    pace::{Distance, Pace},
};
use crate::{stops::Stops, throttle::Throttle};

/// The fraction of its queue above which a client that reads is behind.
const BEHIND: usize = 16;
/// The fraction of its queue, or of the memory that is not yet tight, above which it is far behind.
const FAR_BEHIND: usize = 2;
/// The fraction of its queue that is left free when it is nearly full.
const NEARLY_FULL: usize = 8;
/// The fraction of its queue below which a client that was far behind has caught up.
const CAUGHT_UP: usize = 4;
/// The fraction of its bounds that a client gets when memory is tight.
const TIGHT: usize = 16;
/// The fraction of its bounds that a client gets when memory is nearly used up.
const VERY_TIGHT: usize = 1024;

/// The evidence that a client reads what it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It has acknowledged something on its connection.
    Known,
    /// It has held something for so short a time that it cannot be expected to have read it.
    Fresh,
    /// There is none.
    Silent,
}

/// The bounds of every mailbox.
#[derive(Debug)]
pub(super) struct Bounds {
    pub(super) out_bytes: usize,
    pub(super) inflight_bytes: usize,
    pub(super) queue_messages: usize,
    pub(super) queue_bytes: usize,
    /// Of those of a client that is away so many bytes stay in memory.
    pub(super) queue_memory_bytes: usize,
    /// The first step of a mark.
    pub(super) mark_messages: u64,
    /// The part of `queue_bytes` that a message takes at least, so that a queue full of messages is a full queue.
    message_bytes: usize,
    tight_bytes: usize,
    pub(super) slow_subscriber: SlowSubscriber,
    /// The bytes that a session without a connection may hold even if memory is nearly gone.
    absent_bytes: AtomicUsize,
    /// Bytes of messages that are being read back.
    lent: AtomicUsize,
    /// Messages wait for memory to be read back.
    waits: AtomicBool,
    memory: Arc<Memory>,
    stops: Arc<Stops>,
    /// Of messages that absent clients lose.
    pub(super) lost_log: Throttle,
}

/// Memory for messages that are being read back.
#[derive(Debug)]
pub(super) struct Loan {
    bounds: Arc<Bounds>,
    bytes: usize,
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.bounds.lent.fetch_sub(self.bytes, Relaxed);
    }
}

impl Bounds {
    pub(super) fn new(config: &MqttConfig, memory: &Arc<Memory>, stops: &Arc<Stops>) -> Self {
        Self {
            out_bytes: config.out_bytes_max,
            inflight_bytes: config.inflight_bytes_max,
            queue_messages: config.queue_messages_max,
            queue_bytes: config.queue_bytes_max,
            queue_memory_bytes: config.queue_memory_bytes_max,
            mark_messages: config.mark_messages,
            message_bytes: config.queue_bytes_max.div_ceil(config.queue_messages_max.max(1)),
            tight_bytes: config.tight_bytes,
            slow_subscriber: config.slow_subscriber,
            absent_bytes: AtomicUsize::new(0),
            lent: AtomicUsize::new(0),
            waits: AtomicBool::new(false),
            memory: Arc::clone(memory),
            stops: Arc::clone(stops),
            lost_log: Throttle::default(),
        }
    }

    /// The pace of a client that has fallen behind.
    pub(super) fn pace(&self, now: Timestamp) -> Pace {
        Pace::new(now, self.queue_bytes, Arc::clone(&self.stops))
    }

    /// The bytes that mailboxes may hold with what is read back: for the owner that holds most until memory is very
    /// tight, for others until publishers have to wait.
    fn reading_max(&self, account: &Account) -> usize {
        let very_tight = self.tight_bytes + self.tight_bytes / 2;
        if account.is_heaviest() { very_tight } else { very_tight.max(self.memory.high()) }
    }

    /// Bytes that mailboxes hold, with those that are being read back.
    fn held(&self) -> usize {
        self.memory.used() + self.lent.load(Relaxed)
    }

    /// The bytes that may be read back now.
    pub(super) fn room(&self, account: &Account) -> usize {
        self.reading_max(account).saturating_sub(self.held())
    }

    /// Whether so many bytes may be read back now for a mailbox that holds `own`. Anything may if memory is half empty,
    /// or if there is no other mailbox.
    pub(super) fn may_read_back(&self, bytes: usize, own: usize, account: &Account) -> bool {
        let held = self.held();
        bytes <= self.room(account) || held <= self.reading_max(account) / 2 || held <= own
    }

    /// Notes that so many bytes are being read back.
    pub(super) fn lend(self: &Arc<Self>, bytes: usize) -> Loan {
        self.lent.fetch_add(bytes, Relaxed);
        Loan { bounds: Arc::clone(self), bytes }
    }

    /// Notes that messages wait for memory to be read back.
    pub(super) fn note_waits_for_memory(&self) {
        self.waits.store(true, Relaxed);
    }

    /// Whether messages wait for memory to be read back, since this was asked last.
    pub(super) fn take_waits_for_memory(&self) -> bool {
        self.waits.swap(false, Relaxed)
    }

    /// Sets the bytes that a session without a connection may hold even if memory is nearly gone.
    pub(super) fn set_absent_bytes(&self, bytes: usize) {
        self.absent_bytes.store(bytes, Relaxed);
    }

    /// Whether a session without a connection may hold so many bytes even if memory is nearly gone.
    pub(super) fn fits_absent(&self, bytes: usize) -> bool {
        bytes <= self.absent_bytes.load(Relaxed)
    }

    /// Whether memory is tight and this owner holds most: only its clients are limited for it.
    pub(super) fn is_limited(&self, account: &Account) -> bool {
        self.memory.used() > self.tight_bytes && account.is_heaviest()
    }

    /// Whether memory is nearly gone.
    pub(super) fn is_very_tight(&self) -> bool {
        self.memory.used() > self.tight_bytes + self.tight_bytes / 2 || self.memory.pressure()
    }

    /// The level of a queue of so many messages and bytes, by the bound that is nearer: `queue_bytes` if it is full.
    pub(super) fn level(&self, messages: usize, bytes: usize) -> usize {
        bytes.max(messages.saturating_mul(self.message_bytes))
    }

    /// Whether a client that was far behind still is.
    pub(super) const fn is_far(&self, level: usize) -> bool {
        level > self.queue_bytes / CAUGHT_UP
    }

    /// The level above which publishers stop.
    fn nearly_full(&self, account: &Account) -> usize {
        if self.is_limited(account) {
            return self.queue_bytes / BEHIND;
        }
        self.queue_bytes - self.queue_bytes / NEARLY_FULL
    }

    /// How far a client with such a level is behind; `None`: it keeps up.
    pub(super) fn distance(&self, level: usize, account: &Account) -> Option<Distance> {
        if level <= self.queue_bytes / BEHIND {
            return None;
        }
        let is_half = self.memory.used() > self.tight_bytes / FAR_BEHIND && account.is_heaviest();
        let far = level > self.queue_bytes / FAR_BEHIND || is_half;
        Some(match level.checked_sub(self.nearly_full(account)) {
            Some(excess @ 1..) => Distance::Nearly(excess),
            Some(0) | None if far => Distance::Far,
            Some(0) | None => Distance::Behind,
        })
    }

    /// Whether a client that reads a fair amount may hold more than its bounds, because publishers wait for it: each of
    /// them brings what it had under way. What it holds itself bounds that, for the memory is everybody's.
    pub(super) fn may_exceed(&self, bytes: usize, account: &Account) -> bool {
        bytes < self.queue_bytes.saturating_add(self.memory.excess_max())
            && !(self.memory.is_overfull(self.memory.used()) && account.is_heaviest())
    }

    /// Whether a client takes a message although so many bytes are held. When the mark is passed by more than what was
    /// under way, clients of the owner that holds most do so only while they hold less than half a queue: those that
    /// are known to read until several times the mark is held, those that have had no time to read until twice the mark
    /// is.
    pub(super) fn may_take(&self, held: usize, bytes: usize, standing: Standing, account: &Account) -> bool {
        let is_too_much = || match standing {
            Standing::Known => self.memory.is_far_too_much(held),
            Standing::Fresh => self.memory.is_doubled(held),
            Standing::Silent => true,
        };
        !account.gives_way(held) || (bytes <= self.queue_bytes / 2 && !is_too_much())
    }

    /// The bound that a client gets which does not read, or of QoS 0, if its owner holds most. One that reads keeps its
    /// own.
    pub(super) fn scale(&self, bytes: usize, account: &Account) -> usize {
        let used = self.memory.used();
        if used <= self.tight_bytes || !account.is_heaviest() {
            bytes
        } else if used <= self.tight_bytes + self.tight_bytes / 2 {
            bytes / TIGHT
        } else {
            bytes / VERY_TIGHT
        }
    }
}
