//! Responses: validation, blocks, sizes and suppression.

use std::rc::Rc;

use crate::Timestamp;
use crate::block::{Block, BlockSize};
use crate::code::{Class, Code};
use crate::content_format;
use crate::encode::{self, Encoder};
use crate::message::{Message, Type};
use crate::option::OptionNumber;
use crate::outbox::Outbox;
use crate::peer::Peer;
use crate::response::{Extra, Payload, Response};
use crate::server::confirmables::Confirmable;
use crate::server::downloads::Snapshot;
use crate::server::peers::{Limits, Waiting};
use crate::server::{Exchange, GoneReason, Role, Server, Ticket, Unsealed};

impl<P: Peer> Server<P> {
    /// Answers a request.
    pub fn respond(&mut self, now: Timestamp, ticket: Ticket<P>, response: &Response<'_>, out: &mut Outbox<P>) {
        self.take_back(&ticket);
        let whole = *response;
        let response = self.settle(&ticket, whole);
        if let Some(relation) = ticket.relation.filter(|_| response.code.is_success()) {
            self.begin_notifications(relation, &whole);
        }
        if !response.code.is_success()
            && let Some(relation) = ticket.relation
        {
            // RFC 7641 §4.1: a client that gets an error is not on the list.
            self.remove_relation(relation, GoneReason::Refused);
        }
        // All blocks of a large body are cut from one snapshot.
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
        let sliced = self.slice(&ticket, &response, payload, &mut extra);
        if snapshot.is_some()
            && extra.block2.is_some_and(|block| !block.more)
            && let Some(owner) = self.downloads.finish(ticket.transfer())
        {
            self.room_came(now, &owner);
        }
        match sliced {
            Ok(()) => self.send(now, &ticket, &response, &extra, out),
            Err(()) => {
                let refusal = Response::diagnostic(Code::BAD_REQUEST, "no such block");
                let extra = Extra { payload: refusal.payload.as_slice(), ..Extra::default() };
                self.send(now, &ticket, &refusal, &extra, out);
            }
        }
    }

    /// Whether this asks for a later block of a kept representation: any 2.05 will do then, its payload is not used.
    #[must_use]
    pub fn is_continued(&mut self, now: Timestamp, ticket: &Ticket<P>) -> bool {
        ticket.block2.is_some_and(|block| block.number > 0) && self.downloads.find(now, ticket.transfer()).is_some()
    }

    /// Evaluates Accept and ETag for a 2.05.
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
            self.downloads.remove(ticket.transfer());
            return Response { etag: Some(etag), max_age: response.max_age, ..Response::new(Code::VALID) };
        }
        response
    }

    /// The representation of a download: the kept one, or this one if the download begins now.
    fn snapshot(&mut self, now: Timestamp, ticket: &Ticket<P>, response: &Response<'_>) -> Option<Snapshot> {
        if response.code != Code::CONTENT || !ticket.method.is_safe_method() {
            return None;
        }
        let id = ticket.transfer();
        let number = ticket.block2.map_or(0, |block| block.number);
        if number > 0 {
            return self.downloads.find(now, id);
        }
        if response.payload.as_slice().len() <= self.limits(ticket).whole {
            return None;
        }
        let snapshot = Snapshot {
            body: response.payload.to_bytes(),
            etag: response.etag,
            content_format: response.content_format,
            touched: now,
        };
        self.downloads.keep(now, (id, self.owner(ticket)), snapshot.clone());
        Some(snapshot)
    }

    /// Cuts the part that this response carries.
    fn slice<'a>(
        &self,
        ticket: &Ticket<P>,
        response: &Response<'_>,
        payload: &'a [u8],
        extra: &mut Extra<'a>,
    ) -> Result<(), ()> {
        let limits = self.limits(ticket);
        let wanted = ticket.block2.filter(|_| response.code.is_success() && response.code != Code::CONTINUE);
        if wanted.is_none() && payload.len() <= limits.whole {
            extra.payload = payload;
            return Ok(());
        }
        let block = wanted.unwrap_or(Block { number: 0, more: false, size: limits.size }).shrink(limits.size);
        let (block, part) = block.slice_of(payload, block.size.chunk(limits.chunk)).ok_or(())?;
        extra.payload = part;
        extra.block2 = Some(block);
        if block.number == 0 && block.more {
            // RFC 7959 §4: so that the client knows the size in advance.
            extra.size2 = u32::try_from(payload.len()).ok();
        }
        Ok(())
    }

    /// RFC 7959 §2.3: the answer repeats Block1, with a smaller size when we want smaller blocks.
    fn granted_block1(&self, ticket: &Ticket<P>) -> Option<Block> {
        let ours = if self.config.reliable { BlockSize::BERT } else { self.config.block_size };
        ticket.block1.map(|block| Block { size: block.size.min(ours), ..block })
    }

    /// The size limits of a response.
    pub(crate) fn limits(&self, ticket: &Ticket<P>) -> Limits {
        let ours = Limits::of_datagrams(self.config.block_size);
        let limits = self.peers.get(ticket.peer).map_or(ours, |peer| peer.limits);
        limits.at_most(ticket.block2.map(|block| block.size))
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
        if !self.is_verified(now, ticket) && self.measure(ticket, response, extra) > self.amplified_bytes(ticket) {
            if ticket.method.is_safe_method() {
                self.demand_echo(now, ticket, out);
            } else {
                // The request has been carried out and must not be repeated: the bare code has to do.
                let extra = Extra { block1: extra.block1, ..Extra::default() };
                self.write(now, ticket, &Response::new(response.code), &extra, out);
            }
            return;
        }
        self.write(now, ticket, response, extra, out);
    }

    /// The length of a response.
    pub(super) fn measure(&mut self, ticket: &Ticket<P>, response: &Response<'_>, extra: &Extra<'_>) -> usize {
        let mut scratch = self.buffers.take();
        response.write(Encoder::new(&mut scratch, Type::Acknowledgement, response.code, 0, &ticket.token), extra);
        let length = scratch.len();
        self.buffers.put_back(scratch);
        length
    }

    /// RFC 7967 §2: no answer, but a Confirmable is acknowledged (§3.2 there leaves that to RFC 7252 §4.2).
    fn acknowledge_only(&mut self, ticket: &Ticket<P>, out: &mut Outbox<P>) {
        let Some((peer, budget)) = self.peers.with_budget(ticket.peer) else { return };
        if ticket.confirmable && !self.config.reliable && !peer.exchanges.is_acknowledged(ticket.message_id) {
            let write = |bytes: &mut Vec<u8>| encode::empty(bytes, Type::Acknowledgement, ticket.message_id);
            let reply = out.push_with(ticket.address, write);
            peer.exchanges.answer(ticket.message_id, Code::EMPTY, reply, budget);
        }
    }

    /// Writes the response: piggybacked, separate or Non-confirmable (RFC 7252 §5.2).
    pub(super) fn write(
        &mut self,
        now: Timestamp,
        ticket: &Ticket<P>,
        response: &Response<'_>,
        extra: &Extra<'_>,
        out: &mut Outbox<P>,
    ) {
        let mut plain = match &ticket.exchange {
            None => Vec::new(),
            Some(_) => self.buffers.take(),
        };
        let (kind, message_id) = self.envelope(ticket);
        let write = |bytes: &mut Vec<u8>| {
            response.write(Encoder::new(bytes, kind, response.code, message_id, &ticket.token), extra);
        };
        if ticket.exchange.is_none() {
            out.push_with(ticket.address, write);
        } else {
            write(&mut plain);
            let sealed = self.push_sealed(now, ticket, &plain, out);
            self.buffers.put_back(plain);
            if !sealed {
                return;
            }
        }
        self.follow_answer(now, ticket, response.code, (kind, message_id), out);
    }

    /// Sends an answer that is there already, whole and not yet sealed.
    pub(crate) fn write_whole(&mut self, now: Timestamp, ticket: &Ticket<P>, plain: &[u8], out: &mut Outbox<P>) {
        let (kind, message_id) = self.envelope(ticket);
        let Ok(message) = Message::decode(plain) else { return };
        let mut rewritten = Vec::new();
        let mut encoder = Encoder::new(&mut rewritten, kind, message.code, message_id, &ticket.token);
        message.options().for_each(|option| encoder.push(option.number, option.value));
        encoder.payload(message.payload());
        if self.push_sealed(now, ticket, &rewritten, out) {
            self.follow_answer(now, ticket, message.code, (kind, message_id), out);
        }
    }

    /// Type and message identifier of an answer.
    fn envelope(&mut self, ticket: &Ticket<P>) -> (Type, u16) {
        if self.config.reliable {
            return (Type::Acknowledgement, 0);
        }
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
        (kind, own_id.unwrap_or(ticket.message_id))
    }

    /// Puts the protected response into the outbox; `false` when it cannot be protected.
    fn push_sealed(&mut self, now: Timestamp, ticket: &Ticket<P>, plain: &[u8], out: &mut Outbox<P>) -> bool {
        let Some(exchange) = &ticket.exchange else { return false };
        let sealed = seal_into(now, exchange, plain, Role::Answer, ticket.address, out);
        if sealed == Err(Unsealed::NotNow)
            && let Some(peer) = self.peers.get_mut(ticket.peer)
        {
            peer.exchanges.forget(ticket.message_id);
        }
        if let (Ok(()), Some(block)) = (sealed, ticket.outer_block1) {
            add_outer_block1(block, ticket.address, out);
        }
        sealed.is_ok()
    }

    /// Remembers the response that has just been put into the outbox, for duplicates.
    fn follow_answer(
        &mut self,
        now: Timestamp,
        ticket: &Ticket<P>,
        code: Code,
        (kind, message_id): (Type, u16),
        out: &mut Outbox<P>,
    ) {
        if self.config.reliable {
            return;
        }
        let protected = ticket.exchange.is_some();
        match kind {
            Type::Acknowledgement | Type::Reset => {
                let datagram = out.last();
                let compact = datagram.len() <= self.config.cached_safe_bytes_max;
                let Some((peer, budget)) = self.peers.with_budget(ticket.peer) else { return };
                if compact || protected || !ticket.method.is_safe_method() {
                    let kept = peer.exchanges.answer(ticket.message_id, code, datagram, budget);
                    if protected && !kept {
                        // Nothing may be said of it unprotected, and made again it would be a replay.
                        peer.exchanges.silence(ticket.message_id);
                    }
                } else {
                    peer.exchanges.forget(ticket.message_id);
                }
            }
            Type::NonConfirmable => {
                if let Some((peer, budget)) = self.peers.with_budget(ticket.peer) {
                    peer.exchanges.answer(ticket.message_id, code, &[], budget);
                    if protected {
                        peer.exchanges.silence(ticket.message_id);
                    }
                }
            }
            Type::Confirmable => self.follow_separate(now, ticket, message_id, out),
        }
    }

    /// Tracks the separate response just written, or lets it wait for NSTART. To an address that is not proven it is
    /// sent again only as often as the request has bytes for: nobody there may have asked.
    fn follow_separate(&mut self, now: Timestamp, ticket: &Ticket<P>, message_id: u16, out: &mut Outbox<P>) {
        let datagram = self.buffer(out.last());
        let mut backoff = self.fresh_backoff(now);
        if !self.is_verified(now, ticket) {
            let transmissions = self.amplified_bytes(ticket) / datagram.len().max(1);
            backoff = backoff.at_most(u8::try_from(transmissions.saturating_sub(1)).unwrap_or(u8::MAX));
        }
        let confirmable = Confirmable { peer: ticket.peer, message_id, datagram, relation: None, backoff };
        if self.has_room(ticket.peer) {
            self.track(confirmable);
            return;
        }
        out.pop();
        let most = self.under_way_max();
        let Some(peer) = self.peers.get_mut(ticket.peer) else { return };
        if peer.responses_waiting < most
            && let Some(key) = self.confirmables.insert(confirmable)
        {
            peer.responses_waiting += 1;
            peer.waiting.push_back(Waiting::Response(key));
        }
    }
}

/// Puts the protected form of `plain` into the outbox, unless it cannot be protected now.
pub(crate) fn seal_into<P: Copy>(
    now: Timestamp,
    exchange: &Rc<dyn Exchange>,
    plain: &[u8],
    role: Role,
    to: P,
    out: &mut Outbox<P>,
) -> Result<(), Unsealed> {
    let Ok(message) = Message::decode(plain) else { return Err(Unsealed::Never) };
    let mut sealed = Ok(());
    out.push_with(to, |bytes| sealed = exchange.seal(now, &message, role, bytes));
    if sealed.is_err() {
        out.pop();
    }
    sealed
}

/// RFC 7959 §2.3 for blocks that were cut around the protection: the newest answer gets its Block1.
fn add_outer_block1<P: Copy>(block: Block, to: P, out: &mut Outbox<P>) {
    let sealed = out.last().to_vec();
    let Ok(message) = Message::decode(&sealed) else { return };
    out.pop();
    out.push_with(to, |bytes| {
        let mut encoder = Encoder::new(bytes, message.kind, message.code, message.message_id, &message.token);
        let mut added = false;
        for option in message.options() {
            if option.number > OptionNumber::BLOCK1 && !added {
                encoder = encoder.uint(OptionNumber::BLOCK1, block.encode());
                added = true;
            }
            encoder.push(option.number, option.value);
        }
        if !added {
            encoder = encoder.uint(OptionNumber::BLOCK1, block.encode());
        }
        encoder.payload(message.payload());
    });
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
