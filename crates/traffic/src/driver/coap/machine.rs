//! A CoAP client for load, as a pure machine: many requests under way, no allocation for a request that fits into one
//! message, retransmission as RFC 7252 §4.2 has it, blocks (RFC 7959) and observations (RFC 7641).
//!
//! Requests come in by [`Machine::submit`], messages by [`Machine::handle`], time as an argument. What is to be sent is
//! [`Machine::front`], until [`Machine::sent`] says that it is gone. NSTART (RFC 7252 §4.7) is not kept: how many
//! requests are outstanding is what an experiment sets, and one is merely the default of those who set nothing.

mod receive;

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fogmux_coap::message::{HEADER_BYTES, Type};
use fogmux_coap::transmission::Transmission;
use fogmux_coap::{Message, Timestamp};
use fogmux_oscore::Context;

use super::blockwise::{Cut, Download, Upload};
use super::exchanges::{Exchange, Exchanges, Number, Purpose, Stage};
use super::resource::{Method, Parts, Resource, Shape, token};
use crate::driver::{Answer, DriverError, Request, Sink};
use crate::experiment::Door;
use crate::outcome::Bytes;

/// How long an answer may take that was promised by an acknowledgement: RFC 7252 §4.8.2, MAX_TRANSMIT_WAIT, in which
/// the server has sent it as often as it may.
const PROMISED_WAIT: Duration = Duration::from_secs(93);
/// Confirmables of the server whose repeats are known again.
const SEEN: usize = 64;

/// How a machine behaves that is not the experiment's choice.
#[derive(Clone, Debug)]
pub(super) struct MachineConfig {
    /// RFC 7252 §4.8.
    pub(super) transmission: Transmission,
    /// Whether the transport is reliable (RFC 8323): nothing is acknowledged or sent again.
    pub(super) reliable: bool,
    /// How bodies are cut.
    pub(super) cut: Cut,
    /// How long is waited for the answer to a Non-confirmable request.
    pub(super) unconfirmed_wait: Duration,
    /// Of timeouts and message IDs.
    pub(super) seed: u64,
}

/// Something to be sent.
#[derive(Clone, Copy, Debug)]
enum Outgoing {
    Request(Number),
    /// An Empty message: acknowledgement or reset.
    Empty([u8; 4]),
}

/// A client.
#[derive(Debug)]
pub(super) struct Machine {
    config: MachineConfig,
    shape: Rc<Shape>,
    resources: Vec<Resource>,
    exchanges: Exchanges,
    outbox: VecDeque<Outgoing>,
    /// Bodies that wait for the one before: a server tells uploads of one client to one resource apart by nothing
    /// (RFC 7959 §2.5).
    uploads: VecDeque<Number>,
    uploading: bool,
    context: Option<Arc<Context>>,
    /// Message IDs of Confirmables that were acknowledged lately.
    seen: [Option<u16>; SEEN],
    seen_next: usize,
    random: u64,
    wake: Option<Timestamp>,
    observations: usize,
    /// Something was sent whose answer may come, though nobody waits for it.
    forgotten: bool,
    /// What was opened of a message under OSCORE.
    opened: Vec<u8>,
    /// An Empty message being written.
    scratch: Vec<u8>,
    bytes: Bytes,
    /// Why it cannot go on.
    failure: Option<DriverError>,
}

impl Machine {
    pub(super) fn new(config: MachineConfig, shape: Rc<Shape>, context: Option<Arc<Context>>) -> Self {
        let mut random = config.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let [_, _, _, _, _, _, high, low] = next_random(&mut random).to_be_bytes();
        Self {
            config,
            shape,
            resources: Vec::new(),
            exchanges: Exchanges::new(Number::from_be_bytes([high, low])),
            outbox: VecDeque::new(),
            uploads: VecDeque::new(),
            uploading: false,
            context,
            seen: [None; SEEN],
            seen_next: 0,
            random,
            wake: None,
            observations: 0,
            forgotten: false,
            opened: Vec::new(),
            scratch: Vec::new(),
            bytes: Bytes::default(),
            failure: None,
        }
    }

    /// Payload and protocol bytes so far.
    pub(super) fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// Whether nothing is expected to come.
    pub(super) fn is_idle(&self) -> bool {
        self.exchanges.len() == 0 && !self.forgotten
    }

    /// Whether an observation is there, or is on its way to its end.
    pub(super) fn has_observations(&self) -> bool {
        self.observations > 0
    }

    /// Why it cannot go on, if it cannot.
    pub(super) fn failure(&mut self) -> Option<DriverError> {
        self.failure.take()
    }

    /// Puts a request in line.
    pub(super) fn submit(&mut self, request: Request<'_>, tag: u64) -> Result<(), DriverError> {
        let (topic, purpose) = match request {
            Request::Publish { topic, .. } => (topic, Purpose::Publish),
            Request::Get { topic } => (topic, Purpose::Get),
            Request::Subscribe { topic } => (topic, Purpose::Register),
        };
        let resource = self.resource(topic)?;
        let too_many =
            || DriverError::Unsupported { door: Door::Coap, what: "message IDs for more requests under way" };
        let number = self.exchanges.begin().ok_or_else(too_many)?;
        let (Some(exchange), Some(known)) = (self.exchanges.get_mut(number), self.resources.get(resource)) else {
            return Ok(());
        };
        (exchange.tag, exchange.purpose, exchange.resource) = (tag, purpose, resource);
        match request {
            Request::Publish { payload, .. } => {
                self.bytes.payload_up += u64::try_from(payload.len()).unwrap_or_default();
                exchange.confirmable = self.shape.confirmed;
                if payload.len() > self.config.cut.chunk {
                    exchange.upload = Some(Box::new(Upload::new(payload, self.config.cut)));
                    self.uploads.push_back(number);
                    return self.next_upload();
                }
                exchange.fire_and_forget = self.shape.fire_and_forget;
                known.publication(number, payload, &mut exchange.plain);
            }
            Request::Get { .. } => {
                exchange.confirmable = self.shape.confirmed_get;
                known.question(number, &mut exchange.plain);
            }
            Request::Subscribe { .. } => {
                exchange.confirmable = true;
                exchange.observation = Some(Box::default());
                self.observations += 1;
                let parts = Parts { observe: Some(0), ..Parts::default() };
                known.encode(Method::Follow, Type::Confirmable, number, &token(number), parts, &mut exchange.plain);
            }
        }
        self.enqueue(number)
    }

    /// Ends all observations: each is asked for its end (RFC 7641 §3.6).
    pub(super) fn deregister(&mut self) -> Result<(), DriverError> {
        let of_observation = |(number, exchange): (Number, &Exchange)| {
            (exchange.purpose == Purpose::Observe).then_some((number, exchange.resource))
        };
        let observed: Vec<_> = self.exchanges.iter().filter_map(of_observation).collect();
        for (observed, resource) in observed {
            let Some(number) = self.exchanges.begin() else { return Ok(()) };
            let (Some(exchange), Some(known)) = (self.exchanges.get_mut(number), self.resources.get(resource)) else {
                continue;
            };
            (exchange.purpose, exchange.confirmable) = (Purpose::Deregister(observed), true);
            let parts = Parts { observe: Some(1), ..Parts::default() };
            known.encode(Method::Follow, Type::Confirmable, number, &token(observed), parts, &mut exchange.plain);
            self.enqueue(number)?;
        }
        Ok(())
    }

    /// What is to be sent next.
    pub(super) fn front(&mut self) -> Option<&[u8]> {
        // What was answered before its turn, or its repeat's, need not be sent any more.
        while let Some(Outgoing::Request(number)) = self.outbox.front() {
            if self.exchanges.get(*number).is_some() {
                break;
            }
            self.outbox.pop_front();
        }
        match self.outbox.front()? {
            Outgoing::Request(number) => self.exchanges.get(*number).map(Exchange::datagram),
            Outgoing::Empty(message) => Some(message),
        }
    }

    /// [`Machine::front`] is on its way. Returns whether something is done by that.
    pub(super) fn sent(&mut self, now: Timestamp, sink: &mut dyn Sink) -> bool {
        let number = match self.outbox.pop_front() {
            Some(Outgoing::Request(number)) => number,
            Some(Outgoing::Empty(message)) => {
                self.bytes.protocol_up += u64::try_from(message.len()).unwrap_or_default();
                return false;
            }
            None => return false,
        };
        let timeout = self.first_timeout();
        let Some(exchange) = self.exchanges.get_mut(number) else { return false };
        let bytes = if self.config.reliable { framed(exchange.plain.len()) } else { exchange.plain.len() };
        self.bytes.protocol_up += u64::try_from(bytes).unwrap_or_default();
        if exchange.stage != Stage::Waiting {
            return false;
        }
        if exchange.fire_and_forget {
            let tag = exchange.tag;
            self.exchanges.end(number);
            self.forgotten = true;
            sink.done(tag, Answer::Success(&[]));
            return true;
        }
        exchange.stage = if self.config.reliable {
            Stage::Unanswered { due: now + PROMISED_WAIT }
        } else if exchange.confirmable {
            Stage::Unacknowledged { repeats: 0, timeout, due: now + timeout }
        } else {
            Stage::Unanswered { due: now + self.config.unconfirmed_wait }
        };
        let due = exchange.due();
        self.wake_by(due);
        false
    }

    /// When [`Machine::handle_timeout`] has something to do, or would like to look.
    pub(super) fn next_timeout(&self) -> Option<Timestamp> {
        self.wake
    }

    /// Sends again what was not acknowledged, and gives up what was sent as often as it may (RFC 7252 §4.2). Answers
    /// do not move the alarm: it comes once in two seconds, and then everything under way is looked at.
    pub(super) fn handle_timeout(&mut self, now: Timestamp, sink: &mut dyn Sink) {
        if self.wake.is_none_or(|wake| wake > now) {
            return;
        }
        let is_due =
            |(number, exchange): (Number, &Exchange)| exchange.due().is_some_and(|due| due <= now).then_some(number);
        let overdue: Vec<_> = self.exchanges.iter().filter_map(is_due).collect();
        for number in overdue {
            if !self.repeat(now, number) {
                self.finish(number, Answer::Lost, sink);
            }
        }
        self.wake = self.exchanges.iter().filter_map(|(_, exchange)| exchange.due()).min();
    }

    /// Sends a request again, if it may be.
    fn repeat(&mut self, now: Timestamp, number: Number) -> bool {
        let Some(exchange) = self.exchanges.get_mut(number) else { return true };
        match exchange.stage {
            Stage::Unacknowledged { repeats, timeout, .. } if repeats < self.config.transmission.max_retransmit => {
                let timeout = timeout * 2;
                exchange.stage = Stage::Unacknowledged { repeats: repeats + 1, timeout, due: now + timeout };
                self.outbox.push_back(Outgoing::Request(number));
                true
            }
            Stage::Unacknowledged { .. } | Stage::Unanswered { .. } => false,
            Stage::Waiting | Stage::Established => true,
        }
    }

    /// A request is over, and whoever waits for it hears how.
    fn finish(&mut self, number: Number, answer: Answer<'_>, sink: &mut dyn Sink) {
        let Some(exchange) = self.exchanges.get_mut(number) else { return };
        let (tag, purpose, uploaded) = (exchange.tag, exchange.purpose, exchange.upload.is_some());
        self.exchanges.end(number);
        match purpose {
            Purpose::Publish | Purpose::Get => sink.done(tag, answer),
            Purpose::Register => {
                self.observations -= 1;
                sink.done(tag, answer);
            }
            Purpose::Observe => self.observations -= 1,
            Purpose::Deregister(observed) => {
                self.observations -= 1;
                self.exchanges.end(observed);
            }
            Purpose::Fetch(observed) => self.fetched(observed),
        }
        if uploaded {
            self.uploading = false;
            if let Err(error) = self.next_upload() {
                self.failure = Some(error);
            }
        }
    }

    /// The body that waits longest, if none is on its way.
    fn next_upload(&mut self) -> Result<(), DriverError> {
        if self.uploading {
            return Ok(());
        }
        let Some(number) = self.uploads.pop_front() else { return Ok(()) };
        self.uploading = true;
        self.encode_part(number);
        self.enqueue(number)
    }

    /// Writes the part of a request in blocks that is due, under its number.
    fn encode_part(&mut self, number: Number) {
        let Some(exchange) = self.exchanges.get_mut(number) else { return };
        let Some(resource) = self.resources.get(exchange.resource) else { return };
        let kind = if exchange.confirmable { Type::Confirmable } else { Type::NonConfirmable };
        let mut parts = Parts::default();
        let method = match exchange.purpose {
            Purpose::Publish => Method::Publish,
            Purpose::Get => Method::Get,
            Purpose::Register | Purpose::Observe | Purpose::Fetch(_) | Purpose::Deregister(_) => Method::Follow,
        };
        if let Some((block, part, size1)) = exchange.upload.as_ref().and_then(|upload| upload.part()) {
            (parts.block1, parts.size1, parts.payload) = (Some(block), size1, part);
        }
        parts.block2 = exchange.download.as_ref().map(|download| download.next);
        resource.encode(method, kind, number, &token(number), parts, &mut exchange.plain);
    }

    /// Asks for the rest of a notification, or for a newer state as a whole.
    fn fetch(&mut self, observed: Number, resource: usize, download: Download) {
        let Some(number) = self.exchanges.begin() else { return };
        if let Some(exchange) = self.exchanges.get_mut(number) {
            (exchange.purpose, exchange.resource, exchange.confirmable) = (Purpose::Fetch(observed), resource, true);
            exchange.download = Some(Box::new(download));
        }
        if let Some(observation) = self.observation(observed) {
            (observation.fetch, observation.superseded) = (Some(number), false);
        }
        self.encode_part(number);
        if let Err(error) = self.enqueue(number) {
            self.failure = Some(error);
        }
    }

    /// A fetch is over; what came meanwhile is fetched now.
    fn fetched(&mut self, observed: Number) {
        let Some(exchange) = self.exchanges.get_mut(observed) else { return };
        let resource = exchange.resource;
        let Some(observation) = exchange.observation.as_mut() else { return };
        observation.fetch = None;
        if observation.superseded {
            self.fetch(observed, resource, Download::new(self.config.cut.size));
        }
    }

    fn observation(&mut self, number: Number) -> Option<&mut super::observation::Observation> {
        self.exchanges.get_mut(number)?.observation.as_deref_mut()
    }

    /// Seals a request that was written, where it has to be, and puts it in line.
    fn enqueue(&mut self, number: Number) -> Result<(), DriverError> {
        if let (Some(context), Some(exchange)) = (&self.context, self.exchanges.get_mut(number)) {
            exchange.sealed.clear();
            let plain = Message::decode(&exchange.plain).map_err(|error| DriverError::Protocol(error.to_string()))?;
            let opener = context.seal_request(&plain, &mut exchange.sealed);
            exchange.opener = Some(opener.map_err(|error| DriverError::Protocol(error.to_string()))?);
        }
        self.outbox.push_back(Outgoing::Request(number));
        Ok(())
    }

    fn resource(&mut self, topic: &str) -> Result<usize, DriverError> {
        if let Some(known) = self.resources.iter().position(|resource| resource.is_of(topic)) {
            return Ok(known);
        }
        self.resources.push(Resource::new(topic, &self.shape)?);
        Ok(self.resources.len() - 1)
    }

    fn wake_by(&mut self, due: Option<Timestamp>) {
        self.wake = match (self.wake, due) {
            (Some(wake), Some(due)) => Some(wake.min(due)),
            (wake, due) => wake.or(due),
        };
    }

    /// Between ACK_TIMEOUT and ACK_TIMEOUT × ACK_RANDOM_FACTOR (RFC 7252 §4.2).
    fn first_timeout(&mut self) -> Duration {
        let Transmission { ack_timeout, ack_random_percent, .. } = self.config.transmission;
        let millis = u64::try_from(ack_timeout.as_millis()).unwrap_or(u64::MAX / 400);
        let spread = millis * u64::from(ack_random_percent.saturating_sub(100)) / 100;
        Duration::from_millis(millis + next_random(&mut self.random) % (spread + 1))
    }
}

/// Bytes of a message on a stream that has so many as a datagram: no message ID, but a length (RFC 8323 §3.2).
fn framed(datagram: usize) -> usize {
    let body = datagram.saturating_sub(HEADER_BYTES + size_of::<Number>());
    let extension = match body {
        0..13 => 0,
        13..269 => 1,
        269..65_805 => 2,
        65_805.. => 4,
    };
    datagram.saturating_sub(2) + extension
}

/// Xorshift (Marsaglia): spreads timeouts, keeps no secret.
fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}
