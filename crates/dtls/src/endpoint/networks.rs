//! How much of an endpoint is taken from where. One IPv6 host has a whole /64 to come from, and counts as one.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
};

/// Places of an endpoint that one network has taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) handshakes: usize,
    pub(super) sessions: usize,
    /// Those of them without a credential.
    pub(super) anonymous: usize,
}

/// Only networks of which there is something are in here.
#[derive(Debug, Default)]
pub(crate) struct Networks(HashMap<IpAddr, Taken, foldhash::fast::RandomState>);

impl Networks {
    pub(super) fn of(&self, address: IpAddr) -> Taken {
        self.0.get(&network(address)).copied().unwrap_or_default()
    }

    pub(super) fn change(&mut self, address: IpAddr, change: impl FnOnce(&mut Taken)) {
        let address = network(address);
        let taken = self.0.entry(address).or_default();
        change(taken);
        if *taken == Taken::default() {
            self.0.remove(&address);
        }
    }

    /// Handshakes of the network that has most.
    pub(super) fn handshakes_at_most(&self) -> usize {
        self.0.values().map(|taken| taken.handshakes).max().unwrap_or_default()
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The unit that is counted as one address: an IPv4 address, also when mapped, or the /64 of an IPv6 address.
pub(super) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        v4 @ IpAddr::V4(_) => v4,
        IpAddr::V6(v6) if v6.is_loopback() => v6.into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64)).into(),
    }
}
