//! A mailbox that is a bounded queue, for doors that encode when they write.

use std::{collections::VecDeque, sync::Arc};

use crate::{
    account::Account,
    door::Door,
    mailbox::{Delivered, Delivery, Mailbox, Readiness},
    message::{Message, Publication, Qos},
};

/// Waiting messages above which a reader counts as busy: more than one turn of a publisher.
const BUSY_MESSAGES: usize = 64;

/// Places that an empty queue keeps.
const PLACES_KEPT: usize = 64;

/// Bounds of a [`FifoMailbox`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FifoLimits {
    /// Most messages.
    pub messages: usize,
    /// Most bytes, overhead included.
    pub bytes: usize,
}

/// A message waiting in a [`FifoMailbox`].
#[derive(Clone, Debug)]
pub struct Queued {
    /// The message.
    pub message: Arc<Message>,
    /// The tag of the subscription that it came by.
    pub tag: u64,
    /// The bytes that it counts for. Remembered, because another worker may have the message in its cache.
    cost: u32,
    /// The QoS to deliver with.
    pub qos: Qos,
    /// Whether it came by a shared subscription.
    pub shared: bool,
}

impl Queued {
    /// Whether other members get it if the reader does not take it: it came by a shared subscription and was published
    /// with QoS 1 or 2.
    #[must_use]
    pub fn is_for_others(&self) -> bool {
        self.shared && self.message.qos > Qos::AtMostOnce
    }

    const fn cost(&self) -> usize {
        self.cost as usize
    }
}

/// A bounded queue, first in, first out. When it is full the oldest messages are dropped, but none of QoS 1 or 2 for
/// one of QoS 0.
#[derive(Debug)]
pub struct FifoMailbox {
    limits: FifoLimits,
    account: Option<Arc<Account>>,
    door: Option<Door>,
    queue: VecDeque<Queued>,
    bytes: usize,
    lost: u64,
}

impl FifoMailbox {
    /// Creates an empty mailbox.
    #[must_use]
    pub const fn new(limits: FifoLimits) -> Self {
        Self { limits, account: None, door: None, queue: VecDeque::new(), bytes: 0, lost: 0 }
    }

    /// Has it count to this account.
    #[must_use]
    pub fn of(self, account: Arc<Account>) -> Self {
        Self { account: Some(account), ..self }
    }

    /// Has it count to this door.
    #[must_use]
    pub fn at(self, door: Door) -> Self {
        Self { door: Some(door), ..self }
    }

    /// Takes the oldest message.
    pub fn pop(&mut self) -> Option<Queued> {
        let queued = self.queue.pop_front()?;
        self.bytes -= queued.cost();
        if self.queue.is_empty() && self.queue.capacity() > PLACES_KEPT {
            self.queue.shrink_to(PLACES_KEPT);
        }
        Some(queued)
    }

    /// Takes out the messages of shared subscriptions that were published with QoS 1 or 2, because the reader has left:
    /// other members get them ([`crate::Worker::hand_on`]).
    pub fn take_shared(&mut self) -> Vec<Queued> {
        let (left, kept) = self.queue.drain(..).partition(Queued::is_for_others);
        self.queue = kept;
        let left: Vec<Queued> = Vec::from(left);
        self.bytes -= left.iter().map(Queued::cost).sum::<usize>();
        left
    }

    /// The number of waiting messages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether no message waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Messages dropped since the last call, which a reader is told as a gap.
    pub const fn take_lost(&mut self) -> u64 {
        std::mem::replace(&mut self.lost, 0)
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        self.queue = VecDeque::new();
        self.bytes = 0;
    }

    fn fits(&self, bytes: usize) -> bool {
        self.queue.len() < self.limits.messages && self.bytes + bytes <= self.limits.bytes
    }
}

fn cost(message: &Message) -> u32 {
    u32::try_from(message.size() + size_of::<Queued>()).unwrap_or(u32::MAX)
}

impl Mailbox for FifoMailbox {
    fn deliver(&mut self, publication: &Publication<'_>, delivery: &Delivery<'_>) -> Delivered {
        let qos = delivery.qos(publication);
        let message = delivery.share(publication);
        let cost = cost(message);
        let bytes = cost as usize;
        if self.account.as_ref().is_some_and(|account| account.gives_way(delivery.held)) {
            self.lost += 1;
            return Delivered::Full(1);
        }
        let mut displaced = 0;
        while !self.fits(bytes) {
            self.lost += 1;
            if self.queue.front().is_none_or(|oldest| oldest.qos > Qos::AtMostOnce && qos == Qos::AtMostOnce) {
                return Delivered::Full(displaced + 1);
            }
            self.pop();
            displaced += 1;
        }
        self.bytes += bytes;
        self.queue.push_back(Queued {
            message: Arc::clone(message),
            tag: delivery.tag,
            cost,
            qos,
            shared: delivery.shared,
        });
        if displaced == 0 { Delivered::Queued } else { Delivered::Displaced(displaced) }
    }

    fn buffered_bytes(&self) -> usize {
        self.bytes
    }

    fn waiting(&self) -> usize {
        self.len()
    }

    fn close(&mut self) {
        self.clear();
    }

    fn account(&self) -> Option<&Arc<Account>> {
        self.account.as_ref()
    }

    fn door(&self) -> Option<Door> {
        self.door
    }

    fn readiness(&self) -> Readiness {
        let FifoLimits { messages, bytes } = self.limits;
        Readiness::of_queue((self.queue.len(), messages), (self.bytes, bytes), BUSY_MESSAGES)
    }
}
