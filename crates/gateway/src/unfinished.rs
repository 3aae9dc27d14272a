//! Unfinished input of clients: packets, stanzas and uploads that have begun and not ended (ADR 0036); and answers that
//! clients have yet to take.
//!
//! Each door has a bound for those of all its clients. Above it input of the principal that has most gives way. Only
//! input that is still there when its task goes to sleep is counted, and only more than a little: a client that sends
//! messages of usual size costs no lock.

use std::{
    future::poll_fn,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use fogmux_auth::Principal;
use fogmux_bus::Timestamp;
use fogmux_fair::{Owner, Room};

use crate::{WorkerContext, shares::Table, stops::Running};

/// Bytes of unfinished input that each connection may have, and that are not counted.
pub(crate) const SMALL_BYTES: usize = 2048;

/// Input to which nothing was added for this long gives way before other input of its owner.
pub(crate) const REST: Duration = Duration::from_secs(2);

/// The owner of what a client has begun.
pub(crate) fn owner(principal: &Principal, address: std::net::SocketAddr) -> Owner {
    if principal.anonymous { Owner::nameless(address.ip()) } else { Owner::principal(Arc::clone(&principal.name)) }
}

/// Input that has come whole, in a buffer of its size. The one that it was read into has grown by doubling, and a
/// message is counted with its length for as long as it stays.
pub(crate) fn finished(bytes: BytesMut) -> Bytes {
    let mut bytes = Vec::from(bytes);
    bytes.shrink_to_fit();
    Bytes::from(bytes)
}

/// The unfinished input of all clients of a door.
#[derive(Debug)]
pub(crate) struct Unfinished {
    room: Mutex<Room<Arc<Waiter>>>,
    table: Table,
    /// Input to which nothing was added for this long gives way before other input of its owner.
    rest: Duration,
}

/// The connection that waits for the rest of its input.
#[derive(Debug, Default)]
pub(crate) struct Waiter {
    gave_way: AtomicBool,
    /// When bytes were last added, in milliseconds of the time in which all workers ran.
    touched: AtomicU64,
    waker: Mutex<Option<Waker>>,
}

/// The place of one connection or request among all unfinished input.
#[derive(Debug)]
pub(crate) struct Place {
    all: Arc<Unfinished>,
    owner: Owner,
    waiter: Arc<Waiter>,
    /// The number of the entry and its bytes, while it is counted.
    counted: Option<(u64, usize)>,
    /// The bytes that the input had when it was last touched; its buffer may have room for more.
    filled: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Unfinished {
    pub(crate) fn new(table: Table, bytes_max: usize, rest: Duration) -> Arc<Self> {
        Arc::new(Self { room: Mutex::new(Room::new(bytes_max)), table, rest })
    }

    /// Bytes of all unfinished input that is counted.
    pub(crate) fn bytes(&self) -> usize {
        lock(&self.room).weight()
    }

    /// Changes the weight of an entry. False if it is gone.
    pub(crate) fn weigh(&self, number: u64, bytes: usize) -> bool {
        lock(&self.room).set(number, bytes)
    }

    /// Has input give way while there is too much.
    fn make_room(&self, ctx: &WorkerContext, room: &mut Room<Arc<Waiter>>, now: Timestamp) {
        let running = ctx.shared.clock.stops().running(now);
        let rests = |waiter: &Arc<Waiter>| {
            let rested = running.since(Running::from_millis(waiter.touched.load(Relaxed)));
            (rested >= self.rest).then_some(rested)
        };
        while let Some(gone) = room.give_way(rests) {
            gone.value.give_way();
            ctx.shared.metrics.shares.gave_way(self.table, &gone.owner, 1, now);
        }
    }
}

impl Waiter {
    fn give_way(&self) {
        self.gave_way.store(true, Release);
        self.wake();
    }

    /// Wakes the task that waits.
    pub(crate) fn wake(&self) {
        if let Some(waker) = lock(&self.waker).take() {
            waker.wake();
        }
    }

    /// Notes progress.
    pub(crate) fn touch(&self, ctx: &WorkerContext) {
        self.touched.store(ctx.running().as_millis(), Relaxed);
    }

    /// Whether the input has to end for that of others.
    pub(crate) fn has_given_way(&self) -> bool {
        self.gave_way.load(Acquire)
    }

    /// Ready when the input has to end for that of others.
    pub(crate) fn poll_gave_way(&self, cx: &Context<'_>) -> Poll<()> {
        {
            let mut waker = lock(&self.waker);
            if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                *waker = Some(cx.waker().clone());
            }
        }
        if self.has_given_way() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Completes when the input has to end for that of others.
    pub(crate) async fn gave_way(&self) {
        poll_fn(|cx| self.poll_gave_way(cx)).await;
    }
}

impl Place {
    pub(crate) fn new(all: &Arc<Unfinished>, owner: Owner) -> Self {
        Self::with(all, owner, Arc::default())
    }

    /// A place whose waiter is known, and may have other places.
    pub(crate) fn with(all: &Arc<Unfinished>, owner: Owner, waiter: Arc<Waiter>) -> Self {
        Self { all: Arc::clone(all), owner, waiter, counted: None, filled: 0 }
    }

    /// A place for more input of the same connection: they give way together.
    pub(crate) fn beside(&self) -> Self {
        self.owned_by(self.owner.clone())
    }

    /// A place for the input of the same connection under another owner.
    pub(crate) fn owned_by(&self, owner: Owner) -> Self {
        Self::with(&self.all, owner, Arc::clone(&self.waiter))
    }

    pub(crate) const fn waiter(&self) -> &Arc<Waiter> {
        &self.waiter
    }

    /// The input takes up so many bytes from now on, `filled` of which have come. False if it has to end for that of
    /// others.
    pub(crate) fn set(&mut self, ctx: &WorkerContext, bytes: usize, filled: usize) -> bool {
        if bytes <= SMALL_BYTES {
            self.leave();
            // It ended by itself before it had to.
            if self.waiter.has_given_way() {
                self.waiter = Arc::default();
            }
            return true;
        }
        if self.waiter.has_given_way() {
            return false;
        }
        let now = ctx.now();
        // A connection may be busy with other things, its output for example.
        if self.counted.is_none() || self.filled != filled {
            self.filled = filled;
            self.waiter.touched.store(ctx.shared.clock.stops().running(now).as_millis(), Relaxed);
        }
        if self.counted.is_none_or(|(_, before)| before != bytes) {
            let mut room = lock(&self.all.room);
            let number = match self.counted {
                Some((number, _)) => {
                    room.set(number, bytes);
                    number
                }
                None => room.enter(self.owner.clone(), bytes, Arc::clone(&self.waiter)),
            };
            self.counted = Some((number, bytes));
            self.all.make_room(ctx, &mut room, now);
        }
        !self.waiter.has_given_way()
    }

    /// The number of its entry, while it is counted.
    pub(crate) fn number(&self) -> Option<u64> {
        self.counted.map(|(number, _)| number)
    }

    /// The input is finished.
    pub(crate) fn leave(&mut self) {
        if let Some((number, _)) = self.counted.take() {
            lock(&self.all.room).leave(number);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_message_has_no_room_for_more() {
        for length in [0, 1, 65_535, 65_536, 65_537, 70_000, (1 << 20) + 1] {
            let mut bytes = BytesMut::new();
            while bytes.len() < length {
                bytes.extend_from_slice(&vec![7; 1_000.min(length - bytes.len())]);
            }
            let whole = finished(bytes);
            assert_eq!(whole, vec![7; length]);
            let capacity = whole.try_into_mut().map_or(0, |bytes| bytes.capacity());
            assert_eq!(capacity, length);
        }
    }
}
