//! Event streams and their registry. A stream outlives its connection for a grace period, so that its reader can resume
//! it.

mod mailbox;
mod walk;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicUsize},
    time::Duration,
};

use fogmux_auth::Principal;
use fogmux_bus::{
    Bus, Claim, Message, NoRoom, Qos, ReadGate, Slot, SubscribeOptions, Subscription, Timestamp, TooManySubscriptions,
};

use fogmux_fair::{Owner, Room};
pub(super) use mailbox::{Chunk, Gap, Limits, Portion, StreamMailbox, Taken};
pub(super) use walk::Place;

use super::config::HttpConfig;
use crate::{WorkerContext, shares::Table};

/// Bytes that a parked stream may collect.
const PARKED_BYTES_MAX: usize = 128 << 10;

/// One stream: its mailbox and its subscriptions, which end with it.
pub(super) struct Stream {
    pub(super) id: u64,
    pub(super) slot: Arc<Slot<StreamMailbox>>,
    pub(super) subscriptions: Vec<Subscription>,
    principal: Principal,
    /// The owner in whose share it is while it is parked.
    owner: Owner,
    max_qos: Qos,
    bus: Arc<Bus>,
}

impl Stream {
    pub(super) fn max_qos(&self) -> Qos {
        self.max_qos
    }
}

impl Stream {
    /// Its subscriptions with their tags. Each shared one has a tag of its own: it is delivered separately, and its
    /// messages can be handed on.
    fn tagged(&self) -> impl Iterator<Item = (u64, &Subscription)> {
        (1..).zip(&self.subscriptions).map(|(number, one)| (if one.group.is_some() { number } else { 0 }, one))
    }

    fn unsubscribe(&self) {
        for (tag, subscription) in self.tagged() {
            self.bus.unsubscribe(&self.slot, subscription, tag);
        }
    }

    /// Ends the stream.
    fn end(&self, ctx: &WorkerContext) {
        self.unsubscribe();
        self.hand_on(ctx);
        self.bus.close(&self.slot);
    }

    /// Hands what waits of shared subscriptions to other members, if there are any.
    fn hand_on(&self, ctx: &WorkerContext) {
        let shared = self.shared();
        if !shared.is_empty() {
            crate::left::hand_on_tagged(ctx, self.slot.with(StreamMailbox::take_shared), |tag| {
                shared.get(&tag).cloned()
            });
        }
    }

    /// Hands messages that the reader may not read any more, by the tags of its shared subscriptions, to other members.
    pub(super) fn hand_on_unread(&self, ctx: &WorkerContext, unread: Vec<(u64, Arc<Message>)>) {
        if !unread.is_empty() {
            let shared = self.shared();
            crate::left::hand_on_tagged(ctx, unread, |tag| shared.get(&tag).cloned());
        }
    }

    fn shared(&self) -> HashMap<u64, Arc<Subscription>> {
        let shared = self.tagged().filter(|(tag, _)| *tag != 0);
        shared.map(|(tag, subscription)| (tag, Arc::new(subscription.clone()))).collect()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.unsubscribe();
        self.bus.close(&self.slot);
    }
}

/// The properties of a new stream.
pub(super) struct Wanted {
    pub(super) principal: Principal,
    pub(super) owner: Owner,
    pub(super) gate: Arc<dyn ReadGate>,
    pub(super) subscriptions: Vec<Subscription>,
    pub(super) max_qos: Qos,
    /// Whether to begin with the retained messages.
    pub(super) kept: bool,
}

/// Why there is no stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoStream {
    #[error("too many event streams")]
    TooMany,
    #[error(transparent)]
    TooManySubscriptions(#[from] TooManySubscriptions),
    #[error("there are no random numbers")]
    NoRandomness,
}

struct Entry {
    stream: Arc<Stream>,
    /// Since when it has no reader, and its number among those without.
    parked: Option<(Timestamp, u64)>,
}

/// The streams by identifier, and those without a reader, which share their places by owner (ADR 0036).
struct Streams {
    all: HashMap<u64, Entry>,
    parked: Room<u64>,
}

impl Streams {
    fn remove(&mut self, id: u64) -> Option<Entry> {
        let entry = self.all.remove(&id)?;
        if let Some((_, number)) = entry.parked {
            self.parked.leave(number);
        }
        Some(entry)
    }

    /// Notes that a stream has no reader.
    fn park(&mut self, now: Timestamp, id: u64) {
        self.resume(id);
        if let Some(entry) = self.all.get_mut(&id) {
            entry.parked = Some((now, self.parked.enter(entry.stream.owner.clone(), 1, id)));
        }
    }

    /// Notes that a stream has a reader.
    fn resume(&mut self, id: u64) {
        if let Some((_, number)) = self.all.get_mut(&id).and_then(|entry| entry.parked.take()) {
            self.parked.leave(number);
        }
    }

    /// Removes the stream that has been parked for longest, of the owner with most among those that share with this
    /// one, or among all.
    fn take_parked(&mut self, beside: Option<&Owner>) -> Option<Entry> {
        let heaviest = match beside {
            Some(owner) => self.parked.heaviest_beside(owner),
            None => self.parked.heaviest(),
        };
        let (_, id) = self.parked.of_owner(&heaviest?).next()?;
        let id = *id;
        self.remove(id)
    }
}

/// All streams of the gateway.
pub(super) struct Registry {
    streams: Mutex<Streams>,
    /// Bytes in all their mailboxes.
    bytes: Arc<AtomicUsize>,
    limits: Limits,
    streams_max: usize,
    grace: Duration,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").field("count", &self.count()).finish_non_exhaustive()
    }
}

impl Registry {
    pub(super) fn new(config: &HttpConfig) -> Self {
        Self {
            streams: Mutex::new(Streams { all: HashMap::new(), parked: Room::new(config.event_streams_parked_max) }),
            bytes: Arc::default(),
            limits: Limits {
                messages: config.event_stream_messages,
                bytes: config.event_stream_bytes,
                all_bytes: config.event_streams_bytes,
            },
            streams_max: config.event_streams_max,
            grace: config.event_stream_grace,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of streams, and of those without a reader.
    pub(super) fn count(&self) -> (usize, usize) {
        let streams = self.lock();
        (streams.all.len(), streams.parked.len())
    }

    /// Opens a stream, claimed by the caller.
    pub(super) fn open(&self, ctx: &WorkerContext, wanted: Wanted) -> Result<(Arc<Stream>, Claim), NoStream> {
        let mut victim = None;
        {
            let mut streams = self.lock();
            let principal = &*wanted.principal.name;
            let own = streams.all.values().filter(|entry| *entry.stream.principal.name == *principal).count();
            if let Err(why) = ctx.bus().room(self.streams_max).admit(streams.all.len(), own, 1) {
                // A stream without a reader makes room for one with a reader: one of the same principal, or, where the
                // table is full, of the one that has most.
                victim = streams.take_parked(match why {
                    NoRoom::Share => Some(&wanted.owner),
                    NoRoom::Full => None,
                });
                let shares = &ctx.shared.metrics.shares;
                let Some(entry) = &victim else {
                    shares.refused(Table::EventStreams, principal, ctx.now());
                    return Err(NoStream::TooMany);
                };
                if *entry.stream.principal.name != *principal {
                    shares.event_stream_gave_way();
                }
            }
        }
        victim.iter().for_each(|entry| entry.stream.end(ctx));
        let id = getrandom::u64().map_err(|_| NoStream::NoRandomness)?;
        let walk = wanted.kept.then(Place::default);
        let bus = Arc::clone(ctx.bus());
        let account = bus.memory().account(wanted.owner.clone());
        let mailbox = StreamMailbox::new(self.limits, Arc::clone(&self.bytes), walk).of(account);
        let slot = bus.slot(mailbox, ctx.id);
        let claim = slot.claim(ctx.id);
        let stream = Stream {
            id,
            slot,
            subscriptions: wanted.subscriptions,
            principal: wanted.principal,
            owner: wanted.owner,
            max_qos: wanted.max_qos,
            bus: Arc::clone(&bus),
        };
        for (tag, subscription) in stream.tagged() {
            let options = SubscribeOptions {
                tag,
                max_qos: stream.max_qos,
                gate: Some(Arc::clone(&wanted.gate)),
                ..SubscribeOptions::default()
            };
            bus.subscribe(&stream.slot, subscription, options)?;
        }
        let stream = Arc::new(stream);
        self.lock().all.insert(id, Entry { stream: Arc::clone(&stream), parked: None });
        Ok((stream, claim))
    }

    /// Claims a stream for a reader that returns, if it is the same reader with the same subscriptions and the events
    /// after `sequence` are there or known to be lost.
    pub(super) fn resume(
        &self,
        ctx: &WorkerContext,
        id: fogmux_http::sse::EventId,
        wanted: &Wanted,
    ) -> Option<(Arc<Stream>, Claim)> {
        let mut streams = self.lock();
        let stream = Arc::clone(&streams.all.get(&id.stream)?.stream);
        // The messages that wait were let in by the rights of the one who opened it.
        if !stream.principal.has_same_rights(&wanted.principal)
            || stream.subscriptions != wanted.subscriptions
            || stream.max_qos != wanted.max_qos
        {
            return None;
        }
        // Before the claim, which displaces the present reader. What was sent stays so.
        if !stream.slot.with(|mailbox| mailbox.has_sent(id.sequence)) {
            return None;
        }
        let claim = stream.slot.claim(ctx.id);
        let limits = self.limits;
        let resumed = stream.slot.with_claim(claim, |mailbox| {
            stream.bus.counters().full(mailbox.set_limits(limits));
            mailbox.rewind(id.sequence)
        });
        if !resumed.unwrap_or(false) {
            return None;
        }
        streams.resume(id.stream);
        Some((stream, claim))
    }

    /// Parks a stream whose reader has gone, unless another has taken it over.
    pub(super) fn park(&self, ctx: &WorkerContext, stream: &Arc<Stream>, claim: Claim) {
        let parked_limits = Limits { bytes: PARKED_BYTES_MAX.min(self.limits.bytes), ..self.limits };
        if stream.slot.with_claim(claim, |_| ()).is_err() {
            return;
        }
        stream.slot.release(claim);
        // While others are there, nothing of a shared subscription waits for a reader that may not come back.
        stream.hand_on(ctx);
        let Ok(dropped) = stream.slot.with_claim(claim, |mailbox| mailbox.set_limits(parked_limits)) else { return };
        stream.bus.counters().full(dropped);
        let mut ended = Vec::new();
        {
            let mut streams = self.lock();
            streams.park(ctx.now(), stream.id);
            while streams.parked.is_overfull() {
                match streams.take_parked(None) {
                    Some(entry) => ended.push(entry),
                    None => break,
                }
            }
        }
        let shares = &ctx.shared.metrics.shares;
        ended.iter().for_each(|_| shares.event_stream_gave_way());
        ended.iter().for_each(|entry| entry.stream.end(ctx));
    }

    /// Ends a stream that its reader has closed.
    pub(super) fn end(&self, ctx: &WorkerContext, stream: &Arc<Stream>) {
        let ended = self.lock().remove(stream.id);
        ended.iter().for_each(|entry| entry.stream.end(ctx));
    }

    /// Ends streams that have waited longer than the grace period.
    pub(super) fn expire(&self, ctx: &WorkerContext) {
        let (now, grace) = (ctx.now(), self.grace);
        let ended: Vec<Entry> = {
            let mut streams = self.lock();
            let is_over = |entry: &Entry| entry.parked.is_some_and(|(since, _)| now.since(since) >= grace);
            let over: Vec<u64> = streams.all.iter().filter(|(_, entry)| is_over(entry)).map(|(id, _)| *id).collect();
            over.into_iter().filter_map(|id| streams.remove(id)).collect()
        };
        // Outside the lock: each unsubscribes.
        ended.iter().for_each(|entry| entry.stream.end(ctx));
    }
}
