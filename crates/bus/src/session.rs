//! Sessions: mailboxes that outlive a connection, by name, until they expire.

mod departures;
mod listed;
mod restored;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

pub use departures::Departure;
use departures::{Departures, Holder, Session};
use hashbrown::HashMap;
pub use listed::ListedSession;

use crate::{
    Timestamp,
    id::WorkerId,
    mailbox::Mailbox,
    slot::{Claim, Slot},
};

/// Identifies a session: the client identifier, in the form that the door chooses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey(pub Arc<str>);

/// The session that a connection asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// A new one, whether there is one or not.
    pub fresh: bool,
    /// It ends with the connection, however that ends.
    pub transient: bool,
}

/// The session that a connection was attached to.
#[derive(Debug)]
pub struct Attached<M: Mailbox> {
    /// The session's mailbox.
    pub slot: Arc<Slot<M>>,
    /// Proof of being its owner.
    pub claim: Claim,
    /// The session existed and goes on.
    pub present: bool,
    /// The session that this one replaced, because a fresh one was asked for or because it ended with its connection;
    /// the caller drops its subscriptions.
    pub ended: Option<Arc<Slot<M>>>,
    /// A session of another principal that this one took the place of.
    pub gave_way: Option<GaveWay<M>>,
    /// Previous connections or wills under this key may still publish: [`Sessions::poll_departures`].
    pub behind: bool,
}

/// A session that ended so that another principal may have its place or its name. The caller drops its subscriptions,
/// and displaces its connection.
#[derive(Debug)]
pub struct GaveWay<M: Mailbox> {
    /// Its key.
    pub key: SessionKey,
    /// Its mailbox.
    pub slot: Arc<Slot<M>>,
    /// The principal that owned the session.
    pub principal: Arc<str>,
    /// Whether it had a connection.
    pub connected: bool,
}

/// Why a connection was not attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttachError {
    /// It belongs to another principal.
    #[error("the session belongs to someone else")]
    NotYours,
    /// As many sessions as there may be.
    #[error("too many sessions")]
    Full,
}

struct Entry<M: Mailbox> {
    slot: Arc<Slot<M>>,
    principal: Arc<str>,
    expires: Option<Timestamp>,
    /// Whether it has no connection.
    away: bool,
    /// Whether it ends with its connection.
    transient: bool,
    /// The number of the latest attachment or detachment.
    since: u64,
    /// The number of the session, unique since the start.
    number: u64,
}

/// The sessions of one principal.
#[derive(Default)]
struct Held {
    count: usize,
    /// Those without a connection, the one that has been so for longest first.
    absent: BTreeMap<u64, SessionKey>,
}

struct Inner<M: Mailbox> {
    by_key: HashMap<SessionKey, Entry<M>, foldhash::fast::RandomState>,
    expiry: BTreeSet<(Timestamp, SessionKey)>,
    /// In the order in which they began, for lists that are read page by page.
    by_number: BTreeMap<u64, SessionKey>,
    /// The number of the latest session.
    last: u64,
    /// Sessions without a connection.
    away: usize,
    held: HashMap<Arc<str>, Held, foldhash::fast::RandomState>,
    /// Principals by the number of their sessions.
    by_weight: BTreeSet<(usize, Arc<str>)>,
    /// Attachments and detachments so far.
    moves: u64,
    departures: Departures,
}

impl<M: Mailbox> Inner<M> {
    fn next_move(&mut self) -> u64 {
        self.moves += 1;
        self.moves
    }

    fn weigh(&mut self, principal: &Arc<str>, change: impl FnOnce(usize) -> usize) {
        let held = self.held.entry(Arc::clone(principal)).or_default();
        self.by_weight.remove(&(held.count, Arc::clone(principal)));
        held.count = change(held.count);
        if held.count > 0 {
            self.by_weight.insert((held.count, Arc::clone(principal)));
        } else {
            self.held.remove(principal);
        }
    }

    fn insert(&mut self, key: SessionKey, entry: Entry<M>) {
        self.weigh(&Arc::clone(&entry.principal), |count| count + 1);
        self.last += 1;
        let number = self.last;
        self.by_number.insert(number, key.clone());
        self.by_key.insert(key, Entry { number, ..entry });
    }

    fn remove(&mut self, key: &SessionKey) -> Option<Entry<M>> {
        self.come_back(key);
        let entry = self.by_key.remove(key)?;
        self.by_number.remove(&entry.number);
        self.weigh(&entry.principal, |count| count.saturating_sub(1));
        Some(entry)
    }

    /// The session has no connection any more and ends at `expires`.
    fn go_away(&mut self, key: &SessionKey, expires: Option<Timestamp>) {
        self.come_back(key);
        let since = self.next_move();
        let Some(entry) = self.by_key.get_mut(key) else { return };
        (entry.away, entry.transient, entry.since, entry.expires) = (true, false, since, expires);
        self.away += 1;
        if let Some(held) = self.held.get_mut(&entry.principal) {
            held.absent.insert(since, key.clone());
        }
        if let Some(at) = expires {
            self.expiry.insert((at, key.clone()));
        }
    }

    /// The session is not absent any more, if it was.
    fn come_back(&mut self, key: &SessionKey) {
        let since = self.next_move();
        let Some(entry) = self.by_key.get_mut(key).filter(|entry| entry.away) else { return };
        if let Some(held) = self.held.get_mut(&entry.principal) {
            held.absent.remove(&entry.since);
        }
        (entry.away, entry.since) = (false, since);
        self.away -= 1;
        if let Some(at) = entry.expires.take() {
            self.expiry.remove(&(at, key.clone()));
        }
    }

    /// The session that gives way to a further one of `principal`: of the principal with the most sessions – two more
    /// than `principal` at least, so that places do not go back and forth – the one that has been absent for longest,
    /// else the one that came last.
    fn heaviest(&self, principal: &Arc<str>) -> Option<SessionKey> {
        let own = self.held.get(principal).map_or(0, |held| held.count);
        let (count, heaviest) = self.by_weight.last()?;
        if *count < own + 2 {
            return None;
        }
        if let Some((_, key)) = self.held.get(heaviest).and_then(|held| held.absent.first_key_value()) {
            return Some(key.clone());
        }
        let theirs = self.by_key.iter().filter(|(_, entry)| entry.principal == *heaviest);
        theirs.max_by_key(|(_, entry)| entry.since).map(|(key, _)| key.clone())
    }

    /// Begins the departure of the session's connection, whose session continues or not. False if it has none.
    fn displace(&mut self, key: &SessionKey, session: Session) -> bool {
        let Some(entry) = self.by_key.get(key).filter(|entry| !entry.away) else { return false };
        let holder = Holder { slot: entry.slot.id(), claim: entry.slot.latest_claim() };
        self.departures.begin(key, holder, session);
        true
    }

    fn give_way(&mut self, key: SessionKey) -> Option<GaveWay<M>> {
        let connected = self.displace(&key, Session::Ended);
        let Entry { slot, principal, .. } = self.remove(&key)?;
        Some(GaveWay { key, slot, principal, connected })
    }
}

/// All sessions of one kind, bounded in number.
pub struct Sessions<M: Mailbox> {
    inner: Mutex<Inner<M>>,
    sessions_max: usize,
    /// Whether an absent session of another principal gives its name away.
    absent_give_way: bool,
}

impl<M: Mailbox> Sessions<M> {
    /// Creates an empty registry of at most `sessions_max` sessions.
    #[must_use]
    pub fn new(sessions_max: usize) -> Self {
        let inner = Inner {
            by_key: HashMap::default(),
            expiry: BTreeSet::new(),
            by_number: BTreeMap::new(),
            last: 0,
            away: 0,
            held: HashMap::default(),
            by_weight: BTreeSet::new(),
            moves: 0,
            departures: Departures::default(),
        };
        Self { inner: Mutex::new(inner), sessions_max, absent_give_way: false }
    }

    /// Has sessions without a connection end when another principal asks for their name.
    #[must_use]
    pub fn absent_give_way(self) -> Self {
        Self { absent_give_way: true, ..self }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<M>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attaches a connection on `worker` to the session `key` of `principal`, made by `make` if there is none or if a
    /// fresh one is asked for. A connection that was attached is displaced: as if it had ended just before, so its
    /// session ends as well if it is transient.
    ///
    /// # Errors
    /// [`AttachError`]; nothing has changed then.
    pub fn attach(
        &self,
        key: &SessionKey,
        principal: &Arc<str>,
        asked: Asked,
        worker: WorkerId,
        make: impl FnOnce() -> Arc<Slot<M>>,
    ) -> Result<Attached<M>, AttachError> {
        let mut inner = self.lock();
        let inner = &mut *inner;
        let (mut ended, mut gave_way) = (None, None);
        if let Some(entry) = inner.by_key.get(key).filter(|entry| entry.principal != *principal) {
            if !(self.absent_give_way && entry.away) {
                return Err(AttachError::NotYours);
            }
            gave_way = inner.give_way(key.clone());
        }
        if let Some(continues) = inner.by_key.get(key).map(|entry| !asked.fresh && !entry.transient) {
            inner.displace(key, if continues { Session::Continues } else { Session::Ended });
            inner.come_back(key);
            if let Some(entry) = inner.by_key.get_mut(key).filter(|_| continues) {
                entry.transient = asked.transient;
                let slot = Arc::clone(&entry.slot);
                let claim = slot.claim(worker);
                let behind = inner.departures.is_behind(key, Holder { slot: slot.id(), claim });
                return Ok(Attached { slot, claim, present: true, ended, gave_way, behind });
            }
            ended = inner.remove(key).map(|entry| entry.slot);
            if let Some(old) = &ended {
                old.claim(worker);
            }
        } else if inner.by_key.len() >= self.sessions_max {
            let heaviest = inner.heaviest(principal).ok_or(AttachError::Full)?;
            gave_way = inner.give_way(heaviest);
        }
        let slot = make();
        let claim = slot.claim(worker);
        let (since, principal) = (inner.next_move(), Arc::clone(principal));
        let transient = asked.transient;
        let slot_of = Arc::clone(&slot);
        let entry = Entry { slot: slot_of, principal, expires: None, away: false, transient, since, number: 0 };
        inner.insert(key.clone(), entry);
        let behind = inner.departures.is_behind(key, Holder { slot: slot.id(), claim });
        Ok(Attached { slot, claim, present: false, ended, gave_way, behind })
    }

    /// Notes that an attached connection has changed its mind about whether its session ends with it. Does nothing if
    /// another connection has taken the session over.
    pub fn set_transient(&self, key: &SessionKey, slot: &Arc<Slot<M>>, claim: Claim, transient: bool) {
        let mut inner = self.lock();
        let Some(entry) = inner.by_key.get_mut(key) else { return };
        if !entry.away && Arc::ptr_eq(&entry.slot, slot) && slot.latest_claim() == claim {
            entry.transient = transient;
        }
    }

    /// Detaches a connection; its session stays for `keep`, or for ever if that is `None`. With [`Duration::ZERO`] the
    /// session ends and is returned, so that its subscriptions can be dropped. Does nothing if another connection has
    /// taken the session over.
    pub fn detach(
        &self,
        key: &SessionKey,
        slot: &Arc<Slot<M>>,
        claim: Claim,
        keep: Option<Duration>,
        now: Timestamp,
    ) -> Option<Arc<Slot<M>>> {
        let mut inner = self.lock();
        let inner = &mut *inner;
        let entry = inner.by_key.get(key)?;
        if !Arc::ptr_eq(&entry.slot, slot) || slot.with_claim(claim, |_| ()).is_err() {
            return None;
        }
        slot.release(claim);
        if keep == Some(Duration::ZERO) {
            return inner.remove(key).map(|entry| entry.slot);
        }
        inner.go_away(key, keep.map(|keep| now + keep));
        None
    }

    /// Removes and returns a session that has expired; the caller drops its subscriptions. To be called until there is
    /// none, with turns of others in between.
    pub fn expire(&self, now: Timestamp) -> Option<(SessionKey, Arc<Slot<M>>)> {
        let mut inner = self.lock();
        let inner = &mut *inner;
        while let Some((_, key)) = inner.expiry.first().filter(|(at, _)| *at <= now).cloned() {
            if let Some(entry) = inner.remove(&key) {
                return Some((key, entry.slot));
            }
            inner.expiry.pop_first();
        }
        None
    }

    /// All of them, in any order.
    pub fn all(&self) -> Vec<(SessionKey, Arc<Slot<M>>)> {
        self.lock().by_key.iter().map(|(key, entry)| (key.clone(), Arc::clone(&entry.slot))).collect()
    }

    /// Ends a session that has no connection before its time, and gives it back, so that its subscriptions can be
    /// dropped. Nothing happens if a connection has come, or another session has its name.
    pub fn remove_absent(&self, key: &SessionKey, slot: &Arc<Slot<M>>) -> Option<Arc<Slot<M>>> {
        let mut inner = self.lock();
        let inner = &mut *inner;
        inner.by_key.get(key).filter(|entry| entry.away && Arc::ptr_eq(&entry.slot, slot))?;
        inner.remove(key).map(|entry| entry.slot)
    }

    /// When the next session expires; [`Timestamp::NEVER`] when none will.
    pub fn next_expiry(&self) -> Timestamp {
        self.lock().expiry.first().map_or(Timestamp::NEVER, |(at, _)| *at)
    }

    /// The session's slot, if it exists.
    pub fn get(&self, key: &SessionKey) -> Option<Arc<Slot<M>>> {
        self.lock().by_key.get(key).map(|entry| Arc::clone(&entry.slot))
    }

    /// The number of sessions.
    pub fn len(&self) -> usize {
        self.lock().by_key.len()
    }

    /// The number of sessions without a connection.
    pub fn away(&self) -> usize {
        self.lock().away
    }

    /// The largest number of sessions that one principal has.
    pub fn largest_share(&self) -> usize {
        self.lock().by_weight.last().map_or(0, |(count, _)| *count)
    }

    /// Whether there are no sessions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<M: Mailbox> std::fmt::Debug for Sessions<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions").field("len", &self.len()).finish_non_exhaustive()
    }
}
