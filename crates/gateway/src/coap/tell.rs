//! Notifying observers: at once, from the backlog, and from the retained messages.

use std::{sync::Arc, task::Context};

use fogmux_bus::{Door, Meaning, Message, Qos, Timestamp, Topic};
use fogmux_coap::{
    Code, Response,
    server::{Notification, RelationId},
};

use super::{
    backlog::{Added, Marker},
    core::{Core, machine_time},
    heaviest::Heaviest,
    looks::LOOKS_PER_TURN,
    mailbox::{self, Entry},
    observe::{RETURN_AFTER, Walk, Watch},
    outcomes::Told,
    translate,
};
use crate::shares::Table;

/// Notifications per turn, so that they are sent before more are made.
const NOTIFICATIONS_PER_TURN: usize = 256;

/// Notifications per observer in one burst; more would overrun the observers' receive buffers.
const BACKLOG_PER_OBSERVER: usize = 64;

/// Bytes of notifications made in one turn, for the same reason.
const OUTPUT_PER_TURN: usize = 256 << 10;

/// The work of a notification that is refused, in looks: it is made, and room is looked for, for nothing.
const REFUSED_LOOKS: usize = 32;

/// Retained messages looked up at once for an observer of a filter.
const WALK_CHUNK: usize = 8;

/// Topics from the backlog that an observer is notified of before others have their turn.
const TOPICS_PER_TURN: usize = 8;

/// The value to notify an observer of.
enum Newest {
    /// That of the queued entry.
    Entry,
    /// A retained message that is newer.
    Retained(Arc<Message>),
    /// None: it was notified of a newer one, or is about to be.
    Shown,
}

impl Core {
    /// Turns the entries of the mailbox into notifications. Returns whether more are left.
    pub(super) fn notify(&mut self, cx: &Context<'_>) -> bool {
        if self.entries.is_empty() {
            let entries = &mut self.entries;
            // No other task claims this slot.
            let taken = self.slot.poll_with(self.claim, cx, |mailbox| mailbox.take(entries)).unwrap_or_default();
            self.ctx.bus().counters().overtaken(taken.overtaken);
            if self.entries.is_empty() {
                self.recheck.emptied();
            }
            for (owner, tag) in taken.overloaded {
                self.ctx.shared.metrics.shares.gave_way(Table::CoapNotifications, &owner, 1, self.ctx.now());
                self.overload(RelationId::from_u64(tag));
            }
            if self.entries.len() > BACKLOG_PER_OBSERVER * self.server.observers().max(1) {
                // This worker has fallen behind: newer values replace older ones (RFC 7641 §1.3).
                let overtaken = mailbox::thin(&mut self.entries);
                self.ctx.bus().counters().overtaken(overtaken);
            }
        }
        self.look_again();
        self.note_events();
        let more = self.serve_ready();
        if self.entries.is_empty() {
            return more;
        }
        let now = self.ctx.now();
        let mut told = 0;
        while told < NOTIFICATIONS_PER_TURN && self.out.bytes() < OUTPUT_PER_TURN {
            let Some(entry) = self.entries.pop_front() else { break };
            self.tell(now, &entry);
            told += 1;
        }
        mailbox::give_back(&mut self.entries);
        more || !self.entries.is_empty()
    }

    /// Notifies one observer of one message, or puts its topic into the backlog.
    pub(super) fn tell(&mut self, now: Timestamp, entry: &Entry) {
        let relation = RelationId::from_u64(entry.tag);
        let Some(watch) = self.watches.get(relation) else { return self.outcomes.note(Told::Gone) };
        if entry.message.is_expired(now) {
            self.outcomes.expired += 1;
            return;
        }
        if watch.identity.is_over(now) {
            self.outcomes.note(Told::Gone);
            self.dismiss(relation, &Response::new(Code::UNAUTHORIZED));
            return;
        }
        if self.recheck.is_due() && !fogmux_bus::ReadGate::may_read(&*watch.identity, &entry.message.topic) {
            return self.outcomes.note(Told::Forbidden);
        }
        let latest;
        let message = match self.newest(now, watch, entry) {
            Newest::Entry => &entry.message,
            Newest::Retained(message) => {
                latest = message;
                &latest
            }
            Newest::Shown => {
                self.outcomes.overtaken += 1;
                return;
            }
        };
        let (is_named, is_behind) = (watch.is_named(), !watch.backlog.is_empty());
        // For a filter, topics that have waited longer go first.
        let told = if is_named && is_behind {
            Told::Later
        } else if message.meaning.is_clearing() {
            self.send_cleared(now, relation, &message.topic)
        } else {
            self.send(now, relation, message, entry.assured)
        };
        self.note_told(relation, told, Some(message));
        match told {
            Told::Later => self.postpone(relation, message),
            Told::Sent if is_behind => {
                // An observer of one topic has caught up.
                if let Some(marker) = self.watches.get_mut(relation).and_then(|watch| watch.backlog.pop()) {
                    self.waiting.release(marker);
                    self.outcomes.overtaken += 1;
                }
            }
            Told::Sent | Told::TooLong | Told::Forbidden | Told::Gone => {}
        }
    }

    /// Notes the outcome of a delivery of a value.
    fn note_told(&mut self, relation: RelationId, told: Told, value: Option<&Message>) {
        self.outcomes.note(told);
        if let Some(message) = value.filter(|_| told == Told::Sent) {
            let watch = || self.watches.get(relation).map(|watch| &**watch.identity.publisher());
            self.ctx.delivered(message, Door::Coap, watch);
        }
    }

    /// The newest value for an observer that was queued an entry. While that was queued, the observer may have been
    /// notified of a newer value from the retained messages; an older one must not follow, so the value is looked up
    /// again.
    fn newest(&self, now: Timestamp, watch: &Watch, entry: &Entry) -> Newest {
        if !entry.message.meaning.is_state() || entry.index >= watch.looked_up {
            return Newest::Entry;
        }
        match self.ctx.bus().latest(&entry.message.topic, now) {
            Some(_) if entry.message.meaning.is_clearing() => Newest::Shown,
            Some(latest) => Newest::Retained(latest),
            None if entry.message.meaning.is_clearing() => Newest::Entry,
            None => Newest::Shown,
        }
    }

    /// Notes that an observer has been notified of the retained messages as they are now.
    pub(super) fn note_look_up(&mut self, relation: RelationId) {
        let pushed = self.slot.with(|mailbox| mailbox.pushed());
        if let Some(watch) = self.watches.get_mut(relation) {
            watch.looked_up = pushed;
        }
    }

    fn send(&mut self, now: Timestamp, relation: RelationId, message: &Arc<Message>, confirmable: bool) -> Told {
        let Some(watch) = self.watches.get_mut(relation) else { return Told::Gone };
        let Some((response, encoded)) = self.shown.show(message, watch.is_named(), now) else {
            return Told::TooLong;
        };
        let notification = Notification { response, confirmable, encoded, event: !message.meaning.is_state() };
        let told = Told::from(self.server.notify(machine_time(now), relation, &notification, &mut self.out));
        if told == Told::Sent && !watch.is_named() {
            watch.shows_retained = message.meaning.is_state();
            if let Some(at) = message.expires_at.filter(|_| message.meaning.is_state()) {
                self.watches.expires(relation, at);
            }
        }
        if told == Told::Later {
            self.looks += REFUSED_LOOKS;
        }
        told
    }

    /// Notifies an observer that a topic was cleared: of that topic by 4.04, which ends the observation.
    fn send_cleared(&mut self, now: Timestamp, relation: RelationId, topic: &Topic) -> Told {
        let Some(watch) = self.watches.get(relation) else { return Told::Gone };
        if !watch.is_named() {
            self.dismiss(relation, &Response::new(Code::NOT_FOUND));
            return Told::Sent;
        }
        let location = translate::location(topic);
        if location.is_none() {
            return Told::TooLong;
        }
        let confirmable = watch.max_qos > Qos::AtMostOnce;
        let response = Response { location, ..Response::new(Code::CONTENT) };
        let notification = Notification { response, confirmable, encoded: None, event: false };
        self.server.notify(machine_time(now), relation, &notification, &mut self.out).into()
    }

    /// Puts the topic of a message into the backlog of an observer.
    fn postpone(&mut self, relation: RelationId, message: &Arc<Message>) {
        let max = self.ctx.door.config.observer_queue_max;
        let Some(watch) = self.watches.get_mut(relation) else { return };
        let unneeded = match watch.backlog.push(self.waiting.mark(message), max) {
            Added::Waits => None,
            Added::Known(marker) => Some(marker),
            Added::Full(marker) if message.meaning == Meaning::Value => {
                // The walk finds it among the retained messages.
                watch.walk_again();
                Some(marker)
            }
            Added::Full(marker) => {
                self.waiting.release(marker);
                self.outcomes.full += 1;
                self.overload(relation);
                return;
            }
        };
        if let Some(marker) = unneeded {
            self.waiting.release(marker);
            self.outcomes.overtaken += 1;
        }
        self.shed();
    }

    /// Ends observations when all backlogs together are too large: of the owner whose backlogs hold most.
    fn shed(&mut self) {
        let max = self.ctx.door.config.notification_bytes_max;
        if self.waiting.bytes() <= max {
            return;
        }
        let mut heaviest = Heaviest::of(self.watches.costs());
        while self.waiting.bytes() > max / 4 * 3
            && let Some((owner, relation)) = heaviest.next()
        {
            self.ctx.shared.metrics.shares.gave_way(Table::CoapNotifications, &owner, 1, self.ctx.now());
            self.overload(relation);
        }
    }

    /// Ends an observation that is too slow with 5.03 (RFC 7641 §3.2).
    pub(super) fn overload(&mut self, relation: RelationId) {
        if self.watches.get(relation).is_some() {
            tracing::debug!(?relation, "a CoAP observer is too slow; its observation ends");
            self.ctx.shared.metrics.coap.timed_out.increment();
            self.outcomes.full += self.drop_watch(relation);
            self.dismiss(relation, &Response::unavailable(RETURN_AFTER));
        }
    }

    /// Serves observations that may be notified again. Returns whether there are more.
    pub(super) fn serve_ready(&mut self) -> bool {
        if self.watches.ready.is_empty() {
            return false;
        }
        let now = self.ctx.now();
        self.looks = 0;
        // Each is served once, so that all have their turn.
        for _ in 0..self.watches.ready.len() {
            if self.out.bytes() >= OUTPUT_PER_TURN || self.looks >= LOOKS_PER_TURN {
                break;
            }
            if let Some(relation) = self.watches.next_ready() {
                self.looks += 1;
                self.serve(now, relation);
            }
        }
        // One that found room lets others follow.
        self.note_events();
        !self.watches.ready.is_empty()
    }

    fn serve(&mut self, now: Timestamp, relation: RelationId) {
        let Some(watch) = self.watches.get(relation) else { return };
        if watch.identity.is_over(now) {
            self.dismiss(relation, &Response::new(Code::UNAUTHORIZED));
        } else if !watch.is_named() {
            self.serve_topic(now, relation);
        } else if self.serve_filter(now, relation) && self.watches.get(relation).is_some_and(Watch::has_more) {
            self.watches.make_ready(relation);
        }
    }

    /// Serves the backlog and the walk alternately, so that neither delays the other.
    fn serve_filter(&mut self, now: Timestamp, relation: RelationId) -> bool {
        let Some(watch) = self.watches.get_mut(relation) else { return false };
        watch.walks_first = !watch.walks_first;
        let first = if watch.walks_first { Self::serve_walk } else { Self::serve_topics };
        let second = if watch.walks_first { Self::serve_topics } else { Self::serve_walk };
        first(self, now, relation) && second(self, now, relation)
    }

    /// Notifies an observer of one topic of the newest value.
    fn serve_topic(&mut self, now: Timestamp, relation: RelationId) {
        let Some(watch) = self.watches.get_mut(relation) else { return };
        let marker = watch.backlog.pop();
        // Without a marker, the last notification is repeated to prove its arrival.
        let value = match &marker {
            Some(marker) => marker.value(self.ctx.bus(), now),
            None if watch.shows_retained => self.ctx.bus().latest(watch.subscription.filter.as_str(), now),
            None => return,
        };
        let max_qos = watch.max_qos;
        self.note_look_up(relation);
        let told = match &value {
            Some(message) => self.send(now, relation, message, message.qos.min(max_qos) > Qos::AtMostOnce),
            None => {
                self.dismiss(relation, &Response::new(Code::NOT_FOUND));
                Told::Sent
            }
        };
        if let Some(marker) = marker {
            self.settle_marker(relation, marker, told, value.as_deref());
        }
    }

    /// Notifies an observer of a filter of topics in its backlog. Returns `false` when it takes no more now.
    fn serve_topics(&mut self, now: Timestamp, relation: RelationId) -> bool {
        for _ in 0..TOPICS_PER_TURN {
            let Some(watch) = self.watches.get_mut(relation) else { return false };
            let Some(marker) = watch.backlog.pop() else { return true };
            let (gate, max_qos) = (Arc::clone(&watch.identity), watch.max_qos);
            let value = marker.value(self.ctx.bus(), now);
            self.note_look_up(relation);
            let told = match &value {
                _ if !fogmux_bus::ReadGate::may_read(&*gate, marker.topic()) => Told::Forbidden,
                Some(message) => self.send(now, relation, message, message.qos.min(max_qos) > Qos::AtMostOnce),
                None => self.send_cleared(now, relation, marker.topic()),
            };
            self.settle_marker(relation, marker, told, value.as_deref());
            if !told.goes_on() {
                return false;
            }
        }
        true
    }

    fn settle_marker(&mut self, relation: RelationId, marker: Marker, told: Told, value: Option<&Message>) {
        self.note_told(relation, told, value);
        match self.watches.get_mut(relation) {
            Some(watch) if told == Told::Later => watch.backlog.restore(marker),
            Some(_) | None => self.waiting.release(marker),
        }
    }

    /// Notifies an observer of a filter of retained messages. Returns `false` when it takes no more now.
    fn serve_walk(&mut self, now: Timestamp, relation: RelationId) -> bool {
        let Some(watch) = self.watches.get(relation) else { return false };
        let Walk::At(after) = &watch.walk else { return true };
        let chunk = self.ctx.bus().retained(&watch.subscription.filter, after.as_ref(), WALK_CHUNK, now);
        let (gate, max_qos) = (Arc::clone(&watch.identity), watch.max_qos);
        self.looks += chunk.scanned;
        self.note_look_up(relation);
        let (mut told, mut last) = (Told::Sent, None);
        for message in &chunk.messages {
            if fogmux_bus::ReadGate::may_read(&*gate, &message.topic) {
                let assured = message.qos.min(max_qos) > Qos::AtMostOnce;
                told = self.send(now, relation, message, assured);
                if !told.goes_on() {
                    break;
                }
            }
            last = Some(message.topic.clone());
        }
        let Some(watch) = self.watches.get_mut(relation) else { return false };
        match last {
            _ if told.goes_on() => watch.walk_on(chunk.next),
            Some(last) => watch.walk_on(Some(last)),
            None => {}
        }
        told.goes_on()
    }

    /// Ends observations of a topic whose value has expired with 4.04 (RFC 7641 §4.2).
    pub(super) fn expire(&mut self, now: Timestamp) {
        while let Some(relation) = self.watches.pop_expired(now) {
            let Some(watch) = self.watches.get(relation) else { continue };
            match self.ctx.bus().latest(watch.subscription.filter.as_str(), now) {
                None if watch.shows_retained => self.dismiss(relation, &Response::new(Code::NOT_FOUND)),
                Some(message) if watch.shows_retained => {
                    if let Some(at) = message.expires_at {
                        self.watches.expires(relation, at);
                    }
                }
                Some(_) | None => {}
            }
        }
    }
}
