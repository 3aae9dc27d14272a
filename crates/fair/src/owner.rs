//! Owners, and the tree in which their shares are compared.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

/// The owner of an entry.
///
/// Each principal has a share, and all clients without a name have one together: whoever needs no name could otherwise
/// come as many. Within that share networks (IPv4 /24, IPv6 /48) have equal shares, and within a network its hosts
/// (IPv4 address, IPv6 /64), as in the queue of logins.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(pub(crate) Node);

/// A node of the tree. Owners are its leaves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Node {
    /// All owners.
    All,
    /// All clients without a name.
    Nameless,
    /// Those of a network.
    Network(IpAddr),
    /// Those of a host.
    Host(IpAddr),
    /// A principal.
    Principal(Arc<str>),
}

impl Owner {
    /// A principal with a name.
    #[must_use]
    pub const fn principal(name: Arc<str>) -> Self {
        Self(Node::Principal(name))
    }

    /// Whether it is a principal with a name.
    #[must_use]
    pub const fn is_principal(&self) -> bool {
        matches!(self.0, Node::Principal(_))
    }

    /// A client without a name, or one that has not logged in yet.
    #[must_use]
    pub fn nameless(address: IpAddr) -> Self {
        Self(Node::Host(match address.to_canonical() {
            IpAddr::V6(v6) => cut(v6, 64),
            v4 @ IpAddr::V4(_) => v4,
        }))
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Node::Principal(name) => f.write_str(name),
            Node::Network(address) | Node::Host(address) => address.fmt(f),
            Node::All | Node::Nameless => f.write_str("all"),
        }
    }
}

impl Node {
    /// The node whose share this one has a part of.
    pub(crate) fn parent(&self) -> Option<Self> {
        match self {
            Self::All => None,
            Self::Principal(_) | Self::Nameless => Some(Self::All),
            Self::Network(_) => Some(Self::Nameless),
            Self::Host(IpAddr::V4(v4)) => {
                let [a, b, c, _] = v4.octets();
                Some(Self::Network([a, b, c, 0].into()))
            }
            Self::Host(IpAddr::V6(v6)) => Some(Self::Network(cut(*v6, 48))),
        }
    }
}

fn cut(address: Ipv6Addr, bits: u32) -> IpAddr {
    Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << (128 - bits))).into()
}
