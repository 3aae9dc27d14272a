//! Acknowledgements of PUBLISH, and what the store has to keep for them to be true.

use fogmux_bus::{Completion, Publication};
use fogmux_mqtt::{PacketId, Qos, ReasonCode};
use smallvec::SmallVec;

/// An acknowledgement to be sent.
#[derive(Clone, Debug)]
pub(super) struct Owed {
    pub(super) id: PacketId,
    pub(super) qos: Qos,
    pub(super) reason: ReasonCode,
    pub(super) text: Option<Box<str>>,
    /// The promise that it makes.
    pub(super) promise: Promise,
}

/// The part that the store has to keep for an acknowledgement to be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Promise {
    Nothing,
    /// That the message is retained, that sessions get it, or that it is not taken twice.
    Kept,
}

impl Promise {
    pub(super) fn of(publication: &Publication<'_>) -> Self {
        if publication.outcome().stored || publication.meaning.is_state() { Self::Kept } else { Self::Nothing }
    }
}

impl Owed {
    /// For a message that is kept if its completion succeeds.
    pub(super) const fn of_kept(id: PacketId, qos: Qos, promise: Promise) -> Self {
        Self { id, qos, reason: ReasonCode::SUCCESS, text: None, promise }
    }

    /// Whether it cannot be said any more once the store has failed. A message of which nothing is kept was delivered,
    /// and would be published twice by a client that is told otherwise.
    pub(super) const fn is_broken(&self) -> bool {
        matches!(self.promise, Promise::Kept) && !self.reason.is_error()
    }
}

/// The reason code of what the store does not keep (MQTT 5.0 §3.4.2.1, §3.5.2.1).
pub(super) const UNKEPT: ReasonCode = ReasonCode::QUOTA_EXCEEDED;

pub(super) type Owing = SmallVec<[Owed; 8]>;

/// Acknowledgements that wait until the store has what it promised to keep.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) completion: Completion,
    pub(super) owing: Owing,
}
