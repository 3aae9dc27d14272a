//! One request and how far it has come.

use std::time::Duration;

use bytes::Bytes;

use crate::block::{Block, BlockSize};
use crate::client::freshness::{Freshness, Named};
use crate::code::Code;
use crate::encode::Encoder;
use crate::etag::ETag;
use crate::message::Type;
use crate::option::OptionNumber;
use crate::outbox::Outbox;
use crate::slab::Key;
use crate::time::Timestamp;
use crate::token::Token;

/// How a message came in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    /// Over a transport that keeps the order.
    pub(crate) reliable: bool,
    /// In the acknowledgement of the request.
    pub(crate) piggybacked: bool,
}

/// What to ask.
#[derive(Clone, Debug)]
pub struct Call {
    /// The method.
    pub method: Code,
    /// Whether it must be acknowledged.
    pub confirmable: bool,
    /// The levels of the path, not encoded.
    pub path: Vec<String>,
    /// The query parameters, not encoded.
    pub queries: Vec<String>,
    /// What the payload is.
    pub content_format: Option<u16>,
    /// The format wanted.
    pub accept: Option<u16>,
    /// States that need not be sent again.
    pub etags: Vec<ETag>,
    /// Only if this is the state.
    pub if_match: Vec<ETag>,
    /// Only if there is no state.
    pub if_none_match: bool,
    /// Whether to be told of every change.
    pub observe: bool,
    /// Classes of answers not wanted (RFC 7967 §2.1).
    pub no_response: Option<u8>,
    /// The body, cut into blocks where it is large.
    pub payload: Bytes,
}

impl Call {
    /// A Confirmable request for a path; empty levels count.
    #[must_use]
    pub fn new(method: Code, path: &str) -> Self {
        let path = path.strip_prefix('/').unwrap_or(path);
        Self {
            method,
            confirmable: true,
            path: path.split('/').map(str::to_owned).collect(),
            queries: Vec::new(),
            content_format: None,
            accept: None,
            etags: Vec::new(),
            if_match: Vec::new(),
            if_none_match: false,
            observe: false,
            no_response: None,
            payload: Bytes::new(),
        }
    }
}

/// The longest Echo value (RFC 9175 §2.2).
const ECHO_BYTES_MAX: usize = 40;

/// A request under way.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) call: Call,
    pub(crate) token: Token,
    /// Of the demand for further blocks, which must not be mistaken for notifications (RFC 7959 §3.4).
    pub(crate) fetch_token: Option<Token>,
    pub(crate) message_id: u16,
    pub(crate) datagram: Vec<u8>,
    pub(crate) acknowledged: bool,
    pub(crate) retransmitted: u8,
    pub(crate) timeout: Duration,
    pub(crate) due: Option<Timestamp>,
    /// The block of the body that is under way.
    pub(crate) upload: Option<Block>,
    /// Bytes of the body in one message.
    pub(crate) chunk: usize,
    pub(crate) download: Option<Download>,
    /// The state changed during the download, which was started again.
    pub(crate) restarted: bool,
    /// The observation was registered again, and nothing newer has come since.
    pub(crate) registers_again: bool,
    /// The observation of which this fetches a notification.
    pub(crate) rest_of: Option<Key>,
    pub(crate) echo: Vec<u8>,
    pub(crate) observed: Option<Freshness>,
    /// Of an observation whose notifications name their resources.
    pub(crate) named: Named,
    pub(crate) answered: bool,
}

/// An answer that comes in blocks.
#[derive(Debug)]
pub(crate) struct Download {
    pub(crate) next: Block,
    pub(crate) etag: Option<ETag>,
    pub(crate) body: Vec<u8>,
    /// What the first block says of where it belongs; those that are fetched need not say it again.
    pub(crate) location: Vec<String>,
    /// Whether the first block was a notification.
    pub(crate) notification: bool,
    pub(crate) confirmable: bool,
}

impl Pending {
    pub(crate) fn new(call: Call, token: Token, size: BlockSize, chunk: usize) -> Self {
        let upload = (call.payload.len() > chunk).then_some(Block { number: 0, more: true, size });
        Self {
            call,
            token,
            fetch_token: None,
            message_id: 0,
            datagram: Vec::new(),
            acknowledged: false,
            retransmitted: 0,
            timeout: Duration::ZERO,
            due: None,
            upload,
            chunk,
            download: None,
            restarted: false,
            registers_again: false,
            rest_of: None,
            echo: Vec::new(),
            observed: None,
            named: Named::default(),
            answered: false,
        }
    }

    /// Writes the message that is due.
    pub(crate) fn write(&mut self, message_id: u16, fetch_token: Token, out: &mut Outbox<()>) {
        let fetching = self.download.is_some();
        let observe = (self.call.observe && !fetching).then_some(0);
        let token = if fetching { fetch_token } else { self.token };
        self.fetch_token = fetching.then_some(fetch_token);
        self.encode(message_id, &token, observe, out);
    }

    /// Starts the download again if there is one and this has not been done before; the request is to be sent then.
    ///
    /// An observation of one resource is registered again (RFC 7641 §3.3.1): unlike the answer to another GET, that to
    /// a registration has a sequence number, and notifications on their way are known to be older or newer.
    pub(crate) fn start_again(&mut self) -> bool {
        let Some(download) = self.download.as_mut().filter(|_| !self.restarted) else { return false };
        self.restarted = true;
        download.body.clear();
        download.next.number = 0;
        if self.call.observe && self.call.payload.is_empty() {
            self.download = None;
            self.registers_again = true;
        }
        true
    }

    /// Whether a message with the token of the request is newer than all before of the same resource (RFC 7641 §3.4).
    /// Notifications may overtake the first answer, and each other before that. A server that had forgotten the client
    /// may begin to count again: the answer to another registration counts, unless a notification came meanwhile.
    pub(crate) fn is_fresh(&mut self, sequence: u32, path: Vec<String>, now: Timestamp, arrived: Arrived) -> bool {
        let Arrived { reliable, piggybacked } = arrived;
        match &mut self.observed {
            // It is not observed any more, or never was.
            None if self.answered => false,
            None if !self.call.observe => true,
            None if reliable || path.is_empty() => {
                self.observed = Some(Freshness::new(sequence, now));
                true
            }
            // RFC 8323 §7.1: a connection delivers them in order.
            Some(_) if reliable => true,
            Some(newest) if path.is_empty() => {
                let begins_again = piggybacked && std::mem::take(&mut self.registers_again);
                if begins_again {
                    *newest = Freshness::new(sequence, now);
                }
                let fresh = begins_again || newest.admit(sequence, now);
                self.registers_again &= !fresh;
                fresh
            }
            None | Some(_) => self.named.admit(path, sequence, now),
        }
    }

    /// Writes the request that ends the observation.
    pub(crate) fn write_deregister(&mut self, message_id: u16, out: &mut Outbox<()>) {
        self.download = None;
        self.observed = None;
        self.call.observe = false;
        let token = self.token;
        self.encode(message_id, &token, Some(1), out);
    }

    /// Notes that a datagram is on its way.
    pub(crate) fn sent(&mut self, now: Timestamp, message_id: u16, datagram: &[u8], timeout: Duration) {
        self.message_id = message_id;
        self.datagram.clear();
        self.datagram.extend_from_slice(datagram);
        (self.acknowledged, self.retransmitted, self.timeout) = (false, 0, timeout);
        self.due = Some(now + timeout);
    }

    /// The value of an Echo option, to be sent back.
    pub(crate) fn take_echo(&mut self, value: &[u8]) -> bool {
        let new = self.echo.is_empty() && value.len() <= ECHO_BYTES_MAX;
        if new {
            self.echo.extend_from_slice(value);
        }
        new
    }

    fn encode(&self, message_id: u16, token: &Token, observe: Option<u32>, out: &mut Outbox<()>) {
        let call = &self.call;
        let kind = if call.confirmable { Type::Confirmable } else { Type::NonConfirmable };
        let payload = if self.download.is_some() { &[] } else { call.payload.as_ref() };
        let upload = self.upload.and_then(|block| block.slice_of(payload, block.size.chunk(self.chunk)));
        let size1 = upload.filter(|(block, _)| block.number == 0).and_then(|_| u32::try_from(payload.len()).ok());
        out.push_with((), |bytes| {
            let mut encoder = Encoder::new(bytes, kind, call.method, message_id, token);
            call.if_match.iter().for_each(|tag| encoder.push(OptionNumber::IF_MATCH, tag.as_slice()));
            call.etags.iter().for_each(|tag| encoder.push(OptionNumber::ETAG, tag.as_slice()));
            if call.if_none_match {
                encoder.push(OptionNumber::IF_NONE_MATCH, &[]);
            }
            encoder = encoder.uint_if(OptionNumber::OBSERVE, observe);
            call.path.iter().for_each(|level| encoder.push(OptionNumber::URI_PATH, level.as_bytes()));
            encoder = encoder.uint_if(OptionNumber::CONTENT_FORMAT, call.content_format.map(u32::from));
            call.queries.iter().for_each(|query| encoder.push(OptionNumber::URI_QUERY, query.as_bytes()));
            encoder = encoder
                .uint_if(OptionNumber::ACCEPT, call.accept.map(u32::from))
                .uint_if(OptionNumber::BLOCK2, self.download.as_ref().map(|download| download.next.encode()))
                .uint_if(OptionNumber::BLOCK1, upload.map(|(block, _)| block.encode()))
                .uint_if(OptionNumber::SIZE1, size1);
            if !self.echo.is_empty() {
                encoder.push(OptionNumber::ECHO, &self.echo);
            }
            let encoder = encoder.uint_if(OptionNumber::NO_RESPONSE, call.no_response.map(u32::from));
            encoder.payload(upload.map_or(payload, |(_, part)| part));
        });
    }
}
