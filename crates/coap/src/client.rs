//! A client of one server: requests, blocks both ways, observation (RFC 7252, 7641, 7959).
//!
//! [`Client::request`] starts, [`Client::handle`] takes datagrams in, [`Client::handle_timeout`] is due at
//! [`Client::next_timeout`], [`Client::poll_event`] tells what came of it. Bodies are cut and put together here.

mod call;
mod freshness;
mod receive;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

pub use self::call::Call;
pub use self::freshness::Freshness;

use self::call::Pending;
use crate::block::BlockSize;
use crate::code::Code;
use crate::etag::ETag;
use crate::jitter::Jitter;
use crate::message::Type;
use crate::outbox::Outbox;
use crate::slab::{Key, Slab};
use crate::time::Timestamp;
use crate::token::Token;
use crate::transmission::Transmission;

/// The bounds of a client.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Times and counts of RFC 7252 §4.8.
    pub transmission: Transmission,
    /// Whether the transport is reliable and in order (RFC 8323): nothing is sent again, and what is handed in and out is
    /// in the form of datagrams all the same, of which only code, token and what follows count.
    pub reliable: bool,
    /// The largest block sent.
    pub block_size: BlockSize,
    /// Bytes of several blocks in one message, where the block size is BERT (RFC 8323 §6).
    pub chunk: usize,
    /// Bytes of an answer put together from blocks.
    pub body_bytes_max: usize,
    /// How long an answer may take that comes on its own, or to a Non-confirmable.
    pub answer_timeout: Duration,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            transmission: Transmission::default(),
            reliable: false,
            block_size: BlockSize::MAX,
            chunk: BlockSize::MAX.bytes(),
            body_bytes_max: 64 << 20,
            answer_timeout: Duration::from_secs(100),
        }
    }
}

/// A request under way or an observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallId(Key);

/// An answer or a notification, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// 2.xx, 4.xx or 5.xx.
    pub code: Code,
    /// The tag of the state.
    pub etag: Option<ETag>,
    /// The levels of Location-Path.
    pub location: Vec<String>,
    /// What the payload is.
    pub content_format: Option<u16>,
    /// Seconds for which it holds.
    pub max_age: Option<u32>,
    /// The payload.
    pub payload: Bytes,
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// The answer. When `observed`, notifications follow.
    Answered {
        /// To which request.
        call: CallId,
        /// What it says.
        answer: Answer,
        /// Whether the server put us on its list.
        observed: bool,
    },
    /// A newer state; older ones than the newest seen are dropped here (RFC 7641 §3.4).
    Notified {
        /// Of which observation.
        call: CallId,
        /// What it says.
        answer: Answer,
        /// Whether the server wanted to know that it arrived.
        confirmable: bool,
    },
    /// No answer will come.
    Failed {
        /// To which request.
        call: CallId,
        /// Why.
        reason: CallFailed,
    },
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallFailed {
    /// Nothing came, however often it was asked.
    #[error("no answer")]
    TimedOut,
    /// The server does not understand the message at all.
    #[error("the server rejected the message")]
    Reset,
    /// The blocks do not fit together, or are too many.
    #[error("the blocks of the answer do not make a whole")]
    Blocks,
    /// A critical option in the answer is unknown (RFC 7252 §5.4.1).
    #[error("the answer has a critical option that is unknown")]
    BadOption,
}

/// A client of one server.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    calls: Slab<Pending>,
    events: VecDeque<ClientEvent>,
    jitter: Jitter,
    next_message_id: u16,
    next_token: u64,
    /// Message identifiers of Confirmables that were acknowledged lately, for their repeats.
    seen: VecDeque<u16>,
}

/// How many of those.
const SEEN_MAX: usize = 64;

impl Client {
    /// A client that has asked nothing. `secret` should come from a secure source: tokens are counted up from it.
    #[must_use]
    pub fn new(config: ClientConfig, secret: u64) -> Self {
        let mut jitter = Jitter::new(secret);
        Self {
            config,
            calls: Slab::new(),
            events: VecDeque::new(),
            next_message_id: jitter.next_u16(),
            next_token: jitter.next(),
            jitter,
            seen: VecDeque::new(),
        }
    }

    /// Sends a request.
    pub fn request(&mut self, now: Timestamp, call: Call, out: &mut Outbox<()>) -> Option<CallId> {
        let token = self.token();
        let size = self.config.block_size;
        let chunk = size.chunk(self.config.chunk);
        let key = self.calls.insert(Pending::new(call, token, size, chunk))?;
        self.send(now, key, out);
        Some(CallId(key))
    }

    /// Ends an observation by asking for it (RFC 7641 §3.6), or forgets a request.
    pub fn cancel(&mut self, now: Timestamp, call: CallId, out: &mut Outbox<()>) {
        let message_id = self.message_id();
        if let Some(pending) = self.calls.get_mut(call.0)
            && pending.observed.is_some()
        {
            pending.write_deregister(message_id, out);
            let timeout = self.config.transmission.first_timeout(&mut self.jitter);
            pending.sent(now, message_id, out.last(), timeout);
            pending.acknowledged = self.config.reliable;
            return;
        }
        self.calls.remove(call.0);
    }

    /// What has happened.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// Whether anything is under way or observed.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.calls.len() == 0
    }

    /// When [`Client::handle_timeout`] is due, if ever.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Timestamp> {
        (0..self.calls.places()).filter_map(|at| self.calls.at(at)?.1.due).min()
    }

    /// Sends again what was not acknowledged; gives up what took too long (RFC 7252 §4.2).
    pub fn handle_timeout(&mut self, now: Timestamp, out: &mut Outbox<()>) {
        for at in 0..self.calls.places() {
            let Some((key, pending)) = self.calls.at(at) else { continue };
            if pending.due.is_some_and(|due| due <= now) {
                self.due(now, key, out);
            }
        }
    }

    fn due(&mut self, now: Timestamp, key: Key, out: &mut Outbox<()>) {
        let max = self.config.transmission.max_retransmit;
        let Some(pending) = self.calls.get_mut(key) else { return };
        if pending.call.confirmable && !pending.acknowledged && pending.retransmitted < max {
            pending.retransmitted += 1;
            pending.timeout *= 2;
            pending.due = Some(now + pending.timeout);
            out.push((), &pending.datagram);
            return;
        }
        self.fail(key, CallFailed::TimedOut);
    }

    /// Sends the part of the request that is due: its first or next block, or the demand for the next block.
    fn send(&mut self, now: Timestamp, key: Key, out: &mut Outbox<()>) {
        let (message_id, fetch_token) = (self.message_id(), self.token());
        let timeout = self.config.transmission.first_timeout(&mut self.jitter);
        let answer_timeout = self.config.answer_timeout;
        let reliable = self.config.reliable;
        let Some(pending) = self.calls.get_mut(key) else { return };
        pending.write(message_id, fetch_token, out);
        let repeated = pending.call.confirmable && !reliable;
        pending.sent(now, message_id, out.last(), if repeated { timeout } else { answer_timeout });
        pending.acknowledged = reliable;
        if pending.call.no_response.is_some_and(|no_response| no_response & 2 != 0) && !pending.call.confirmable {
            // RFC 7967: nothing is to come.
            self.calls.remove(key);
        }
    }

    fn fail(&mut self, key: Key, reason: CallFailed) {
        // The rest of a notification that cannot be had any more is no failure of the observation.
        if self.calls.remove(key).is_some_and(|pending| pending.rest_of.is_none()) {
            self.events.push_back(ClientEvent::Failed { call: CallId(key), reason });
        }
    }

    fn message_id(&mut self) -> u16 {
        self.next_message_id = self.next_message_id.wrapping_add(1);
        self.next_message_id
    }

    fn token(&mut self) -> Token {
        self.next_token = self.next_token.wrapping_add(1);
        Token::from_u64(self.next_token)
    }

    /// Acknowledges a Confirmable of the server; `true` when it is a repeat.
    fn acknowledge(&mut self, message_id: u16, out: &mut Outbox<()>) -> bool {
        out.push_with((), |bytes| crate::encode::empty(bytes, Type::Acknowledgement, message_id));
        if self.seen.contains(&message_id) {
            return true;
        }
        if self.seen.len() >= SEEN_MAX {
            self.seen.pop_front();
        }
        self.seen.push_back(message_id);
        false
    }
}
