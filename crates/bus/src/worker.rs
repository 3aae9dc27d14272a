//! A worker's end of the bus: publishes a batch, wakes each other worker once.

use std::{
    rc::Rc,
    sync::{Arc, PoisonError},
    task::{Context, Poll},
};

use crate::{
    bus::Bus,
    counters::Tally,
    id::WorkerId,
    limits::STAGED_MAX,
    mailbox::Delivered,
    message::{Door, MessageId, Publication, Qos},
    outcome::Outcome,
    retained::{Completion, RetainedError},
    route::{Batch, Pick, RouteCache, Routes, Staging, Subscriber, Wake},
    topic::TopicRef,
};

/// What a batch gives: the publications hold their outcomes, and acknowledgements wait for this.
#[derive(Debug)]
#[must_use = "acknowledgements wait for the completion"]
pub struct Published {
    /// Complete when everything that must be kept is.
    pub completion: Completion,
}

/// The publishing end of one worker thread.
pub struct Worker {
    bus: Arc<Bus>,
    id: WorkerId,
    sequence: u64,
    cache: RouteCache,
    routes: Vec<Rc<Routes>>,
    staging: Staging,
    remote: Vec<Vec<Arc<dyn Subscriber>>>,
    awake: Vec<Arc<dyn Subscriber>>,
    nobody: Rc<Routes>,
}

impl Bus {
    /// The publishing end for one worker thread.
    #[must_use]
    pub fn worker(self: &Arc<Self>, id: WorkerId) -> Worker {
        Worker::new(Arc::clone(self), id)
    }
}

impl Worker {
    pub(crate) fn new(bus: Arc<Bus>, id: WorkerId) -> Self {
        let workers = bus.inboxes.len();
        Self {
            bus,
            id,
            sequence: (id.0 as u64) << 48,
            cache: RouteCache::default(),
            routes: Vec::new(),
            staging: Staging::default(),
            remote: (0..workers).map(|_| Vec::new()).collect(),
            awake: Vec::new(),
            nobody: Rc::default(),
        }
    }

    /// Its name.
    #[must_use]
    pub const fn id(&self) -> WorkerId {
        self.id
    }

    /// The shared part.
    #[must_use]
    pub const fn bus(&self) -> &Arc<Bus> {
        &self.bus
    }

    /// Publishes a batch: keeps what is retained, routes, groups by destination, pushes once per mailbox and wakes
    /// once per worker. The outcome of each is in [`Publication::outcome`].
    pub fn publish(&mut self, batch: &mut [Publication<'_>]) -> Published {
        let mut tally = Tally { published: batch.len() as u64, ..Tally::default() };
        let mut completion = Completion::Ready;
        for publication in batch.iter_mut() {
            self.sequence += 1;
            publication.id = MessageId(self.sequence);
            if publication.retain || publication.precondition.is_some() {
                self.keep(publication, &mut completion);
            }
        }
        let mut start = 0;
        while let Some(rest) = batch.get(start..).filter(|rest| !rest.is_empty()) {
            start += self.stage(rest, &mut tally);
            self.flush(rest, &mut tally);
        }
        self.bus.counters().add(&tally);
        Published { completion }
    }

    fn keep(&self, publication: &Publication<'_>, completion: &mut Completion) {
        match self.bus.keep().keep(publication) {
            Ok(kept) => {
                publication.outcome.set(Outcome { replaced: kept.replaced, ..publication.outcome() });
                if !matches!(kept.completion, Completion::Ready) {
                    *completion = kept.completion;
                }
            }
            Err(RetainedError::Precondition) => {
                publication.outcome.set(Outcome { precondition_failed: true, ..publication.outcome() });
            }
            Err(RetainedError::Full) => {
                publication.outcome.set(Outcome { refused: true, ..publication.outcome() });
            }
            Err(RetainedError::Store(_)) => {
                // What cannot be refused is not lost to those who listen now (3.1.1 [MQTT-3.3.1-7]).
                let refused = publication.can_be_refused();
                publication.outcome.set(Outcome { refused, unkept: true, ..publication.outcome() });
            }
        }
    }

    // Stages publications until the arena is full; gives how many.
    fn stage(&mut self, batch: &[Publication<'_>], tally: &mut Tally) -> usize {
        self.routes.clear();
        let mut last: Option<&str> = None;
        for (index, publication) in batch.iter().enumerate() {
            let topic = publication.topic;
            let routes = match (last == Some(topic.as_str()), self.routes.last()) {
                (true, Some(routes)) => Rc::clone(routes),
                _ => self.route(topic, tally),
            };
            last = Some(topic.as_str());
            if publication.outcome().is_refusal() {
                self.routes.push(Rc::clone(&self.nobody));
                continue;
            }
            self.stage_one(index, publication, &routes, tally);
            self.routes.push(routes);
            if self.staging.len() >= STAGED_MAX {
                return index + 1;
            }
        }
        batch.len()
    }

    fn stage_one(&mut self, index: usize, publication: &Publication<'_>, routes: &Routes, tally: &mut Tally) {
        let mut matched = 0;
        let chosen = routes.groups.iter().filter_map(|group| routes.choose(group));
        for entry_index in (0..routes.direct).chain(chosen) {
            let Some(entry) = routes.entries.get(entry_index) else { continue };
            if entry.no_local && publication.publisher.slot == Some(entry.slot) {
                continue;
            }
            let (Ok(publication), Ok(entry_index)) = (u32::try_from(index), u32::try_from(entry_index)) else {
                continue;
            };
            self.staging.stage(entry.slot, Pick { publication, entry: entry_index });
            matched += 1;
        }
        if matched == 0 {
            tally.unmatched += 1;
        }
        publication.outcome.set(Outcome { matched, ..publication.outcome() });
    }

    fn route(&mut self, topic: TopicRef<'_>, tally: &mut Tally) -> Rc<Routes> {
        // The stamp is read before the tree: what changes in between makes the entry stale, never wrongly fresh.
        let stamp = self.bus.stamp(topic.as_str());
        if let Some(routes) = self.cache.get(topic.as_str(), stamp) {
            tally.route_hits += 1;
            return routes;
        }
        tally.route_misses += 1;
        let matched = self.bus.matching(topic.as_str());
        let routes = Rc::new(Routes::build(topic, matched.direct, matched.groups));
        self.cache.put(topic.as_str(), stamp, &routes);
        routes
    }

    fn flush(&mut self, publications: &[Publication<'_>], tally: &mut Tally) {
        let batch = Batch { publications, routes: &self.routes };
        let (me, remote) = (self.id, &mut self.remote);
        self.staging.drain(|first, picks| {
            let Some(entry) = batch.entry(first) else { return };
            if let Wake::Remote(worker) = entry.subscriber.push(me, &batch, picks, tally)
                && let Some(list) = remote.get_mut(worker.0)
            {
                list.push(Arc::clone(&entry.subscriber));
            }
        });
        for (list, inbox) in remote.iter_mut().zip(&self.bus.inboxes) {
            if list.is_empty() {
                continue;
            }
            let mut inbox = inbox.lock().unwrap_or_else(PoisonError::into_inner);
            inbox.ready.append(list);
            let waker = inbox.waker.take();
            drop(inbox);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
        self.routes.clear();
    }

    /// Wakes the owners of mailboxes that other workers delivered to; never ready. One task per worker polls it.
    pub fn poll_wakes(&mut self, cx: &Context<'_>) -> Poll<()> {
        let Some(inbox) = self.bus.inboxes.get(self.id.0) else { return Poll::Pending };
        let mut inbox = inbox.lock().unwrap_or_else(PoisonError::into_inner);
        inbox.waker = Some(cx.waker().clone());
        std::mem::swap(&mut inbox.ready, &mut self.awake);
        drop(inbox);
        for subscriber in self.awake.drain(..) {
            subscriber.wake();
        }
        Poll::Pending
    }

    /// Drops cached routes and with them what they keep alive; for a worker that has been idle.
    pub fn forget_routes(&mut self) {
        self.cache = RouteCache::default();
    }
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Outcome {
    const fn is_refusal(self) -> bool {
        self.refused || self.precondition_failed
    }
}

impl Publication<'_> {
    /// What became of it; meaningful after [`Worker::publish`].
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.outcome.get()
    }

    /// Whether its publisher can be told: everybody but an MQTT client at QoS 0.
    fn can_be_refused(&self) -> bool {
        self.qos != Qos::AtMostOnce || self.publisher.door != Door::Mqtt
    }

    pub(crate) fn note(&self, delivered: Delivered) {
        if matches!(delivered, Delivered::Refused) {
            self.outcome.set(Outcome { refused: true, ..self.outcome() });
        }
    }
}
