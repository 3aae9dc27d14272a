//! Limits on the number of connections, in all and from one address. Counted before a byte is read.

use std::{
    collections::HashMap,
    fmt,
    fs::File,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use crate::proxy::Proxies;

/// The part of all connections, one in so many, that is left to networks with few of them (ADR 0062).
const RESERVE: usize = 10;

/// The least time between two log lines about a limit.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// Limits on connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmissionLimits {
    /// Connections at once, over all listeners that share the [`Admission`]. When a tenth is left, a network (IPv4 /24,
    /// IPv6 /48) gets more only while it has no more than what is left.
    pub connections_max: usize,
    /// Connections at once from one address; an IPv6 host is its /64. Loopback has no such limit: proxies and the
    /// operator connect from there.
    pub per_address_max: usize,
}

impl Default for AdmissionLimits {
    /// 60 000 connections, 1 000 from one address.
    fn default() -> Self {
        Self { connections_max: 60_000, per_address_max: 1_000 }
    }
}

/// Counts connections. Cheap to clone; clones count together.
#[derive(Clone)]
pub struct Admission(Arc<Counts>);

struct Counts {
    connections_max: AtomicUsize,
    per_address_max: usize,
    connections: AtomicUsize,
    refused: AtomicUsize,
    open: Mutex<Open>,
    /// They bring connections of many addresses, each of which is counted when it is known.
    proxies: Proxies,
    said: Mutex<Option<Instant>>,
    /// A file descriptor to close when none is left, so that a connection can be accepted and closed.
    spare: Mutex<Option<File>>,
}

/// Connections by where they are from. Only addresses and networks that are connected are in here.
#[derive(Default)]
struct Open {
    by_address: HashMap<IpAddr, usize>,
    by_network: HashMap<IpAddr, usize>,
}

impl Open {
    fn of(map: &HashMap<IpAddr, usize>, address: IpAddr) -> usize {
        map.get(&address).copied().unwrap_or(0)
    }

    fn leave(map: &mut HashMap<IpAddr, usize>, address: IpAddr) {
        if let Some(count) = map.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                map.remove(&address);
            }
        }
    }
}

/// A place among the connections, given back on drop.
pub struct Admitted {
    counts: Arc<Counts>,
    address: Option<IpAddr>,
}

impl Admission {
    /// Creates it without connections.
    #[must_use]
    pub fn new(limits: AdmissionLimits) -> Self {
        Self::behind(limits, Proxies::default())
    }

    /// Creates it for a gateway behind proxies.
    #[must_use]
    pub fn behind(limits: AdmissionLimits, proxies: Proxies) -> Self {
        Self(Arc::new(Counts {
            connections_max: AtomicUsize::new(limits.connections_max),
            per_address_max: limits.per_address_max,
            connections: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            open: Mutex::default(),
            proxies,
            said: Mutex::default(),
            spare: Mutex::new(spare()),
        }))
    }

    /// Changes the limit on connections at once. Open connections stay.
    pub fn limit(&self, connections_max: usize) {
        self.0.connections_max.store(connections_max, Ordering::Relaxed);
    }

    /// A place for a connection from `peer`, unless a limit is reached.
    #[must_use]
    pub fn admit(&self, peer: IpAddr) -> Option<Admitted> {
        let counts = &self.0;
        let max = counts.connections_max.load(Ordering::Relaxed);
        let below = |count| (count < max).then_some(count + 1);
        if counts.connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, below).is_err() {
            self.refuse("limits.connections_max, or what the limit of open files leaves room for", max);
            return None;
        }
        let mut admitted = Admitted { counts: Arc::clone(counts), address: None };
        let through_proxy = !counts.proxies.is_empty() && counts.proxies.contains(peer);
        (through_proxy || self.count(peer, &mut admitted)).then_some(admitted)
    }

    /// The proxies that the operator named.
    #[must_use]
    pub fn proxies(&self) -> &Proxies {
        &self.0.proxies
    }

    /// Counts a connection that a proxy brought for the address that it named. Returns whether there is a place for it.
    pub fn count(&self, peer: IpAddr, admitted: &mut Admitted) -> bool {
        let counts = &self.0;
        let address = network(peer);
        if address.is_loopback() {
            return true;
        }
        let mut open = counts.open.lock().unwrap_or_else(PoisonError::into_inner);
        if Open::of(&open.by_address, address) >= counts.per_address_max {
            drop(open);
            self.refuse("limits.per_address_max", counts.per_address_max);
            return false;
        }
        let max = counts.connections_max.load(Ordering::Relaxed);
        // This one is among them.
        let left = (max + 1).saturating_sub(counts.connections.load(Ordering::Relaxed));
        if left <= max / RESERVE && Open::of(&open.by_network, wide(address)) >= left {
            drop(open);
            self.refuse("limits.connections_max, of which the rest is for networks with fewer", max);
            return false;
        }
        *open.by_address.entry(address).or_default() += 1;
        *open.by_network.entry(wide(address)).or_default() += 1;
        admitted.address = Some(address);
        true
    }

    /// Counts a refused connection and logs it, but not more often than [`SAID_EVERY`].
    pub(crate) fn refuse(&self, limit: &str, max: usize) {
        let refused = self.0.refused.fetch_add(1, Ordering::Relaxed) + 1;
        let mut said = self.0.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_none_or(|said| said.elapsed() >= SAID_EVERY) {
            *said = Some(Instant::now());
            drop(said);
            tracing::warn!(limit, max, refused, "a limit is reached: connections are turned away");
        }
    }

    /// Runs `work` with the spare descriptor free. `None` if that is in use as well.
    pub(crate) fn with_spare_descriptor<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let mut kept = self.0.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let given_up = kept.take().is_some();
        let done = given_up.then(work);
        *kept = spare();
        done
    }

    /// Connections at this moment.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.0.connections.load(Ordering::Relaxed)
    }

    /// Connections refused so far.
    #[must_use]
    pub fn refused(&self) -> usize {
        self.0.refused.load(Ordering::Relaxed)
    }
}

fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.counts.connections.fetch_sub(1, Ordering::Relaxed);
        let Some(address) = self.address else { return };
        let mut open = self.counts.open.lock().unwrap_or_else(PoisonError::into_inner);
        Open::leave(&mut open.by_address, address);
        Open::leave(&mut open.by_network, wide(address));
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission").field("connections", &self.connections()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Admitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admitted").finish_non_exhaustive()
    }
}

/// The unit that is counted as one address: an IPv4 address, also when mapped, or the /64 of an IPv6 address.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        v4 @ IpAddr::V4(_) => v4,
        IpAddr::V6(v6) if v6.is_loopback() => v6.into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64)).into(),
    }
}

/// The network of such a unit: a /24 or a /48.
fn wide(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() & !0xff).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 80)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_hold_and_places_come_back() {
        let admission = Admission::new(AdmissionLimits { connections_max: 4, per_address_max: 2 });
        let from = |text: &str| admission.admit(text.parse().unwrap());
        let mut held = vec![from("192.0.2.1").unwrap(), from("::ffff:192.0.2.1").unwrap()];
        assert!(from("192.0.2.1").is_none(), "two from one address");
        held.push(from("2001:db8::1").unwrap());
        held.push(from("2001:db8::2").unwrap());
        assert!(from("127.0.0.1").is_none(), "four in all");
        held.clear();
        assert_eq!(admission.connections(), 0);
        assert!(is_empty(&admission));
        held.push(from("2001:db8::1").unwrap());
        held.push(from("2001:db8::2").unwrap());
        assert!(from("2001:db8::3").is_none(), "one host has a whole /64");
        held.clear();
        for _ in 0..4 {
            held.push(from("::1").unwrap());
        }
        assert_eq!(admission.refused(), 3);
    }

    #[test]
    fn a_limit_of_nothing_keeps_no_entries() {
        let admission = Admission::new(AdmissionLimits { connections_max: 4, per_address_max: 0 });
        assert!(admission.admit([192, 0, 2, 1].into()).is_none());
        assert!(is_empty(&admission));
        assert_eq!(admission.connections(), 0);
    }

    fn is_empty(admission: &Admission) -> bool {
        let open = admission.0.open.lock().unwrap();
        open.by_address.is_empty() && open.by_network.is_empty()
    }

    #[test]
    fn the_last_tenth_is_for_networks_with_few_connections() {
        let admission = Admission::new(AdmissionLimits { connections_max: 200, per_address_max: 50 });
        let from = |text: String| admission.admit(text.parse().unwrap());
        // Sixty-four hosts of one /48, and as many of another network as it has hosts.
        let mut flood: Vec<Admitted> = (0..1000).filter_map(|n| from(format!("2001:db8:1:{:x}::1", n % 64))).collect();
        assert_eq!(flood.len(), 180);
        flood.extend((0..1000).filter_map(|n| from(format!("192.0.2.{}", n % 250))));
        assert_eq!(flood.len(), 190, "half of what was left");
        let others: Vec<Admitted> = (1..=5).filter_map(|n| from(format!("198.51.{n}.7"))).collect();
        let local = from("127.0.0.1".to_owned());
        assert!(others.len() == 5 && local.is_some());
        assert!(from("2001:db8:1::1".to_owned()).is_none() && from("192.0.2.7".to_owned()).is_none());
        flood.truncate(100);
        assert!(from("2001:db8:1::1".to_owned()).is_some(), "while there is room nobody is limited");
        drop((flood, others, local));
        assert!(is_empty(&admission));
    }

    #[test]
    fn what_a_proxy_brings_counts_for_the_network_that_it_names() {
        let proxies = Proxies::parse(["192.0.2.1"]).unwrap();
        let admission = Admission::behind(AdmissionLimits { connections_max: 100, per_address_max: 100 }, proxies);
        let through = |client: &str| {
            let mut admitted = admission.admit([192, 0, 2, 1].into())?;
            admission.count(client.parse().unwrap(), &mut admitted).then_some(admitted)
        };
        let flood: Vec<Admitted> = (0..200).filter_map(|_| through("203.0.113.1")).collect();
        assert_eq!(flood.len(), 90);
        assert!(through("198.51.100.1").is_some());
    }
}
