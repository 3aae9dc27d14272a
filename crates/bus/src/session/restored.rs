//! Sessions that a store has given back.

use std::sync::Arc;

use super::{Entry, SessionKey, Sessions};
use crate::{Timestamp, mailbox::Mailbox, slot::Slot};

impl<M: Mailbox> Sessions<M> {
    /// Adds a session without a connection, which a store has given back, in place of any that has its name.
    pub fn restore(&self, key: SessionKey, principal: Arc<str>, slot: Arc<Slot<M>>, expires: Option<Timestamp>) {
        slot.release(slot.latest_claim());
        let mut inner = self.lock();
        let inner = &mut *inner;
        let since = inner.next_move();
        let entry = Entry { slot, principal, expires: None, away: false, transient: false, since, number: 0 };
        drop(inner.remove(&key));
        inner.insert(key.clone(), entry);
        inner.go_away(&key, expires);
    }

    /// Has a session without a connection end at another time. Does nothing if a connection has come, or another
    /// session has its name.
    pub fn expire_at(&self, key: &SessionKey, slot: &Arc<Slot<M>>, expires: Option<Timestamp>) {
        let mut inner = self.lock();
        let inner = &mut *inner;
        let Some(entry) = inner.by_key.get_mut(key).filter(|entry| entry.away && Arc::ptr_eq(&entry.slot, slot)) else {
            return;
        };
        if let Some(at) = std::mem::replace(&mut entry.expires, expires) {
            inner.expiry.remove(&(at, key.clone()));
        }
        inner.expiry.extend(expires.map(|at| (at, key.clone())));
    }
}
