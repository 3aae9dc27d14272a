//! What goes out in answer: validation, blocks, sizes, suppression, and the guard against amplification.

use crate::block::Block;
use crate::code::{Class, Code};
use crate::content_format;
use crate::encode::{self, Encoder};
use crate::message::Type;
use crate::outbox::Outbox;
use crate::peer::Peer;
use crate::response::{Extra, Payload, Response};
use crate::server::confirmables::Confirmable;
use crate::server::downloads::Snapshot;
use crate::server::peers::Waiting;
use crate::server::relations::GoneReason;
use crate::server::{Server, Ticket, echo};
use crate::time::Timestamp;

/// An answer may have three times the bytes of its request before the address must be proven (RFC 9175 §2.4, item 3).
const AMPLIFICATION_MAX: usize = 3;

/// Separate responses that may wait for one peer; more are not sent, and the client asks again.
const WAITING_RESPONSES_MAX: usize = 16;

impl<P: Peer> Server<P> {
    /// Answers a request.
    pub fn respond(&mut self, now: Timestamp, ticket: Ticket<P>, response: &Response<'_>, out: &mut Outbox<P>) {
        let response = self.settle(&ticket, *response);
        if !response.code.is_success()
            && let Some(relation) = ticket.relation
        {
            // RFC 7641 §4.1: who gets an error is not on the list.
            self.remove_relation(relation, GoneReason::Refused);
        }
        // Of a large body, a state that all blocks are cut from.
        let snapshot = self.snapshot(now, &ticket, &response);
        let response = match &snapshot {
            Some(snapshot) => Response {
                etag: snapshot.etag,
                content_format: snapshot.content_format,
                payload: Payload::Shared(&snapshot.body),
                ..response
            },
            None => response,
        };
        let observe = ticket.relation.and_then(|key| self.relations.get(key)).map(|relation| relation.sequence());
        let mut extra = Extra { observe, block1: self.granted_block1(&ticket), ..Extra::default() };
        let payload = response.payload.as_slice();
        match self.slice(&ticket, &response, payload, &mut extra) {
            Ok(()) => self.send(now, &ticket, &response, &extra, out),
            Err(()) => {
                let refusal = Response::diagnostic(Code::BAD_REQUEST, "no such block");
                let extra = Extra { payload: refusal.payload.as_slice(), ..Extra::default() };
                self.send(now, &ticket, &refusal, &extra, out);
            }
        }
    }

    /// Whether this asks for a later block of an answer that is kept: any 2.05 will then do, its payload is not used.
    #[must_use]
    pub fn is_continued(&mut self, now: Timestamp, ticket: &Ticket<P>) -> bool {
        ticket.block2.is_some_and(|block| block.number > 0)
            && self.downloads.find(now, (ticket.peer, ticket.cache_key)).is_some()
    }

    /// 4.01 with an Echo to send back (RFC 9175 §2.4).
    pub(crate) fn demand_echo(&mut self, now: Timestamp, ticket: &Ticket<P>, out: &mut Outbox<P>) {
        self.counters.echo_demanded += 1;
        let value = echo::make(&*self.echo_key, now, &ticket.address);
        let extra = Extra { echo: Some(&value), ..Extra::default() };
        self.write(now, ticket, &Response::new(Code::UNAUTHORIZED), &extra, out);
        if let Some(peer) = self.peers.get_mut(ticket.peer) {
            // The request was not carried out; the same identifier again would be a repeat all the same.
            peer.exchanges.forget(ticket.message_id);
        }
    }

    /// Accept and ETag: what the client wants of a 2.05.
    fn settle<'a>(&mut self, ticket: &Ticket<P>, response: Response<'a>) -> Response<'a> {
        if response.code != Code::CONTENT {
            return response;
        }
        if let Some(wanted) = ticket.accept
            && response.content_format.unwrap_or(content_format::OCTET_STREAM) != wanted
            && !(ticket.register && response.payload.as_slice().is_empty())
        {
            // RFC 7252 §5.10.4
            return Response::new(Code::NOT_ACCEPTABLE);
        }
        let later_block = ticket.block2.is_some_and(|block| block.number > 0);
        if let Some(etag) = response.etag
            && ticket.etags.contains(&etag)
            && !later_block
        {
            // RFC 7252 §5.9.1.3, and RFC 7641 §4.3.2 for the first answer to an observer.
            self.downloads.remove((ticket.peer, ticket.cache_key));
            return Response { etag: Some(etag), max_age: response.max_age, ..Response::new(Code::VALID) };
        }
        response
    }

    /// The representation that a download began with, or the one it begins with now.
    fn snapshot(&mut self, now: Timestamp, ticket: &Ticket<P>, response: &Response<'_>) -> Option<Snapshot> {
        if response.code != Code::CONTENT || !ticket.method.is_safe_method() {
            return None;
        }
        let id = (ticket.peer, ticket.cache_key);
        let number = ticket.block2.map_or(0, |block| block.number);
        if number > 0 {
            return self.downloads.find(now, id);
        }
        if response.payload.as_slice().len() <= ticket.block_size(self.config.block_size).bytes() {
            return None;
        }
        let snapshot = Snapshot {
            body: response.payload.to_bytes(),
            etag: response.etag,
            content_format: response.content_format,
            touched: now,
        };
        self.downloads.keep(id, snapshot.clone());
        Some(snapshot)
    }

    /// Cuts the part that this answer carries.
    fn slice<'a>(
        &self,
        ticket: &Ticket<P>,
        response: &Response<'_>,
        payload: &'a [u8],
        extra: &mut Extra<'a>,
    ) -> Result<(), ()> {
        let size = ticket.block_size(self.config.block_size);
        let wanted = ticket.block2.filter(|_| response.code.is_success() && response.code != Code::CONTINUE);
        if wanted.is_none() && payload.len() <= size.bytes() {
            extra.payload = payload;
            return Ok(());
        }
        let block = wanted.unwrap_or(Block { number: 0, more: false, size }).shrink(size);
        let (block, part) = block.slice(payload).ok_or(())?;
        extra.payload = part;
        extra.block2 = Some(block);
        if block.number == 0 && block.more {
            // RFC 7959 §4: so that the client knows what is coming.
            extra.size2 = u32::try_from(payload.len()).ok();
        }
        Ok(())
    }

    /// RFC 7959 §2.3: the answer repeats Block1, with a smaller size when we want smaller blocks.
    fn granted_block1(&self, ticket: &Ticket<P>) -> Option<Block> {
        ticket.block1.map(|block| Block { size: block.size.min(self.config.block_size), ..block })
    }

    /// Sends unless the client wants no such answer or the address may be forged.
    fn send(
        &mut self,
        now: Timestamp,
        ticket: &Ticket<P>,
        response: &Response<'_>,
        extra: &Extra<'_>,
        out: &mut Outbox<P>,
    ) {
        if is_suppressed(ticket.no_response, response.code) {
            self.acknowledge_only(ticket, out);
            return;
        }
        if !self.is_verified(now, ticket) && self.measure(ticket, response, extra) > ticket.amplified_bytes() {
            if ticket.method.is_safe_method() {
                self.demand_echo(now, ticket, out);
            } else {
                // It has been done already, so it must not be asked for again: the bare code has to do.
                let extra = Extra { block1: extra.block1, ..Extra::default() };
                self.write(now, ticket, &Response::new(response.code), &extra, out);
            }
            return;
        }
        self.write(now, ticket, response, extra, out);
    }

    /// How long the answer would be.
    fn measure(&mut self, ticket: &Ticket<P>, response: &Response<'_>, extra: &Extra<'_>) -> usize {
        let mut scratch = self.spare.pop().unwrap_or_default();
        scratch.clear();
        response.write(Encoder::new(&mut scratch, Type::Acknowledgement, response.code, 0, &ticket.token), extra);
        let length = scratch.len();
        self.spare.push(scratch);
        length
    }

    /// RFC 7967 §2: no answer, but a Confirmable is acknowledged (§3.2 there leaves that to RFC 7252 §4.2).
    fn acknowledge_only(&mut self, ticket: &Ticket<P>, out: &mut Outbox<P>) {
        let Some((peer, budget)) = self.peers.with_budget(ticket.peer) else { return };
        if ticket.confirmable && !peer.exchanges.is_acknowledged(ticket.message_id) {
            let write = |bytes: &mut Vec<u8>| encode::empty(bytes, Type::Acknowledgement, ticket.message_id);
            let reply = out.push_with(ticket.address, write);
            peer.exchanges.answer(ticket.message_id, Code::EMPTY, reply, budget);
        }
    }

    /// Writes the answer as the exchange stands: piggybacked, separate or Non-confirmable (RFC 7252 §5.2).
    fn write(
        &mut self,
        now: Timestamp,
        ticket: &Ticket<P>,
        response: &Response<'_>,
        extra: &Extra<'_>,
        out: &mut Outbox<P>,
    ) {
        let acknowledged =
            self.peers.get(ticket.peer).is_some_and(|peer| peer.exchanges.is_acknowledged(ticket.message_id));
        let kind = match (ticket.confirmable, acknowledged) {
            (true, false) => Type::Acknowledgement,
            (true, true) => Type::Confirmable,
            (false, _) => Type::NonConfirmable,
        };
        let own_id = match kind {
            Type::Acknowledgement | Type::Reset => None,
            Type::Confirmable | Type::NonConfirmable => self.peers.get_mut(ticket.peer).map(|peer| peer.message_id()),
        };
        let message_id = own_id.unwrap_or(ticket.message_id);
        let datagram = out.push_with(ticket.address, |bytes| {
            response.write(Encoder::new(bytes, kind, response.code, message_id, &ticket.token), extra);
        });
        match kind {
            Type::Acknowledgement | Type::Reset => {
                let compact = datagram.len() <= self.config.cached_safe_bytes_max;
                let Some((peer, budget)) = self.peers.with_budget(ticket.peer) else { return };
                if compact || !ticket.method.is_safe_method() {
                    peer.exchanges.answer(ticket.message_id, response.code, datagram, budget);
                } else {
                    peer.exchanges.forget(ticket.message_id);
                }
            }
            Type::NonConfirmable => {
                if let Some((peer, budget)) = self.peers.with_budget(ticket.peer) {
                    peer.exchanges.answer(ticket.message_id, response.code, &[], budget);
                }
            }
            Type::Confirmable => self.follow_separate(now, ticket, message_id, out),
        }
    }

    /// The separate response just written: follow it, or let it wait for NSTART.
    fn follow_separate(&mut self, now: Timestamp, ticket: &Ticket<P>, message_id: u16, out: &mut Outbox<P>) {
        let datagram = self.buffer(out.last());
        let backoff = self.fresh_backoff(now);
        let confirmable = Confirmable { peer: ticket.peer, message_id, datagram, relation: None, backoff };
        if self.has_room(ticket.peer) {
            self.track(confirmable);
            return;
        }
        out.pop();
        let Some(peer) = self.peers.get_mut(ticket.peer) else { return };
        if peer.waiting.len() < WAITING_RESPONSES_MAX + peer.relations.len()
            && let Some(key) = self.confirmables.insert(confirmable)
        {
            peer.waiting.push_back(Waiting::Response(key));
        }
    }
}

impl<P> Ticket<P> {
    /// How long an answer to an address may be that is not proven.
    const fn amplified_bytes(&self) -> usize {
        self.request_bytes.saturating_mul(AMPLIFICATION_MAX)
    }
}

/// RFC 7967 §2.1: one bit per class.
fn is_suppressed(no_response: u8, code: Code) -> bool {
    let bit = match code.class() {
        Class::Success => 2,
        Class::ClientError => 8,
        Class::ServerError => 16,
        Class::Empty | Class::Request | Class::Signal | Class::Reserved => 0,
    };
    no_response & bit != 0 && code != Code::CONTINUE
}
