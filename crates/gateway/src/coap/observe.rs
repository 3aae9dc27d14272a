//! Observers (RFC 7641): each is a subscription of the socket's mailbox, told apart by the number of its relation.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use fogmux_auth::Action;
use fogmux_bus::{
    Filter, Message, Qos, ReadGate, RetainedChunk, SubscribeOptions, Subscription, Timestamp, Topic, TopicRef, etag,
};
use fogmux_coap::{
    Code, Response, Ticket,
    server::{Event, Notification, Registered, RelationId},
};

use super::{
    door::{Ask, Core, machine_time},
    identity::{Identity, Who},
    mailbox::Entry,
    translate,
    transport::Path,
};

/// Kept messages pulled at once for a new observer of a filter; fewer than may wait for it.
const BACKFILL: usize = 16;

/// What observers are told to wait when the gateway goes.
const RETURN_AFTER: Duration = Duration::from_secs(10);

/// What one observation watches.
struct Watch {
    relation: RelationId,
    subscription: Subscription,
    max_qos: Qos,
    /// By a filter: notifications then name their topic.
    named: bool,
    who: Who,
    identity: Arc<Identity>,
    /// Where the pull of kept messages has come to.
    after: Option<Topic>,
}

impl Watch {
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

/// What became of a message for an observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// The machine has it; it sends the newest as soon as the observer takes it.
    Sent,
    /// It was too late.
    Expired,
    /// The observation has ended.
    Gone,
}

/// All observations of a socket, in the places that the machine gave them.
#[derive(Default)]
pub(super) struct Watches {
    all: Vec<Option<Watch>>,
    /// Those that have not had all kept messages yet.
    behind: Vec<RelationId>,
}

impl Watches {
    /// Whether somebody has not had all kept messages yet.
    pub(super) fn is_behind(&self) -> bool {
        !self.behind.is_empty()
    }

    fn get(&self, relation: RelationId) -> Option<&Watch> {
        self.all.get(relation.index())?.as_ref().filter(|watch| watch.relation == relation)
    }

    fn get_mut(&mut self, relation: RelationId) -> Option<&mut Watch> {
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

    /// The subscriptions of all, with their tags.
    pub(super) fn subscriptions(&self) -> impl Iterator<Item = (&Subscription, u64)> {
        self.all.iter().flatten().map(|watch| (&watch.subscription, watch.relation.to_u64()))
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
        let registered = self.register(ask, &mut ticket, Subscription::to(filter), false);
        let Some(registered) = registered else {
            self.latest(ask, ticket, topic.as_str());
            return;
        };
        let bus = self.ctx.bus();
        // Looked up while the mailbox is locked: what is in it came before, and must not follow.
        let tag = registered.relation().to_u64();
        let is_overtaken =
            |entry: &Entry| entry.tag == tag && (entry.message.retain || matches!(registered, Registered::New(_)));
        let before = self.entries.len();
        self.entries.retain(|entry| !is_overtaken(entry));
        let overtaken = (before - self.entries.len()) as u64;
        let message = self.slot.with(|mailbox| {
            bus.counters().overtaken(overtaken + mailbox.discard(is_overtaken));
            bus.latest(topic.as_str(), ask.now)
        });
        match message {
            None => self.respond(ask.now, ticket, &Response::new(Code::CONTENT)),
            Some(message) => self.respond_with(ask, ticket, Some(&message)),
        }
    }

    /// Follows all topics that a filter matches. The answer is empty; kept messages follow as notifications.
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
        match self.register(ask, &mut ticket, subscription, true) {
            Some(Registered::New(relation)) if alone => self.watches.behind.push(relation),
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
        named: bool,
    ) -> Option<Registered> {
        let registered = self.server.observe(machine_time(ask.now), ticket).ok()?;
        // What this one's token was used for before may just have ended, and its place may be this one's.
        self.forget_gone();
        let Registered::New(relation) = registered else { return Some(registered) };
        let max_qos = ask.parameters.qos.unwrap_or(Qos::AtMostOnce);
        let (who, identity) = (ask.who.clone(), Arc::clone(ask.identity));
        let watch = Watch { relation, subscription, max_qos, named, who, identity, after: None };
        if self.ctx.bus().subscribe(&self.slot, &watch.subscription, watch.options()).is_err() {
            self.server.end_observation(relation);
            return None;
        }
        self.watches.insert(watch);
        Some(registered)
    }

    /// Tells observers what was taken out of the mailbox, so many at most.
    pub(super) fn tell_next(&mut self, now: Timestamp, count: usize) {
        let (mut sent, mut expired, mut gone) = (0, 0, 0);
        for _ in 0..count {
            let Some(entry) = self.entries.pop_front() else { break };
            match self.tell(now, &entry) {
                Told::Sent => sent += 1,
                Told::Expired => expired += 1,
                Told::Gone => gone += 1,
            }
        }
        let counters = self.ctx.bus().counters();
        counters.drained(sent, expired, 0);
        counters.gone(gone);
    }

    /// One message to one observer.
    fn tell(&mut self, now: Timestamp, entry: &Entry) -> Told {
        let relation = RelationId::from_u64(entry.tag);
        let Some(watch) = self.watches.get(relation) else { return Told::Gone };
        if entry.message.is_expired(now) {
            return Told::Expired;
        }
        if watch.identity.is_over(now) {
            self.dismiss(relation, Code::UNAUTHORIZED);
            return Told::Gone;
        }
        let named = watch.named;
        self.send(now, relation, &entry.message, named, entry.assured, entry.cleared);
        Told::Sent
    }

    fn send(
        &mut self,
        now: Timestamp,
        relation: RelationId,
        message: &Arc<Message>,
        named: bool,
        confirmable: bool,
        cleared: bool,
    ) {
        let (response, subject) = match (named, cleared) {
            (false, true) => (Response::new(Code::NOT_FOUND), 0),
            (false, false) => (translate::representation(message, now), 0),
            (true, _) => {
                let location = translate::location(&message.topic);
                if location.is_none() {
                    // It could not say what it is about.
                    return;
                }
                let response = Response { location, ..translate::representation(message, now) };
                (response, etag(message.topic.as_bytes(), None))
            }
        };
        let notification = Notification { response, confirmable, subject };
        self.server.notify(machine_time(now), relation, &notification, &mut self.out);
    }

    /// Pulls kept messages for observers of filters, as fast as each takes them.
    pub(super) fn backfill(&mut self) -> bool {
        if self.watches.behind.is_empty() {
            return false;
        }
        let (now, mut any) = (self.ctx.now(), false);
        let mut behind = std::mem::take(&mut self.watches.behind);
        behind.retain(|relation| {
            let Some(watch) = self.watches.get(*relation) else { return false };
            if !self.server.is_ready(machine_time(now), *relation) {
                return true;
            }
            any = true;
            if watch.identity.is_over(now) {
                self.dismiss(*relation, Code::UNAUTHORIZED);
                return false;
            }
            let Some(chunk) = self.look_up(watch, now) else { return true };
            let (gate, max_qos) = (Arc::clone(&watch.identity.gate), watch.max_qos);
            for message in chunk.messages.iter().filter(|message| gate.may_read(&message.topic)) {
                let assured = message.qos.min(max_qos) > Qos::AtMostOnce;
                self.send(now, *relation, message, true, assured, false);
            }
            let more = chunk.next.is_some();
            if let Some(watch) = self.watches.get_mut(*relation) {
                watch.after = chunk.next;
            }
            more
        });
        behind.append(&mut self.watches.behind);
        self.watches.behind = behind;
        any
    }

    /// The next kept messages for an observer, unless others wait for it: an older value must not follow a newer one.
    fn look_up(&self, watch: &Watch, now: Timestamp) -> Option<RetainedChunk> {
        let tag = watch.relation.to_u64();
        let waits = |entries: &VecDeque<Entry>| entries.iter().any(|entry| entry.tag == tag);
        if waits(&self.entries) {
            return None;
        }
        let (bus, filter) = (self.ctx.bus(), &watch.subscription.filter);
        self.slot.with(|mailbox| {
            let free = !waits(mailbox.entries());
            free.then(|| bus.retained(filter, watch.after.as_ref(), BACKFILL, now))
        })
    }

    /// Unsubscribes those whose observation has ended.
    pub(super) fn forget_gone(&mut self) {
        while let Some(Event::ObserverGone { relation, .. }) = self.server.poll_event() {
            if let Some(watch) = self.watches.remove(relation) {
                self.ctx.bus().unsubscribe(&self.slot, &watch.subscription, relation.to_u64());
            }
        }
    }

    /// The rules have changed: whoever may not read any more what it observes is told so, which ends the observation
    /// (RFC 7641 §4.2), and who is not quite the same any more is asked about anew.
    pub(super) fn review(&mut self) {
        let now = self.ctx.now();
        let relations: Vec<RelationId> = self.watches.all.iter().flatten().map(|watch| watch.relation).collect();
        for relation in relations {
            let Some(watch) = self.watches.get(relation) else { continue };
            let Some(identity) = self.admission.identity(&self.ctx, now, &watch.who) else {
                self.dismiss(relation, Code::UNAUTHORIZED);
                continue;
            };
            let filter = watch.subscription.filter.as_str();
            let lost = match watch.named {
                false => identity.refusal(&self.ctx, Action::Read, filter).is_some(),
                true => identity.may_read_nothing(&self.ctx, filter),
            };
            if lost {
                self.dismiss(relation, Code::FORBIDDEN);
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
            self.dismiss(relation, Code::SERVICE_UNAVAILABLE);
        }
    }

    /// The last notification, which is an error; nothing of what the observer may not read goes out before it.
    fn dismiss(&mut self, relation: RelationId, code: Code) {
        if let Some(watch) = self.watches.remove(relation) {
            self.ctx.bus().unsubscribe(&self.slot, &watch.subscription, relation.to_u64());
        }
        let notification = Notification { response: Response::new(code), confirmable: true, subject: 0 };
        let now = self.machine_now();
        self.server.dismiss(now, relation, &notification, &mut self.out);
    }

    /// 5.03 to every observer: the gateway goes.
    pub(super) fn say_goodbye(&mut self) {
        let now = self.machine_now();
        let relations: Vec<RelationId> = self.watches.all.iter().flatten().map(|watch| watch.relation).collect();
        let response = Response::unavailable(RETURN_AFTER);
        for relation in relations {
            let notification = Notification { response, confirmable: false, subject: 0 };
            self.server.notify(now, relation, &notification, &mut self.out);
        }
        self.forget_gone();
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        for (subscription, tag) in self.watches.subscriptions() {
            self.ctx.bus().unsubscribe(&self.slot, subscription, tag);
        }
        self.ctx.bus().close(&self.slot);
    }
}
