//! A client of one server: requests, blocks both ways, observation (RFC 7252, 7641, 7959, 9175).
//!
//! [`Machine`] is the protocol, for any number of requests at once: it reports to [`Events`] and allocates nothing for
//! a request that fits into one message. [`Client`] is the same machine for programs that ask little: requests are
//! [`Call`]s, datagrams go to an [`Outbox`], events are owned. Bodies are cut and put together in both.

mod ahead;
mod amend;
mod blockwise;
mod call;
mod event;
mod exchanges;
mod freshness;
mod machine;
mod observation;
mod protection;
mod template;
mod tokens;
mod waiting;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

pub use self::call::Call;
pub use self::event::{CallFailed, Event, Events, Registration, Representation, RequestError};
pub use self::machine::{Machine, MessageBytes, Missed};
pub use self::protection::{Protection, Unopened, Unprotected};
pub use self::template::Template;
pub use self::tokens::TokenForm;

use crate::Timestamp;
use crate::block::BlockSize;
use crate::code::Code;
use crate::etag::ETag;
use crate::option::OptionNumber;
use crate::outbox::Outbox;
use crate::transmission::Transmission;

/// The bounds of a client.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Times and counts of RFC 7252 §4.8.
    pub transmission: Transmission,
    /// Whether the transport is reliable and in order (RFC 8323): nothing is sent again, and messages are handed in and
    /// out in the form of datagrams, of which only code, token and what follows count.
    pub reliable: bool,
    /// The form of tokens.
    pub tokens: TokenForm,
    /// The largest block sent.
    pub block_size: BlockSize,
    /// Bytes of several blocks in one message, where the block size is BERT (RFC 8323 §6).
    pub chunk: usize,
    /// Bytes of an answer put together from blocks.
    pub body_bytes_max: usize,
    /// Bytes of all answers that are being put together from blocks at a time. One that does not fit fails.
    pub bodies_bytes_max: usize,
    /// How long an answer may take that comes on its own (RFC 7252 §5.2.2) or over a reliable transport.
    pub answer_timeout: Duration,
    /// How long the answer to a Non-confirmable request may take (RFC 7252 §5.2.3).
    pub unconfirmed_timeout: Duration,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            transmission: Transmission::default(),
            reliable: false,
            tokens: TokenForm::default(),
            block_size: BlockSize::MAX,
            chunk: BlockSize::MAX.bytes(),
            body_bytes_max: 64 << 20,
            bodies_bytes_max: 64 << 20,
            answer_timeout: Duration::from_secs(100),
            unconfirmed_timeout: Duration::from_secs(100),
        }
    }
}

/// A request under way or an observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallId(u64);

/// An answer or a notification, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// 2.xx, 4.xx or 5.xx.
    pub code: Code,
    /// The tag of the state.
    pub etag: Option<ETag>,
    /// The levels of Location-Path.
    pub location: Vec<String>,
    /// The Content-Format of the payload.
    pub content_format: Option<u16>,
    /// Max-Age: seconds for which it holds.
    pub max_age: Option<u32>,
    /// The payload.
    pub payload: Bytes,
}

impl From<Representation<'_>> for Answer {
    fn from(from: Representation<'_>) -> Self {
        let uint = |number| from.message.option(number).and_then(|option| option.uint());
        Self {
            code: from.message.code,
            etag: from.message.option(OptionNumber::ETAG).and_then(|option| ETag::new(option.value)),
            location: from.location(),
            content_format: uint(OptionNumber::CONTENT_FORMAT).and_then(|format| u16::try_from(format).ok()),
            max_age: uint(OptionNumber::MAX_AGE),
            payload: from.body.into_owned().into(),
        }
    }
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// The answer. When `observed`, notifications follow.
    Answered {
        /// The request or observation.
        call: CallId,
        /// The whole state.
        answer: Answer,
        /// Whether the server notifies.
        observed: bool,
    },
    /// A newer state; older ones than the newest seen are dropped (RFC 7641 §3.4). An error ends the observation.
    Notified {
        /// The observation.
        call: CallId,
        /// The whole state.
        answer: Answer,
        /// Whether the server wanted to know that it arrived.
        confirmable: bool,
    },
    /// No answer or no further notification will come.
    Failed {
        /// The request or observation.
        call: CallId,
        /// The reason.
        reason: CallFailed,
    },
}

/// Events that the caller has not taken yet.
#[derive(Debug, Default)]
struct Queue(VecDeque<ClientEvent>);

impl Events for Queue {
    fn event(&mut self, tag: u64, event: Event<'_>) {
        let call = CallId(tag);
        self.0.push_back(match event {
            Event::Sent => return,
            Event::Answered { representation, registration } => {
                let observed = registration == Registration::Established;
                ClientEvent::Answered { call, answer: representation.into(), observed }
            }
            Event::Notified { representation, confirmable } => {
                ClientEvent::Notified { call, answer: representation.into(), confirmable }
            }
            Event::Failed(reason) | Event::Ended(reason) => ClientEvent::Failed { call, reason },
        });
    }
}

/// A [`Machine`] with owned requests and events.
#[derive(Debug)]
pub struct Client<P: Protection = Unprotected> {
    machine: Machine<P>,
    events: Queue,
    calls: u64,
}

impl Client {
    /// A client that has asked nothing. `secret` should come from a secure source: tokens are made of it.
    #[must_use]
    pub fn new(config: ClientConfig, secret: u64) -> Self {
        Self::with(config, secret, None)
    }
}

impl<P: Protection> Client<P> {
    /// As [`Client::new`]; requests pass `protection`, if there is one.
    #[must_use]
    pub fn with(config: ClientConfig, secret: u64, protection: Option<P>) -> Self {
        Self { machine: Machine::new(config, secret, protection), events: Queue::default(), calls: 0 }
    }

    /// Sends a request; `None` when it cannot be sent: see [`Client::try_request`].
    pub fn request(&mut self, now: Timestamp, call: Call, out: &mut Outbox<()>) -> Option<CallId> {
        self.try_request(now, &call, out).ok()
    }

    /// Sends a request.
    ///
    /// # Errors
    /// [`RequestError`]; then nothing is sent.
    pub fn try_request(
        &mut self,
        now: Timestamp,
        call: &Call,
        out: &mut Outbox<()>,
    ) -> Result<CallId, RequestError<P::Error>> {
        let tag = self.calls;
        self.machine.begin(&call.template(), &call.payload, || call.payload.clone(), tag)?;
        self.calls += 1;
        self.flush(now, out);
        Ok(CallId(tag))
    }

    /// Ends an observation by asking for its end (RFC 7641 §3.6), or forgets a request. No further event comes for it.
    pub fn cancel(&mut self, now: Timestamp, call: CallId, out: &mut Outbox<()>) {
        self.machine.cancel(call.0, &mut self.events);
        self.flush(now, out);
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.0.pop_front()
    }

    /// Whether nothing is under way, observed or being deregistered.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.machine.in_flight() == 0
    }

    /// States of observations that were not fetched.
    #[must_use]
    pub const fn missed(&self) -> &Missed {
        self.machine.missed()
    }

    /// When [`Client::handle_timeout`] is due, if ever.
    #[must_use]
    pub const fn next_timeout(&self) -> Option<Timestamp> {
        self.machine.next_timeout()
    }

    /// Sends again what was not acknowledged; gives up what took too long (RFC 7252 §4.2).
    pub fn handle_timeout(&mut self, now: Timestamp, out: &mut Outbox<()>) {
        self.machine.handle_timeout(now, &mut self.events);
        self.flush(now, out);
    }

    /// Takes a datagram in.
    pub fn handle(&mut self, now: Timestamp, datagram: &[u8], out: &mut Outbox<()>) {
        self.machine.handle(now, datagram, &mut self.events);
        self.flush(now, out);
    }

    fn flush(&mut self, now: Timestamp, out: &mut Outbox<()>) {
        while let Some(message) = self.machine.front() {
            out.push((), message);
            self.machine.sent(now, &mut self.events);
        }
    }
}
