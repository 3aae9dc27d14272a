//! Places for handshakes, shared by networks (IPv4 /24, IPv6 /48) and their hosts (ADR 0062).
//!
//! While a place is free anybody gets it. Afterwards a network or host that has fewer than the heaviest gets the place
//! of the heaviest's oldest handshake, which has most likely fallen silent; others wait, so that a fleet behind one
//! address that comes back at once is served in its order.

use std::{
    collections::BTreeMap,
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{Arc, Mutex, PoisonError},
};

use fogmux_fair::{Owner, Room};
use tokio::sync::oneshot;

use crate::admission::network as host;

/// Places. Clones share them.
#[derive(Clone)]
pub(crate) struct Places(Arc<Mutex<Table>>);

/// A place, given up on drop.
pub(crate) struct Place {
    places: Places,
    number: u64,
    from: IpAddr,
    /// Completes when the place is somebody else's.
    lost: oneshot::Receiver<()>,
}

/// The place is somebody else's by now.
#[derive(Debug, thiserror::Error)]
#[error("gave way to one from another network or host")]
pub(crate) struct GaveWay;

struct Table {
    held: Room<oneshot::Sender<()>>,
    /// By host, then in the order of their coming. They only wait while no place is free.
    waiting: BTreeMap<(IpAddr, u64), oneshot::Sender<Place>>,
    next: u64,
    /// The last address of the network that had the last turn.
    turn: IpAddr,
}

/// A peer that waits; taken out of the row on drop.
struct Waiting {
    places: Places,
    key: (IpAddr, u64),
}

impl Places {
    pub(crate) fn new(count: usize) -> Self {
        let (held, turn) = (Room::new(count), Ipv4Addr::UNSPECIFIED.into());
        Self(Arc::new(Mutex::new(Table { held, waiting: BTreeMap::new(), next: 0, turn })))
    }

    /// Takes a place, as soon as there is one for a peer from there.
    pub(crate) async fn take(&self, from: IpAddr) -> Place {
        let (row, place) = match self.with(|table| table.take(from)) {
            Ok((number, lost)) => return Place { places: self.clone(), number, from, lost },
            Err((key, place)) => (Waiting { places: self.clone(), key }, place),
        };
        let place = place.await;
        drop(row);
        match place {
            Ok(place) => place,
            // Never: it gets a place from where it is taken out of the row.
            Err(_) => std::future::pending().await,
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Table) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The number of a place, and a receiver that tells when it is lost.
type Held = (u64, oneshot::Receiver<()>);
type Row = ((IpAddr, u64), oneshot::Receiver<Place>);

impl Table {
    fn take(&mut self, from: IpAddr) -> Result<Held, Row> {
        let held = self.enter(from);
        if !self.held.is_overfull() {
            return Ok(held);
        }
        let heavier = self.held.heavier_than(&Owner::nameless(from));
        if let Some(oldest) = heavier.and_then(|owner| Some(self.held.of_owner(&owner).next()?.0)) {
            // Its handshake is told by the end of the sender.
            self.held.leave(oldest);
            return Ok(held);
        }
        self.held.leave(held.0);
        self.next += 1;
        let key = (host(from), self.next);
        let (sender, place) = oneshot::channel();
        self.waiting.insert(key, sender);
        Err((key, place))
    }

    fn enter(&mut self, from: IpAddr) -> Held {
        let (sender, lost) = oneshot::channel();
        (self.held.enter(Owner::nameless(from), 1, sender), lost)
    }

    /// The next that waits when a peer from there has left: of its host, of its network, then of each network in turn.
    /// So a network keeps its share for as long as it has somebody to use it.
    fn next_after(&mut self, from: IpAddr) -> Option<((IpAddr, u64), oneshot::Sender<Place>)> {
        let (first, last) = network_of(from);
        let own = host(from);
        let of = |range| self.waiting.range::<(IpAddr, u64), _>(range).next().map(|(key, _)| *key);
        let near = of((own, 0)..=(own, u64::MAX)).or_else(|| of((first, 0)..=(last, u64::MAX)));
        let in_turn = || {
            let after = self.waiting.range((self.turn, u64::MAX)..).next();
            after.or_else(|| self.waiting.first_key_value()).map(|(key, _)| *key)
        };
        let key = near.or_else(in_turn)?;
        if near.is_none() {
            self.turn = network_of(key.0).1;
        }
        Some((key, self.waiting.remove(&key)?))
    }
}

impl Place {
    /// Does the work of a handshake while the place lasts.
    ///
    /// # Errors
    /// Those of the work; [`GaveWay`] when the place is somebody else's.
    pub(crate) async fn hold<T>(mut self, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        tokio::select! {
            biased;
            _ = &mut self.lost => Err(io::Error::other(GaveWay)),
            done = work => done,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let next = self.places.with(|table| {
            // One that gave way has no place to hand on.
            table.held.leave(self.number)?;
            let ((from, _), sender) = table.next_after(self.from)?;
            Some((sender, from, table.enter(from)))
        });
        if let Some((sender, from, (number, lost))) = next {
            let place = Self { places: self.places.clone(), number, from, lost };
            // One that has gone meanwhile hands it on, without the lock.
            drop(sender.send(place));
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.places.with(|table| table.waiting.remove(&self.key)));
    }
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Places").finish_non_exhaustive()
    }
}

/// The first and the last address of a network: a /24 or a /48.
fn network_of(address: IpAddr) -> (IpAddr, IpAddr) {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let bits = v4.to_bits();
            (Ipv4Addr::from_bits(bits & !0xff).into(), Ipv4Addr::from_bits(bits | 0xff).into())
        }
        IpAddr::V6(v6) => {
            let rest = u128::MAX >> 48;
            (Ipv6Addr::from_bits(v6.to_bits() & !rest).into(), Ipv6Addr::from_bits(v6.to_bits() | rest).into())
        }
    }
}

#[cfg(test)]
mod tests;
