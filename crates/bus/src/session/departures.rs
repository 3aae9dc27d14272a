//! Departures: connections that have lost their session, and wills, that have something left to publish; and sessions
//! that end, while their subscriptions are being removed.
//!
//! A client that comes back must not see its own new messages followed by those of its previous connection, the will
//! included, and must not be refused a subscription for those that it had. So its next connection waits until every
//! earlier departure under the same key is over.

use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
};

use hashbrown::HashMap;

use super::{SessionKey, Sessions};
use crate::{
    id::SlotId,
    mailbox::Mailbox,
    slot::{Claim, Slot},
};

/// A connection, by the slot it is attached to and its claim of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) slot: SlotId,
    pub(super) claim: Claim,
}

/// The fate of a session whose connection was displaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Session {
    /// It went on with the next connection.
    Continues,
    /// It ended.
    Ended,
}

/// The departure of a will or of a session, under way; ended by [`Sessions::departed`].
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Departure(u64);

#[derive(Debug)]
struct Open {
    number: u64,
    /// Unless it is a will's or a session's.
    holder: Option<Holder>,
    /// If the holder was displaced.
    session: Option<Session>,
}

#[derive(Debug, Default)]
struct OfKey {
    /// In the order in which they began.
    open: Vec<Open>,
    wakers: Vec<Waker>,
}

/// All departures under way. Empty most of the time.
#[derive(Debug, Default)]
pub(super) struct Departures {
    by_key: HashMap<SessionKey, OfKey, foldhash::fast::RandomState>,
    last: u64,
}

impl Departures {
    /// Begins the departure of a connection that was displaced, unless it has begun already.
    pub(super) fn begin(&mut self, key: &SessionKey, holder: Holder, session: Session) {
        if self.find(key, holder).is_none() {
            let _ = self.push(key, Some(holder), Some(session));
        }
    }

    /// Begins the departure of a connection that leaves by itself, unless it was displaced.
    pub(super) fn begin_own(&mut self, key: &SessionKey, holder: Holder) {
        if self.find(key, holder).is_none() {
            let _ = self.push(key, Some(holder), None);
        }
    }

    fn find(&self, key: &SessionKey, holder: Holder) -> Option<&Open> {
        self.by_key.get(key)?.open.iter().find(|open| open.holder == Some(holder))
    }

    /// The fate of the session of a displaced connection, as long as that departs.
    pub(super) fn session(&self, key: &SessionKey, holder: Holder) -> Option<Session> {
        self.find(key, holder)?.session
    }

    /// Begins the departure of a will or of a session.
    pub(super) fn depart(&mut self, key: &SessionKey) -> Departure {
        self.push(key, None, None)
    }

    fn push(&mut self, key: &SessionKey, holder: Option<Holder>, session: Option<Session>) -> Departure {
        self.last += 1;
        let number = self.last;
        self.by_key.entry_ref(key).or_default().open.push(Open { number, holder, session });
        Departure(number)
    }

    /// Ends the departure of a connection, if it has begun. Returns the tasks to wake.
    pub(super) fn end(&mut self, key: &SessionKey, holder: Holder) -> Vec<Waker> {
        self.retain(key, |open| open.holder != Some(holder))
    }

    /// Ends the departure of a will or of a session. Returns the tasks to wake.
    pub(super) fn departed(&mut self, key: &SessionKey, departure: &Departure) -> Vec<Waker> {
        self.retain(key, |open| open.number != departure.0)
    }

    /// Forgets everything that a connection waits for.
    pub(super) fn forget_before(&mut self, key: &SessionKey, holder: Holder) -> Vec<Waker> {
        let mut before = true;
        self.retain(key, |open| {
            before &= open.holder != Some(holder);
            !before
        })
    }

    fn retain(&mut self, key: &SessionKey, keeps: impl FnMut(&Open) -> bool) -> Vec<Waker> {
        let Some(of) = self.by_key.get_mut(key) else { return Vec::new() };
        of.open.retain(keeps);
        let wakers = std::mem::take(&mut of.wakers);
        if of.open.is_empty() {
            self.by_key.remove(key);
        }
        wakers
    }

    /// The number of keys with departures under way.
    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether there are departures that began before that of a connection, which perhaps has not begun.
    pub(super) fn is_behind(&self, key: &SessionKey, holder: Holder) -> bool {
        let of = self.by_key.get(key);
        of.and_then(|of| of.open.first()).is_some_and(|first| first.holder != Some(holder))
    }

    /// Ready when no departure is left that began before that of a connection.
    pub(super) fn poll(&mut self, key: &SessionKey, holder: Holder, cx: &Context<'_>) -> Poll<()> {
        if !self.is_behind(key, holder) {
            return Poll::Ready(());
        }
        if let Some(of) = self.by_key.get_mut(key)
            && !of.wakers.iter().any(|waker| waker.will_wake(cx.waker()))
        {
            of.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl<M: Mailbox> Sessions<M> {
    /// Begins the departure of a connection that has something left to publish; called before it detaches. That of a
    /// displaced connection has begun already.
    pub fn begin_departure(&self, key: &SessionKey, slot: &Slot<M>, claim: Claim) {
        self.lock().departures.begin_own(key, Holder { slot: slot.id(), claim });
    }

    /// Whether the session of a displaced connection went on with the next one, whatever came after that.
    pub fn is_continued(&self, key: &SessionKey, slot: &Arc<Slot<M>>, claim: Claim) -> bool {
        let inner = self.lock();
        match inner.departures.session(key, Holder { slot: slot.id(), claim }) {
            Some(session) => session == Session::Continues,
            // Forgotten, because it takes too long.
            None => inner.by_key.get(key).is_some_and(|entry| Arc::ptr_eq(&entry.slot, slot)),
        }
    }

    /// Ends the departure of a connection, if there is one: it publishes nothing any more.
    pub fn end_departure(&self, key: &SessionKey, slot: &Slot<M>, claim: Claim) {
        let wakers = self.lock().departures.end(key, Holder { slot: slot.id(), claim });
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Begins the departure of a will that outlives its connection, or of a session whose subscriptions are removed in
    /// portions.
    pub fn depart(&self, key: &SessionKey) -> Departure {
        self.lock().departures.depart(key)
    }

    /// Ends the departure of a will, which is published, or of a session, which has no subscriptions any more.
    pub fn departed(&self, key: &SessionKey, departure: &Departure) {
        let wakers = self.lock().departures.departed(key, departure);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Whether this connection has departures to wait for.
    pub fn is_behind(&self, key: &SessionKey, slot: &Slot<M>, claim: Claim) -> bool {
        self.lock().departures.is_behind(key, Holder { slot: slot.id(), claim })
    }

    /// Ready when no departure under the key is left that began before that of this connection.
    pub fn poll_departures(&self, key: &SessionKey, slot: &Slot<M>, claim: Claim, cx: &Context<'_>) -> Poll<()> {
        self.lock().departures.poll(key, Holder { slot: slot.id(), claim }, cx)
    }

    /// Forgets the departures that [`poll_departures`](Self::poll_departures) waits for: they take too long.
    pub fn forget_departures(&self, key: &SessionKey, slot: &Slot<M>, claim: Claim) {
        let wakers = self.lock().departures.forget_before(key, Holder { slot: slot.id(), claim });
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The number of keys with departures under way.
    pub fn departing(&self) -> usize {
        self.lock().departures.len()
    }
}
