//! Slots: a subscriber's mailbox, its lock, and the waker of its owner.
//!
//! The ready flag is cleared *before* a mailbox is drained and set by each delivery: a delivery in between causes one
//! wake.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering},
    },
    task::{Context, Waker},
};

use crate::{
    id::{SlotId, SlotIds, WorkerId},
    mailbox::{Delivered, Mailbox, Readiness},
    memory::Memory,
    outcome::Outcome,
    route::{Batch, Picks, Pushed, Standing, Subscriber, Wake},
    slow_down::SlowDown,
};

/// Another connection has claimed the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another connection took the session over")]
pub struct Displaced;

/// Proof of the latest claim of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim(u64);

struct State<M> {
    mailbox: M,
    waker: Option<Waker>,
    ready: bool,
    accounted: usize,
    waiting: usize,
    readiness: Readiness,
    claims: u64,
    closed: bool,
}

/// A subscriber's mailbox with its lock; made by [`crate::Bus::slot`].
pub struct Slot<M: Mailbox> {
    id: SlotId,
    ids: Arc<SlotIds>,
    worker: AtomicUsize,
    connected: AtomicBool,
    /// A [`Readiness`], readable without the lock.
    readiness: AtomicU8,
    memory: Arc<Memory>,
    state: Mutex<State<M>>,
}

impl<M: Mailbox> Slot<M> {
    pub(crate) fn new(ids: Arc<SlotIds>, memory: Arc<Memory>, worker: WorkerId, mailbox: M) -> Arc<Self> {
        Arc::new(Self {
            id: ids.take(),
            ids,
            worker: AtomicUsize::new(worker.0),
            connected: AtomicBool::new(true),
            readiness: AtomicU8::new(Readiness::Ready as u8),
            memory,
            state: Mutex::new(State {
                mailbox,
                waker: None,
                ready: false,
                accounted: 0,
                waiting: 0,
                readiness: Readiness::Ready,
                claims: 0,
                closed: false,
            }),
        })
    }

    /// Its identifier.
    #[must_use]
    pub const fn id(&self) -> SlotId {
        self.id
    }

    fn lock(&self) -> MutexGuard<'_, State<M>> {
        // A panic under the lock is our bug; the mailbox is no worse for it than the panicking task's other state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, mailbox: &M, before: usize, after: usize) {
        self.memory.change_bytes(mailbox.door(), before, after);
        match mailbox.account() {
            Some(account) => account.change(before, after),
            None => self.memory.change_unowned(before, after),
        }
    }

    fn account(&self, state: &mut State<M>) {
        let now = state.mailbox.buffered_bytes();
        if now != state.accounted {
            self.change(&state.mailbox, state.accounted, now);
            state.accounted = now;
        }
        let waiting = state.mailbox.waiting();
        if waiting != state.waiting {
            self.memory.change_waiting(state.mailbox.door(), state.waiting, waiting);
            state.waiting = waiting;
        }
        let readiness = state.mailbox.readiness();
        if readiness != state.readiness {
            state.readiness = readiness;
            self.readiness.store(readiness as u8, Ordering::Relaxed);
        }
    }

    /// Makes the caller, on `worker`, the owner. A previous owner is woken and gets [`Displaced`] from then on.
    pub fn claim(&self, worker: WorkerId) -> Claim {
        let mut state = self.lock();
        state.claims += 1;
        state.ready = true;
        self.worker.store(worker.0, Ordering::Relaxed);
        self.set_connected(true);
        let (claim, waker) = (Claim(state.claims), state.waker.take());
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        claim
    }

    /// The latest claim.
    pub(crate) fn latest_claim(&self) -> Claim {
        Claim(self.lock().claims)
    }

    /// Releases the claim; the mailbox goes on collecting until the slot is closed or dropped. Does nothing if another
    /// connection has claimed the slot since.
    pub fn release(&self, claim: Claim) {
        let mut state = self.lock();
        if Claim(state.claims) == claim {
            state.waker = None;
            state.ready = true;
            self.set_connected(false);
        }
    }

    fn set_connected(&self, connected: bool) {
        if self.connected.swap(connected, Ordering::Relaxed) != connected {
            self.ids.connection_changed();
        }
    }

    /// Ends the slot, which nobody owns or will own: its mailbox drops what it holds, and later deliveries – routes of
    /// other workers may know the slot for a moment – are dropped. Returns how many messages waited.
    pub(crate) fn close(&self) -> usize {
        let mut state = self.lock();
        self.account(&mut state);
        let waited = state.waiting;
        state.closed = true;
        state.waker = None;
        state.mailbox.close();
        self.set_connected(false);
        self.account(&mut state);
        waited
    }

    /// Reads or changes the mailbox without clearing the ready flag.
    pub fn with<T>(&self, look: impl FnOnce(&mut M) -> T) -> T {
        let mut state = self.lock();
        let result = look(&mut state.mailbox);
        self.account(&mut state);
        result
    }

    /// Like [`Slot::with`], and wakes the owner, even if it waits for its socket.
    pub fn with_wake<T>(&self, look: impl FnOnce(&mut M) -> T) -> T {
        let mut state = self.lock();
        let result = look(&mut state.mailbox);
        self.account(&mut state);
        state.ready = true;
        if let Some(waker) = &state.waker {
            waker.wake_by_ref();
        }
        result
    }

    /// Clears the ready flag, registers the waker, then drains. A task that waits for its socket does not call it: the
    /// flag stays set, and deliveries do not wake the task.
    ///
    /// # Errors
    /// [`Displaced`] when another connection has claimed the slot; nothing was drained then.
    pub fn poll_with<T>(
        &self,
        claim: Claim,
        cx: &Context<'_>,
        drain: impl FnOnce(&mut M) -> T,
    ) -> Result<T, Displaced> {
        let mut state = self.lock();
        if Claim(state.claims) != claim {
            return Err(Displaced);
        }
        if !state.waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            state.waker = Some(cx.waker().clone());
        }
        state.ready = false;
        let result = drain(&mut state.mailbox);
        self.account(&mut state);
        Ok(result)
    }

    /// Reads the mailbox of an owner that is asleep; `None` when a wake is under way or the slot has another owner.
    pub fn with_asleep<T>(&self, claim: Claim, look: impl FnOnce(&M) -> T) -> Option<T> {
        let state = self.lock();
        (Claim(state.claims) == claim && !state.ready).then(|| look(&state.mailbox))
    }

    /// As [`Slot::with_claim`], where the mailbox may be given another account: what it holds goes there.
    ///
    /// # Errors
    /// [`Displaced`] when another connection has claimed the slot; nothing was done then.
    pub fn with_account<T>(&self, claim: Claim, change: impl FnOnce(&mut M) -> T) -> Result<T, Displaced> {
        let mut state = self.lock();
        if Claim(state.claims) != claim {
            return Err(Displaced);
        }
        self.change(&state.mailbox, state.accounted, 0);
        state.accounted = 0;
        let result = change(&mut state.mailbox);
        self.account(&mut state);
        Ok(result)
    }

    /// As [`Slot::with`], for the owner.
    ///
    /// # Errors
    /// [`Displaced`] when another connection has claimed the slot; nothing was done then.
    pub fn with_claim<T>(&self, claim: Claim, look: impl FnOnce(&mut M) -> T) -> Result<T, Displaced> {
        let mut state = self.lock();
        if Claim(state.claims) != claim {
            return Err(Displaced);
        }
        let result = look(&mut state.mailbox);
        self.account(&mut state);
        Ok(result)
    }
}

/// Notes in the outcomes that a subscriber asks their publisher to slow down.
#[cold]
fn note_slowed(batch: &Batch<'_, '_>, picks: Picks<'_>) {
    for publication in picks.filter_map(|pick| batch.publication(pick)) {
        publication.outcome.set(Outcome { slowed: true, ..publication.outcome() });
    }
}

impl<M: Mailbox> Subscriber for Slot<M> {
    fn standing(&self) -> Standing {
        if !self.connected.load(Ordering::Relaxed) {
            return Standing::Away;
        }
        Standing::Here(Readiness::from_u8(self.readiness.load(Ordering::Relaxed)))
    }

    fn push(&self, me: WorkerId, may_wake: bool, batch: &Batch<'_, '_>, picks: Picks<'_>, pushed: &mut Pushed) -> Wake {
        let tally = &mut pushed.tally;
        let mut state = self.lock();
        let mut urgent = false;
        if state.closed {
            picks.for_each(|_| Delivered::Gone.count(tally));
            return Wake::Done;
        }
        let home = WorkerId(self.worker.load(Ordering::Relaxed));
        for pick in picks.clone() {
            let Some((publication, delivery)) = batch.delivery(pick, home) else { continue };
            let delivered = state.mailbox.deliver(publication, &delivery);
            urgent |= matches!(delivered, Delivered::Overrun(_));
            delivered.count(tally);
        }
        if let Some(slow_down) = state.mailbox.slow_down() {
            SlowDown::merge(&mut pushed.slow_down, slow_down);
            note_slowed(batch, picks);
        }
        self.account(&mut state);
        if state.ready && !urgent {
            return Wake::Done;
        }
        state.ready = true;
        if home != me {
            return Wake::Remote(home);
        }
        let Some(waker) = &state.waker else { return Wake::Done };
        if !may_wake {
            return Wake::Later;
        }
        waker.wake_by_ref();
        Wake::Woken
    }

    fn wake(&self) {
        let state = self.lock();
        if let Some(waker) = &state.waker {
            waker.wake_by_ref();
        }
    }
}

impl<M: Mailbox> Drop for Slot<M> {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        match state.mailbox.account() {
            Some(account) => account.change(state.accounted, 0),
            None => self.memory.change_unowned(state.accounted, 0),
        }
        self.memory.change_bytes(state.mailbox.door(), state.accounted, 0);
        self.memory.change_waiting(state.mailbox.door(), state.waiting, 0);
        self.ids.give_back(self.id);
    }
}

impl<M: Mailbox> std::fmt::Debug for Slot<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot").field("id", &self.id).finish_non_exhaustive()
    }
}
