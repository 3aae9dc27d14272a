//! The peer of a connection.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};

use fogmux_auth::{Principal, SourceSet};
use fogmux_net::Channel;

use crate::listening::{Listening, Place};

/// The peer of a connection, and how it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// Whether TLS (or QUIC) protects the connection.
    pub secure: bool,
    /// Whether its listener admitted anonymous clients when it was opened; see `Peer::may_be_anonymous`.
    pub anonymous: bool,
    /// The address of a listener that it came to, if that is one of the configuration.
    pub listener: Option<Place>,
    /// The credentials that the listener takes.
    pub sources: SourceSet,
    /// The result of the handshake; `None` on a plain connection.
    pub channel: Option<Arc<Channel>>,
    /// The proxy that it came through, whose address the connection has; `None` if it came directly. Where the proxy
    /// did not say whose connection it is, this is `address`, too. In a box, for every idle connection has one of
    /// these.
    pub through: Option<Box<SocketAddr>>,
    /// The principal of a link to another broker, which connects from inside.
    pub(crate) link: Option<Principal>,
}

impl Peer {
    /// A peer on a plain connection.
    #[must_use]
    pub const fn plain(address: SocketAddr, anonymous: bool) -> Self {
        let sources = SourceSet::ALL;
        Self { address, secure: false, anonymous, listener: None, sources, channel: None, through: None, link: None }
    }

    /// A link to another broker, which has shown no credential: the configuration names it.
    pub(crate) fn link(principal: Principal) -> Self {
        let nowhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        Self { sources: SourceSet::NONE, link: Some(principal), ..Self::plain(nowhere, false) }
    }

    /// Whether its listener admits it without credentials now, which a reload can change. Who came through a proxy may
    /// be anywhere, whatever the address of the connection.
    pub(crate) fn may_be_anonymous(&self, listening: &Listening) -> bool {
        match self.listener {
            None => self.anonymous && self.through.is_none(),
            Some(place) if self.through.is_some() => listening.admits_remote(place),
            Some(place) => listening.admits(place),
        }
    }

    /// The same peer behind a proxy that says that it is at `address`, or does not say.
    #[must_use]
    pub fn behind(&self, address: Option<SocketAddr>) -> Self {
        let proxy = self.proxy().unwrap_or(self.address);
        Self { address: address.unwrap_or(proxy), through: Some(Box::new(proxy)), ..self.clone() }
    }

    /// The same peer behind a handshake.
    #[must_use]
    pub fn over(self, channel: Arc<Channel>) -> Self {
        Self { secure: true, channel: Some(channel), ..self }
    }

    /// The proxy that it came through.
    pub(crate) fn proxy(&self) -> Option<SocketAddr> {
        self.through.as_deref().copied()
    }

    /// Whether it is on this machine, and no proxy that others may use.
    #[must_use]
    pub const fn is_loopback(&self) -> bool {
        self.through.is_none() && self.address.ip().to_canonical().is_loopback()
    }

    /// Whether what it sends passes a network in the clear on its last way to us.
    #[must_use]
    pub fn is_exposed(&self) -> bool {
        !self.secure && !self.proxy().unwrap_or(self.address).ip().to_canonical().is_loopback()
    }
}
