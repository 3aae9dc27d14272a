//! Requests that are protected from end to end (RFC 8613).

use crate::Timestamp;
use crate::block::Block;
use crate::code::{Class, Code};
use crate::message::Message;
use crate::option::OptionNumber;
use crate::outbox::Outbox;
use crate::peer::Peer;
use crate::request::{Body, Request, RequestFault, outer_cache_key};
use crate::response::Response;
use crate::server::uploads::Progress;
use crate::server::{Incoming, Opened, Room, Server, Ticket};

impl<P: Peer> Server<P> {
    /// Opens a protected request and takes in what is inside (RFC 8613 §8.2).
    pub(super) fn unwrap_protected<'a>(
        &mut self,
        now: Timestamp,
        mut ticket: Ticket<P>,
        outer: &Message<'_>,
        room: Option<&'a Room>,
        out: &mut Outbox<P>,
    ) -> Option<Incoming<'a, P>> {
        let one = outer.options().filter(|option| option.number == OptionNumber::OSCORE).count() == 1;
        let (true, Some(room), Some(_)) = (one, room, &self.protection) else {
            self.refuse(now, ticket, RequestFault::BadOption(OptionNumber::OSCORE), out);
            return None;
        };
        let (returned, body) = self.take_outer_body(now, ticket, outer, out)?;
        ticket = returned;
        let outer = outer.with_payload(body.as_slice());
        let mut buffer = self.buffers.take();
        let opened = self.protection.as_mut()?.open(now, &outer, &mut buffer);
        let inner = room.keep(&buffer);
        self.buffers.put_back(buffer);
        match opened {
            Opened::Refused { code, text } => {
                self.counters.refused += 1;
                self.respond(now, ticket, &Response { max_age: Some(0), ..Response::diagnostic(code, text) }, out);
                None
            }
            Opened::Answer(exchange) => {
                ticket.exchange = Some(exchange);
                self.write_whole(now, &ticket, inner, out);
                None
            }
            Opened::Request(exchange) => {
                ticket.exchange = Some(exchange);
                let parsed = Message::decode(inner).ok().filter(|message| message.code.class() == Class::Request);
                let Some(message) = parsed else {
                    self.respond(now, ticket, &Response::new(Code::BAD_REQUEST), out);
                    return None;
                };
                ticket.method = message.code;
                match Request::parse_over(message, self.config.reliable) {
                    Ok(request) if !request.protected => return self.go_on(now, ticket, request, out),
                    Ok(_) => self.refuse(now, ticket, RequestFault::BadOption(OptionNumber::OSCORE), out),
                    Err(fault) => self.refuse(now, ticket, fault, out),
                }
                None
            }
        }
    }

    /// The payload of a protected request; put together when it was cut outside of the protection
    /// (RFC 8613 §4.1.3.4.2).
    fn take_outer_body<'m>(
        &mut self,
        now: Timestamp,
        mut ticket: Ticket<P>,
        outer: &Message<'m>,
        out: &mut Outbox<P>,
    ) -> Option<(Ticket<P>, Body<'m>)> {
        let number = |number| outer.option(number).and_then(|option| option.uint());
        let reliable = self.config.reliable;
        let decode = |value| if reliable { Some(Block::decode_reliable(value)) } else { Block::decode(value) };
        let Some(block) = number(OptionNumber::BLOCK1).and_then(decode) else {
            return Some((ticket, Body::Slice(outer.payload())));
        };
        ticket.outer_block1 = Some(block);
        ticket.block1 = Some(block);
        let id = (ticket.peer, 0, outer_cache_key(outer, &self.hash));
        let owner = self.owner(&ticket);
        match self.uploads.accept(now, (id, owner), block, number(OptionNumber::SIZE1), outer.payload()) {
            Progress::Complete(bytes) => {
                ticket.block1 = None;
                return Some((ticket, Body::Whole(bytes)));
            }
            Progress::Continue => self.respond(now, ticket, &Response::new(Code::CONTINUE), out),
            Progress::Refused(code) => self.refuse_body(now, ticket, code, out),
        }
        None
    }
}
