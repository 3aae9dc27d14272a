//! Mailboxes: the interface by which the bus delivers to subscribers.

use std::{cell::OnceCell, sync::Arc};

use crate::{
    account::Account,
    counters::Tally,
    door::Door,
    durable::Gather,
    message::{Message, Publication, Qos},
    slow_down::SlowDown,
    topic::Topic,
};

/// The properties of the matched subscriptions that shape a delivery.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// The tag that the subscriber gave the subscription, to tell its subscriptions apart.
    pub tag: u64,
    /// Highest QoS of the subscriptions that matched.
    pub max_qos: Qos,
    /// Keep the retain flag as it was published (MQTT 5.0 §3.8.3.1).
    pub retain_as_published: bool,
    /// Subscription identifiers of those that matched (MQTT 5.0 §3.3.4).
    pub ids: &'a [u32],
    /// Whether it came by a shared subscription.
    pub shared: bool,
    /// The topic, if there is a copy that its messages can share.
    pub topic: Option<&'a Topic>,
    /// The bytes that all mailboxes held when the batch came: one publication must not count against itself.
    pub held: usize,
    /// The place of the copy for the subscriber's worker, if it gets one.
    pub copy: Option<&'a OnceCell<Arc<Message>>>,
    /// The records that its batch puts into the store of sessions; `None` if nothing can be put.
    pub gather: Option<&'a Gather>,
}

impl<'a> Delivery<'a> {
    /// The QoS to deliver with: the lower of the published and the granted one ([MQTT-3.8.4-8]).
    #[must_use]
    pub fn qos(&self, publication: &Publication<'_>) -> Qos {
        self.max_qos.min(publication.qos)
    }

    /// As [`Publication::share`], with the topic shared as well.
    pub fn share<'p>(&self, publication: &'p Publication<'_>) -> &'p Arc<Message>
    where
        'a: 'p,
    {
        let copy = || Arc::new(publication.share_with(self.topic).copy());
        self.copy.map_or_else(|| publication.share_with(self.topic), |place| place.get_or_init(copy))
    }
}

/// The outcome of a delivery. It is not reported to the publisher: a publication is refused before anything is
/// delivered, or not at all (ADR 0018).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// It is in the mailbox.
    Queued,
    /// It is encoded for the wire.
    Sent,
    /// It is in the mailbox, and this many older messages were dropped for it.
    Displaced(u32),
    /// As [`Displaced`](Self::Displaced), and the owner must be woken at once, even if it waits for its socket.
    Overrun(u32),
    /// It replaced an older value of the same topic, which is not delivered any more.
    Conflated,
    /// Thrown away: no room, and it may be lost. So many messages went, itself and those that had to make room
    /// included.
    Full(u32),
    /// Dropped: it had expired.
    Expired,
    /// Dropped: larger than the subscriber accepts.
    TooLarge,
    /// Dropped: the mailbox has no owner any more.
    Gone,
}

impl Delivered {
    pub(crate) const fn count(self, tally: &mut Tally) {
        match self {
            Self::Queued => tally.delivered += 1,
            Self::Sent => {
                tally.delivered += 1;
                tally.sent += 1;
            }
            Self::Displaced(count) | Self::Overrun(count) => {
                tally.delivered += 1;
                tally.dropped_full += count as u64;
            }
            Self::Conflated => {
                tally.delivered += 1;
                tally.conflated += 1;
            }
            Self::Full(count) => tally.dropped_full += count as u64,
            Self::Expired => tally.dropped_expired += 1,
            Self::TooLarge => tally.dropped_too_large += 1,
            Self::Gone => tally.dropped_gone += 1,
        }
    }
}

/// How well a subscriber keeps up. Messages of a shared subscription go to the readiest members first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Readiness {
    /// It takes messages at once.
    #[default]
    Ready = 0,
    /// It takes messages at once, but many are unacknowledged or not written yet.
    Busy = 1,
    /// Deliveries are queued.
    Congested = 2,
}

impl Readiness {
    /// Returns that of a queue with two bounds, whichever is nearer: congested above half of one, busy above a quarter
    /// of the bytes or `busy` messages.
    #[must_use]
    pub const fn of_queue(
        (messages, messages_max): (usize, usize),
        (bytes, bytes_max): (usize, usize),
        busy: usize,
    ) -> Self {
        if messages == 0 {
            Self::Ready
        } else if messages > messages_max / 2 || bytes > bytes_max / 2 {
            Self::Congested
        } else if messages > busy || bytes > bytes_max / 4 {
            Self::Busy
        } else {
            Self::Ready
        }
    }

    pub(crate) const fn from_u8(value: u8) -> Self {
        match value {
            0 => Self::Ready,
            1 => Self::Busy,
            _ => Self::Congested,
        }
    }
}

/// Where deliveries go. [`deliver`](Self::deliver) runs on the publisher's worker, under the slot's lock: it appends or
/// encodes and returns. It never blocks, never calls the bus, and keeps within the subscriber's own bounds.
pub trait Mailbox: Send + 'static {
    /// Takes one delivery. A message that is kept is taken by [`Publication::share`].
    fn deliver(&mut self, publication: &Publication<'_>, delivery: &Delivery<'_>) -> Delivered;

    /// Bytes that it holds, for the global watermark.
    fn buffered_bytes(&self) -> usize;

    /// Messages that are in the mailbox, neither handed to a connection nor dropped yet.
    fn waiting(&self) -> usize;

    /// Drops everything it holds, because nobody will fetch it. Nothing is delivered afterwards.
    fn close(&mut self);

    /// The account of whoever reads it. A mailbox without one belongs to nobody and never gives way for its size.
    fn account(&self) -> Option<&Arc<Account>> {
        None
    }

    /// The door that it belongs to, for metrics. Always the same.
    fn door(&self) -> Option<Door> {
        None
    }

    /// How well its owner keeps up. Asked after each delivery and each drain.
    fn readiness(&self) -> Readiness {
        Readiness::Ready
    }

    /// The pause that the publisher should make after what was just delivered. Asked once after the deliveries of a
    /// batch.
    fn slow_down(&mut self) -> Option<SlowDown> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_as_ready_as_its_nearer_bound_allows() {
        use Readiness::{Busy, Congested, Ready};
        for (messages, bytes, readiness) in [
            (0, 0, Ready),
            // Bytes that were sent already do not make a reader busy that waits for nothing.
            (0, 1000, Ready),
            (1, 250, Ready),
            (1, 251, Busy),
            (1, 500, Busy),
            (1, 501, Congested),
            (64, 0, Ready),
            (65, 0, Busy),
            (500, 0, Busy),
            (501, 0, Congested),
        ] {
            let found = Readiness::of_queue((messages, 1000), (bytes, 1000), 64);
            assert_eq!(found, readiness, "{messages} messages of {bytes} bytes");
        }
    }
}
