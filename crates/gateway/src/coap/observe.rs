//! Observers (RFC 7641): each is a subscription of the socket's mailbox, told apart by the number of its relation.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use fogmux_auth::Action;
use fogmux_bus::{Filter, Qos, ReadGate, SubscribeOptions, Subscription, Timestamp, Topic, TopicRef};
use fogmux_coap::{
    Code, Response, Server, Ticket,
    server::{Event, Observed, Registered, RelationId},
};

use super::{
    backlog::Backlog,
    door::{Ask, Core, machine_time},
    expiry::Expiries,
    identity::{Identity, Who},
    transport::Path,
};

/// How long observers are told to stay away when the gateway goes, or when one was too slow.
pub(super) const RETURN_AFTER: Duration = Duration::from_secs(10);

/// How far an observer of a filter has come with the retained messages.
pub(super) enum Walk {
    /// Behind this topic; at the beginning without one.
    At(Option<Topic>),
    /// It has had them all.
    Done,
}

/// What one observation watches.
pub(super) struct Watch {
    relation: RelationId,
    pub(super) subscription: Subscription,
    pub(super) max_qos: Qos,
    observed: Observed,
    who: Who,
    pub(super) identity: Arc<Identity>,
    /// Topics whose newest value it has not been told.
    pub(super) backlog: Backlog,
    pub(super) walk: Walk,
    /// Retained messages have changed behind the walk, which begins again when it has come to its end.
    again: bool,
    /// Whether retained messages come before topics that wait, this time.
    pub(super) walks_first: bool,
    /// Of one topic: it was last shown a value that is retained.
    pub(super) shows_retained: bool,
    /// How many entries had ever come to the mailbox when retained messages were last looked up for it.
    pub(super) looked_up: u64,
    /// When it is looked whether that has expired.
    alarm: Option<Timestamp>,
    /// It is in the queue of those that may be told again.
    is_ready: bool,
}

impl Watch {
    /// Whether it is by a filter: notifications then name their topic.
    pub(super) fn is_named(&self) -> bool {
        self.observed == Observed::Many
    }

    /// Whether there is something that it has not been told.
    pub(super) fn has_more(&self) -> bool {
        !self.backlog.is_empty() || matches!(self.walk, Walk::At(_))
    }

    /// Retained messages have changed, and it is not kept which.
    pub(super) fn walk_again(&mut self) {
        match self.walk {
            Walk::Done => self.walk = Walk::At(None),
            Walk::At(_) => self.again = true,
        }
    }

    /// It has been told the retained messages up to a topic, or all.
    pub(super) fn walk_on(&mut self, after: Option<Topic>) {
        self.walk = match after {
            Some(after) => Walk::At(Some(after)),
            None if std::mem::take(&mut self.again) => Walk::At(None),
            None => Walk::Done,
        };
    }

    fn options(&self) -> SubscribeOptions {
        let gate: Arc<dyn ReadGate> = Arc::<super::identity::Gate>::clone(&self.identity.gate);
        SubscribeOptions {
            tag: self.relation.to_u64(),
            max_qos: self.max_qos,
            gate: Some(gate),
            ..SubscribeOptions::default()
        }
    }
}

/// All observations of a socket, in the places that the machine gave them.
#[derive(Default)]
pub(super) struct Watches {
    all: Vec<Option<Watch>>,
    /// Those that may be told something now.
    pub(super) ready: VecDeque<RelationId>,
    expiries: Expiries,
}

impl Watches {
    /// Has an observer looked after in this turn or the next.
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

    /// The value that an observer was shown expires then.
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

    /// An observer whose value may have expired.
    pub(super) fn pop_expired(&mut self, now: Timestamp) -> Option<RelationId> {
        let relation = self.expiries.pop_due(now)?;
        if let Some(watch) = self.get_mut(relation) {
            watch.alarm = None;
        }
        Some(relation)
    }

    /// The bytes that wait for each observer.
    pub(super) fn costs(&self) -> impl Iterator<Item = (RelationId, usize)> {
        self.all.iter().flatten().map(|watch| (watch.relation, watch.backlog.bytes()))
    }

    /// An observer that nobody would tell what waits for it, although it could be told: an invariant of debug builds.
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

    fn insert(&mut self, watch: Watch) {
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
        self.all.get_mut(relation.index())?.take()
    }
}

impl Core {
    /// Follows one topic. Without a value there is nothing to show yet, and the answer is an empty 2.05: an error
    /// would not let the client follow (RFC 7641 §4.1).
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

    /// Follows all topics that a filter matches. The answer is empty; retained messages follow as
    /// notifications.
    pub(super) fn observe_filter(&mut self, ask: &Ask<'_>, mut ticket: Ticket<Path>, filter: &str) {
        let Ok(subscription) = Subscription::parse(filter) else {
            self.respond(ask.now, ticket, &Response::diagnostic(Code::BAD_REQUEST, "not a filter"));
            return;
        };
        if ask.identity.may_read_nothing(&self.ctx, subscription.filter.as_str()) {
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
                // Nothing would ever follow, and a filter has no state of its own.
                self.respond(ask.now, ticket, &Response::unavailable(RETURN_AFTER));
                return;
            }
        }
        self.respond(ask.now, ticket, &Response::new(Code::CONTENT));
    }

    /// Puts the client on the list and subscribes for it.
    fn register(
        &mut self,
        ask: &Ask<'_>,
        ticket: &mut Ticket<Path>,
        subscription: Subscription,
        observed: Observed,
    ) -> Option<Registered> {
        let registered = self.server.observe_as(machine_time(ask.now), ticket, observed).ok()?;
        // What this one's token was used for before may just have ended, and its place may be this one's.
        self.note_events();
        let Registered::New(relation) = registered else { return Some(registered) };
        let max_qos = ask.parameters.qos.unwrap_or(Qos::AtMostOnce);
        let (who, identity) = (ask.who.clone(), Arc::clone(ask.identity));
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
            self.server.end_observation(relation);
            return None;
        }
        self.watches.insert(watch);
        Some(registered)
    }

    /// Unsubscribes those whose observation has ended, and notes who may be told again.
    pub(super) fn note_events(&mut self) {
        while let Some(event) = self.server.poll_event() {
            match event {
                Event::Ready { relation } => self.watches.make_ready(relation),
                Event::ObserverGone { relation, .. } => self.drop_watch(relation),
            }
        }
    }

    fn drop_watch(&mut self, relation: RelationId) {
        let Some(mut watch) = self.watches.remove(relation) else { return };
        while let Some(marker) = watch.backlog.pop() {
            self.waiting.release(marker);
        }
        self.ctx.bus().unsubscribe(&self.slot, &watch.subscription, relation.to_u64());
    }

    /// The rules have changed: whoever may not read any more what it observes is told so, which ends the observation
    /// (RFC 7641 §4.2), and who is not quite the same any more is asked about anew.
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
                identity.may_read_nothing(&self.ctx, filter)
            } else {
                identity.refusal(&self.ctx, Action::Read, filter).is_some()
            };
            if lost {
                self.dismiss(relation, &Response::new(Code::FORBIDDEN));
            } else if !identity.is(&watch.identity) {
                self.renew(relation, identity);
            }
        }
    }

    /// Puts another identity in the place of the one that an observer had.
    fn renew(&mut self, relation: RelationId, identity: Arc<Identity>) {
        let Some(watch) = self.watches.get_mut(relation) else { return };
        watch.identity = identity;
        let Some(watch) = self.watches.get(relation) else { return };
        self.ctx.bus().unsubscribe(&self.slot, &watch.subscription, relation.to_u64());
        if self.ctx.bus().subscribe(&self.slot, &watch.subscription, watch.options()).is_err() {
            self.dismiss(relation, &Response::unavailable(RETURN_AFTER));
        }
    }

    /// Ends an observation with an error; nothing of what the observer may not read goes out before it.
    pub(super) fn dismiss(&mut self, relation: RelationId, error: &Response<'_>) {
        self.drop_watch(relation);
        let now = self.machine_now();
        self.server.dismiss(now, relation, error, &mut self.out);
    }

    /// 5.03 to every observer: the gateway goes.
    pub(super) fn say_goodbye(&mut self) {
        let relations: Vec<RelationId> = self.watches.all.iter().flatten().map(|watch| watch.relation).collect();
        for relation in relations {
            self.dismiss(relation, &Response::unavailable(RETURN_AFTER));
        }
        self.note_events();
    }
}
