//! What a subscriber is to the bus: somewhere to put deliveries.

use std::sync::Arc;

use crate::{
    counters::Tally,
    message::{Message, Publication, Qos},
    topic::Topic,
};

/// What the subscription says about a delivery.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// What the subscriber gave to tell its subscriptions apart.
    pub tag: u64,
    /// Highest QoS of the subscriptions that matched.
    pub max_qos: Qos,
    /// Keep the retain flag as it was published (MQTT 5.0 §3.8.3.1).
    pub retain_as_published: bool,
    /// Subscription identifiers of those that matched (MQTT 5.0 §3.3.4).
    pub ids: &'a [u32],
    /// It came by a shared subscription.
    pub shared: bool,
    /// The topic, where there is a copy that its messages can share.
    pub topic: Option<&'a Topic>,
}

impl Delivery<'_> {
    /// The QoS to deliver with: the lower of what was published and what was asked for ([MQTT-3.8.4-8]).
    #[must_use]
    pub fn qos(&self, publication: &Publication<'_>) -> Qos {
        self.max_qos.min(publication.qos)
    }

    /// As [`Publication::share`], with the topic shared as well.
    pub fn share<'p>(&self, publication: &'p Publication<'_>) -> &'p Arc<Message> {
        publication.share_with(self.topic)
    }
}

/// The outcome of a delivery. A publisher hears nothing of it: what is refused is refused before anything is delivered
/// (ADR 0018).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// It is in the mailbox.
    Queued,
    /// It is encoded for the wire.
    Sent,
    /// It is in the mailbox, and so many older ones had to go.
    Displaced(u32),
    /// The same, and the owner has to know it at once, even if it waits for its socket.
    Overrun(u32),
    /// It took the place of an older value of the same topic, which nobody will see.
    Conflated,
    /// Thrown away: no room, and it may be lost.
    Full,
    /// Thrown away: it had expired.
    Expired,
    /// Thrown away: the subscriber takes nothing that large.
    TooLarge,
    /// Thrown away: nobody owns the mailbox any more.
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
            Self::Full => tally.dropped_full += 1,
            Self::Expired => tally.dropped_expired += 1,
            Self::TooLarge => tally.dropped_too_large += 1,
            Self::Gone => tally.dropped_gone += 1,
        }
    }
}

/// How well a subscriber keeps up: members of a shared subscription that take messages get them first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Readiness {
    /// It takes what comes.
    #[default]
    Ready = 0,
    /// It takes what comes, and much of it is not acknowledged or not written yet.
    Busy = 1,
    /// Deliveries are queued.
    Congested = 2,
}

impl Readiness {
    pub(crate) const fn from_u8(value: u8) -> Self {
        match value {
            0 => Self::Ready,
            1 => Self::Busy,
            _ => Self::Congested,
        }
    }
}

/// Where deliveries go. `deliver` runs on the publisher's worker, under the slot's lock: it appends or encodes and
/// returns; it never blocks, never calls the bus, and keeps within the subscriber's own bounds.
pub trait Mailbox: Send + 'static {
    /// Takes one delivery. What is to be kept is taken by [`Publication::share`].
    fn deliver(&mut self, publication: &Publication<'_>, delivery: &Delivery<'_>) -> Delivered;

    /// Bytes it holds, for the global watermark.
    fn buffered_bytes(&self) -> usize;

    /// Messages that were accepted by [`deliver`](Self::deliver), or put in otherwise, and neither handed to a
    /// connection nor dropped yet.
    fn waiting(&self) -> usize;

    /// Gives up everything it holds: nobody will fetch it. Nothing is delivered afterwards.
    fn close(&mut self);

    /// How well its owner keeps up; asked after each delivery and each drain.
    fn readiness(&self) -> Readiness {
        Readiness::Ready
    }
}
