//! The responder: it claims a host name and the names of services on each of its links, announces them, answers
//! questions and defends the names (RFC 6762 §5 to §10; RFC 6763 §4 to §9).
//!
//! A link is an interface with one family of addresses (RFC 6762 §20). The names are the same on all links, so that a
//! conflict on one renames on all. All that it keeps is its own records, and a bounded table of hosts.

mod answer;
mod hear;
mod hosts;
mod link;
mod names;
mod packet;
mod records;

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use fogmux_time::Timestamp;

use self::{
    hosts::Hosts,
    link::{Link, State},
    names::Names,
};
use crate::random::Random;

/// The port of multicast DNS.
pub const PORT: u16 = 5353;

/// The longest message that is read (RFC 6762 §17).
pub const MESSAGE_BYTES_MAX: usize = 9000;

/// Conflicts after which a responder slows down, and how much (RFC 6762 §8.1).
const CONFLICTS_MAX: u32 = 15;
const CONFLICTS_PERIOD: Duration = Duration::from_secs(10);
const CONFLICTS_PAUSE: Duration = Duration::from_secs(5);

/// The wait before the first probe after the start (RFC 6762 §8.1), in milliseconds.
const FIRST_PROBE_MS: (u64, u64) = (0, 250);
/// The same for names that were announced before: with the probes, a record is then not sent twice in a second.
const PROBE_AGAIN_MS: (u64, u64) = (250, 500);

/// A link: an interface by its number, with one family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId {
    /// The number of the interface.
    pub interface: u32,
    /// Whether it is its IPv4; its IPv6 otherwise.
    pub is_ipv4: bool,
}

/// The services and addresses that are told on a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// The addresses of the host there, of both families.
    pub addresses: Vec<IpAddr>,
    /// The services; with none, nothing is told.
    pub services: Vec<Service>,
}

/// A service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its type: the name and the transport, such as `_mqtt` and `_tcp`.
    pub kind: [&'static str; 2],
    /// A part of its name that tells it from another service of this type.
    pub qualifier: Option<String>,
    /// The port.
    pub port: u16,
    /// Strings of the form `key=value` (RFC 6763 §6.3).
    pub txt: Vec<String>,
}

/// The outcome of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was a query, which is answered now or later.
    Answered,
    /// It was a query with nothing in it to answer, or a response.
    Heard,
    /// It is no message of multicast DNS.
    Ignored,
    /// It is a query for a unicast answer, beyond the bound of its host.
    Limited,
}

/// A datagram to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The link.
    pub link: LinkId,
    /// A host that gets a unicast answer; `None` for all of the link.
    pub to: Option<SocketAddr>,
    /// The message.
    pub bytes: Vec<u8>,
}

/// The responder of all links.
#[derive(Debug)]
pub struct Responder {
    names: Names,
    links: Vec<Link>,
    hosts: Hosts,
    random: Random,
    /// Since when conflicts are counted, and how many there were.
    conflicts: (Timestamp, u32),
    out: VecDeque<Transmit>,
}

impl Responder {
    /// Creates a responder without links, with the name of service instances and a host name of one label. Both are
    /// cut to the length of a label. The seed spreads answers and probes.
    #[must_use]
    pub fn new(instance: &str, host: &str, seed: u64) -> Self {
        Self {
            names: Names::new(instance, host),
            links: Vec::new(),
            hosts: Hosts::default(),
            random: Random::new(seed),
            conflicts: (Timestamp::ZERO, 0),
            out: VecDeque::new(),
        }
    }

    /// Returns the name of service instances, which changes with a conflict.
    #[must_use]
    pub fn instance(&self) -> String {
        self.names.instance(None)
    }

    /// Returns the host name without `.local`, which changes with a conflict.
    #[must_use]
    pub fn host(&self) -> String {
        self.names.host()
    }

    /// Sets what is told on a link. What was told before and is no longer true is taken back, and the names are probed
    /// for again if anything is different.
    pub fn set_link(&mut self, now: Timestamp, id: LinkId, offer: Offer) {
        let known = self.links.iter_mut().find(|link| link.id == id);
        if offer.services.is_empty() || offer.addresses.is_empty() {
            if let Some(link) = known {
                self.out.extend(link.goodbyes(&[]));
                self.links.retain(|link| link.id != id);
            }
            return;
        }
        if let Some(link) = known {
            if link.offer == offer {
                return;
            }
            let records = records::of(&self.names, &offer);
            self.out.extend(link.goodbyes(&records));
            let (from, to) = PROBE_AGAIN_MS;
            link.replace(offer, records, now + self.random.millis(from, to));
        } else {
            let records = records::of(&self.names, &offer);
            let (from, to) = FIRST_PROBE_MS;
            self.links.push(Link::new(id, offer, records, now + self.random.millis(from, to)));
        }
    }

    /// Forgets a link that has gone.
    pub fn drop_link(&mut self, id: LinkId) {
        self.links.retain(|link| link.id != id);
        self.out.retain(|transmit| transmit.link != id);
    }

    /// Takes everything back (RFC 6762 §10.1); nothing is told any more.
    pub fn shut_down(&mut self) {
        for link in std::mem::take(&mut self.links) {
            self.out.extend(link.goodbyes(&[]));
        }
    }

    /// Returns when [`Responder::poll_transmit`] has something to do.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Timestamp> {
        let waiting = self.out.front().map(|_| Timestamp::ZERO);
        waiting.into_iter().chain(self.links.iter().filter_map(Link::next_timeout)).min()
    }

    /// Returns a datagram to send now.
    pub fn poll_transmit(&mut self, now: Timestamp) -> Option<Transmit> {
        if self.out.is_empty() {
            for link in &mut self.links {
                link.advance(now, &mut self.out);
            }
        }
        self.out.pop_front()
    }

    /// Whether every name is announced on every link.
    #[must_use]
    pub fn is_established(&self) -> bool {
        self.links.iter().all(|link| matches!(link.state, State::Established))
    }

    /// Chooses other names, or not, and probes for them on all links, after a conflict on one (RFC 6762 §9).
    fn probe_again(&mut self, now: Timestamp, rename: Renamed, by: LinkId) {
        let (since, count) = self.conflicts;
        self.conflicts = if now.since(since) > CONFLICTS_PERIOD { (now, 1) } else { (since, count.saturating_add(1)) };
        let pause = if self.conflicts.1 >= CONFLICTS_MAX { CONFLICTS_PAUSE } else { Duration::ZERO };
        self.names.next(rename);
        let (from, to) = PROBE_AGAIN_MS;
        for link in &mut self.links {
            let records = records::of(&self.names, &link.offer);
            // On the interface of the conflict the former names are another host's by now.
            if link.id.interface != by.interface {
                self.out.extend(link.goodbyes(&records));
            }
            link.probe(records, now + pause + self.random.millis(from, to));
        }
    }
}

/// Which names another host has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Renamed {
    instance: bool,
    host: bool,
}

#[cfg(test)]
mod tests;
