//! What comes in from the server.

use fogmux_coap::message::Type;
use fogmux_coap::{Class, Code, Encoder, Message, OptionNumber, Timestamp, encode};
use fogmux_oscore::ResponseRefused;

use super::super::blockwise::{Download, Downloaded, Uploaded, block};
use super::super::exchanges::{Exchange, Number, Purpose, Stage};
use super::super::resource;
use super::{Machine, Outgoing, PROMISED_WAIT, SEEN};
use crate::driver::{Answer, DriverError, Sink};

impl Machine {
    /// Takes a datagram in.
    pub(crate) fn handle(&mut self, now: Timestamp, datagram: &[u8], sink: &mut dyn Sink) {
        let message = match Message::decode(datagram) {
            Ok(message) => message,
            Err(malformed) => {
                if let fogmux_coap::Remedy::Reset(message_id) = malformed.remedy() {
                    self.empty(Type::Reset, message_id);
                }
                return;
            }
        };
        match (message.code.class(), message.kind) {
            (Class::Success | Class::ClientError | Class::ServerError, _) => {
                self.response(now, &message, datagram.len(), sink);
                return;
            }
            (Class::Empty, Type::Acknowledgement) => self.acknowledged(now, message.message_id),
            (Class::Empty, Type::Reset) => self.rejected(message.message_id, sink),
            // A ping, or a request to us who serve nothing (RFC 7252 §4.2, §4.3).
            (_, Type::Confirmable) => self.empty(Type::Reset, message.message_id),
            (Class::Empty | Class::Request | Class::Signal | Class::Reserved, _) => {}
        }
        self.bytes.protocol_down += length(datagram);
    }

    /// Takes a response of a reliable transport in, of so many bytes.
    pub(crate) fn handle_stream(&mut self, now: Timestamp, message: &Message<'_>, bytes: usize, sink: &mut dyn Sink) {
        if message.code.is_response() {
            self.response(now, message, bytes, sink);
        }
    }

    fn empty(&mut self, kind: Type, message_id: u16) {
        self.scratch.clear();
        encode::empty(&mut self.scratch, kind, message_id);
        if let Some(message) = self.scratch.first_chunk() {
            self.outbox.push_back(Outgoing::Empty(*message));
        }
    }

    /// The answer will come on its own (RFC 7252 §5.2.2).
    fn acknowledged(&mut self, now: Timestamp, message_id: u16) {
        if let Some(exchange) = self.exchanges.get_mut(message_id)
            && let Stage::Unacknowledged { .. } = exchange.stage
        {
            exchange.stage = Stage::Unanswered { due: now + PROMISED_WAIT };
        }
    }

    /// The server can make nothing of a request (RFC 7252 §4.2).
    fn rejected(&mut self, message_id: u16, sink: &mut dyn Sink) {
        let established = |exchange: &Exchange| exchange.stage == Stage::Established;
        if self.exchanges.get(message_id).is_some_and(|exchange| !established(exchange)) {
            self.finish(message_id, Answer::Refused("Reset"), sink);
        }
    }

    /// Says that a Confirmable arrived, and whether it came for the first time.
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

    fn response(&mut self, now: Timestamp, message: &Message<'_>, bytes: usize, sink: &mut dyn Sink) {
        let number = resource::number(&message.token).filter(|number| self.exchanges.get(*number).is_some());
        let plain = u64::try_from(bytes).unwrap_or_default();
        if message.kind == Type::Confirmable && !self.config.reliable {
            if number.is_none() && !self.seen.contains(&Some(message.message_id)) {
                // RFC 7252 §4.2; RFC 7641 §3.6: so ends an observation that nobody remembers.
                self.empty(Type::Reset, message.message_id);
                self.bytes.protocol_down += plain;
                return;
            }
            if !self.acknowledge(message.message_id) {
                self.bytes.protocol_down += plain;
                return;
            }
        }
        match number {
            Some(number) if self.context.is_some() => {
                let mut opened = std::mem::take(&mut self.opened);
                opened.clear();
                self.open(now, number, message, &mut opened, sink);
                self.opened = opened;
            }
            Some(number) => {
                self.bytes.protocol_down += plain;
                self.admit(now, number, message, sink);
            }
            None => self.bytes.protocol_down += plain,
        }
    }

    /// Opens what was sealed end to end.
    fn open(&mut self, now: Timestamp, number: Number, outer: &Message<'_>, opened: &mut Vec<u8>, sink: &mut dyn Sink) {
        let mut result = self.open_for(number, outer, opened);
        // The end of an observation bears its token, but answers another request.
        if let Err(ResponseRefused::Decryption) = result
            && let Some(asked) = self.deregistering(number)
        {
            result = self.open_for(asked, outer, opened);
        }
        match result {
            Ok(()) => {
                self.bytes.protocol_down += length(opened);
                if let Ok(inner) = Message::decode(opened) {
                    self.admit(now, number, &inner, sink);
                }
            }
            // The server's OSCORE could make nothing of the request; forged or not, nothing better will come.
            Err(ResponseRefused::Unprotected) if !outer.code.is_success() => {
                let text = format!("{} without protection", said(outer));
                self.finish(number, Answer::Refused(&text), sink);
            }
            // RFC 8613 §8.4: what does not open is dropped; the request is still open.
            Err(_) => {}
        }
    }

    fn open_for(&mut self, number: Number, outer: &Message<'_>, opened: &mut Vec<u8>) -> Result<(), ResponseRefused> {
        let opener = self.exchanges.get_mut(number).and_then(|exchange| exchange.opener.as_mut());
        opener.ok_or(ResponseRefused::NoResponse)?.open(outer, opened)
    }

    /// The request that ends this observation, if there is one.
    fn deregistering(&self, observed: Number) -> Option<Number> {
        let of_it = |purpose| matches!(purpose, Purpose::Deregister(of) if of == observed);
        self.exchanges.iter().find(|(_, exchange)| of_it(exchange.purpose)).map(|(number, _)| number)
    }

    /// A response that belongs to a request of ours.
    fn admit(&mut self, now: Timestamp, number: Number, message: &Message<'_>, sink: &mut dyn Sink) {
        let known = |number| matches!(number, OptionNumber::BLOCK1 | OptionNumber::BLOCK2);
        if message.options().any(|option| option.number.is_critical() && !known(option.number)) {
            self.finish(number, Answer::Refused("an unknown critical option in the answer"), sink);
            return;
        }
        let Some(exchange) = self.exchanges.get_mut(number) else { return };
        let observes = match exchange.purpose {
            Purpose::Observe => true,
            Purpose::Publish | Purpose::Get | Purpose::Register | Purpose::Fetch(_) | Purpose::Deregister(_) => false,
        };
        if observes {
            self.notified(now, number, message, sink);
            return;
        }
        // RFC 7252 §5.3.2: what comes in an acknowledgement is for the message that it acknowledges.
        if message.kind == Type::Acknowledgement && message.message_id != number {
            return;
        }
        if message.code == Code::UNAUTHORIZED && !exchange.echoed && self.echo(number, message) {
            return;
        }
        let reliable = self.config.reliable;
        let Some(exchange) = self.exchanges.get_mut(number) else { return };
        if let Some(upload) = &mut exchange.upload
            && upload.answered(message, reliable) == Uploaded::Continue
        {
            self.next_part(number);
            return;
        }
        if !message.code.is_success() {
            self.finish(number, Answer::Refused(&said(message)), sink);
            return;
        }
        match exchange.purpose {
            Purpose::Publish => self.finish(number, Answer::Success(&[]), sink),
            Purpose::Get | Purpose::Fetch(_) => self.got(number, message, sink),
            Purpose::Register => self.registered(now, number, message, sink),
            Purpose::Observe | Purpose::Deregister(_) => {}
        }
    }

    /// Sends a request again with the Echo that is asked for (RFC 9175 §2.3), under a new number; whether it could be.
    fn echo(&mut self, number: Number, message: &Message<'_>) -> bool {
        let Some(echo) = message.option(OptionNumber::ECHO) else { return false };
        let Some(number) = self.exchanges.renew(number) else { return false };
        let Some(exchange) = self.exchanges.get_mut(number) else { return false };
        let before = std::mem::take(&mut exchange.plain);
        let Ok(request) = Message::decode(&before) else { return false };
        let token = resource::token(number);
        let mut encoder = Encoder::new(&mut exchange.plain, request.kind, request.code, number, &token);
        request.options().for_each(|option| encoder.push(option.number, option.value));
        encoder.option(OptionNumber::ECHO, echo.value).payload(request.payload());
        (exchange.echoed, exchange.stage) = (true, Stage::Waiting);
        self.renewed(number);
        true
    }

    /// Sends the next block of a request, or the demand for the next of its answer, under a new number.
    fn next_part(&mut self, number: Number) {
        let Some(number) = self.exchanges.renew(number) else { return };
        if let Some(exchange) = self.exchanges.get_mut(number) {
            exchange.stage = Stage::Waiting;
            if let Purpose::Fetch(observed) = exchange.purpose
                && let Some(observation) = self.observation(observed)
            {
                observation.fetch = Some(number);
            }
        }
        self.encode_part(number);
        self.renewed(number);
    }

    fn renewed(&mut self, number: Number) {
        if let Err(error) = self.enqueue(number) {
            self.failure = Some(error);
        }
    }

    /// The answer to a question, or to the demand for a block of it.
    fn got(&mut self, number: Number, message: &Message<'_>, sink: &mut dyn Sink) {
        let part = block(message, OptionNumber::BLOCK2, self.config.reliable);
        let Some(exchange) = self.exchanges.get_mut(number) else { return };
        let part = part.filter(|part| part.more || exchange.download.is_some());
        let Some(part) = part else {
            self.arrived(number, message.payload(), sink);
            return;
        };
        let download = exchange.download.get_or_insert_with(|| Box::new(Download::new(part.size)));
        match download.take(message, part) {
            Downloaded::Continue => self.next_part(number),
            Downloaded::Done => {
                let body = std::mem::take(&mut download.body);
                self.arrived(number, &body, sink);
            }
            Downloaded::Broken => self.finish(number, Answer::Refused("the blocks do not make a whole"), sink),
        }
    }

    /// A body is whole.
    fn arrived(&mut self, number: Number, body: &[u8], sink: &mut dyn Sink) {
        self.bytes.payload_down += length(body);
        if let Some(Purpose::Fetch(_)) = self.exchanges.get(number).map(|exchange| exchange.purpose) {
            sink.message(body);
        }
        self.finish(number, Answer::Success(body), sink);
    }

    /// The first answer of an observation: what is kept, if anything is (RFC 7641 §3.1).
    fn registered(&mut self, now: Timestamp, number: Number, message: &Message<'_>, sink: &mut dyn Sink) {
        let Some(sequence) = message.option(OptionNumber::OBSERVE).and_then(|option| option.uint()) else {
            self.finish(number, Answer::Refused("answered, but not observed"), sink);
            return;
        };
        let reliable = self.config.reliable;
        let Some(exchange) = self.exchanges.get_mut(number) else { return };
        (exchange.purpose, exchange.stage) = (Purpose::Observe, Stage::Established);
        let tag = exchange.tag;
        if let Some(observation) = &mut exchange.observation {
            observation.admit(sequence, now, reliable);
        }
        sink.done(tag, Answer::Success(&[]));
        // Our gateway says so that nothing is kept yet (docs/protocols/coap.md).
        if !message.payload().is_empty() {
            self.deliver(number, message, sink);
        }
    }

    fn notified(&mut self, now: Timestamp, number: Number, message: &Message<'_>, sink: &mut dyn Sink) {
        let sequence = message.option(OptionNumber::OBSERVE).and_then(|option| option.uint());
        let Some(sequence) = sequence.filter(|_| message.code.is_success()) else {
            self.ended(number, message, sink);
            return;
        };
        let reliable = self.config.reliable;
        if self.observation(number).is_some_and(|observation| observation.admit(sequence, now, reliable)) {
            self.deliver(number, message, sink);
        }
    }

    /// What says nothing of a newer state: an error, or an answer without Observe (RFC 7641 §3.2, §4.2).
    fn ended(&mut self, number: Number, message: &Message<'_>, sink: &mut dyn Sink) {
        match self.deregistering(number) {
            Some(asked) => self.finish(asked, Answer::Success(&[]), sink),
            None => {
                self.finish(number, Answer::Success(&[]), sink);
                self.failure = Some(DriverError::Refused(format!("the observation was ended: {}", said(message))));
            }
        }
    }

    /// Hands a notification on, or fetches what of it did not fit.
    fn deliver(&mut self, number: Number, message: &Message<'_>, sink: &mut dyn Sink) {
        let part = block(message, OptionNumber::BLOCK2, self.config.reliable).filter(|part| part.more);
        let Some(part) = part else {
            self.bytes.payload_down += length(message.payload());
            sink.message(message.payload());
            return;
        };
        let Some(exchange) = self.exchanges.get_mut(number) else { return };
        let resource = exchange.resource;
        let Some(observation) = exchange.observation.as_mut() else { return };
        if observation.fetch.is_some() {
            observation.superseded = true;
            return;
        }
        let mut download = Download::new(part.size);
        if download.take(message, part) == Downloaded::Continue {
            self.fetch(number, resource, download);
        }
    }
}

/// RFC 7252 §5.5.2: the payload of an error is for people.
fn said(message: &Message<'_>) -> String {
    let code = message.code;
    match std::str::from_utf8(message.payload()) {
        Ok(text) if !text.is_empty() && !code.is_success() => format!("{code}: {text}"),
        Ok(_) | Err(_) => code.to_string(),
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
