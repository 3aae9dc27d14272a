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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// Of connections that wait for those before them. A client that connects again and again has many of both.
    wakers: HashMap<Holder, Waker, foldhash::fast::RandomState>,
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
        // The first waits for nobody; the others still do.
        if let Some(first) = of.open.first() {
            return first.holder.and_then(|holder| of.wakers.remove(&holder)).into_iter().collect();
        }
        self.by_key.remove(key).map_or_else(Vec::new, |of| of.wakers.into_values().collect())
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
        if let Some(of) = self.by_key.get_mut(key) {
            of.wakers.insert(holder, cx.waker().clone());
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

    /// Whether the next connection waits for one that was displaced.
    pub fn is_waited_for(&self, key: &SessionKey, slot: &Slot<M>, claim: Claim) -> bool {
        self.lock().departures.session(key, Holder { slot: slot.id(), claim }).is_some()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bus, BusConfig, FifoLimits, FifoMailbox, Forgetful, Timestamp, WorkerId};

    #[test]
    fn the_end_of_one_wakes_only_those_that_go_on() {
        const COUNT: usize = 100;
        let bus = Bus::new(&BusConfig::default(), Box::new(Forgetful), Timestamp::ZERO, 0);
        let slot = bus.slot(FifoMailbox::new(FifoLimits { messages: 1, bytes: 1 }), WorkerId(0));
        let key = SessionKey(Arc::from("again and again"));
        let holders: Vec<_> = (0..COUNT).map(|_| Holder { slot: slot.id(), claim: slot.claim(WorkerId(0)) }).collect();
        let (mut departures, cx) = (Departures::default(), &Context::from_waker(Waker::noop()));
        let (latest, displaced) = holders.split_last().unwrap();
        for holder in displaced {
            departures.begin(&key, *holder, Session::Continues);
        }
        let will = departures.depart(&key);
        let waits = |departures: &mut Departures| -> Vec<bool> {
            holders.iter().map(|holder| departures.poll(&key, *holder, cx).is_pending()).collect()
        };
        for (ended, holder) in displaced.iter().enumerate() {
            let waiting = waits(&mut departures);
            assert!(waiting.iter().enumerate().all(|(at, waits)| *waits == (at != ended)), "{ended}: {waiting:?}");
            // Those that have ended ask no more; but they did here.
            let woken = departures.end(&key, *holder).len();
            assert_eq!(woken, usize::from(ended + 1 < displaced.len()), "after {ended}");
        }
        assert!(departures.poll(&key, *latest, cx).is_pending());
        assert!(!departures.departed(&key, &will).is_empty());
        assert!(departures.poll(&key, *latest, cx).is_ready() && departures.len() == 0);
        departures.begin(&key, holders[0], Session::Ended);
        departures.begin(&key, holders[1], Session::Ended);
        assert!(departures.poll(&key, *latest, cx).is_pending());
        assert_eq!(departures.forget_before(&key, *latest).len(), 1);
    }
}
