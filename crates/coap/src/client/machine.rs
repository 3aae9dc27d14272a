//! The client's protocol for many requests at once: retransmission (RFC 7252 §4.2), blocks (RFC 7959), observations
//! (RFC 7641) and Echo (RFC 9175), without an allocation for a request that fits into one message.
//!
//! Requests come in by [`Machine::request`], messages by [`Machine::handle`], time as an argument. The message to send
//! is [`Machine::front`], until [`Machine::sent`] says that it is gone. NSTART (RFC 7252 §4.7) is not kept: how many
//! requests are outstanding is the caller's choice, and one is merely the default of those who make none.

mod observe;
mod receive;
mod rests;
mod send;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;

use bytes::Bytes;

use super::ClientConfig;
use super::amend::{Amendment, DEREGISTER, REGISTER};
use super::blockwise::{Download, Upload};
use super::event::{CallFailed, Event, Events, RequestError};
use super::exchanges::{Exchange, Exchanges, Number, Purpose, Stage};
use super::observation::Observation;
use super::protection::{Protection, Unprotected};
use super::template::Template;
use super::tokens::{TokenForm, Tokens};
use crate::Timestamp;
use crate::jitter::Jitter;
use crate::message::{HEADER_BYTES, Message, Type};

/// Confirmables of the server whose repeats are recognised (RFC 7252 §4.5).
const SEEN: usize = 64;

/// A message to be sent.
#[derive(Clone, Copy, Debug)]
enum Outgoing {
    Request(Number),
    /// An Empty message: acknowledgement or reset.
    Empty([u8; HEADER_BYTES]),
}

/// Bytes of CoAP messages before protection: over a stream with their length (RFC 8323 §3.2), without signals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageBytes {
    /// Sent.
    pub up: u64,
    /// Received.
    pub down: u64,
}

/// States that were notified and could not be fetched: there were too many at a time, or they were replaced or gone
/// meanwhile. Each is notified again when it changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    /// The number of states.
    pub states: u64,
    /// The levels of the path of the last one.
    pub last: Vec<String>,
}

/// A client of one server.
pub struct Machine<P: Protection = Unprotected> {
    config: ClientConfig,
    tokens: Tokens,
    jitter: Jitter,
    protection: Option<P>,
    exchanges: Exchanges<P::Exchange>,
    outbox: VecDeque<Outgoing>,
    /// Bodies that wait for the one before: a server cannot tell apart the uploads of one client to one resource
    /// (RFC 7959 §2.5).
    uploads: VecDeque<Number>,
    uploading: bool,
    /// Message IDs of Confirmables that were acknowledged lately.
    seen: [Option<u16>; SEEN],
    seen_next: usize,
    /// The earliest deadline, or one that was answered meanwhile.
    wake: Option<Timestamp>,
    /// When the last message came.
    now: Timestamp,
    observations: usize,
    /// Rests of notifications that are being fetched.
    rests: usize,
    /// Observations of which resources wait to be fetched.
    waiting: Vec<Number>,
    /// Observations that the server has ended while their rests are fetched.
    ended: Vec<Number>,
    /// Bytes of all bodies that are being put together.
    body_bytes: usize,
    missed: Missed,
    /// A request was sent whose answer may come, though nobody waits for it.
    forgotten: bool,
    /// A message that was opened.
    opened: Vec<u8>,
    /// A message that is being written.
    scratch: Vec<u8>,
    bytes: MessageBytes,
}

impl<P: Protection> fmt::Debug for Machine<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { config, exchanges, observations, bytes, .. } = self;
        let mut text = f.debug_struct("Machine");
        text.field("config", config).field("requests", &exchanges.len());
        text.field("observations", observations).field("bytes", bytes).finish_non_exhaustive()
    }
}

impl<P: Protection> Machine<P> {
    /// A client that has asked nothing. `secret` seeds message IDs, timeouts and, unless they are short, tokens; it
    /// should come from a secure source (RFC 7252 §5.3.1).
    #[must_use]
    pub fn new(config: ClientConfig, secret: u64, protection: Option<P>) -> Self {
        let mut jitter = Jitter::new(secret);
        Self {
            tokens: Tokens::new(config.tokens, jitter.next()),
            exchanges: Exchanges::new(jitter.next_u16()),
            config,
            jitter,
            protection,
            outbox: VecDeque::new(),
            uploads: VecDeque::new(),
            uploading: false,
            seen: [None; SEEN],
            seen_next: 0,
            wake: None,
            now: Timestamp::default(),
            observations: 0,
            rests: 0,
            waiting: Vec::new(),
            ended: Vec::new(),
            body_bytes: 0,
            missed: Missed::default(),
            forgotten: false,
            opened: Vec::new(),
            scratch: Vec::new(),
            bytes: MessageBytes::default(),
        }
    }

    /// Bytes of messages so far.
    #[must_use]
    pub const fn bytes(&self) -> MessageBytes {
        self.bytes
    }

    /// States that were not fetched.
    #[must_use]
    pub const fn missed(&self) -> &Missed {
        &self.missed
    }

    /// Requests under way, observations included.
    #[must_use]
    pub const fn in_flight(&self) -> usize {
        self.exchanges.len()
    }

    /// Whether nothing is expected to come, not even an answer that nobody waits for.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.exchanges.len() == 0 && !self.forgotten
    }

    /// Whether there is an observation, also one that is being registered or deregistered.
    #[must_use]
    pub const fn has_observations(&self) -> bool {
        self.observations > 0
    }

    /// Queues a request. `tag` comes back with its events.
    ///
    /// # Errors
    /// [`RequestError`]; then nothing is queued, and no event comes.
    pub fn request(&mut self, template: &Template, payload: &[u8], tag: u64) -> Result<(), RequestError<P::Error>> {
        self.begin(template, payload, || Bytes::copy_from_slice(payload), tag)
    }

    /// As [`Machine::request`]; `whole` is the payload for as long as its blocks take.
    pub(super) fn begin(
        &mut self,
        template: &Template,
        payload: &[u8],
        whole: impl FnOnce() -> Bytes,
        tag: u64,
    ) -> Result<(), RequestError<P::Error>> {
        // RFC 7252 §5.3.1: without a token an answer belongs to the only request there is.
        if self.config.tokens == TokenForm::Empty && (self.exchanges.len() > 0 || template.observes()) {
            return Err(RequestError::TooMany);
        }
        let number = self.exchanges.begin().ok_or(RequestError::TooMany)?;
        let token = self.tokens.of(number);
        let (size, chunk) = (self.config.block_size, self.config.chunk);
        let Some(exchange) = self.exchanges.get_mut(number) else { return Err(RequestError::TooMany) };
        let in_blocks = payload.len() > size.chunk(chunk);
        // RFC 7252 §4.3 leaves the type to the sender. A lost block would cost the whole body, so blocks are
        // Confirmable.
        let kind = if in_blocks { Type::Confirmable } else { template.kind() };
        (exchange.tag, exchange.confirmable) = (tag, kind == Type::Confirmable);
        if template.observes() {
            exchange.purpose = Purpose::Observe;
            exchange.observation = Some(Box::default());
            self.observations += 1;
        }
        if in_blocks {
            template.write(kind, number, &token, &[], &mut exchange.plain);
            exchange.upload = Some(Box::new(Upload::new(whole(), size, chunk)));
            if self.uploading {
                self.uploads.push_back(number);
                return Ok(());
            }
            self.uploading = true;
            self.write_part(number, None);
        } else {
            exchange.unanswered = template.is_unanswered();
            template.write(kind, number, &token, payload, &mut exchange.plain);
        }
        self.enqueue(number).map_err(|error| {
            self.remove(number);
            RequestError::Unsealed(error)
        })
    }

    /// A request without answer is done.
    fn done(&mut self, number: Number, events: &mut dyn Events) {
        let Some(exchange) = self.exchanges.get(number) else { return };
        let tag = exchange.tag;
        self.remove(number);
        events.event(tag, Event::Sent);
    }

    /// A request has come to nothing.
    fn fail(&mut self, number: Number, reason: CallFailed, events: &mut dyn Events) {
        let Some(exchange) = self.exchanges.get(number) else { return };
        let tag = exchange.tag;
        match exchange.purpose {
            Purpose::Request => {
                self.remove(number);
                events.event(tag, Event::Failed(reason));
            }
            // Its end was the caller's wish, who hears no more of it.
            Purpose::Observe if self.is_ending(number) => self.remove(number),
            Purpose::Observe => {
                let answered = exchange.observation.as_ref().is_some_and(|observation| observation.answered);
                self.remove(number);
                events.event(tag, if answered { Event::Ended(reason) } else { Event::Failed(reason) });
            }
            Purpose::Rest(observed) => self.give_up(number, observed, reason, events),
            Purpose::Again(observed) => self.fail(observed, reason, events),
            Purpose::End(observed) => self.remove(observed),
        }
    }

    /// Forgets a request, and with an observation all that serves it.
    fn remove(&mut self, number: Number) {
        let Some(exchange) = self.exchanges.get_mut(number) else { return };
        let (purpose, uploads) = (exchange.purpose, exchange.upload.is_some());
        self.body_bytes -= exchange.download.take().map_or(0, |download| download.body.len());
        self.exchanges.end(number);
        match purpose {
            Purpose::Request => {}
            Purpose::Observe => {
                self.observations -= 1;
                self.waiting.retain(|observed| *observed != number);
                self.ended.retain(|observed| *observed != number);
                self.remove_dependents(number);
            }
            Purpose::Rest(observed) => {
                self.rests -= 1;
                if let Some(observation) = self.observation(observed) {
                    observation.rests.retain(|rest| *rest != number);
                }
            }
            Purpose::Again(observed) | Purpose::End(observed) => {
                if let Some(observation) = self.observation(observed) {
                    observation.follow_up = None;
                }
            }
        }
        if uploads {
            let waiting = self.uploads.len();
            self.uploads.retain(|upload| *upload != number);
            self.uploading &= self.uploads.len() < waiting;
        }
    }

    /// Takes the body that is being put together out of a request, and its bytes out of the account.
    fn take_download(&mut self, number: Number) -> Option<Box<Download>> {
        let download = self.exchanges.get_mut(number)?.download.take()?;
        self.body_bytes -= download.body.len();
        Some(download)
    }

    fn remove_dependents(&mut self, observed: Number) {
        let serves = |(number, exchange): (Number, &Exchange<P::Exchange>)| match exchange.purpose {
            Purpose::Rest(of) | Purpose::Again(of) | Purpose::End(of) => (of == observed).then_some(number),
            Purpose::Request | Purpose::Observe => None,
        };
        let dependents: Vec<_> = self.exchanges.iter().filter_map(serves).collect();
        dependents.into_iter().for_each(|number| self.remove(number));
    }

    /// Begins the upload that waits longest, if none is on its way.
    fn next_upload(&mut self, events: &mut dyn Events) {
        while !self.uploading
            && let Some(number) = self.uploads.pop_front()
        {
            self.uploading = true;
            self.write_part(number, None);
            self.send(number, events);
        }
    }

    /// Sends the next message of a request, under a new number: a block, the demand for one, or an Echo.
    fn send_again(&mut self, number: Number, echo: Option<&[u8]>, events: &mut dyn Events) {
        let before = number;
        let Some(number) = self.exchanges.renew(before) else { return };
        let Some(exchange) = self.exchanges.get_mut(number) else { return };
        exchange.stage = Stage::Waiting;
        match exchange.purpose {
            Purpose::Again(observed) | Purpose::End(observed) => {
                if let Some(observation) = self.observation(observed) {
                    observation.follow_up = Some(number);
                }
            }
            Purpose::Rest(observed) => {
                let rests = self.observation(observed).map(|observation| &mut observation.rests);
                rests.into_iter().flatten().filter(|rest| **rest == before).for_each(|rest| *rest = number);
            }
            Purpose::Request | Purpose::Observe => {}
        }
        self.write_part(number, echo);
        self.send(number, events);
    }

    /// Writes the message of a request that is due, under its number.
    fn write_part(&mut self, number: Number, echo: Option<&[u8]>) {
        let Some(exchange) = self.exchanges.get_mut(number) else { return };
        let Exchange { purpose, plain, upload, download, .. } = exchange;
        let (of, observe) = match purpose {
            Purpose::Request | Purpose::Rest(_) => (number, None),
            Purpose::Observe => (number, Some(REGISTER)),
            Purpose::Again(observed) => (*observed, Some(REGISTER)),
            Purpose::End(observed) => (*observed, Some(DEREGISTER)),
        };
        let mut part = Amendment { observe, echo, ..Amendment::new(number, self.tokens.of(of)) };
        if let Some(download) = download {
            (part.block2, part.payload) = (Some(download.next.encode()), Some(&[][..]));
        } else if let Some((block, payload, size1)) = upload.as_ref().and_then(|upload| upload.part()) {
            (part.block1, part.size1, part.payload) = (Some(block.encode()), size1, Some(payload));
        }
        part.write(plain, &mut self.scratch);
        std::mem::swap(plain, &mut self.scratch);
    }

    /// Queues a message that was written; its request fails when it cannot be sealed.
    fn send(&mut self, number: Number, events: &mut dyn Events) {
        if let Err(error) = self.enqueue(number) {
            self.fail(number, CallFailed::Unsealed(error.to_string()), events);
        }
    }

    /// Seals a message that was written, where it has to be, and queues it.
    fn enqueue(&mut self, number: Number) -> Result<(), P::Error> {
        if let (Some(protection), Some(exchange)) = (&mut self.protection, self.exchanges.get_mut(number)) {
            exchange.sealed.clear();
            if let Ok(plain) = Message::decode(&exchange.plain) {
                exchange.opener = Some(protection.seal(&plain, &mut exchange.sealed)?);
            }
        }
        self.outbox.push_back(Outgoing::Request(number));
        Ok(())
    }

    fn observation(&mut self, number: Number) -> Option<&mut Observation> {
        self.exchanges.get_mut(number)?.observation.as_deref_mut()
    }

    /// Queues an Empty message (RFC 7252 §4.1).
    fn empty(&mut self, kind: Type, message_id: u16) {
        self.scratch.clear();
        crate::encode::empty(&mut self.scratch, kind, message_id);
        if let Some(message) = self.scratch.first_chunk() {
            self.outbox.push_back(Outgoing::Empty(*message));
        }
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
