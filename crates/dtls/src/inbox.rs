//! The results of datagrams: one buffer that is filled in a turn, read, and used again.

use std::ops::Range;

use super::{Alert, Channel, Refused};

/// A session of a peer. A new handshake makes a new one, at the same address too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Association(pub(super) u64);

impl Association {
    /// The one with this number.
    #[must_use]
    pub const fn numbered(number: u64) -> Self {
        Self(number)
    }

    /// As a number that no other session of this endpoint has or has had; never 0.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// How a session has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The peer has said goodbye.
    Closed,
    /// The peer has reported a fault.
    Fault(Alert),
    /// The peer has made a new session, which is there already.
    Replaced,
    /// Nothing was heard or said for too long.
    Idle,
    /// The peer's certificate was revoked, or its key removed.
    Revoked,
    /// There was no more room.
    Evicted,
    /// The keys or the numbers of the session are used up; the peer may make another.
    Spent,
    /// We ended it.
    Ours,
}

/// Something that happened, in its order.
#[derive(Debug, PartialEq)]
pub enum Event<'a, P> {
    /// A session is there.
    Established {
        /// The peer.
        peer: P,
        /// The session.
        association: Association,
        /// The negotiated parameters and the identity of the peer.
        channel: &'a Channel,
    },
    /// Application data.
    Data {
        /// The peer.
        peer: P,
        /// The session.
        association: Association,
        /// The content of one record.
        data: &'a [u8],
    },
    /// A session has another address (RFC 9146 §6), and goes on under the name it was established with.
    Moved {
        /// The peer.
        peer: P,
        /// The session.
        association: Association,
        /// Whether the peer is known to receive there. If not, little is sent there before
        /// [`Endpoint::validate`](crate::Endpoint::validate).
        validated: bool,
    },
    /// A session is gone.
    Ended {
        /// The peer.
        peer: P,
        /// The session.
        association: Association,
        /// The reason.
        end: End,
    },
    /// A handshake has failed.
    Failed {
        /// The peer.
        peer: P,
        /// The alert that the peer was sent.
        alert: Alert,
        /// The credential for which it was refused; `None` if none was judged.
        refused: Option<&'a Refused>,
    },
}

#[derive(Debug)]
enum Kept<P> {
    Established(P, Association, Box<Channel>),
    Data(P, Association, Range<usize>),
    Moved(P, Association, bool),
    Ended(P, Association, End),
    Failed(P, Alert, Option<Box<Refused>>),
}

/// Events that the application has not looked at yet.
#[derive(Debug)]
pub struct Inbox<P> {
    pub(super) bytes: Vec<u8>,
    kept: Vec<Kept<P>>,
}

impl<P> Default for Inbox<P> {
    fn default() -> Self {
        Self { bytes: Vec::new(), kept: Vec::new() }
    }
}

impl<P: Copy> Inbox<P> {
    pub(super) fn established(&mut self, peer: P, association: Association, channel: Box<Channel>) {
        self.kept.push(Kept::Established(peer, association, channel));
    }

    /// The bytes from `start` on are data.
    pub(super) fn data(&mut self, peer: P, association: Association, start: usize) {
        self.kept.push(Kept::Data(peer, association, start..self.bytes.len()));
    }

    pub(super) fn moved(&mut self, peer: P, association: Association, validated: bool) {
        self.kept.push(Kept::Moved(peer, association, validated));
    }

    pub(super) fn ended(&mut self, peer: P, association: Association, end: End) {
        self.kept.push(Kept::Ended(peer, association, end));
    }

    pub(super) fn failed(&mut self, peer: P, alert: Alert, refused: Option<Refused>) {
        self.kept.push(Kept::Failed(peer, alert, refused.map(Box::new)));
    }

    /// All of it, oldest first.
    pub fn events(&self) -> impl Iterator<Item = Event<'_, P>> {
        self.kept.iter().map(|kept| match kept {
            Kept::Established(peer, association, channel) => {
                Event::Established { peer: *peer, association: *association, channel }
            }
            Kept::Data(peer, association, range) => {
                let data = self.bytes.get(range.clone()).unwrap_or_default();
                Event::Data { peer: *peer, association: *association, data }
            }
            Kept::Moved(peer, association, validated) => {
                Event::Moved { peer: *peer, association: *association, validated: *validated }
            }
            Kept::Ended(peer, association, end) => Event::Ended { peer: *peer, association: *association, end: *end },
            Kept::Failed(peer, alert, refused) => {
                Event::Failed { peer: *peer, alert: *alert, refused: refused.as_deref() }
            }
        })
    }

    /// Whether nothing has happened.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Forgets it all and keeps the room.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.kept.clear();
    }
}
