//! A peer in the table: its session, and a handshake that may become its next.

use std::time::Duration;

use super::{
    Peer,
    link::{Link, Shake},
    moves::Moved,
};
use crate::{Association, Watch};

/// One peer: its session, and a handshake that may become its next.
pub(crate) struct Entry<P> {
    pub(crate) peer: P,
    pub(super) session: Option<Box<Live<P>>>,
    pub(super) handshake: Option<Box<Begun>>,
    pub(super) alarm: Option<Duration>,
}

impl<P: Peer> Entry<P> {
    /// Sends what the session itself has to say, unless more has gone than may go to a new address: then it is as good
    /// as lost, and what needs an answer is said again. A handshake has proved its address, and says all it has to.
    pub(super) fn say(&mut self, datagram: &[u8], send: &mut dyn FnMut(P, &[u8])) {
        if self.session.as_mut().is_none_or(|live| live.may_send(datagram.len())) {
            send(self.peer, datagram);
        }
    }
}

pub(super) struct Live<P> {
    pub(super) association: Association,
    pub(super) session: Link,
    /// Where it was made, and what may be sent to where it is now; nothing while these are the same.
    pub(super) moved: Option<Box<Moved<P>>>,
    /// Boxed, so that a session without a certificate keeps no more than a pointer.
    pub(super) watch: Option<Box<Watch>>,
    pub(super) active: Duration,
    pub(super) resting: bool,
    /// Whether the peer has shown no credential.
    pub(super) anonymous: bool,
}

impl<P: Peer> Live<P> {
    /// The peer as those above know it: where it was when the session was made.
    pub(super) fn known_as(&self, peer: P) -> P {
        self.moved.as_ref().map_or(peer, |moved| moved.from)
    }

    /// Whether so many bytes may go to where it is, and takes them off what may.
    pub(super) fn may_send(&mut self, bytes: usize) -> bool {
        self.moved.as_mut().is_none_or(|moved| moved.may_send(bytes))
    }

    /// Where it counts: where it is, or was made as long as nobody has proved to receive where it is.
    pub(super) fn home(&self, peer: P) -> P {
        self.moved.as_ref().filter(|moved| !moved.is_validated()).map_or(peer, |moved| moved.from)
    }

    pub(super) fn is_revoked(&self) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.is_revoked())
    }

    /// A record of it has opened. `false`: what let it in was taken back meanwhile.
    pub(super) fn wake(&mut self, now: Duration) -> bool {
        if self.is_revoked() {
            return false;
        }
        self.active = now;
        self.resting = false;
        true
    }
}

pub(super) struct Begun {
    pub(super) serial: u64,
    pub(super) handshake: Shake,
}
