//! The queue of one class: networks take turns, and in each network its sources.

use std::{
    collections::VecDeque,
    net::{IpAddr, Ipv6Addr},
};

/// The source of a login: an IPv4 address, or an IPv6 /64, which one host may have to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Source(IpAddr);

/// The network of a source: an IPv4 /24, or an IPv6 /48, which one site may have to itself (RFC 6177 §2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Network(IpAddr);

impl Source {
    pub(super) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(v6) => Self(cut(v6, 64)),
            v4 @ IpAddr::V4(_) => Self(v4),
        }
    }

    pub(super) fn network(self) -> Network {
        match self.0 {
            IpAddr::V6(v6) => Network(cut(v6, 48)),
            IpAddr::V4(v4) => {
                let [a, b, c, _] = v4.octets();
                Network([a, b, c, 0].into())
            }
        }
    }
}

fn cut(address: Ipv6Addr, bits: u32) -> IpAddr {
    Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << (128 - bits))).into()
}

/// Waiting logins by network and source. Only networks with waiting logins are in it.
#[derive(Debug)]
pub(super) struct Ring<T> {
    networks: VecDeque<(Network, Sources<T>)>,
    len: usize,
}

#[derive(Debug)]
struct Sources<T> {
    sources: VecDeque<(Source, VecDeque<T>)>,
    len: usize,
}

impl<T> Default for Ring<T> {
    fn default() -> Self {
        Self { networks: VecDeque::new(), len: 0 }
    }
}

impl<T> Default for Sources<T> {
    fn default() -> Self {
        Self { sources: VecDeque::new(), len: 0 }
    }
}

impl<T> Ring<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn of_network(&self, source: Source) -> usize {
        self.network(source.network()).map_or(0, |sources| sources.len)
    }

    pub(super) fn of_source(&self, source: Source) -> usize {
        let sources = self.network(source.network());
        sources.and_then(|sources| sources.get(source)).map_or(0, VecDeque::len)
    }

    /// Adds a login. A new source takes its turn after all others.
    pub(super) fn push(&mut self, source: Source, login: T) {
        let network = source.network();
        self.len += 1;
        match self.networks.iter_mut().find(|(known, _)| *known == network) {
            Some((_, sources)) => sources.push(source, login),
            None => {
                let mut sources = Sources::default();
                sources.push(source, login);
                self.networks.push_back((network, sources));
            }
        }
    }

    pub(super) fn pop(&mut self) -> Option<T> {
        let (network, mut sources) = self.networks.pop_front()?;
        let login = sources.pop();
        if sources.len > 0 {
            self.networks.push_back((network, sources));
        }
        self.len -= usize::from(login.is_some());
        login
    }

    /// Takes the newest login of the longest queue in the largest network, if that network is larger than `network`
    /// will be with one more login; otherwise in `network` itself, if that queue is longer than `wanted`.
    pub(super) fn pop_longest(&mut self, network: Network, wanted: usize) -> Option<T> {
        let (longest, most) =
            self.networks.iter().map(|(network, sources)| (*network, sources.len)).max_by_key(|(_, len)| *len)?;
        let own = self.network(network).map_or(0, |sources| sources.len);
        match own + 1 < most {
            true => self.pop_longest_in(longest, 0),
            false => self.pop_longest_in(network, wanted),
        }
    }

    /// Takes the newest login of the longest queue of a network, if that is longer than `wanted`.
    pub(super) fn pop_longest_in(&mut self, network: Network, wanted: usize) -> Option<T> {
        let at = self.networks.iter().position(|(known, _)| *known == network)?;
        let (_, sources) = self.networks.get_mut(at)?;
        let login = sources.pop_longest(wanted)?;
        self.len -= 1;
        if sources.len == 0 {
            self.networks.remove(at);
        }
        Some(login)
    }

    pub(super) fn retain(&mut self, wanted: &mut impl FnMut(&T) -> bool) {
        for (_, sources) in &mut self.networks {
            for (_, logins) in &mut sources.sources {
                logins.retain(&mut *wanted);
            }
            sources.sources.retain(|(_, logins)| !logins.is_empty());
            sources.len = sources.sources.iter().map(|(_, logins)| logins.len()).sum();
        }
        self.networks.retain(|(_, sources)| sources.len > 0);
        self.len = self.networks.iter().map(|(_, sources)| sources.len).sum();
    }

    fn network(&self, network: Network) -> Option<&Sources<T>> {
        self.networks.iter().find(|(known, _)| *known == network).map(|(_, sources)| sources)
    }
}

impl<T> Sources<T> {
    fn get(&self, source: Source) -> Option<&VecDeque<T>> {
        self.sources.iter().find(|(known, _)| *known == source).map(|(_, logins)| logins)
    }

    fn push(&mut self, source: Source, login: T) {
        self.len += 1;
        match self.sources.iter_mut().find(|(known, _)| *known == source) {
            Some((_, logins)) => logins.push_back(login),
            None => self.sources.push_back((source, VecDeque::from([login]))),
        }
    }

    fn pop(&mut self) -> Option<T> {
        let (source, mut logins) = self.sources.pop_front()?;
        let login = logins.pop_front();
        if !logins.is_empty() {
            self.sources.push_back((source, logins));
        }
        self.len -= usize::from(login.is_some());
        login
    }

    fn pop_longest(&mut self, wanted: usize) -> Option<T> {
        let longest = self.sources.iter().enumerate().max_by_key(|(_, (_, logins))| logins.len());
        let at = longest.filter(|(_, (_, logins))| logins.len() > wanted).map(|(at, _)| at)?;
        let (_, logins) = self.sources.get_mut(at)?;
        let login = logins.pop_back()?;
        self.len -= 1;
        if logins.is_empty() {
            self.sources.remove(at);
        }
        Some(login)
    }
}
