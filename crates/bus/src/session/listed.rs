//! Sessions as an administrator sees them: a list in pages, and the end of one by its number.

use std::{ops::Bound, sync::Arc};

use super::{Entry, GaveWay, Inner, SessionKey, Sessions};
use crate::{Timestamp, mailbox::Mailbox, slot::Slot};

/// A session of a list.
#[derive(Debug)]
pub struct ListedSession<M: Mailbox> {
    /// Its number, unique since the start: a session that begins later has a greater one.
    pub number: u64,
    /// Its key.
    pub key: SessionKey,
    /// Its mailbox.
    pub slot: Arc<Slot<M>>,
    /// The principal that owns it.
    pub principal: Arc<str>,
    /// Whether it has a connection.
    pub connected: bool,
    /// Whether it ends with its connection.
    pub transient: bool,
    /// When it ends if no connection comes; `None` with a connection, or if it never does.
    pub expires: Option<Timestamp>,
}

impl<M: Mailbox> ListedSession<M> {
    fn of(number: u64, key: &SessionKey, entry: &Entry<M>) -> Self {
        Self {
            number,
            key: key.clone(),
            slot: Arc::clone(&entry.slot),
            principal: Arc::clone(&entry.principal),
            connected: !entry.away,
            transient: entry.transient,
            expires: entry.expires,
        }
    }
}

impl<M: Mailbox> Inner<M> {
    fn listed(&self, number: u64) -> Option<ListedSession<M>> {
        let key = self.by_number.get(&number)?;
        self.by_key.get(key).map(|entry| ListedSession::of(number, key, entry))
    }
}

impl<M: Mailbox> Sessions<M> {
    /// Up to `limit` sessions with greater numbers than `after`, in the order in which they began, and whether there
    /// are more. The registry is locked for one page only, so a list of all shows those that came and went meanwhile
    /// or does not.
    pub fn page(&self, after: u64, limit: usize) -> (Vec<ListedSession<M>>, bool) {
        let inner = self.lock();
        let mut rest = inner.by_number.range((Bound::Excluded(after), Bound::Unbounded));
        let of = |(number, key): (&u64, &SessionKey)| {
            inner.by_key.get(key).map(|entry| ListedSession::of(*number, key, entry))
        };
        let page = rest.by_ref().take(limit).filter_map(of).collect();
        (page, rest.next().is_some())
    }

    /// The session of this number, if it has not ended.
    pub fn numbered(&self, number: u64) -> Option<ListedSession<M>> {
        self.lock().listed(number)
    }

    /// Removes the session of this number, connected or not, as if it gave way: the caller drops its subscriptions and
    /// displaces its connection. Nothing happens if the session has ended.
    pub fn remove_numbered(&self, number: u64) -> Option<GaveWay<M>> {
        let mut inner = self.lock();
        let key = inner.by_number.get(&number)?.clone();
        inner.give_way(key)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Asked, Bus, BusConfig, FifoLimits, FifoMailbox, Forgetful, WorkerId};

    fn key(name: &str) -> SessionKey {
        SessionKey(Arc::from(name))
    }

    struct House {
        bus: Arc<Bus>,
        sessions: Sessions<FifoMailbox>,
    }

    impl House {
        fn new() -> Self {
            let bus = Bus::new(&BusConfig::default(), Box::new(Forgetful), Timestamp::ZERO, 0);
            Self { bus, sessions: Sessions::new(1000) }
        }

        fn attach(&self, name: &str) -> crate::Attached<FifoMailbox> {
            let make = || self.bus.slot(FifoMailbox::new(FifoLimits { messages: 1, bytes: 1 }), WorkerId(0));
            let asked = Asked { fresh: false, transient: false };
            self.sessions.attach(&key(name), &Arc::from("alice"), asked, WorkerId(0), make).unwrap()
        }

        fn all(&self, limit: usize) -> Vec<String> {
            let (mut names, mut after) = (Vec::new(), 0);
            loop {
                let (page, more) = self.sessions.page(after, limit);
                names.extend(page.iter().map(|listed| listed.key.0.to_string()));
                after = page.last().map_or(after, |last| last.number);
                if !more {
                    return names;
                }
            }
        }
    }

    #[test]
    fn pages_hold_every_session_once_in_the_order_of_their_beginnings() {
        let house = House::new();
        let names: Vec<_> = (0..97).map(|number| format!("s{number}")).collect();
        for name in &names {
            house.attach(name);
        }
        for limit in [1, 10, 97, 1000] {
            assert_eq!(house.all(limit), names, "{limit}");
        }
        // One that goes away and comes back keeps its place.
        let again = house.attach("s3");
        house.sessions.detach(&key("s3"), &again.slot, again.claim, Some(Duration::from_secs(9)), Timestamp::ZERO);
        let listed = house.sessions.numbered(4).unwrap();
        assert!(!listed.connected && listed.expires == Some(Timestamp::ZERO + Duration::from_secs(9)));
        house.attach("s3");
        assert!(house.sessions.numbered(4).unwrap().connected && house.all(10) == names);
    }

    #[test]
    fn one_that_is_removed_is_in_no_list_and_another_of_its_name_has_another_number() {
        let house = House::new();
        let attached = house.attach("x");
        let gone = house.sessions.remove_numbered(1).unwrap();
        assert!(gone.connected && Arc::ptr_eq(&gone.slot, &attached.slot));
        assert!(house.sessions.is_waited_for(&key("x"), &attached.slot, attached.claim), "its will may come");
        assert!(house.sessions.remove_numbered(1).is_none() && house.sessions.numbered(1).is_none());
        assert!(house.all(10).is_empty() && house.sessions.is_empty());
        house.attach("x");
        assert_eq!(house.sessions.page(0, 9).0.iter().map(|one| one.number).collect::<Vec<_>>(), [2]);
    }
}
