//! A worker's end of the bus: publishes batches and wakes the owners of mailboxes.

mod ordered;
mod stage;
mod wakes;

use std::{collections::HashMap, rc::Rc, sync::Arc};

#[cfg(feature = "traces")]
use crate::tracer::Tracer;
use crate::{
    bus::Bus,
    completions::Completions,
    copies::Copies,
    counters::Tally,
    durable::{self, Earlier, Gather},
    group::Members,
    id::WorkerId,
    limits::{
        DELIVERIES_PER_TURN, HANDED_ON_TOGETHER, RUN_MAX, STAGED_MAX, STORED_STAGED_MAX, STORED_WORK, WAKES_PER_TURN,
    },
    message::{Message, MessageId, Publication},
    outcome::Outcome,
    retained::Completion,
    route::{Batch, Pushed, RouteCache, Routes, Staging, Subscriber, Wake},
    sampling::Sampling,
    slow_down::SlowDown,
    subscription::Subscription,
    wake_list::{Place, WakeList},
};

/// The result of publishing a batch. Outcomes are in the publications; acknowledgements wait for the completions.
#[derive(Debug)]
#[must_use = "acknowledgements wait for the completions"]
pub struct Published {
    /// Resolve when what must be stored is stored.
    pub completions: Completions,
    /// The place in the worker's wake list up to which subscribers of this batch have still to be woken; `None` if all
    /// are awake. A publisher that continues before [`Worker::has_woken`] only fills their mailboxes.
    pub unwoken: Option<Place>,
    /// The pause that subscribers ask for; `None` if all of them keep up.
    pub slow_down: Option<SlowDown>,
    /// The number of publications at the start of the batch that this is about; see [`Worker::publish_some`].
    pub taken: usize,
    /// The work that they made, in deliveries: these themselves, and finding the subscribers of topics that were not
    /// published to recently.
    pub deliveries: u64,
}

/// Adds to what publications put into the store of sessions.
pub type Add<'a> = dyn Fn(&[Publication<'_>], &Gather) + 'a;

/// The publishing end of one worker thread.
pub struct Worker {
    bus: Arc<Bus>,
    id: WorkerId,
    sequence: u64,
    cache: RouteCache,
    routes: Vec<Rc<Routes>>,
    staging: Staging,
    copies: Copies,
    remote: Vec<Vec<Arc<dyn Subscriber>>>,
    awake: Vec<Arc<dyn Subscriber>>,
    wakes: WakeList,
    /// Owners woken by the batch that is being published.
    woken: usize,
    /// The work of finding subscribers since the last batch was published, in deliveries.
    routed: u64,
    /// There was a topic of which a run of retained publications would make too much work.
    has_wide: bool,
    /// Deliveries staged together, at most: fewer while they have records in the store of sessions.
    staged_max: usize,
    /// The length of the next run of retained publications, at most.
    run_max: usize,
    /// [`Bus::generation`] at the last complete sweep of the cache.
    swept: u64,
    nobody: Rc<Routes>,
    /// Chooses the publications whose deliveries are timed, if any are.
    sampling: Option<Sampling>,
    #[cfg(feature = "traces")]
    tracer: Option<Box<dyn Tracer>>,
    /// Batches of its publishers that the store of sessions holds.
    earlier: Earlier,
}

impl Bus {
    /// Creates the publishing end of one worker thread.
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
            copies: Copies::new(id),
            remote: (0..workers).map(|_| Vec::new()).collect(),
            awake: Vec::new(),
            wakes: WakeList::default(),
            woken: 0,
            routed: 0,
            has_wide: false,
            staged_max: STAGED_MAX,
            run_max: RUN_MAX,
            swept: 0,
            nobody: Rc::default(),
            sampling: None,
            #[cfg(feature = "traces")]
            tracer: None,
            earlier: Earlier::default(),
        }
    }

    /// The worker's identifier.
    #[must_use]
    pub const fn id(&self) -> WorkerId {
        self.id
    }

    /// The shared bus.
    #[must_use]
    pub const fn bus(&self) -> &Arc<Bus> {
        &self.bus
    }

    /// Has deliveries timed from now on. `clock` gives microseconds since the origin of the timestamps that come with
    /// publications.
    pub fn time_deliveries(&mut self, clock: impl Fn() -> u64 + 'static) {
        self.sampling = Some(Sampling::new(clock));
    }

    /// Shows publications to a tracer from now on.
    #[cfg(feature = "traces")]
    pub fn trace(&mut self, tracer: Box<dyn Tracer>) {
        self.tracer = Some(tracer);
    }

    /// Publishes a batch: retains, routes, groups by destination, pushes once per mailbox and wakes once per worker.
    /// The outcome of each is in [`Publication::outcome`]. A bus that is shut down refuses all.
    pub fn publish(&mut self, batch: &mut [Publication<'_>]) -> Published {
        if self.bus.is_shut_down() { self.refuse_all(batch) } else { self.publish_up_to(u64::MAX, batch, &|_, _| {}) }
    }

    /// As [`publish`](Self::publish), but stops after the publication with which there are [`DELIVERIES_PER_TURN`]. The
    /// publications behind [`Published::taken`] are to be published in another turn, and have no outcome yet. At least
    /// one is taken of a batch that is not empty.
    pub fn publish_some(&mut self, batch: &mut [Publication<'_>]) -> Published {
        self.publish_some_with(batch, &|_, _| {})
    }

    /// As [`publish_some`](Self::publish_some). `add` adds to the deliveries of the publications that were taken, and
    /// all of that is one batch of the store of sessions. No lock of the bus is held then.
    pub fn publish_some_with(&mut self, batch: &mut [Publication<'_>], add: &Add<'_>) -> Published {
        if self.bus.is_shut_down() { self.refuse_all(batch) } else { self.publish_rest(batch, add) }
    }

    /// As [`publish_some_with`](Self::publish_some_with), also on a bus that is shut down: for the rest of a batch,
    /// which came in before that.
    pub fn publish_rest(&mut self, batch: &mut [Publication<'_>], add: &Add<'_>) -> Published {
        self.publish_up_to(DELIVERIES_PER_TURN, batch, add)
    }

    /// As [`publish`](Self::publish), also on a bus that is shut down: for wills, which are published after their
    /// clients have gone.
    pub fn publish_will(&mut self, batch: &mut [Publication<'_>], add: &Add<'_>) -> Published {
        self.publish_up_to(u64::MAX, batch, add)
    }

    #[cold]
    fn refuse_all(&self, batch: &[Publication<'_>]) -> Published {
        batch.iter().for_each(Publication::refuse);
        self.bus.counters().add(&Tally { refused: batch.len() as u64, ..Tally::default() });
        let completions = Completions::default();
        Published { completions, unwoken: None, slow_down: None, taken: batch.len(), deliveries: 0 }
    }

    /// Publishes until there are so many deliveries.
    fn publish_up_to(&mut self, most: u64, batch: &mut [Publication<'_>], add: &Add<'_>) -> Published {
        let gather = Gather::default();
        let mut pushed = Pushed::default();
        let mut completions = Completions::default();
        let mut ordered = false;
        let before = self.wakes.end();
        self.woken = 0;
        for publication in batch.iter_mut() {
            self.sequence += 1;
            publication.id = MessageId(self.sequence);
            ordered |= publication.is_ordered();
        }
        #[cfg(feature = "traces")]
        if let Some(tracer) = &mut self.tracer {
            tracer.begin(batch);
        }
        // Those of the gateway itself come by no door.
        let is_timed = |publication: &Publication<'_>| publication.publisher.door.is_some();
        let sampling = self.sampling.as_mut().filter(|_| batch.first().is_some_and(is_timed));
        let all_timed = sampling.is_some_and(|sampling| sampling.choose(batch));
        let taken = if ordered {
            self.publish_in_order(most, batch, &gather, &mut pushed, &mut completions)
        } else {
            self.deliver(most, batch, &gather, &mut pushed)
        };
        if let Some((batch, first)) = batch.get(..taken).and_then(|batch| Some((batch, batch.first()?))) {
            add(batch, &gather);
            let is_stored = |index: usize| batch.get(index).is_some_and(|one| one.outcome().stored);
            let is_state = |index: usize| batch.get(index).is_some_and(|one| one.meaning.is_state());
            let appended = gather.append_published(first.publisher, &mut self.earlier);
            completions.join(&appended, taken, is_stored, is_state);
        }
        self.wake_workers();
        #[cfg(feature = "traces")]
        if let Some(tracer) = &mut self.tracer {
            tracer.end(batch, taken);
        }
        let Pushed { mut tally, slow_down } = pushed;
        let deliveries = self.work(&tally, &gather);
        self.routed = 0;
        if let Some(sampling) = self.sampling.as_mut().filter(|_| all_timed) {
            sampling.spend(tally.matched);
        }
        tally.published = taken as u64;
        tally.door = batch.first().and_then(|publication| publication.publisher.door);
        // Status messages of the gateway itself are not counted as received.
        if tally.door.is_none() {
            tally = Tally { published: 0, published_bytes: 0, unmatched: 0, ..tally };
        }
        self.bus.counters().add(&tally);
        let end = self.wakes.end();
        Published { completions, unwoken: (end != before).then_some(end), slow_down, taken, deliveries }
    }

    /// Delivers until there are so many deliveries. Returns how many publications were delivered.
    fn deliver(&mut self, most: u64, batch: &[Publication<'_>], gather: &Gather, pushed: &mut Pushed) -> usize {
        let mut start = 0;
        while let Some(rest) = batch.get(start..).filter(|rest| !rest.is_empty()) {
            start += self.stage(rest, &mut pushed.tally);
            let before = gather.stored();
            self.flush(rest, gather, pushed);
            self.staged_max = if gather.stored() > before { STORED_STAGED_MAX } else { STAGED_MAX };
            if self.work(&pushed.tally, gather) >= most {
                break;
            }
        }
        start
    }

    /// The work of a batch so far, in deliveries.
    const fn work(&self, tally: &Tally, gather: &Gather) -> u64 {
        tally.matched + self.routed + gather.stored() * (STORED_WORK - 1)
    }

    /// Stages publications until the arena is full, or finding their subscribers has taken as long as that would.
    /// Returns how many.
    fn stage(&mut self, batch: &[Publication<'_>], tally: &mut Tally) -> usize {
        self.routes.clear();
        let routed_max = self.routed.saturating_add(DELIVERIES_PER_TURN);
        let mut last: Option<&str> = None;
        for (index, publication) in batch.iter().enumerate() {
            if publication.outcome().is_refusal() {
                tally.refused += u64::from(publication.outcome().refused);
                self.routes.push(Rc::clone(&self.nobody));
                // Nobody gets this one, but the next one on the same topic may have subscribers.
                last = None;
                continue;
            }
            let topic = publication.topic;
            let routes = match (last == Some(topic.as_str()), self.routes.last()) {
                (true, Some(routes)) => Rc::clone(routes),
                _ => {
                    let routes = self.route(topic, tally);
                    self.copies.want(&routes);
                    routes
                }
            };
            last = Some(topic.as_str());
            self.stage_one(index, publication, &routes, tally);
            self.routes.push(routes);
            if self.staging.len() >= self.staged_max || self.routed >= routed_max {
                return index + 1;
            }
        }
        batch.len()
    }

    fn flush(&mut self, publications: &[Publication<'_>], gather: &Gather, pushed: &mut Pushed) {
        self.copies.prepare(publications.len(), self.remote.len());
        let held = self.bus.memory().used();
        let batch = Batch { publications, routes: &self.routes, held, copies: &self.copies, gather };
        let (me, remote, wakes, woken) = (self.id, &mut self.remote, &mut self.wakes, &mut self.woken);
        self.staging.drain(|first, picks| {
            let Some(entry) = batch.entry(first) else { return };
            match entry.subscriber.push(me, *woken < WAKES_PER_TURN, &batch, picks, pushed) {
                Wake::Done => {}
                Wake::Woken => *woken += 1,
                Wake::Later => wakes.push(Arc::clone(&entry.subscriber)),
                Wake::Remote(worker) => {
                    if let Some(list) = remote.get_mut(worker.0) {
                        list.push(Arc::clone(&entry.subscriber));
                    }
                }
            }
        });
        self.copies.clear();
        self.routes.clear();
    }

    /// Delivers messages of shared subscriptions to other members, after the member that had them left without taking
    /// them (MQTT 5.0 §4.8.2).
    ///
    /// `forgets` is what that member forgets in the store of sessions, if it has records. It is one batch with what is
    /// put for the others, so that the store has each message at any time. If the store does not take the batch, the
    /// others keep their messages without records, and the caller has to see to the forgets.
    pub fn hand_on(
        &mut self,
        messages: &[(Arc<Message>, Arc<Subscription>)],
        forgets: Option<Box<dyn durable::Batch>>,
    ) -> Completion {
        let (gather, mut pushed) = (Gather::handing_on(forgets), Pushed::default());
        // Each group is looked up once, however its messages alternate with others'.
        let mut groups: HashMap<*const Subscription, Members> = HashMap::new();
        self.woken = 0;
        for some in messages.chunks(HANDED_ON_TOGETHER) {
            let publications: Vec<_> = some.iter().map(|(message, _)| Publication::handed_on(message)).collect();
            for (index, (publication, (_, subscription))) in publications.iter().zip(some).enumerate() {
                let members = groups
                    .entry(Arc::as_ptr(subscription))
                    .or_insert_with(|| Members::new(self.bus.members(subscription)));
                let chosen = members.choose(publication.topic);
                let groups = chosen.map(|member| vec![member]).into_iter().collect();
                let routes = Rc::new(Routes::build(publication.topic, Vec::new(), groups));
                self.stage_one(index, publication, &routes, &mut pushed.tally);
                self.routes.push(routes);
                if publication.outcome().matched == 0 {
                    // No other member is left.
                    pushed.tally.matched += 1;
                    pushed.tally.dropped_gone += 1;
                }
            }
            self.flush(&publications, &gather, &mut pushed);
        }
        let completion = gather.append();
        self.wake_workers();
        // The messages were counted as published when they came in.
        let tally = Tally { published_bytes: 0, unmatched: 0, ..pushed.tally };
        self.bus.counters().add(&tally);
        completion
    }

    /// Empties the route cache, so that the next publication on each topic is matched anew. For benchmarks.
    pub fn forget_routes(&mut self) {
        self.cache = RouteCache::default();
    }

    /// Drops outdated cached routes, and with them the last references to subscribers that are gone; some thousand
    /// destinations at most. Costs nothing while no subscription changes. Gives back memory that no batch has used
    /// since the last call. To be called every now and then.
    pub fn sweep_routes(&mut self) {
        self.staging.rest();
        let generation = self.bus.generation();
        if generation == self.swept {
            return;
        }
        let bus = &self.bus;
        if self.cache.sweep(|topic| bus.stamp(topic)) {
            self.swept = generation;
        }
    }
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Publication<'_> {
    fn refuse(&self) {
        self.outcome.set(Outcome { refused: true, ..self.outcome() });
    }

    /// The outcome, valid after [`Worker::publish`].
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.outcome.get()
    }
}
