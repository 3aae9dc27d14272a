//! Logins that wait for their password to be verified: bounded, and fair by source.
//!
//! Three classes take turns: users who have recently logged in from the same source, other users from such a source,
//! and sources without a recent login. Within a class networks (IPv4 /24, IPv6 /48) take turns; within a network its
//! sources (IPv4 address, IPv6 /64); within a source logins keep their order. A flood of guesses, from however many
//! addresses, therefore takes at most every other turn from known users. When the queue is full, the longest queue of a
//! source loses its newest login to a source that has fewer.
//!
//! No thread and no clock in here.

mod known;
mod ring;

use std::net::IpAddr;

use known::Known;
use ring::{Ring, Source};

/// The bounds of a [`LoginQueue`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueConfig {
    /// Logins that may wait. A quarter of the places is for users who have recently logged in from the same source,
    /// another quarter for them and other users from such a source.
    pub waiting_max: usize,
    /// Sources, and pairs of source and user, that are remembered; the least recent are forgotten first.
    pub known_max: usize,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self { waiting_max: 1024, known_max: 4096 }
    }
}

/// How well a login's source is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// This user has logged in from this source.
    User,
    /// Another user has logged in from this source.
    Neighbour,
    /// Nobody has logged in from this source.
    Stranger,
}

impl Class {
    const ALL: [Self; 3] = [Self::User, Self::Neighbour, Self::Stranger];

    const fn index(self) -> usize {
        match self {
            Self::User => 0,
            Self::Neighbour => 1,
            Self::Stranger => 2,
        }
    }
}

/// The queue of logins; see the module's documentation.
#[derive(Debug)]
pub struct LoginQueue<T> {
    config: QueueConfig,
    classes: [Ring<T>; 3],
    /// The class whose turn it is.
    next: usize,
    known: Known,
}

impl<T> Default for LoginQueue<T> {
    fn default() -> Self {
        Self::new(QueueConfig::default())
    }
}

impl<T> LoginQueue<T> {
    /// Creates an empty queue.
    #[must_use]
    pub fn new(config: QueueConfig) -> Self {
        let known = Known::new(config.known_max);
        Self { config, classes: [Ring::default(), Ring::default(), Ring::default()], next: 0, known }
    }

    /// Changes the bounds. Logins that wait already stay.
    pub fn configure(&mut self, config: QueueConfig) {
        self.config = config;
        self.known.configure(config.known_max);
    }

    /// The number of waiting logins.
    #[must_use]
    pub fn len(&self) -> usize {
        self.classes.iter().map(Ring::len).sum()
    }

    /// Whether no login waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a login. Returns the login that lost its place to it, if any.
    ///
    /// # Errors
    /// The login itself if there is no room for it.
    pub fn push(&mut self, address: IpAddr, user: &str, login: T) -> Result<Option<T>, T> {
        let source = Source::of(address);
        let class = self.class(source, user);
        let room = self.room(class);
        let Some(ring) = self.classes.get_mut(class.index()) else { return Err(login) };
        let share = Share::of(room);
        let of_source = ring.of_source(source);
        if of_source >= share.source {
            return Err(login);
        }
        let lost = if ring.of_network(source) >= share.network {
            ring.pop_longest_in(source.network(), of_source + 1)
        } else if ring.len() >= room.free {
            ring.pop_longest(source.network(), of_source + 1)
        } else {
            ring.push(source, login);
            return Ok(None);
        };
        match lost {
            Some(lost) => {
                ring.push(source, login);
                Ok(Some(lost))
            }
            None => Err(login),
        }
    }

    /// Takes the next login.
    pub fn pop(&mut self) -> Option<T> {
        for _ in Class::ALL {
            let turn = self.next;
            self.next = (turn + 1) % Class::ALL.len();
            if let Some(login) = self.classes.get_mut(turn).and_then(Ring::pop) {
                return Some(login);
            }
        }
        None
    }

    /// Drops logins that are not wanted any more.
    pub fn retain(&mut self, mut wanted: impl FnMut(&T) -> bool) {
        for ring in &mut self.classes {
            ring.retain(&mut wanted);
        }
    }

    /// Notes that a user has logged in from an address.
    pub fn succeeded(&mut self, address: IpAddr, user: &str) {
        self.known.note(Source::of(address), user);
    }

    fn class(&self, source: Source, user: &str) -> Class {
        match (self.known.has_user(source, user), self.known.has_source(source)) {
            (true, _) => Class::User,
            (false, true) => Class::Neighbour,
            (false, false) => Class::Stranger,
        }
    }

    /// The places that a class may hold: unknown sources half of all, they and other users of known sources three
    /// quarters.
    fn room(&self, class: Class) -> Room {
        let [users, neighbours, strangers] = self.classes.each_ref().map(Ring::len);
        let all = self.config.waiting_max;
        let (half, three_quarters) = (all - 2 * (all / 4), all - all / 4);
        let (most, free) = match class {
            Class::User => (all, all.saturating_sub(neighbours + strangers)),
            Class::Neighbour => {
                (three_quarters, three_quarters.saturating_sub(strangers).min(all.saturating_sub(strangers + users)))
            }
            Class::Stranger => {
                let beside_neighbours = three_quarters.saturating_sub(neighbours);
                (half, half.min(beside_neighbours).min(all.saturating_sub(neighbours + users)))
            }
        };
        Room { most, free }
    }
}

/// The places of a class.
#[derive(Debug, Clone, Copy)]
struct Room {
    /// The most, whatever the other classes hold.
    most: usize,
    /// The places that the other classes leave.
    free: usize,
}

/// The places of a class that one source and one network may hold, so that no two of them can exclude all others.
struct Share {
    source: usize,
    network: usize,
}

impl Share {
    fn of(room: Room) -> Self {
        Self { source: (room.most / 2).max(1), network: (room.most * 3 / 4).max(1) }
    }
}

#[cfg(test)]
mod tests;
