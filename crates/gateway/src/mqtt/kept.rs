//! Messages that a mailbox keeps for a client.

use std::sync::Arc;

use fogmux_bus::{
    Message, Qos, Timestamp,
    durable::{Manner, StoredDelivery, StoredMessage},
};
use smallvec::SmallVec;

/// A message with the options of its delivery to this client.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) body: Body,
    pub(super) qos: Qos,
    pub(super) retain: bool,
    /// Whether its delivery is timed, if its message is: not one that was retained before, or that waited for the
    /// client to come back.
    pub(super) timed: bool,
    pub(super) ids: SmallVec<[u32; 2]>,
    /// The tag of the shared subscription that it came by; 0 for any other.
    pub(super) share: u32,
    /// Its record, if the session has those. In a box, because most have none.
    pub(super) stored: Option<Box<StoredDelivery>>,
}

/// The message itself.
#[derive(Clone, Debug)]
pub(super) enum Body {
    /// In memory.
    Here(Arc<Message>),
    /// In the store only, until it is to be sent (ADR 0073).
    Away(Away),
}

/// The facts about a message that is in the store only.
#[derive(Clone, Copy, Debug)]
pub(super) struct Away {
    /// When it expires; [`Timestamp::NEVER`]: never.
    expires: Timestamp,
    /// Its memory in bytes once it is here. No packet is larger.
    bytes: u32,
}

impl Body {
    /// One that is to be read from the store.
    pub(super) fn away(bytes: usize, expires: Option<Timestamp>) -> Self {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        Self::Away(Away { expires: expires.unwrap_or(Timestamp::NEVER), bytes })
    }
}

impl Kept {
    /// The message, if it is in memory.
    pub(super) const fn message(&self) -> Option<&Arc<Message>> {
        match &self.body {
            Body::Here(message) => Some(message),
            Body::Away(_) => None,
        }
    }

    /// Whether it is in the store only.
    pub(super) const fn is_away(&self) -> bool {
        matches!(self.body, Body::Away(_))
    }

    /// Bytes of memory that it takes up without its message, with a record.
    pub(super) const FRAME: usize = size_of::<Self>() + size_of::<StoredDelivery>();

    /// Bytes of memory that it takes up.
    pub(super) fn cost(&self) -> usize {
        let stored = self.stored.as_ref().map_or(0, |_| size_of::<StoredDelivery>());
        size_of::<Self>() + stored + self.message().map_or(0, |message| message.size())
    }

    /// Bytes of its message that are not in memory.
    pub(super) const fn away_bytes(&self) -> usize {
        match self.body {
            Body::Here(_) => 0,
            Body::Away(away) => away.bytes as usize,
        }
    }

    /// Whether it has expired at `now`.
    pub(super) fn is_expired(&self, now: Timestamp) -> bool {
        match &self.body {
            Body::Here(message) => message.is_expired(now),
            Body::Away(away) => away.expires <= now,
        }
    }

    /// Has the message leave memory: it is in the store, or in the batch that puts it there. One without a record
    /// stays, and one of a shared subscription: it may have to go to another member at any moment.
    pub(super) fn go_away(&mut self) {
        if let Body::Here(message) = &self.body
            && self.share == 0
            && self.stored.is_some()
        {
            self.body = Body::away(message.size(), message.expires_at);
            self.timed = false;
        }
    }

    /// Takes the message that was read back.
    pub(super) fn come_back(&mut self, message: &StoredMessage, now: Timestamp) {
        if let Body::Away(away) = self.body {
            let expires = (away.expires != Timestamp::NEVER).then_some(away.expires);
            self.body = Body::Here(Arc::new(message.clone().read_back(now, expires)));
        }
    }

    /// The same, with a record or without.
    pub(super) fn with(&self, stored: Option<Box<StoredDelivery>>) -> Self {
        let Self { ref body, qos, retain, timed, ref ids, share, stored: _ } = *self;
        Self { body: body.clone(), qos, retain, timed, ids: ids.clone(), share, stored }
    }

    /// The options of the delivery as they are stored.
    pub(super) fn manner(&self) -> Manner {
        Manner { qos: self.qos, retain: self.retain, share: self.share, ids: self.ids.clone() }
    }
}
