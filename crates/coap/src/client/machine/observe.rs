//! Observations (RFC 7641): registrations, notifications, and their end.

use super::Machine;
use crate::Timestamp;
use crate::client::amend::{Amendment, DEREGISTER, REGISTER};
use crate::client::blockwise::block;
use crate::client::event::{CallFailed, Event, Events, Registration, Representation, location};
use crate::client::exchanges::{Exchange, Number, Purpose, Stage};
use crate::client::observation::Arrival;
use crate::client::protection::Protection;
use crate::encode::Encoder;
use crate::message::{Message, Type};
use crate::option::OptionNumber;

impl<P: Protection> Machine<P> {
    /// Ends the observation of this tag by asking for its end (RFC 7641 §3.6), without another event for it. A request
    /// that is not an established observation is forgotten.
    pub fn cancel(&mut self, tag: u64, events: &mut dyn Events) {
        let own = |(number, exchange): (Number, &Exchange<P::Exchange>)| {
            let is_own = matches!(exchange.purpose, Purpose::Request | Purpose::Observe);
            (is_own && exchange.tag == tag).then_some((number, exchange.stage == Stage::Established))
        };
        let found = self.exchanges.iter().find_map(own);
        match found {
            Some((number, true)) => self.deregister_one(number, events),
            Some((number, false)) => self.remove(number),
            None => {}
        }
        self.next_upload(events);
    }

    /// Ends all observations that are established; see [`Machine::cancel`].
    pub fn deregister(&mut self, events: &mut dyn Events) {
        let established = |(number, exchange): (Number, &Exchange<P::Exchange>)| {
            (exchange.purpose == Purpose::Observe && exchange.stage == Stage::Established).then_some(number)
        };
        let observed: Vec<_> = self.exchanges.iter().filter_map(established).collect();
        for number in observed {
            self.deregister_one(number, events);
        }
    }

    /// Whether the caller has cancelled an observation that the server does not know to be over yet.
    pub(super) fn is_ending(&self, observed: Number) -> bool {
        let follow_up = self.exchanges.get(observed).and_then(Exchange::follow_up);
        let follow_up = follow_up.and_then(|number| self.exchanges.get(number));
        follow_up.is_some_and(|follow_up| follow_up.purpose == Purpose::End(observed))
    }

    fn deregister_one(&mut self, observed: Number, events: &mut dyn Events) {
        if self.is_ending(observed) {
            return;
        }
        if self.has_ended(observed) {
            self.remove(observed);
            return;
        }
        self.remove_dependents(observed);
        if !self.follow_up(observed, Purpose::End(observed), DEREGISTER, events) {
            self.remove(observed);
        }
    }

    /// Sends the registration of an observation again with this Observe. Returns whether it could be.
    fn follow_up(&mut self, observed: Number, purpose: Purpose, observe: u32, events: &mut dyn Events) -> bool {
        let Some(number) = self.exchanges.begin() else { return false };
        let amendment = Amendment { observe: Some(observe), ..Amendment::new(number, self.tokens.of(observed)) };
        let Some(observing) = self.exchanges.get_mut(observed) else { return false };
        amendment.write(&observing.plain, &mut self.scratch);
        let (tag, confirmable) = (observing.tag, observing.confirmable);
        if let Some(observation) = &mut observing.observation {
            (observation.follow_up, observation.begins_again) = (Some(number), true);
        }
        if let Some(exchange) = self.exchanges.get_mut(number) {
            (exchange.tag, exchange.purpose, exchange.confirmable) = (tag, purpose, confirmable);
            std::mem::swap(&mut exchange.plain, &mut self.scratch);
        }
        self.send(number, events);
        true
    }

    /// A response with the token of an observation, to its registration or to what renews or ends it.
    pub(super) fn observed(
        &mut self,
        now: Timestamp,
        observed: Number,
        answered: Number,
        message: &Message<'_>,
        events: &mut dyn Events,
    ) {
        let Some(exchange) = self.exchanges.get(observed) else { return };
        if self.has_ended(observed) {
            return;
        }
        let is_known = exchange.observation.as_ref().is_some_and(|observation| observation.answered);
        let ends = self.is_ending(observed);
        let sequence = message.option(OptionNumber::OBSERVE).and_then(|option| option.uint());
        match sequence.filter(|_| message.code.is_success()) {
            // RFC 7641 §3.6; a notification on its way does not matter any more.
            Some(_) if ends && answered == observed => {}
            _ if ends => self.remove(observed),
            Some(sequence) => self.notified(now, (observed, answered), sequence, message, events),
            None if is_known => self.terminated(observed, message, events),
            None => self.declined(observed, message, events),
        }
    }

    /// The first answer is an error, or says nothing of an observation (RFC 7641 §4.1).
    fn declined(&mut self, observed: Number, message: &Message<'_>, events: &mut dyn Events) {
        self.remove_dependents(observed);
        self.observations -= 1;
        let Some(exchange) = self.exchanges.get_mut(observed) else { return };
        (exchange.purpose, exchange.declined, exchange.observation) = (Purpose::Request, true, None);
        self.answer(observed, message, events);
    }

    /// RFC 7641 §3.2: an error, or a state without Observe, is the last message of an observation. What was notified
    /// before an error is still fetched, and told before it.
    fn terminated(&mut self, observed: Number, message: &Message<'_>, events: &mut dyn Events) {
        let Some(exchange) = self.exchanges.get(observed) else { return };
        let (tag, success, follow_up) = (exchange.tag, message.code.is_success(), exchange.follow_up());
        if !success
            && let Some(observation) = self.observation(observed).filter(|observation| observation.is_fetching())
        {
            observation.last = Some(encoded(message));
            self.ended.push(observed);
            follow_up.into_iter().for_each(|number| self.remove(number));
            return;
        }
        self.remove(observed);
        let in_blocks = block(message, OptionNumber::BLOCK2, self.config.reliable).is_some_and(|part| part.more);
        if !success || !in_blocks {
            let representation = Representation::whole(*message);
            let confirmable = message.kind == Type::Confirmable;
            events.event(tag, Event::Notified { representation, confirmable });
        }
        if success {
            events.event(tag, Event::Ended(CallFailed::Ended));
        }
    }

    /// Ends the observations that the server has ended and of which nothing is fetched any more.
    pub(super) fn end_fetched(&mut self, events: &mut dyn Events) {
        let mut at = 0;
        while let Some(observed) = self.ended.get(at).copied() {
            let Some(observation) = self.observation(observed).filter(|observation| !observation.is_fetching()) else {
                at += 1;
                continue;
            };
            let last = observation.last.take().unwrap_or_default();
            let tag = self.exchanges.get(observed).map(|exchange| exchange.tag);
            self.remove(observed);
            if let (Some(tag), Ok(message)) = (tag, Message::decode(&last)) {
                let (representation, confirmable) = (Representation::whole(message), message.kind == Type::Confirmable);
                events.event(tag, Event::Notified { representation, confirmable });
            }
        }
    }

    /// Whether the server has ended this observation.
    fn has_ended(&self, observed: Number) -> bool {
        self.ended.contains(&observed)
    }

    /// A state with a sequence number.
    fn notified(
        &mut self,
        now: Timestamp,
        (observed, answered): (Number, Number),
        sequence: u32,
        message: &Message<'_>,
        events: &mut dyn Events,
    ) {
        // RFC 8613 §7.4.1: of protected notifications only newer ones are opened, and each registration counts anew.
        let in_order = self.config.reliable || self.protection.is_some();
        let arrival = match (in_order, answered == observed) {
            (true, _) => Arrival::InOrder,
            (false, true) => Arrival::Datagram,
            (false, false) => Arrival::Registration,
        };
        let path = location(message);
        let Some(exchange) = self.exchanges.get_mut(observed) else { return };
        exchange.stage = Stage::Established;
        let follow_up = exchange.follow_up();
        let Some(observation) = &mut exchange.observation else { return };
        let is_fresh = observation.admit(sequence, &path, now, arrival);
        if let Some(follow_up) = follow_up {
            self.registered_again(observed, follow_up, answered == follow_up);
        }
        let part = block(message, OptionNumber::BLOCK2, self.config.reliable);
        match part.filter(|part| part.more || part.number > 0) {
            _ if !is_fresh => {}
            part if part.is_none_or(|part| part.number == 0) && self.is_behind(observed, &path, message, events) => {}
            None => {
                if self.rests > 0 || !self.waiting.is_empty() {
                    self.remove_rest(observed, &path);
                }
                self.report(observed, Representation::whole(*message), message.kind == Type::Confirmable, events);
            }
            Some(part) if part.number == 0 => self.fetch(observed, path, message, part, events),
            // A block that nobody asked for; as a first answer there is none behind it.
            Some(_) if self.is_unanswered(observed) => self.fail(observed, CallFailed::Blocks, events),
            Some(_) => {}
        }
    }

    /// Ends a further registration that was answered. Over a reliable transport, and in a separate response, its answer
    /// cannot be told from a notification; the newest state is known either way.
    fn registered_again(&mut self, observed: Number, follow_up: Number, is_its_answer: bool) {
        let Some(exchange) = self.exchanges.get_mut(follow_up) else { return };
        let awaited = matches!(exchange.stage, Stage::Unanswered { .. });
        if is_its_answer {
            // RFC 8613 §4.1.3.5: notifications answer the newest registration from now on.
            if let Some(opener) = exchange.opener.take()
                && let Some(observing) = self.exchanges.get_mut(observed)
            {
                observing.opener = Some(opener);
            }
        }
        if is_its_answer || (awaited && self.protection.is_none()) {
            self.remove(follow_up);
        }
    }

    /// Tells the caller of a state.
    pub(super) fn report(
        &mut self,
        observed: Number,
        representation: Representation<'_>,
        confirmable: bool,
        events: &mut dyn Events,
    ) {
        let Some(exchange) = self.exchanges.get_mut(observed) else { return };
        let tag = exchange.tag;
        let Some(observation) = &mut exchange.observation else { return };
        observation.restarted = false;
        let event = if std::mem::replace(&mut observation.answered, true) {
            Event::Notified { representation, confirmable }
        } else {
            Event::Answered { representation, registration: Registration::Established }
        };
        events.event(tag, event);
    }

    pub(super) fn is_unanswered(&mut self, observed: Number) -> bool {
        self.observation(observed).is_some_and(|observation| !observation.answered)
    }

    /// Registers an observation again (RFC 7641 §3.3.1), unless that or its end is on its way.
    pub(super) fn register_again(&mut self, observed: Number, events: &mut dyn Events) {
        let is_free = self.exchanges.get(observed).is_some_and(|exchange| exchange.follow_up().is_none())
            && !self.has_ended(observed);
        if is_free && !self.follow_up(observed, Purpose::Again(observed), REGISTER, events) {
            self.fail(observed, CallFailed::TimedOut, events);
        }
    }
}

/// A message as it was before it was decoded, or as good.
fn encoded(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, message.kind, message.code, message.message_id, &message.token);
    message.options().for_each(|option| encoder.push(option.number, option.value));
    encoder.payload(message.payload());
    bytes
}
