//! Requests to a multicast group (RFC 7252 §8): which are answered, when, and with what.
//!
//! [`GroupServer`] takes the datagrams that came to a group, keeps those that may be answered for a random part of the
//! Leisure, and hands each out when its answer is due, so that the answer is of that moment. It sends no error, no
//! empty result, no acknowledgement and no Reset. Only GET of `/.well-known/core` (RFC 6690 §4) is served.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use foldhash::fast::FixedState;

use crate::Timestamp;
use crate::block::{Block, BlockSize};
use crate::code::{Class, Code};
use crate::content_format;
use crate::encode::Encoder;
use crate::jitter::Jitter;
use crate::message::{Message, Type};
use crate::outbox::Outbox;
use crate::peer::Peer;
use crate::request::Request;
use crate::response::{Extra, Response};

/// DEFAULT_LEISURE (RFC 7252 §4.8).
pub const DEFAULT_LEISURE: Duration = Duration::from_secs(5);

/// The path that is served (RFC 6690 §4).
const PATH: [&str; 2] = [".well-known", "core"];

/// The largest request that is kept until its answer is due: a path, a token and a few queries fit in.
const REQUEST_BYTES_MAX: usize = 256;

/// Hosts whose requests are counted apart. One more is not answered until one of them has been silent for a minute.
const HOSTS_MAX: usize = 1024;

/// The time for which [`GroupConfig::answers_per_minute`] is.
const PERIOD: Duration = Duration::from_secs(60);

/// No-Response: not interested in 2.xx (RFC 7967 §2.1).
const NOT_INTERESTED_IN_SUCCESS: u8 = 2;

/// The bounds of a group server, with their defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// The time over which answers are spread (RFC 7252 §8.2).
    pub leisure: Duration,
    /// Requests whose answers wait; one more is not answered.
    pub waiting_max: usize,
    /// Answers to one host in a minute.
    pub answers_per_minute: u32,
    /// The largest payload. Of more, the first block is sent, and the rest is for unicast requests (RFC 7959 §2.8).
    pub block_size: BlockSize,
}

impl Default for GroupConfig {
    fn default() -> Self {
        Self { leisure: DEFAULT_LEISURE, waiting_max: 64, answers_per_minute: 12, block_size: BlockSize::at_most(256) }
    }
}

/// The outcome of a datagram to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is answered later.
    Waits,
    /// It is no request that may be answered.
    Ignored,
    /// It is one, beyond a bound.
    Limited,
}

/// The server of the requests to one or several groups.
#[derive(Debug)]
pub struct GroupServer<P> {
    config: GroupConfig,
    /// In the order in which answers are due.
    waiting: VecDeque<Waiting<P>>,
    hosts: HashMap<IpAddr, Host, FixedState>,
    jitter: Jitter,
    message_id: u16,
}

/// A request whose answer waits, or is due.
#[derive(Debug)]
pub struct Waiting<P> {
    due: Timestamp,
    from: P,
    datagram: Vec<u8>,
}

/// The requests of one host in this minute.
#[derive(Debug)]
struct Host {
    since: Timestamp,
    taken: u32,
    /// The Message ID and the identity of the endpoint of the last request: a repetition is not answered again
    /// (RFC 7252 §4.5).
    last: (u16, [u8; 18]),
}

impl<P: Peer> GroupServer<P> {
    /// Creates a server. The seed spreads answers and Message IDs.
    #[must_use]
    pub fn new(config: GroupConfig, seed: u64) -> Self {
        let mut jitter = Jitter::new(seed);
        let message_id = jitter.next_u16();
        let hosts = HashMap::with_hasher(FixedState::with_seed(seed));
        Self { config, waiting: VecDeque::new(), hosts, jitter, message_id }
    }

    /// Takes a datagram that came to a group.
    pub fn handle(&mut self, now: Timestamp, from: P, datagram: &[u8]) -> Verdict {
        if datagram.len() > REQUEST_BYTES_MAX {
            return Verdict::Ignored;
        }
        let Some((message_id, _)) = parse(datagram) else { return Verdict::Ignored };
        if self.waiting.len() >= self.config.waiting_max {
            return Verdict::Limited;
        }
        match self.admit(now, &from, message_id) {
            Verdict::Waits => {}
            verdict @ (Verdict::Ignored | Verdict::Limited) => return verdict,
        }
        let leisure = u64::try_from(self.config.leisure.as_millis()).unwrap_or(u64::MAX);
        let due = now + Duration::from_millis(self.jitter.between(0, leisure));
        let at = self.waiting.partition_point(|waiting| waiting.due <= due);
        self.waiting.insert(at, Waiting { due, from, datagram: datagram.to_vec() });
        Verdict::Waits
    }

    /// Counts a request of a host.
    fn admit(&mut self, now: Timestamp, from: &P, message_id: u16) -> Verdict {
        let (host, last) = (from.host(), (message_id, from.identity()));
        if !self.hosts.contains_key(&host) && self.hosts.len() >= HOSTS_MAX {
            self.hosts.retain(|_, host| now.since(host.since) < PERIOD);
            if self.hosts.len() >= HOSTS_MAX {
                return Verdict::Limited;
            }
        }
        let fresh = Host { since: now, taken: 0, last: (message_id.wrapping_add(1), [0; 18]) };
        let host = self.hosts.entry(host).or_insert(fresh);
        if host.last == last {
            return Verdict::Ignored;
        }
        if now.since(host.since) >= PERIOD {
            (host.since, host.taken) = (now, 0);
        }
        if host.taken >= self.config.answers_per_minute {
            return Verdict::Limited;
        }
        host.taken += 1;
        host.last = last;
        Verdict::Waits
    }

    /// Returns when the next answer is due.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Timestamp> {
        self.waiting.front().map(|waiting| waiting.due)
    }

    /// Returns a request whose answer is due.
    pub fn take_due(&mut self, now: Timestamp) -> Option<Waiting<P>> {
        self.waiting.pop_front_if(|waiting| waiting.due <= now)
    }

    /// Writes the answer, unless it is an error or empty (RFC 7252 §8.2) or the client does not accept its format.
    /// Returns whether it was written.
    pub fn respond(&mut self, waiting: &Waiting<P>, response: &Response<'_>, out: &mut Outbox<P>) -> bool {
        let Some((_, request)) = parse(&waiting.datagram) else { return false };
        let payload = response.payload.as_slice();
        let accepted = request.accept.is_none_or(|wanted| response.content_format == Some(wanted));
        if !response.code.is_success() || payload.is_empty() || !accepted {
            return false;
        }
        let size = request.block2.map_or(self.config.block_size, |block| block.size.min(self.config.block_size));
        let Some((block, part)) = (Block { number: 0, more: false, size }).slice(payload) else { return false };
        // RFC 7959 §2.8: whoever asked for blocks sees that there is one only.
        let is_cut = block.more || request.block2.is_some();
        let extra = Extra {
            block2: is_cut.then_some(block),
            size2: block.more.then(|| u32::try_from(payload.len()).unwrap_or(u32::MAX)),
            payload: part,
            ..Extra::default()
        };
        self.message_id = self.message_id.wrapping_add(1);
        let (message_id, token) = (self.message_id, waiting.token());
        out.push_with(waiting.from, |bytes| {
            response.write(Encoder::new(bytes, Type::NonConfirmable, response.code, message_id, &token), &extra);
        });
        true
    }
}

impl<P: Peer> Waiting<P> {
    /// The client.
    pub const fn from(&self) -> P {
        self.from
    }

    /// The request.
    #[must_use]
    pub fn request(&self) -> Option<Request<'_>> {
        parse(&self.datagram).map(|(_, request)| request)
    }

    fn token(&self) -> crate::Token {
        Message::decode(&self.datagram).map(|message| message.token).unwrap_or_default()
    }
}

/// Reads a datagram, and returns the Message ID and the request if it is one that a group may be asked:
/// Non-confirmable (RFC 7252 §8.1), GET of `/.well-known/core`, not protected, without conditions, without a later
/// block, and of a client that wants an answer. Everything else is ignored, as a malformed message is.
fn parse(datagram: &[u8]) -> Option<(u16, Request<'_>)> {
    let message = Message::decode(datagram).ok()?;
    if message.code.class() != Class::Request || message.kind != Type::NonConfirmable || message.code != Code::GET {
        return None;
    }
    let message_id = message.message_id;
    let request = Request::parse(message).ok()?;
    let is_whole = request.block1.is_none() && request.block2.is_none_or(|block| block.number == 0);
    let is_plain = !request.protected && !request.is_conditional() && request.echo.is_none();
    let is_wanted = request.no_response & NOT_INTERESTED_IN_SUCCESS == 0;
    let is_acceptable = request.accept.is_none_or(|format| format == content_format::LINK_FORMAT);
    let is_here = request.path().eq(PATH);
    (is_whole && is_plain && is_wanted && is_acceptable && is_here).then_some((message_id, request))
}

#[cfg(test)]
mod tests;
