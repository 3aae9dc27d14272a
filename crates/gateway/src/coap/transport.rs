//! The transport below the door: a plain UDP socket, or one with DTLS.

use std::{
    hash::{Hash, Hasher},
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    task::{Context, Poll},
};

use fogmux_auth::{SourceKind, SourceSet};
use fogmux_coap::{Outbox, Peer};
use fogmux_dtls::End;
use fogmux_net::channel::Channel;

use super::CoapDoor;
use crate::{Shared, listening::Place};

/// The remote address, the local address it spoke to, and the association: an endpoint as in RFC 7252 §4.1 and §9.1.
/// State of one association is never found under another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) remote: SocketAddr,
    pub(crate) local: Option<IpAddr>,
    /// 0 where there is none; a number is not used again for another.
    pub(crate) association: u64,
}

impl Hash for Path {
    /// Two words for IPv4, three for IPv6. The address of ours is left out: few peers speak to two, and those differ by
    /// equality.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let port = u64::from(self.remote.port()) ^ (self.association << 16);
        match self.remote.ip() {
            IpAddr::V4(address) => state.write_u64(address.to_bits().into()),
            IpAddr::V6(address) => state.write_u128(address.to_bits()),
        }
        state.write_u64(port);
    }
}

impl Peer for Path {
    fn host(&self) -> IpAddr {
        self.remote.host()
    }

    fn identity(&self) -> [u8; 18] {
        self.remote.identity()
    }

    fn is_verified(&self) -> bool {
        // The address that made a handshake can receive there.
        self.association != 0 || self.remote.is_verified()
    }

    fn association(&self) -> u64 {
        self.association
    }

    fn is_local(&self) -> bool {
        self.remote.is_local()
    }
}

/// A change of an association.
pub(crate) enum Change {
    /// A handshake is finished.
    Opened(Path, Arc<Channel>),
    /// The most bytes that a message to it may have (RFC 8449).
    Limited(Path, usize),
    /// The peer has another address, and the path goes on under its name.
    Moved {
        path: Path,
        /// Whether it is known to receive there.
        validated: bool,
    },
    /// A message was not sent, because too little has come from its new address.
    Withheld(Path),
    /// It has ended, with all its state.
    Closed(Path, End),
}

/// The policy of a listener.
#[derive(Clone, Copy, Debug)]
pub struct Listener {
    /// Its address, if it is one of the configuration.
    pub by: Option<Place>,
    /// Whether it admitted anonymous clients when it was opened.
    pub anonymous: bool,
    /// The credentials that it takes.
    pub sources: SourceSet,
}

impl Listener {
    /// Whether it admits a DTLS session without a certificate or a key: where anonymous clients are admitted, and where
    /// clients may be known by a security context inside.
    pub(super) fn admits_anonymous(&self, shared: &Shared, door: &CoapDoor) -> bool {
        let open = self.by.map_or(self.anonymous, |by| shared.listening.admits(by));
        let by_context = self.sources.contains(SourceKind::Oscore) && !door.oscore.is_empty();
        by_context || open && shared.authority.anonymous(open).is_some()
    }
}

/// Datagrams in and out.
pub(crate) trait Transport {
    /// Reads what there is, up to a batch; [`Transport::datagrams`] has it, and there may be none.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// The messages of the last batch.
    fn datagrams(&self) -> impl Iterator<Item = (Path, &[u8])>;

    /// The changes of associations, oldest first; asked before each batch is handled.
    fn poll_change(&mut self) -> Option<Change> {
        None
    }

    /// Writes the outbox and empties it; returns how many bytes. What the socket does not take stays for the next call.
    fn poll_send(&mut self, cx: &mut Context<'_>, out: &mut Outbox<Path>) -> Poll<u64>;

    /// Notes that a peer receives at the address that it has moved to.
    fn validate(&mut self, _path: Path) {}

    /// Looks at associations after the rules have changed, and ends those that may not go on. Returns whether more are
    /// left, or something has ended.
    fn review(&mut self, _may_go_on: &mut dyn FnMut(u64) -> bool) -> bool {
        false
    }

    /// Ends all associations, as far as that can be said at once.
    fn goodbye(&mut self, _cx: &mut Context<'_>) {}
}
