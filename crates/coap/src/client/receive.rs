//! What comes in from the server.

use bytes::Bytes;

use crate::block::{Block, BlockSize};
use crate::client::call::{Arrived, Call, Download, Pending};
use crate::client::{Answer, CallFailed, CallId, Client, ClientEvent, Freshness};
use crate::code::{Class, Code};
use crate::encode;
use crate::etag::ETag;
use crate::message::{Message, Remedy, Type};
use crate::option::OptionNumber;
use crate::outbox::Outbox;
use crate::slab::Key;
use crate::time::Timestamp;

impl Client {
    /// Takes a datagram in.
    pub fn handle(&mut self, now: Timestamp, datagram: &[u8], out: &mut Outbox<()>) {
        let message = match Message::decode(datagram) {
            Ok(message) => message,
            Err(malformed) => {
                if let Remedy::Reset(message_id) = malformed.remedy() {
                    out.push_with((), |bytes| encode::empty(bytes, Type::Reset, message_id));
                }
                return;
            }
        };
        match (message.code.class(), message.kind) {
            (Class::Success | Class::ClientError | Class::ServerError, _) => self.response(now, &message, out),
            (Class::Empty, Type::Acknowledgement) => self.acknowledged(now, message.message_id),
            (Class::Empty, Type::Reset) => {
                if let Some(key) = self.find(|pending| pending.message_id == message.message_id) {
                    self.fail(key, CallFailed::Reset);
                }
            }
            (_, Type::Confirmable) => {
                out.push_with((), |bytes| encode::empty(bytes, Type::Reset, message.message_id));
            }
            (Class::Empty | Class::Request | Class::Signal | Class::Reserved, _) => {}
        }
    }

    fn find(&self, is_it: impl Fn(&Pending) -> bool) -> Option<Key> {
        (0..self.calls.places())
            .filter_map(|at| self.calls.at(at))
            .find(|(_, pending)| is_it(pending))
            .map(|(key, _)| key)
    }

    /// The answer will come on its own (RFC 7252 §5.2.2).
    fn acknowledged(&mut self, now: Timestamp, message_id: u16) {
        let answer_timeout = self.config.answer_timeout;
        let Some(key) = self.find(|pending| pending.message_id == message_id) else { return };
        let Some(pending) = self.calls.get_mut(key) else { return };
        pending.acknowledged = true;
        pending.due = Some(now + answer_timeout);
        if pending.call.no_response.is_some_and(|no_response| no_response & 2 != 0) {
            self.calls.remove(key);
        }
    }

    fn response(&mut self, now: Timestamp, message: &Message<'_>, out: &mut Outbox<()>) {
        let of_token = |pending: &Pending| pending.token == message.token || pending.fetch_token == Some(message.token);
        let piggybacked = message.kind == Type::Acknowledgement;
        let of_message =
            |pending: &Pending| of_token(pending) && (!piggybacked || pending.message_id == message.message_id);
        let Some(key) = self.find(of_message) else {
            if message.kind == Type::Confirmable {
                // RFC 7641 §3.6: this is how an observation ends that nobody remembers.
                out.push_with((), |bytes| encode::empty(bytes, Type::Reset, message.message_id));
            }
            return;
        };
        if message.kind == Type::Confirmable && self.acknowledge(message.message_id, out) {
            return;
        }
        let known = |number| matches!(number, OptionNumber::BLOCK1 | OptionNumber::BLOCK2);
        if message.options().any(|option| option.number.is_critical() && !known(option.number)) {
            self.fail(key, CallFailed::BadOption);
            return;
        }
        self.advance(now, key, message, out);
    }

    /// Goes on with the next block, or tells the whole.
    fn advance(&mut self, now: Timestamp, key: Key, message: &Message<'_>, out: &mut Outbox<()>) {
        let reliable = self.config.reliable;
        let decode = |value| if reliable { Some(Block::decode_reliable(value)) } else { Block::decode(value) };
        let block = |number| message.option(number).and_then(|option| option.uint()).and_then(decode);
        let Some(pending) = self.calls.get_mut(key) else { return };
        if message.code == Code::UNAUTHORIZED
            && let Some(echo) = message.option(OptionNumber::ECHO)
            && pending.take_echo(echo.value)
        {
            self.send(now, key, out);
            return;
        }
        if let (Some(sent), Some(granted)) = (pending.upload, block(OptionNumber::BLOCK1)) {
            let smaller = message.code == Code::REQUEST_ENTITY_TOO_LARGE && granted.size < sent.size;
            if message.code == Code::CONTINUE || smaller {
                let number = sent.number.saturating_add(blocks(sent.size, pending.chunk));
                let next = if smaller { sent } else { Block { number, ..sent } };
                pending.upload = Some(next.shrink(granted.size));
                self.send(now, key, out);
                return;
            }
        }
        let own_token = pending.token == message.token;
        let is_notification = own_token && pending.answered;
        // One of them may overtake the first answer.
        let is_named = pending.call.observe && own_token && !location(message).is_empty();
        if own_token {
            let arrived = Arrived { reliable, piggybacked: message.kind == Type::Acknowledgement };
            let sequence = message.option(OptionNumber::OBSERVE).and_then(|option| option.uint());
            if sequence.is_some_and(|sequence| !pending.is_fresh(sequence, location(message), now, arrived)) {
                return;
            }
            self.forget_rests(key, message);
        }
        let Some(pending) = self.calls.get_mut(key) else { return };
        if !own_token && !message.code.is_success() && pending.start_again() {
            // The state has changed, and has fewer blocks or is gone.
            self.send(now, key, out);
            return;
        }
        match block(OptionNumber::BLOCK2) {
            Some(part) if is_named && part.more && part.number == 0 => {
                self.fetch(now, key, message, part, out);
            }
            Some(part) if part.more || part.number > 0 => self.take_block(now, key, message, part, out),
            Some(_) | None => {
                let notification = is_notification.then_some(message.kind == Type::Confirmable);
                let payload = Bytes::copy_from_slice(message.payload());
                self.tell(now, key, message, Body { payload, location: location(message) }, notification);
            }
        }
    }

    /// A newer state of a resource is there: the rest of an older one would come after it.
    fn forget_rests(&mut self, of: Key, message: &Message<'_>) {
        let path = location(message);
        while let Some(rest) = self.find(|pending| pending.rest_of == Some(of) && pending.call.path == path) {
            self.calls.remove(rest);
        }
    }

    /// The rest of a notification that says whose state it is, by a request of its own: notifications of other
    /// resources come meanwhile.
    fn fetch(&mut self, now: Timestamp, of: Key, message: &Message<'_>, part: Block, out: &mut Outbox<()>) {
        let Some(confirmable) = self.calls.get_mut(of).map(|pending| pending.call.confirmable) else { return };
        let call = Call { path: location(message), confirmable, ..Call::new(Code::GET, "") };
        let token = self.token();
        let pending = Pending { rest_of: Some(of), ..Pending::new(call, token, part.size, self.config.chunk) };
        // Without room it is lost like one that was superseded; the next is fetched again.
        if let Some(fetch) = self.calls.insert(pending) {
            self.take_block(now, fetch, message, part, out);
        }
    }

    /// RFC 7959 §2.4: blocks of one state, in order; a state that changes meanwhile is fetched anew, once.
    fn take_block(&mut self, now: Timestamp, key: Key, message: &Message<'_>, part: Block, out: &mut Outbox<()>) {
        let max = self.config.body_bytes_max;
        let etag = message.option(OptionNumber::ETAG).and_then(|option| ETag::new(option.value));
        let Some(pending) = self.calls.get_mut(key) else { return };
        let own_token = pending.token == message.token;
        if part.number == 0 {
            // Of a state that is fetched again, the first message said where it belongs.
            let before = pending.download.take().filter(|_| !own_token);
            let confirmable = message.kind == Type::Confirmable;
            let (location, confirmable) =
                before.map_or_else(|| (location(message), confirmable), |before| (before.location, before.confirmable));
            let notification = own_token && pending.answered;
            pending.download =
                Some(Download { next: part, etag, body: Vec::new(), location, notification, confirmable });
        }
        let changed = pending.download.as_ref().is_some_and(|download| download.etag != etag);
        if changed && pending.start_again() {
            self.send(now, key, out);
            return;
        }
        let Some(download) = pending.download.as_mut() else { return };
        let joins = download.body.len() == part.offset() && download.etag == etag;
        if !joins || download.body.len() + message.payload().len() > max {
            self.fail(key, CallFailed::Blocks);
            return;
        }
        download.body.extend_from_slice(message.payload());
        if part.more {
            let number = part.number.saturating_add(blocks(part.size, message.payload().len()));
            download.next = Block { number, more: false, size: part.size };
            pending.upload = None;
            self.send(now, key, out);
            return;
        }
        let notification = download.notification.then_some(download.confirmable);
        let body = Bytes::from(std::mem::take(&mut download.body));
        let location = std::mem::take(&mut download.location);
        self.tell(now, key, message, Body { payload: body, location }, notification);
    }

    fn tell(&mut self, now: Timestamp, key: Key, message: &Message<'_>, body: Body, notification: Option<bool>) {
        let Some(pending) = self.calls.get_mut(key) else { return };
        if pending.answered && !pending.call.observe {
            // The answer to the end of an observation.
            self.calls.remove(key);
            return;
        }
        let uint = |number| message.option(number).and_then(|option| option.uint());
        let location = match &mut pending.download {
            Some(download) if body.location.is_empty() => std::mem::take(&mut download.location),
            Some(_) | None => body.location,
        };
        let answer = Answer {
            code: message.code,
            etag: message.option(OptionNumber::ETAG).and_then(|option| ETag::new(option.value)),
            location,
            content_format: uint(OptionNumber::CONTENT_FORMAT).and_then(|format| u16::try_from(format).ok()),
            max_age: uint(OptionNumber::MAX_AGE),
            payload: body.payload,
        };
        if !pending.answered && pending.call.observe && message.token == pending.token {
            let first = uint(OptionNumber::OBSERVE).map(|sequence| Freshness::new(sequence, now));
            pending.observed = first.map(|first| pending.observed.unwrap_or(first));
        }
        if let Some(of) = pending.rest_of {
            let confirmable = pending.download.as_ref().is_some_and(|download| download.confirmable);
            self.calls.remove(key);
            if answer.code.is_success() {
                self.events.push_back(ClientEvent::Notified { call: CallId(of), answer, confirmable });
            }
            return;
        }
        (pending.download, pending.fetch_token, pending.due) = (None, None, None);
        (pending.answered, pending.restarted) = (true, false);
        let goes_on = pending.observed.is_some() && message.code.is_success();
        let call = CallId(key);
        self.events.push_back(match notification {
            Some(confirmable) => ClientEvent::Notified { call, answer, confirmable },
            None => ClientEvent::Answered { call, answer, observed: goes_on },
        });
        if !goes_on {
            self.calls.remove(key);
        }
    }
}

/// What a message, or the first of several, brings whole.
struct Body {
    payload: Bytes,
    location: Vec<String>,
}

fn location(message: &Message<'_>) -> Vec<String> {
    let levels = message.options().filter(|option| option.number == OptionNumber::LOCATION_PATH);
    levels.filter_map(|option| option.text().map(str::to_owned)).collect()
}

/// How many blocks a message of so many bytes has: one, but for BERT (RFC 8323 §6).
fn blocks(size: BlockSize, bytes: usize) -> u32 {
    if size.is_bert() { u32::try_from(bytes / size.bytes()).unwrap_or(u32::MAX).max(1) } else { 1 }
}
