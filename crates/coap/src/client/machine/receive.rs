//! Messages from the server: acknowledgements, resets, answers whole and in blocks.

use std::borrow::Cow;

use super::{Machine, SEEN, length};
use crate::Timestamp;
use crate::block::Block;
use crate::client::blockwise::{Download, Downloaded, Uploaded, block};
use crate::client::event::{CallFailed, Event, Events, Registration, Representation, location};
use crate::client::exchanges::{Exchange, Number, Purpose, Stage};
use crate::client::protection::{Protection, Unopened};
use crate::client::tokens::TokenForm;
use crate::code::{Class, Code};
use crate::message::{Message, Remedy, Type};
use crate::option::OptionNumber;
use crate::token::Token;

/// The longest Echo value (RFC 9175 §2.2).
const ECHO_BYTES_MAX: usize = 40;

impl<P: Protection> Machine<P> {
    /// Takes a datagram in, or a message of a reliable transport in the form of one.
    pub fn handle(&mut self, now: Timestamp, datagram: &[u8], events: &mut dyn Events) {
        let message = match Message::decode(datagram) {
            Ok(message) => message,
            Err(malformed) => {
                if let Remedy::Reset(message_id) = malformed.remedy() {
                    self.empty(Type::Reset, message_id);
                }
                return;
            }
        };
        match (message.code.class(), message.kind) {
            (Class::Success | Class::ClientError | Class::ServerError, _) => {
                self.response(now, &message, length(datagram), events);
                return;
            }
            (Class::Empty, Type::Acknowledgement) => self.acknowledged(now, message.message_id, events),
            (Class::Empty, Type::Reset) => self.rejected(message.message_id, events),
            // A ping, or a request to us who serve nothing (RFC 7252 §4.2, §4.3).
            (_, Type::Confirmable) => self.empty(Type::Reset, message.message_id),
            (Class::Empty | Class::Request | Class::Signal | Class::Reserved, _) => {}
        }
        self.bytes.down += length(datagram);
    }

    /// Takes a message of a reliable transport in, of so many bytes.
    pub fn handle_stream(&mut self, now: Timestamp, message: &Message<'_>, bytes: usize, events: &mut dyn Events) {
        if message.code.is_response() {
            self.response(now, message, u64::try_from(bytes).unwrap_or(u64::MAX), events);
        }
    }

    /// The answer will come on its own (RFC 7252 §5.2.2).
    fn acknowledged(&mut self, now: Timestamp, message_id: u16, events: &mut dyn Events) {
        let Some(exchange) = self.exchanges.get_mut(message_id) else { return };
        if let Stage::Unacknowledged { .. } = exchange.stage {
            exchange.stage = Stage::Unanswered { due: now + self.config.answer_timeout };
            if exchange.unanswered {
                self.done(message_id, events);
            }
        }
    }

    /// The server cannot process a request (RFC 7252 §4.2). A message that was answered cannot be rejected any more.
    fn rejected(&mut self, message_id: u16, events: &mut dyn Events) {
        let is_open = |exchange: &Exchange<P::Exchange>| exchange.stage != Stage::Established;
        if self.exchanges.get(message_id).is_some_and(is_open) {
            self.fail(message_id, CallFailed::Reset, events);
            self.next_upload(events);
            self.next_rests(events);
            self.end_fetched(events);
        }
    }

    /// The request under way that a token leads to.
    fn addressee(&self, token: &Token) -> Option<Number> {
        if self.config.tokens == TokenForm::Empty {
            return self.exchanges.iter().next().filter(|_| token.length() == 0).map(|(number, _)| number);
        }
        self.tokens.number(token).filter(|number| self.exchanges.get(*number).is_some())
    }

    /// Acknowledges a Confirmable. Returns whether it came for the first time (RFC 7252 §4.5).
    fn acknowledge(&mut self, message_id: u16) -> bool {
        self.empty(Type::Acknowledgement, message_id);
        if self.seen.contains(&Some(message_id)) {
            return false;
        }
        if let Some(place) = self.seen.get_mut(self.seen_next % SEEN) {
            *place = Some(message_id);
        }
        self.seen_next = (self.seen_next + 1) % SEEN;
        true
    }

    fn response(&mut self, now: Timestamp, message: &Message<'_>, bytes: u64, events: &mut dyn Events) {
        self.now = now;
        let number = self.addressee(&message.token);
        if message.kind == Type::Confirmable && !self.config.reliable {
            if number.is_none() && !self.seen.contains(&Some(message.message_id)) {
                // RFC 7252 §4.2; RFC 7641 §3.6: this ends an observation that nobody remembers.
                self.empty(Type::Reset, message.message_id);
                self.bytes.down += bytes;
                return;
            }
            if !self.acknowledge(message.message_id) {
                self.bytes.down += bytes;
                return;
            }
        }
        let answered = number.and_then(|number| Some((number, self.answered_by(number, message)?)));
        match answered {
            Some((number, answered)) if self.protection.is_some() => {
                let mut opened = std::mem::take(&mut self.opened);
                opened.clear();
                self.open(now, (number, answered), message, &mut opened, events);
                self.opened = opened;
            }
            Some(answered) => {
                self.bytes.down += bytes;
                self.admit(now, answered, message, events);
            }
            None => self.bytes.down += bytes,
        }
        if !self.uploads.is_empty() {
            self.next_upload(events);
        }
        if !self.waiting.is_empty() {
            self.next_rests(events);
        }
        if !self.ended.is_empty() {
            self.end_fetched(events);
        }
    }

    /// The request that a message with the token of this one answers: a response in an acknowledgement is for the
    /// message that it acknowledges (RFC 7252 §5.3.2), which may register an observation again or end it.
    fn answered_by(&self, number: Number, message: &Message<'_>) -> Option<Number> {
        let (id, follow_up) = (message.message_id, self.exchanges.get(number)?.follow_up());
        if message.kind != Type::Acknowledgement || id == number {
            Some(number)
        } else {
            follow_up.filter(|to| *to == id)
        }
    }

    /// Opens what was sealed from end to end.
    fn open(
        &mut self,
        now: Timestamp,
        (number, mut answered): (Number, Number),
        outer: &Message<'_>,
        opened: &mut Vec<u8>,
        events: &mut dyn Events,
    ) {
        let mut result = self.open_for(answered, outer, opened);
        // An answer to what registers again or deregisters bears the token of the observation.
        if result == Err(Unopened::Invalid)
            && answered == number
            && let Some(follow_up) = self.exchanges.get(number).and_then(Exchange::follow_up)
        {
            (result, answered) = (self.open_for(follow_up, outer, opened), follow_up);
        }
        match result {
            Ok(()) => {
                self.bytes.down += length(opened);
                if let Ok(inner) = Message::decode(opened) {
                    self.admit(now, (number, answered), &inner, events);
                }
            }
            // The server's OSCORE could not open the request; forged or not, nothing better will come.
            Err(Unopened::Unprotected) if !outer.code.is_success() => {
                let text = String::from_utf8_lossy(outer.payload()).into_owned();
                self.fail(answered, CallFailed::Unprotected { code: outer.code, text }, events);
            }
            // RFC 8613 §8.4: a message that does not open is dropped; the request is still open.
            Err(_) => {}
        }
    }

    fn open_for(&mut self, number: Number, outer: &Message<'_>, opened: &mut Vec<u8>) -> Result<(), Unopened> {
        let opener = self.exchanges.get_mut(number).and_then(|exchange| exchange.opener.as_mut());
        P::open(opener.ok_or(Unopened::Invalid)?, outer, opened)
    }

    /// A response with the token of `number` to the request `answered`, which is mostly the same.
    fn admit(
        &mut self,
        now: Timestamp,
        (number, answered): (Number, Number),
        message: &Message<'_>,
        events: &mut dyn Events,
    ) {
        let known = |number| matches!(number, OptionNumber::BLOCK1 | OptionNumber::BLOCK2);
        if message.options().any(|option| option.number.is_critical() && !known(option.number)) {
            self.fail(answered, CallFailed::BadOption, events);
            return;
        }
        let reliable = self.config.reliable;
        let Some(exchange) = self.exchanges.get_mut(answered) else { return };
        if message.code == Code::UNAUTHORIZED
            && !exchange.echoed
            && exchange.stage != Stage::Established
            && let Some(echo) = message.option(OptionNumber::ECHO).filter(|echo| echo.value.len() <= ECHO_BYTES_MAX)
        {
            exchange.echoed = true;
            self.send_again(answered, Some(echo.value), events);
            return;
        }
        let said = match (&mut exchange.upload, &exchange.download) {
            (Some(upload), None) if exchange.stage != Stage::Established => upload.answered(message, reliable),
            // RFC 7959 §2.9.1: 2.31 answers a block with others behind it, and nothing else.
            _ if message.code == Code::CONTINUE => Uploaded::Broken,
            _ => Uploaded::Done,
        };
        match said {
            Uploaded::Continue => return self.send_again(answered, None, events),
            Uploaded::Broken => return self.fail(answered, CallFailed::Blocks, events),
            Uploaded::Done => {}
        }
        match exchange.purpose {
            Purpose::Request | Purpose::Rest(_) => self.answer(answered, message, events),
            Purpose::Observe | Purpose::Again(_) | Purpose::End(_) => {
                self.observed(now, number, answered, message, events);
            }
        }
    }

    /// The answer to a request, or a block of it.
    pub(super) fn answer(&mut self, number: Number, message: &Message<'_>, events: &mut dyn Events) {
        let Some(exchange) = self.exchanges.get(number) else { return };
        if exchange.download.as_ref().is_some_and(|download| !download.restarted) && !message.code.is_success() {
            // The state has changed, and has fewer blocks or is gone (RFC 7959 §2.4).
            self.begin_again(number, events);
            return;
        }
        match block(message, OptionNumber::BLOCK2, self.config.reliable) {
            Some(part) if part.more || part.number > 0 => self.take_block(number, message, part, events),
            Some(_) | None => self.complete(number, message, Cow::Borrowed(message.payload()), events),
        }
    }

    pub(super) fn take_block(&mut self, number: Number, message: &Message<'_>, part: Block, events: &mut dyn Events) {
        let Some(exchange) = self.exchanges.get_mut(number) else { return };
        let download =
            exchange.download.get_or_insert_with(|| Box::new(Download::new(part.size, location(message), false)));
        let others = self.body_bytes - download.body.len();
        let room = self.config.bodies_bytes_max.saturating_sub(others);
        let taken = download.take(message, part, self.config.body_bytes_max.min(room));
        self.body_bytes = others + download.body.len();
        match taken {
            Downloaded::Continue => self.send_again(number, None, events),
            Downloaded::Done => {
                self.body_bytes = others;
                let body = std::mem::take(&mut download.body);
                self.complete(number, message, Cow::Owned(body), events);
            }
            Downloaded::Changed => self.begin_again(number, events),
            Downloaded::Broken => self.fail(number, CallFailed::Blocks, events),
            Downloaded::TooLarge => {
                if matches!(exchange.purpose, Purpose::Rest(_)) {
                    self.missed.note(download.location.clone());
                }
                self.fail(number, CallFailed::Blocks, events);
            }
        }
    }

    /// Fetches a state that has changed meanwhile as a whole, once.
    ///
    /// An observation of one resource is registered again (RFC 7641 §3.3.1): unlike the answer to another GET, that to
    /// a registration has a sequence number, and notifications on their way are known to be older or newer.
    fn begin_again(&mut self, number: Number, events: &mut dyn Events) {
        let Some(exchange) = self.exchanges.get_mut(number) else { return };
        let Some(download) = &mut exchange.download else { return };
        self.body_bytes -= download.body.len();
        download.body = Vec::new();
        if let Purpose::Rest(observed) = exchange.purpose
            && download.location.is_empty()
        {
            let first = self.observation(observed).is_some_and(|it| !std::mem::replace(&mut it.restarted, true));
            if first {
                self.remove(number);
                self.register_again(observed, events);
                return;
            }
        } else if download.restart() {
            self.send_again(number, None, events);
            return;
        }
        self.fail(number, CallFailed::Blocks, events);
    }

    /// A body is whole.
    fn complete(&mut self, number: Number, message: &Message<'_>, body: Cow<'_, [u8]>, events: &mut dyn Events) {
        let Some(exchange) = self.exchanges.get_mut(number) else { return };
        if let Purpose::Rest(observed) = exchange.purpose {
            self.complete_rest(number, observed, message, body, events);
            return;
        }
        let (tag, declined) = (exchange.tag, exchange.declined);
        let download = exchange.download.take();
        self.body_bytes -= download.as_ref().map_or(0, |download| download.body.len());
        let location = download.map(|download| download.location).unwrap_or_default();
        self.remove(number);
        let registration = if declined { Registration::Declined } else { Registration::NotRequested };
        let representation = Representation::joined(*message, body, location);
        events.event(tag, Event::Answered { representation, registration });
    }
}
