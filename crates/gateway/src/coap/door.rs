//! One worker's CoAP: the loop over socket, mailbox, deadlines and completions.

use std::{
    collections::VecDeque,
    future::Future,
    io,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use fogmux_auth::Action;
use fogmux_bus::{Claim, Slot, Timestamp, TopicRef};
use fogmux_coap::{Code, Incoming, ObserveWish, Outbox, Request, Response, Server, Ticket, server::Counters};
use tokio::{net::UdpSocket, time::Sleep};

use super::{
    identity::{Admission, Identity},
    mailbox::{self, Entry, Notifications},
    observe::Watches,
    publish::{Batch, Deferred},
    socket::{Path, Socket},
    translate::{self, Parameters, Target},
};
use crate::WorkerContext;

/// Turns before other tasks of the worker have theirs.
const TURNS_MAX: usize = 2;

/// Notifications made in one turn, so that they are on their way before more are made.
const NOTIFICATIONS_PER_TURN: usize = 256;

/// Notifications per observer that may pile up while other tasks have their turn; sent in one burst, more would overrun
/// the receive buffers of the observers.
const BACKLOG_PER_OBSERVER: usize = 64;

/// A worker's CoAP.
pub(super) struct Door {
    socket: Socket,
    core: Core,
    sleep: Pin<Box<Sleep>>,
    armed: Option<Timestamp>,
}

/// Everything but the socket, so that what was read can be borrowed from that.
pub(super) struct Core {
    pub(super) ctx: Rc<WorkerContext>,
    pub(super) server: Server<Path>,
    pub(super) out: Outbox<Path>,
    pub(super) slot: Arc<Slot<Notifications>>,
    claim: Claim,
    admission: Admission,
    pub(super) watches: Watches,
    pub(super) deferred: VecDeque<Deferred>,
    /// Taken out of the mailbox and not told yet.
    entries: VecDeque<Entry>,
    /// Room for the topics of a turn.
    topics: String,
    counted: Counters,
    peers_counted: i64,
}

impl Door {
    pub(super) fn open(ctx: Rc<WorkerContext>, socket: UdpSocket, anonymous: bool) -> io::Result<Self> {
        let config = &ctx.shared.coap.config;
        let is_loopback = socket.local_addr()?.ip().to_canonical().is_loopback();
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(io::Error::other)?;
        let server = Server::new(config.machine(), u64::from_ne_bytes(seed), ctx.shared.coap.echo_key());
        let slot = ctx.bus().slot(Notifications::new(config.notification_bytes_max), ctx.id);
        let claim = slot.claim(ctx.id);
        let core = Core {
            admission: Admission::new(anonymous, is_loopback, slot.id()),
            server,
            out: Outbox::default(),
            slot,
            claim,
            watches: Watches::default(),
            deferred: VecDeque::new(),
            entries: VecDeque::new(),
            topics: String::new(),
            counted: Counters::default(),
            peers_counted: 0,
            ctx,
        };
        let sleep = Box::pin(tokio::time::sleep(Duration::ZERO));
        Ok(Self { socket: Socket::new(socket)?, core, sleep, armed: None })
    }

    /// Works a few turns. Ready with `true` when there is more to do, with `false` when the socket is of no use any more.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        for _ in 0..TURNS_MAX {
            if self.flush(cx).is_pending() {
                return Poll::Pending;
            }
            let mut busy = match self.socket.poll_receive(cx) {
                Poll::Ready(Ok(())) => {
                    self.core.receive(&self.socket);
                    true
                }
                Poll::Ready(Err(error)) => {
                    tracing::error!(%error, "the CoAP socket cannot be read");
                    return Poll::Ready(false);
                }
                Poll::Pending => false,
            };
            busy |= self.core.notify(cx);
            busy |= self.core.complete(cx);
            busy |= self.core.backfill();
            busy |= self.poll_deadline(cx);
            self.core.settle();
            if !busy && self.core.out.is_empty() {
                return Poll::Pending;
            }
        }
        Poll::Ready(true)
    }

    /// Tells observers that the gateway goes (5.03 ends their observations).
    pub(super) fn close(&mut self) {
        self.core.say_goodbye();
    }

    /// Sends what the socket takes at once.
    pub(super) fn poll_goodbye(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let _ = self.flush(cx);
        Poll::Ready(())
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.core.out.is_empty() {
            return Poll::Ready(());
        }
        self.socket
            .poll_send(cx, &mut self.core.out)
            .map(|bytes| self.core.ctx.shared.metrics.coap.bytes_out.add(bytes))
    }

    /// Does what is due; sets the alarm otherwise.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(at) = self.core.server.next_timeout() else { return false };
        let at = Timestamp::from_millis(at.as_millis());
        if self.armed != Some(at) {
            self.armed = Some(at);
            self.sleep.as_mut().reset(self.core.ctx.shared.clock.instant(at));
        }
        if self.sleep.as_mut().poll(cx).is_pending() {
            return false;
        }
        self.armed = None;
        let now = self.core.machine_now();
        self.core.server.handle_timeout(now, &mut self.core.out);
        true
    }
}

impl Core {
    /// The machine's clock is the bus's.
    pub(super) fn machine_now(&self) -> fogmux_coap::Timestamp {
        machine_time(self.ctx.now())
    }

    /// Takes in what was read, publishes all of it at once, and answers.
    fn receive(&mut self, socket: &Socket) {
        let now = self.ctx.now();
        let mut batch = Batch::new(std::mem::take(&mut self.topics));
        let mut bytes = 0;
        for (path, datagram) in socket.datagrams() {
            bytes += datagram.len() as u64;
            if let Some(incoming) = self.server.handle(machine_time(now), path, datagram, &mut self.out) {
                self.dispatch(now, incoming, &mut batch);
            }
        }
        self.publish(now, &mut batch);
        self.topics = batch.into_topics();
        self.ctx.shared.metrics.coap.bytes_in.add(bytes);
    }

    fn dispatch<'a>(&mut self, now: Timestamp, incoming: Incoming<'a, Path>, batch: &mut Batch<'a>) {
        let Incoming { request, ticket } = incoming;
        let Some(identity) = self.admission.identity(&self.ctx) else {
            self.ctx.shared.metrics.coap.unauthenticated.increment();
            self.respond(now, ticket, &Response::new(Code::UNAUTHORIZED));
            return;
        };
        let start = batch.topics.len();
        let target = translate::target(&request, &mut batch.topics);
        let parameters = match (target, Parameters::of(&request)) {
            // RFC 6690 §4.1: its queries are filters.
            (Target::WellKnown, _) => Parameters::default(),
            (_, Ok(parameters)) => parameters,
            (_, Err(mistake)) => {
                self.respond(now, ticket, &Response::diagnostic(Code::BAD_REQUEST, mistake));
                return;
            }
        };
        let ask = Ask { now, identity: &identity, parameters };
        match (target, request.method) {
            (Target::Topic, Code::PUT | Code::POST | Code::DELETE) => {
                self.write(&ask, request, ticket, start, batch);
            }
            (Target::Topic | Target::Root | Target::WellKnown, Code::GET | Code::FETCH) => {
                let topic = batch.topics.split_off(start);
                // What came before in the same turn is to be seen.
                self.publish(now, batch);
                self.read(&ask, &request, ticket, target, &topic);
            }
            (Target::Nowhere, _) => self.respond(now, ticket, &Response::new(Code::NOT_FOUND)),
            (Target::Ambiguous, _) => {
                let response = Response::diagnostic(Code::BAD_REQUEST, "a slash inside a Uri-Path");
                self.respond(now, ticket, &response);
            }
            (Target::Topic | Target::Root | Target::WellKnown, _) => {
                self.respond(now, ticket, &Response::new(Code::METHOD_NOT_ALLOWED));
            }
        }
    }

    /// GET and FETCH.
    fn read(&mut self, ask: &Ask<'_>, request: &Request<'_>, ticket: Ticket<Path>, target: Target, topic: &str) {
        let now = ask.now;
        let observe = request.observe == Some(ObserveWish::Register);
        match (target, ask.parameters.filter) {
            (Target::WellKnown, _) => self.discover(ask, request, ticket),
            (Target::Topic, Some(_)) => {
                let response = Response::diagnostic(Code::BAD_REQUEST, "a topic and a filter");
                self.respond(now, ticket, &response);
            }
            (Target::Topic, None) => match self.readable(ask, topic) {
                Err(refusal) => self.respond(now, ticket, &refusal),
                Ok(topic) if observe => self.observe_topic(ask, ticket, topic),
                Ok(topic) => self.latest(ask, ticket, topic.as_str()),
            },
            (Target::Root, Some(filter)) if observe => self.observe_filter(ask, ticket, filter),
            (Target::Root, filter) => self.list(ask, ticket, filter.unwrap_or("#")),
            (Target::Nowhere | Target::Ambiguous, _) => self.respond(now, ticket, &Response::new(Code::NOT_FOUND)),
        }
    }

    /// The topic when it is one and may be read.
    fn readable<'a>(&self, ask: &Ask<'_>, topic: &'a str) -> Result<TopicRef<'a>, Response<'static>> {
        let topic = TopicRef::new(topic).map_err(|_| Response::diagnostic(Code::BAD_REQUEST, "not a topic"))?;
        match ask.identity.refusal(&self.ctx, Action::Read, topic.as_str()) {
            Some(code) => Err(Response::new(code)),
            None => Ok(topic),
        }
    }

    pub(super) fn respond(&mut self, now: Timestamp, ticket: Ticket<Path>, response: &Response<'_>) {
        self.server.respond(machine_time(now), ticket, response, &mut self.out);
    }

    /// Empties the mailbox into notifications.
    fn notify(&mut self, cx: &Context<'_>) -> bool {
        if self.entries.is_empty() {
            let entries = &mut self.entries;
            // Nobody else claims this slot.
            let _ = self.slot.poll_with(self.claim, cx, |mailbox| mailbox.take(entries));
            if self.entries.len() > BACKLOG_PER_OBSERVER * self.server.observers().max(1) {
                // This worker has fallen behind: what is newer replaces what is older (RFC 7641 §1.3).
                mailbox::thin(&mut self.entries);
            }
        }
        let now = self.ctx.now();
        for _ in 0..NOTIFICATIONS_PER_TURN {
            let Some(entry) = self.entries.pop_front() else { break };
            self.tell(now, &entry);
        }
        !self.entries.is_empty()
    }

    /// Forgets observers that are gone, and counts.
    fn settle(&mut self) {
        self.forget_gone();
        let (counters, metrics) = (*self.server.counters(), &self.ctx.shared.metrics.coap);
        if counters != self.counted {
            metrics.misbehaved.add(counters.malformed - self.counted.malformed);
            metrics.timed_out.add(counters.timed_out - self.counted.timed_out);
            metrics.rejected.add(counters.peers_refused - self.counted.peers_refused);
            self.counted = counters;
        }
        let peers = i64::try_from(self.server.peers()).unwrap_or(i64::MAX);
        if peers != self.peers_counted {
            metrics.connections.change(peers - self.peers_counted);
            self.peers_counted = peers;
        }
    }
}

/// A request that has been understood, beside itself.
pub(super) struct Ask<'a> {
    pub(super) now: Timestamp,
    pub(super) identity: &'a Identity,
    pub(super) parameters: Parameters<'a>,
}

/// The same moment for the machine.
pub(super) const fn machine_time(now: Timestamp) -> fogmux_coap::Timestamp {
    fogmux_coap::Timestamp::from_millis(now.as_millis())
}
