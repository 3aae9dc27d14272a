//! Observations (RFC 7641): each is a subscription of the socket's mailbox, tagged with the number of its relation.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use fogmux_auth::Action;
use fogmux_bus::{
    Filter, NoRoom, Qos, ReadGate, Room, Shares, SubscribeOptions, Subscription, Timestamp, Topic, TopicRef,
};
use fogmux_coap::{
    Code, Response, Server, Ticket,
    server::{Event, Observed, Registered, RelationId},
};
use fogmux_fair::Owner;

use super::{
    backlog::Backlog,
    core::{Ask, Core, machine_time},
    expiry::Expiries,
    identity::{Identity, Who},
    transport::Path,
};
use crate::{shares::Table, unfinished};

/// The Max-Age of a 5.03 that ends an observation, because the gateway shuts down or the observer is too slow.
pub(super) const RETURN_AFTER: Duration = Duration::from_secs(10);

/// The progress of an observer of a filter through the retained messages.
pub(super) enum Walk {
    /// Behind this topic; `None`: at the beginning.
    At(Option<Topic>),
    /// At the end.
    Done,
}

/// One observation.
pub(super) struct Watch {
    relation: RelationId,
    pub(super) subscription: Subscription,
    pub(super) max_qos: Qos,
    observed: Observed,
    who: Who,
    /// The owner in whose share its backlog is.
    owner: Owner,
    pub(super) identity: Arc<Identity>,
    /// Topics whose newest value it has not been notified of.
    pub(super) backlog: Backlog,
    pub(super) walk: Walk,
    /// Retained messages have changed behind the walk, which therefore begins again at its end.
    again: bool,
    /// Whether the walk goes before the backlog this time.
    pub(super) walks_first: bool,
    /// For one topic: whether the last notification showed a retained value.
    pub(super) shows_retained: bool,
    /// The number of entries ever queued in the mailbox when retained messages were last looked up for it.
    pub(super) looked_up: u64,
    /// When to check whether the value shown has expired.
    alarm: Option<Timestamp>,
    /// Whether it is in the queue of observations that may be notified again.
    is_ready: bool,
}

impl Watch {
    /// Whether it observes a filter, so that notifications name their topic.
    pub(super) fn is_named(&self) -> bool {
        self.observed == Observed::Many
    }

    /// Whether there is a value that it has not been notified of.
    pub(super) fn has_more(&self) -> bool {
        !self.backlog.is_empty() || matches!(self.walk, Walk::At(_))
    }

    /// Notes that retained messages have changed whose topics are not in the backlog.
    pub(super) fn walk_again(&mut self) {
        match self.walk {
            Walk::Done => self.walk = Walk::At(None),
            Walk::At(_) => self.again = true,
        }
    }

    /// Continues the walk behind `after`, or ends it.
    pub(super) fn walk_on(&mut self, after: Option<Topic>) {
        self.walk = match after {
            Some(after) => Walk::At(Some(after)),
            None if std::mem::take(&mut self.again) => Walk::At(None),
            None => Walk::Done,
        };
    }

    fn principal(&self) -> &Arc<str> {
        &self.identity.principal().name
    }

    fn options(&self) -> SubscribeOptions {
        let gate: Arc<dyn ReadGate> = Arc::<super::identity::Identity>::clone(&self.identity);
        SubscribeOptions {
            tag: self.relation.to_u64(),
            max_qos: self.max_qos,
            gate: Some(gate),
            ..SubscribeOptions::default()
        }
    }
}

/// All observations of a socket, by the index that the machine gave them.
#[derive(Default)]
pub(super) struct Watches {
    all: Vec<Option<Watch>>,
    /// Observations that may be notified now.
    pub(super) ready: VecDeque<RelationId>,
    expiries: Expiries,
    count: usize,
    shares: Shares,
}

impl Watches {
    /// Queues an observation to be served in this turn or the next.
    pub(super) fn make_ready(&mut self, relation: RelationId) {
        if let Some(watch) = self.get_mut(relation)
            && !std::mem::replace(&mut watch.is_ready, true)
        {
            self.ready.push_back(relation);
        }
    }

    pub(super) fn next_ready(&mut self) -> Option<RelationId> {
        let relation = self.ready.pop_front()?;
        if let Some(watch) = self.get_mut(relation) {
            watch.is_ready = false;
        }
        Some(relation)
    }

    /// Sets the alarm for the expiry of the value shown.
    pub(super) fn expires(&mut self, relation: RelationId, at: Timestamp) {
        if let Some(watch) = self.get_mut(relation)
            && watch.alarm.is_none_or(|alarm| at < alarm)
        {
            watch.alarm = Some(at);
            self.expiries.add(at, relation);
        }
    }

    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        self.expiries.next()
    }

    /// Takes an observation whose value may have expired.
    pub(super) fn pop_expired(&mut self, now: Timestamp) -> Option<RelationId> {
        let relation = self.expiries.pop_due(now)?;
        if let Some(watch) = self.get_mut(relation) {
            watch.alarm = None;
        }
        Some(relation)
    }

    /// The bytes in the backlog of each observation that has one, and whose they are.
    pub(super) fn costs(&self) -> impl Iterator<Item = (Owner, usize, RelationId)> {
        let slow = self.all.iter().flatten().filter(|watch| !watch.backlog.is_empty());
        slow.map(|watch| (watch.owner.clone(), watch.backlog.bytes(), watch.relation))
    }

    /// An observation with a backlog that would never be notified although it could be: an invariant of debug builds.
    pub(super) fn forgotten(&self, now: fogmux_coap::Timestamp, server: &Server<Path>) -> Option<RelationId> {
        let is_forgotten =
            |watch: &&Watch| watch.has_more() && !watch.is_ready && server.is_forgotten(now, watch.relation);
        self.all.iter().flatten().find(is_forgotten).map(|watch| watch.relation)
    }

    pub(super) fn get(&self, relation: RelationId) -> Option<&Watch> {
        self.all.get(relation.index())?.as_ref().filter(|watch| watch.relation == relation)
    }

    pub(super) fn get_mut(&mut self, relation: RelationId) -> Option<&mut Watch> {
        self.all.get_mut(relation.index())?.as_mut().filter(|watch| watch.relation == relation)
    }

    /// Whether a principal may have one more of the `observers_max`.
    fn admit(&self, room: Room, principal: &str) -> Result<(), NoRoom> {
        room.admit(self.count, self.shares.of(principal).count, 1)
    }

    fn insert(&mut self, watch: Watch) {
        self.count += 1;
        self.shares.add(watch.principal(), 0);
        let index = watch.relation.index();
        if self.all.len() <= index {
            self.all.resize_with(index + 1, || None);
        }
        if let Some(place) = self.all.get_mut(index) {
            *place = Some(watch);
        }
    }

    fn remove(&mut self, relation: RelationId) -> Option<Watch> {
        self.get(relation)?;
        let watch = self.all.get_mut(relation.index())?.take()?;
        self.count -= 1;
        self.shares.remove(watch.principal(), 0);
        Some(watch)
    }
}

impl Core {
    /// Observes one topic. Without a value the response is an empty 2.05, because an error would end the observation
    /// (RFC 7641 §4.1).
    pub(super) fn observe_topic(&mut self, ask: &Ask<'_>, mut ticket: Ticket<Path>, topic: TopicRef<'_>) {
        let Ok(filter) = Filter::new(topic.as_str()) else {
            self.respond(ask.now, ticket, &Response::diagnostic(Code::BAD_REQUEST, "not a topic"));
            return;
        };
        let registered = self.register(ask, &mut ticket, Subscription::to(filter), Observed::One);
        match self.ctx.bus().latest(topic.as_str(), ask.now) {
            None if registered.is_some() => self.respond(ask.now, ticket, &Response::new(Code::CONTENT)),
            Some(message) => {
                let relation = registered.map(Registered::relation);
                if let Some(watch) = relation.and_then(|relation| self.watches.get_mut(relation)) {
                    watch.shows_retained = true;
                }
                if let (Some(relation), Some(at)) = (relation, message.expires_at) {
                    self.watches.expires(relation, at);
                }
                self.latest(ask, ticket, topic.as_str());
            }
            None => self.latest(ask, ticket, topic.as_str()),
        }
        if let Some(registered) = registered {
            self.note_look_up(registered.relation());
        }
    }

    /// Observes all topics that a filter matches. The response is empty; retained messages follow as notifications.
    pub(super) fn observe_filter(&mut self, ask: &Ask<'_>, mut ticket: Ticket<Path>, filter: &str) {
        let Ok(subscription) = Subscription::parse(filter) else {
            self.respond(ask.now, ticket, &Response::diagnostic(Code::BAD_REQUEST, "not a filter"));
            return;
        };
        if ask.identity.may_read_nothing(&self.ctx, Some(ask.from), subscription.filter.as_str()) {
            self.respond(ask.now, ticket, &Response::new(Code::FORBIDDEN));
            return;
        }
        let alone = subscription.group.is_none();
        match self.register(ask, &mut ticket, subscription, Observed::Many) {
            Some(Registered::New(relation)) if alone => {
                if let Some(watch) = self.watches.get_mut(relation) {
                    watch.walk = Walk::At(None);
                }
                self.watches.make_ready(relation);
            }
            Some(Registered::New(_) | Registered::Refreshed(_)) => {}
            None => {
                // Without an observation nothing would follow, and a filter has no state of its own.
                self.respond(ask.now, ticket, &Response::unavailable(RETURN_AFTER));
                return;
            }
        }
        self.respond(ask.now, ticket, &Response::new(Code::CONTENT));
    }

    /// Registers the observation and subscribes.
    fn register(
        &mut self,
        ask: &Ask<'_>,
        ticket: &mut Ticket<Path>,
        subscription: Subscription,
        observed: Observed,
    ) -> Option<Registered> {
        let registered = self.server.observe_as(machine_time(ask.now), ticket, observed).ok()?;
        // The previous observation with this token may just have ended, and its index may be reused.
        self.note_events();
        let Registered::New(relation) = registered else { return Some(registered) };
        let principal = &ask.identity.principal().name;
        let room = self.ctx.bus().room(self.ctx.door.config.observers_max);
        if self.watches.admit(room, principal).is_err() {
            self.ctx.shared.metrics.shares.refused(Table::Observations, principal, ask.now);
            self.server.end_observation(relation);
            return None;
        }
        let max_qos = ask.parameters.qos.unwrap_or(Qos::AtMostOnce);
        let (who, identity) = (ask.who.clone(), Arc::clone(ask.identity));
        let owner = unfinished::owner(identity.principal(), ask.from);
        self.slot.with(|mailbox| mailbox.belongs_to(relation.to_u64(), owner.clone()));
        let backlog = match observed {
            Observed::One => Backlog::One(None),
            Observed::Many => Backlog::Many(None),
        };
        let watch = Watch {
            relation,
            subscription,
            max_qos,
            observed,
            who,
            owner,
            identity,
            backlog,
            walk: Walk::Done,
            again: false,
            walks_first: false,
            shows_retained: false,
            looked_up: 0,
            alarm: None,
            is_ready: false,
        };
        if self.ctx.bus().subscribe(&self.slot, &watch.subscription, watch.options()).is_err() {
            self.slot.with(|mailbox| mailbox.forget(relation.to_u64()));
            self.server.end_observation(relation);
            return None;
        }
        self.watches.insert(watch);
        Some(registered)
    }

    /// Handles the machine's events: ends subscriptions, and queues observations that may be notified again.
    pub(super) fn note_events(&mut self) {
        while let Some(event) = self.server.poll_event() {
            match event {
                Event::Ready { relation } => self.watches.make_ready(relation),
                Event::ObserverGone { relation, .. } => self.outcomes.gone += self.drop_watch(relation),
            }
        }
    }

    /// Ends a subscription. Returns how many messages waited for its observer.
    pub(super) fn drop_watch(&mut self, relation: RelationId) -> u64 {
        let Some(mut watch) = self.watches.remove(relation) else { return 0 };
        let mut waited = 0;
        while let Some(marker) = watch.backlog.pop() {
            self.waiting.release(marker);
            waited += 1;
        }
        self.ctx.bus().unsubscribe(&self.slot, &watch.subscription, relation.to_u64());
        self.slot.with(|mailbox| mailbox.forget(relation.to_u64()));
        waited
    }

    /// Checks all observations after the rules have changed. Those that may not be read any more end with an error (RFC
    /// 7641 §4.2); those whose identity has changed subscribe again.
    pub(super) fn review(&mut self) {
        let now = self.ctx.now();
        let relations: Vec<RelationId> = self.watches.all.iter().flatten().map(|watch| watch.relation).collect();
        for relation in relations {
            let Some(watch) = self.watches.get(relation) else { continue };
            let Some(identity) = self.admission.identity(&self.ctx, now, &watch.who) else {
                self.dismiss(relation, &Response::new(Code::UNAUTHORIZED));
                continue;
            };
            let filter = watch.subscription.filter.as_str();
            let lost = if watch.is_named() {
                identity.may_read_nothing(&self.ctx, None, filter)
            } else {
                identity.refusal(&self.ctx, None, Action::Read, filter).is_some()
            };
            if lost {
                self.dismiss(relation, &Response::new(Code::FORBIDDEN));
            } else if !identity.is(&watch.identity) {
                self.renew(relation, identity);
            }
        }
    }

    /// Replaces the identity of an observation.
    fn renew(&mut self, relation: RelationId, identity: Arc<Identity>) {
        let Some(mut watch) = self.watches.remove(relation) else { return };
        self.ctx.bus().unsubscribe(&self.slot, &watch.subscription, relation.to_u64());
        watch.identity = identity;
        self.watches.insert(watch);
        let Some(watch) = self.watches.get(relation) else { return };
        if self.ctx.bus().subscribe(&self.slot, &watch.subscription, watch.options()).is_err() {
            self.dismiss(relation, &Response::unavailable(RETURN_AFTER));
        }
    }

    /// Ends an observation with an error, before any notification that waits.
    pub(super) fn dismiss(&mut self, relation: RelationId, error: &Response<'_>) {
        self.outcomes.gone += self.drop_watch(relation);
        let now = self.machine_now();
        self.server.dismiss(now, relation, error, &mut self.out);
    }

    /// Ends every observation with 5.03, because the gateway shuts down.
    pub(super) fn say_goodbye(&mut self) {
        let relations: Vec<RelationId> = self.watches.all.iter().flatten().map(|watch| watch.relation).collect();
        for relation in relations {
            self.dismiss(relation, &Response::unavailable(RETURN_AFTER));
        }
        self.note_events();
    }
}
