//! The peer of an exchange, abstracted to the properties of an address that the state machines need.

use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};

/// An endpoint (RFC 7252 §4.1), identified by address, port and security association.
pub trait Peer: Copy + Eq + Hash {
    /// The address without port, for limits per host.
    fn host(&self) -> IpAddr;

    /// The bytes that an Echo value is bound to (RFC 9175 appendix A).
    fn identity(&self) -> [u8; 18];

    /// Whether it is certain that this source address is not forged: a handshake came before, or the address cannot be
    /// reached from outside.
    fn is_verified(&self) -> bool;

    /// The number of its security association or connection; 0 is none.
    fn association(&self) -> u64 {
        0
    }

    /// Whether there is no network in between that notifications could congest.
    fn is_local(&self) -> bool;
}

impl Peer for SocketAddr {
    fn host(&self) -> IpAddr {
        self.ip().to_canonical()
    }

    fn identity(&self) -> [u8; 18] {
        let address = match self.ip() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let mut identity = [0; 18];
        let bytes = address.octets().into_iter().chain(self.port().to_be_bytes());
        identity.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        identity
    }

    fn is_verified(&self) -> bool {
        self.is_local()
    }

    fn is_local(&self) -> bool {
        self.ip().to_canonical().is_loopback()
    }
}
