//! The connections that are logged in, for the administration API: who they are, and how to end one.
//!
//! A connection enters at its login and leaves when it is dropped. No message touches the list: a connection looks at
//! a flag of its own once a turn, and is woken when that is set.

use std::{
    collections::BTreeMap,
    fmt,
    net::SocketAddr,
    ops::Bound,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::Waker,
};

use fogmux_bus::{Door, Publisher};

use crate::listening::Place;

/// A connection that is logged in.
pub(crate) struct Client {
    pub(crate) id: u64,
    pub(crate) is: Arrived,
    is_kicked: AtomicBool,
    waker: Mutex<Option<Waker>>,
    list: Arc<Clients>,
}

/// Without the list, which holds it.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("id", &self.id).field("door", &self.is.door).finish_non_exhaustive()
    }
}

/// The description that a door gives of a connection.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) door: Door,
    pub(crate) listener: Option<Place>,
    pub(crate) address: SocketAddr,
    /// Its principal, and its client identifier or resource, or nothing.
    pub(crate) publisher: Arc<Publisher>,
    /// When it logged in, in milliseconds since 1970.
    pub(crate) since_unix_ms: u64,
}

/// All of them, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Clients(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    last: u64,
    by_id: BTreeMap<u64, Arc<Client>>,
}

/// A place in the list, as long as the connection lives. One pointer, for every idle connection has it.
#[derive(Debug)]
pub(crate) struct Listed(Arc<Client>);

impl Clients {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection has logged in.
    pub(crate) fn enter(self: &Arc<Self>, is: Arrived) -> Listed {
        let mut inner = self.lock();
        inner.last += 1;
        let id = inner.last;
        let client = Arc::new(Client {
            id,
            is,
            is_kicked: AtomicBool::new(false),
            waker: Mutex::default(),
            list: Arc::clone(self),
        });
        inner.by_id.insert(id, Arc::clone(&client));
        drop(inner);
        Listed(client)
    }

    /// Up to `limit` connections that came after the one of this number, and whether there are more.
    pub(crate) fn page(&self, after: u64, limit: usize) -> (Vec<Arc<Client>>, bool) {
        let inner = self.lock();
        let mut rest = inner.by_id.range((Bound::Excluded(after), Bound::Unbounded));
        let page = rest.by_ref().take(limit).map(|(_, client)| Arc::clone(client)).collect();
        (page, rest.next().is_some())
    }

    /// Has a connection end. Returns it, if it is there. It leaves the list at once, for its goodbye may take a while.
    pub(crate) fn kick(&self, id: u64) -> Option<Arc<Client>> {
        let client = self.lock().by_id.remove(&id)?;
        client.is_kicked.store(true, SeqCst);
        let waker = client.waker.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(waker) = waker {
            waker.wake();
        }
        Some(client)
    }
}

impl Listed {
    /// The address of the connection.
    pub(crate) fn address(&self) -> SocketAddr {
        self.0.is.address
    }

    /// Whether an administrator wants the connection to end.
    pub(crate) fn is_kicked(&self) -> bool {
        self.0.is_kicked.load(SeqCst)
    }

    /// Has this task woken when that becomes so; to be asked afterwards whether it is so already.
    pub(crate) fn register(&self, waker: &Waker) {
        let mut known = self.0.waker.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.0.list.lock().by_id.remove(&self.0.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(clients: &Arc<Clients>, name: &str) -> Listed {
        let publisher = Arc::new(Publisher { principal: name.into(), ..Publisher::clone(&Publisher::internal()) });
        let address = (std::net::Ipv4Addr::LOCALHOST, 1).into();
        clients.enter(Arrived { door: Door::Mqtt, listener: None, address, publisher, since_unix_ms: 0 })
    }

    #[test]
    fn a_page_goes_on_behind_the_one_before_whoever_has_left() {
        let clients = Arc::new(Clients::default());
        assert!(clients.page(0, 10).0.is_empty() && !clients.page(0, 10).1);
        let mut listed: Vec<_> = (0..97).map(|number| enter(&clients, &number.to_string())).collect();
        let (first, more) = clients.page(0, 50);
        assert!(more && first.len() == 50);
        listed.drain(10..60);
        let (second, more) = clients.page(first.last().unwrap().id, 50);
        assert!(!more && second.len() == 37);
        assert_eq!(&*second[0].is.publisher.principal, "60");
        drop(listed);
        assert!(clients.page(0, 10).0.is_empty());
    }

    #[test]
    fn one_that_is_kicked_is_told_and_no_other() {
        let clients = Arc::new(Clients::default());
        let (one, other) = (enter(&clients, "one"), enter(&clients, "other"));
        assert!(clients.kick(one.0.id).is_some());
        assert!(one.is_kicked() && !other.is_kicked());
        assert!(clients.kick(one.0.id).is_none());
        drop(one);
        assert_eq!(clients.page(0, 10).0.len(), 1);
    }
}
