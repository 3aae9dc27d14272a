//! Sessions: mailboxes that outlive a connection, by name, until they expire.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hashbrown::HashMap;

use crate::{
    id::WorkerId,
    mailbox::Mailbox,
    slot::{Claim, Slot},
    timestamp::Timestamp,
};

/// Identifies a session: the client identifier, in the form that the door chooses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey(pub Arc<str>);

/// The session that a connection was attached to.
#[derive(Debug)]
pub struct Attached<M: Mailbox> {
    /// The session's mailbox.
    pub slot: Arc<Slot<M>>,
    /// Proof of being its owner.
    pub claim: Claim,
    /// The session existed and goes on.
    pub present: bool,
    /// The session that this one replaced because a fresh one was asked for; the caller drops its subscriptions.
    pub ended: Option<Arc<Slot<M>>>,
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
}

struct Inner<M: Mailbox> {
    by_key: HashMap<SessionKey, Entry<M>, foldhash::fast::RandomState>,
    expiry: BTreeSet<(Timestamp, SessionKey)>,
    /// Sessions without a connection.
    away: usize,
}

/// All sessions of one kind, bounded in number.
pub struct Sessions<M: Mailbox> {
    inner: Mutex<Inner<M>>,
    sessions_max: usize,
}

impl<M: Mailbox> Sessions<M> {
    /// Creates an empty registry of at most `sessions_max` sessions.
    #[must_use]
    pub fn new(sessions_max: usize) -> Self {
        Self { inner: Mutex::new(Inner { by_key: HashMap::default(), expiry: BTreeSet::new(), away: 0 }), sessions_max }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<M>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attaches a connection on `worker` to the session `key` of `principal`, made by `make` if there is none or if
    /// `fresh` asks for a new one. A connection that was attached is displaced.
    ///
    /// # Errors
    /// [`AttachError`]; nothing has changed then.
    pub fn attach(
        &self,
        key: &SessionKey,
        principal: &Arc<str>,
        fresh: bool,
        worker: WorkerId,
        make: impl FnOnce() -> Arc<Slot<M>>,
    ) -> Result<Attached<M>, AttachError> {
        let mut inner = self.lock();
        let inner = &mut *inner;
        let mut ended = None;
        if let Some(entry) = inner.by_key.get_mut(key) {
            if entry.principal != *principal {
                return Err(AttachError::NotYours);
            }
            inner.away -= usize::from(std::mem::take(&mut entry.away));
            if let Some(at) = entry.expires.take() {
                inner.expiry.remove(&(at, key.clone()));
            }
            if !fresh {
                let slot = Arc::clone(&entry.slot);
                let claim = slot.claim(worker);
                return Ok(Attached { slot, claim, present: true, ended: None });
            }
            let old = Arc::clone(&entry.slot);
            old.claim(worker);
            ended = Some(old);
        } else if inner.by_key.len() >= self.sessions_max {
            return Err(AttachError::Full);
        }
        let slot = make();
        let claim = slot.claim(worker);
        let entry = Entry { slot: Arc::clone(&slot), principal: Arc::clone(principal), expires: None, away: false };
        inner.by_key.insert(key.clone(), entry);
        Ok(Attached { slot, claim, present: false, ended })
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
        let entry = inner.by_key.get_mut(key)?;
        if !Arc::ptr_eq(&entry.slot, slot) || slot.with_claim(claim, |_| ()).is_err() {
            return None;
        }
        slot.release(claim);
        if keep != Some(Duration::ZERO) {
            entry.away = true;
            inner.away += 1;
        }
        match keep {
            Some(Duration::ZERO) => inner.by_key.remove(key).map(|entry| entry.slot),
            Some(keep) => {
                let at = now + keep;
                entry.expires = Some(at);
                inner.expiry.insert((at, key.clone()));
                None
            }
            None => None,
        }
    }

    /// Removes and returns the sessions that have expired; the caller drops their subscriptions.
    pub fn expire(&self, now: Timestamp) -> Vec<(SessionKey, Arc<Slot<M>>)> {
        let mut inner = self.lock();
        let inner = &mut *inner;
        let mut expired = Vec::new();
        while inner.expiry.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, key)) = inner.expiry.pop_first() else { break };
            if let Some(entry) = inner.by_key.remove(&key) {
                inner.away -= usize::from(entry.away);
                expired.push((key, entry.slot));
            }
        }
        expired
    }

    /// All of them, in any order.
    pub fn all(&self) -> Vec<(SessionKey, Arc<Slot<M>>)> {
        self.lock().by_key.iter().map(|(key, entry)| (key.clone(), Arc::clone(&entry.slot))).collect()
    }

    /// Ends a session that has no connection before its time, and gives it back, so that its subscriptions can be dropped.
    /// Nothing happens if a connection has come, or another session has its name.
    pub fn remove_absent(&self, key: &SessionKey, slot: &Arc<Slot<M>>) -> Option<Arc<Slot<M>>> {
        let mut inner = self.lock();
        let inner = &mut *inner;
        inner.by_key.get(key).filter(|entry| entry.away && Arc::ptr_eq(&entry.slot, slot))?;
        let entry = inner.by_key.remove(key)?;
        inner.away -= 1;
        if let Some(at) = entry.expires {
            inner.expiry.remove(&(at, key.clone()));
        }
        Some(entry.slot)
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
