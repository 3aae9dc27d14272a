//! Receiving messages: dispatch by type and code, deduplication and reassembly of bodies, before the application sees
//! a request.

mod protected;

use fogmux_fair::Owner;

use crate::Timestamp;
use crate::code::{Class, Code};
use crate::encode;
use crate::message::{Message, Remedy, Type};
use crate::option::OptionNumber;
use crate::outbox::Outbox;
use crate::peer::Peer;
use crate::request::{Body, ObserveWish, Request, RequestFault};
use crate::response::Response;
use crate::server::dedup::Found;
use crate::server::owners::owner_of;
use crate::server::proof::amplified_bytes;
use crate::server::timers::Timer;
use crate::server::uploads::Progress;
use crate::server::{GoneReason, Incoming, Room, Server, Ticket, TransferId};
use crate::slab::Key;
use crate::token::Token;

/// When there is no room for one more peer: come back in so many seconds.
const RETRY_WHEN_FULL: std::time::Duration = std::time::Duration::from_secs(10);

impl<P: Peer> Server<P> {
    /// Takes a datagram in. What the application must answer comes back; all else is done here.
    pub fn handle<'a>(
        &mut self,
        now: Timestamp,
        from: P,
        datagram: &'a [u8],
        out: &mut Outbox<P>,
    ) -> Option<Incoming<'a, P>> {
        self.handle_in(now, from, datagram, None, out)
    }

    /// The same with room for requests that were protected.
    pub fn handle_in<'a>(
        &mut self,
        now: Timestamp,
        from: P,
        datagram: &'a [u8],
        room: Option<&'a Room>,
        out: &mut Outbox<P>,
    ) -> Option<Incoming<'a, P>> {
        let message = match Message::decode(datagram) {
            Ok(message) => message,
            Err(malformed) => {
                self.counters.malformed += 1;
                match malformed.remedy() {
                    Remedy::Reset(message_id) => reject(from, message_id, out),
                    Remedy::Ignore => {}
                }
                return None;
            }
        };
        match (message.code.class(), message.kind) {
            (Class::Request, _) => return self.request(now, from, message, datagram.len(), room, out),
            (Class::Empty, Type::Acknowledgement) => self.acknowledged(now, &from, message.message_id, out),
            (Class::Empty, Type::Reset) => self.reset(now, &from, message.message_id, out),
            // RFC 7252 §4.3: a ping. And §5.3.2: a response to nothing we asked.
            (_, Type::Confirmable) => reject(from, message.message_id, out),
            (
                Class::Empty
                | Class::Success
                | Class::ClientError
                | Class::ServerError
                | Class::Signal
                | Class::Reserved,
                Type::NonConfirmable | Type::Acknowledgement | Type::Reset,
            ) => {}
        }
        None
    }

    /// The application will answer later; until then the peer is told that the request arrived (RFC 7252 §5.2.2).
    pub fn defer(&mut self, now: Timestamp, ticket: &Ticket<P>) {
        if ticket.confirmable && !self.config.reliable {
            let due = now + self.config.acknowledge_after;
            self.timers.add(due, Timer::Acknowledge(ticket.peer, ticket.message_id));
        }
    }

    fn request<'a>(
        &mut self,
        now: Timestamp,
        from: P,
        message: Message<'a>,
        bytes: usize,
        room: Option<&'a Room>,
        out: &mut Outbox<P>,
    ) -> Option<Incoming<'a, P>> {
        let confirmable = message.kind == Type::Confirmable;
        let first_message_id = self.jitter.next_u16();
        let Some(peer) = self.peers.enter(now, from, first_message_id) else {
            self.counters.peers_refused += 1;
            if confirmable {
                refuse_unknown(from, &message, out);
            }
            return None;
        };
        self.ping_if_awaited(now, peer, out);
        if self.is_repeat(now, peer, (&message, bytes), out) {
            return None;
        }
        self.take(now, from, peer, message, bytes, room, out)
    }

    /// Takes a request in that is no repeat.
    #[expect(clippy::too_many_arguments, reason = "one message's whole circumstances, from two callers")]
    pub(crate) fn take<'a>(
        &mut self,
        now: Timestamp,
        from: P,
        peer: Key,
        message: Message<'a>,
        bytes: usize,
        room: Option<&'a Room>,
        out: &mut Outbox<P>,
    ) -> Option<Incoming<'a, P>> {
        let ticket = Ticket {
            address: from,
            peer,
            message_id: message.message_id,
            token: message.token,
            confirmable: message.kind == Type::Confirmable,
            method: message.code,
            request_bytes: bytes,
            cache_key: 0,
            block1: None,
            block2: None,
            accept: None,
            etags: smallvec::SmallVec::new(),
            no_response: 0,
            register: false,
            relation: None,
            exchange: None,
            outer_block1: None,
        };
        if message.option(OptionNumber::OSCORE).is_none() && self.demanding.contains(&ticket.address.association()) {
            self.counters.unprotected += 1;
            self.respond(now, ticket, &Response::new(Code::UNAUTHORIZED), out);
            return None;
        }
        match Request::parse_over(message, self.config.reliable) {
            Ok(request) if !request.protected => self.go_on(now, ticket, request, out),
            Err(fault) if message.option(OptionNumber::OSCORE).is_none() => {
                self.refuse(now, ticket, fault, out);
                None
            }
            Ok(_) | Err(_) => self.unwrap_protected(now, ticket, &message, room, out),
        }
    }

    /// Takes a request in that is understood.
    fn go_on<'a>(
        &mut self,
        now: Timestamp,
        mut ticket: Ticket<P>,
        mut request: Request<'a>,
        out: &mut Outbox<P>,
    ) -> Option<Incoming<'a, P>> {
        if let Some(value) = request.echo {
            self.verify(now, &ticket, value);
        }
        if request.method.is_safe_method() || request.block1.is_some() {
            ticket.cache_key = request.cache_key(&self.hash);
        }
        ticket.fill(&mut request);
        match self.take_body(now, &ticket, &mut request) {
            BodyState::Whole => {}
            BodyState::Continue => {
                self.respond(now, ticket, &Response::new(Code::CONTINUE), out);
                return None;
            }
            BodyState::Refused(code) => {
                self.refuse_body(now, ticket, code, out);
                return None;
            }
        }
        if !self.take_observe(now, &mut ticket, &request) {
            self.demand_echo(now, &ticket, out);
            return None;
        }
        self.counters.requests += 1;
        self.hand_out(&ticket);
        Some(Incoming { request, ticket })
    }

    /// Answers what was answered before; remembers what was not (RFC 7252 §4.5).
    fn is_repeat(
        &mut self,
        now: Timestamp,
        peer: Key,
        (message, bytes): (&Message<'_>, usize),
        out: &mut Outbox<P>,
    ) -> bool {
        let is_verified = self.is_verified_peer(now, peer);
        let (max, lifetime) = (self.config.exchanges_per_peer_max, self.exchange_lifetime);
        let Some((state, budget)) = self.peers.with_budget(peer) else { return true };
        let (to, message_id) = (state.address, message.message_id);
        match state.exchanges.find_or_begin(now, message_id, lifetime, max, budget) {
            Found::New => return false,
            _ if message.kind != Type::Confirmable => {}
            Found::Pending => {}
            Found::Acknowledged => {
                out.push_with(to, |bytes| encode::empty(bytes, Type::Acknowledgement, message_id));
            }
            // A shorter message with the same identifier is no repeat, and nobody there may have asked.
            Found::Answered(reply) if !is_verified && reply.len() > amplified_bytes(bytes) => {}
            Found::Answered(reply) => out.push(to, reply),
            Found::CodeOnly(code) => {
                out.push_with(to, |bytes| {
                    encode::Encoder::new(bytes, Type::Acknowledgement, code, message_id, &message.token).finish();
                });
            }
        }
        self.counters.duplicates += 1;
        true
    }

    fn refuse(&mut self, now: Timestamp, ticket: Ticket<P>, fault: RequestFault, out: &mut Outbox<P>) {
        self.counters.refused += 1;
        if let (RequestFault::BadOption(_), false, None) = (fault, ticket.confirmable, &ticket.exchange) {
            // RFC 7252 §5.4.1: such a Non-confirmable is rejected, not answered.
            reject(ticket.address, ticket.message_id, out);
            return;
        }
        let text = fault.to_string();
        self.respond(now, ticket, &Response::diagnostic(fault.reason(), &text), out);
    }

    /// The owner of what a request leaves unfinished: the user of its security context or of its association.
    pub(crate) fn owner(&self, ticket: &Ticket<P>) -> Owner {
        owner_of(&self.owners, ticket.exchange.as_ref(), &ticket.address)
    }

    /// RFC 7959 §2.5: puts a body together.
    fn take_body(&mut self, now: Timestamp, ticket: &Ticket<P>, request: &mut Request<'_>) -> BodyState {
        let progress = match request.block1 {
            Some(block) if block.number > 0 || block.more => {
                let id = ticket.transfer();
                self.uploads.accept(now, (id, self.owner(ticket)), block, request.size1, request.body.as_slice())
            }
            Some(_) | None if request.body.as_slice().len() > self.config.body_bytes_max => {
                Progress::Refused(Code::REQUEST_ENTITY_TOO_LARGE)
            }
            Some(_) | None => return BodyState::Whole,
        };
        match progress {
            Progress::Complete(bytes) => {
                request.body = Body::Whole(bytes);
                BodyState::Whole
            }
            Progress::Continue => BodyState::Continue,
            Progress::Refused(code) => BodyState::Refused(code),
        }
    }

    fn refuse_body(&mut self, now: Timestamp, ticket: Ticket<P>, code: Code, out: &mut Outbox<P>) {
        self.counters.refused += 1;
        let size1 = (code == Code::REQUEST_ENTITY_TOO_LARGE)
            .then(|| u32::try_from(self.config.body_bytes_max).unwrap_or(u32::MAX));
        let response = match code {
            Code::TOO_MANY_REQUESTS => Response::too_many_requests(RETRY_WHEN_FULL),
            _ => Response { size1, ..Response::new(code) },
        };
        self.respond(now, ticket, &response, out);
    }

    /// RFC 7641 §4.1: takes an observer off the list. `false`: one who may be somebody else has to show who it is.
    fn take_observe(&mut self, now: Timestamp, ticket: &mut Ticket<P>, request: &Request<'_>) -> bool {
        match request.observe {
            None => {}
            Some(ObserveWish::Deregister) => {
                if let Some(relation) = self.find_relation(ticket) {
                    self.remove_relation(relation, GoneReason::Deregistered);
                }
            }
            Some(ObserveWish::Register) => {
                if !self.is_verified(now, ticket) {
                    // Each notification would be an answer to a request that was perhaps forged.
                    return false;
                }
                // A later block of the same response is not a new registration (RFC 7959 §3.4).
                ticket.register = ticket.block2.is_none_or(|block| block.number == 0);
            }
        }
        true
    }
}

/// The state of a request's body.
enum BodyState {
    /// The body is complete.
    Whole,
    /// The next block is expected.
    Continue,
    /// The block is refused with this code.
    Refused(Code),
}

impl<P> Ticket<P> {
    /// Takes the options that the response will depend on.
    fn fill(&mut self, request: &mut Request<'_>) {
        self.block1 = request.block1;
        self.block2 = request.block2;
        self.accept = request.accept;
        self.no_response = request.no_response;
        self.etags = std::mem::take(&mut request.etags);
    }

    /// The number of the security context; 0 without one.
    pub(crate) fn scope(&self) -> u64 {
        self.exchange.as_ref().map_or(0, |exchange| exchange.scope())
    }

    /// The transfer that a block of this request belongs to.
    pub(crate) fn transfer(&self) -> TransferId {
        (self.peer, self.scope(), self.cache_key)
    }
}

/// RFC 7252 §4.2, §4.3.
fn reject<P: Copy>(to: P, message_id: u16, out: &mut Outbox<P>) {
    out.push_with(to, |bytes| encode::empty(bytes, Type::Reset, message_id));
}

/// 5.03 to one of whom nothing can be remembered.
fn refuse_unknown<P: Copy>(to: P, message: &Message<'_>, out: &mut Outbox<P>) {
    let response = Response::unavailable(RETRY_WHEN_FULL);
    let token: Token = message.token;
    out.push_with(to, |bytes| {
        let encoder = encode::Encoder::new(bytes, Type::Acknowledgement, response.code, message.message_id, &token);
        response.write(encoder, &crate::response::Extra::default());
    });
}
