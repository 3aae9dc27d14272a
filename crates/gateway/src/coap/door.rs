//! One worker's CoAP: the loop over socket, mailbox, deadlines and completions.

use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use fogmux_auth::Action;
use fogmux_bus::{Claim, Slot, SlowDown, Timestamp, TopicRef};
use fogmux_coap::{
    Code, Incoming, ObserveWish, Outbox, Request, Response, Server, ServerConfig, Ticket,
    server::{Counters, Room},
};
use tokio::{task::unconstrained, time::Sleep};

use super::{
    backlog::Waiting,
    context::CoapContext,
    holding::Holding,
    identity::{Admission, Identity, KeyMark, Who},
    looks::Allowance,
    mailbox::{Entry, Notifications},
    observe::Watches,
    oscore,
    publish::{Batch, Deferred},
    translate::{self, Parameters, Target},
    transport::{Change, Listener, Path, Transport},
};
use crate::{Peer, liveness, shares::Table};

/// Turns before other tasks of the worker have theirs.
const TURNS_MAX: usize = 2;

/// A worker's CoAP.
pub(super) struct Door<T> {
    transport: T,
    core: Core,
    /// The decrypted requests of a turn.
    room: Room,
    sleep: Pin<Box<Sleep>>,
    armed: Option<Timestamp>,
}

/// Everything but the transport, so that the messages read can be borrowed from that.
pub(super) struct Core {
    pub(super) ctx: Rc<CoapContext>,
    pub(super) server: Server<Path>,
    pub(super) out: Outbox<Path>,
    pub(super) slot: Arc<Slot<Notifications>>,
    pub(super) claim: Claim,
    pub(super) admission: Admission,
    pub(super) unopened: Rc<oscore::Unopened>,
    /// The generation of the rules that observers were last checked against.
    generation: u64,
    pub(super) watches: Watches,
    pub(super) deferred: VecDeque<Deferred>,
    /// Answers to datagrams that wait for subscribers.
    pub(super) holding: Holding,
    /// The pause that subscribers ask of the connection whose messages are being handled.
    pub(super) slow_down: Option<SlowDown>,
    /// Messages taken from the mailbox of which observers have not been notified yet.
    pub(super) entries: VecDeque<Entry>,
    /// The topics in the backlogs of observers.
    pub(super) waiting: Waiting,
    /// The buffer for the topics of a turn.
    pub(super) topics: String,
    /// Retained messages looked at for observers in this turn.
    pub(super) looks: usize,
    /// The number of topics that requests for lists may still look at.
    pub(super) lists: Allowance,
    counted: Counters,
    peers_counted: i64,
    uploads_counted: i64,
    /// Streams, not datagrams.
    pub(super) is_reliable: bool,
}

impl<T: Transport> Door<T> {
    fn open(ctx: Rc<CoapContext>, transport: T, listener: Listener) -> io::Result<Self> {
        let config = &ctx.door.config;
        // With the reserve, which the door gives to those who have little.
        let observers_max = ctx.bus().room(config.observers_max).left(0);
        let machine = ServerConfig { observers_max, ..config.machine() };
        let core = Core::new(ctx, machine, listener)?;
        let sleep = Box::pin(tokio::time::sleep(Duration::ZERO));
        Ok(Self { transport, core, room: Room::default(), sleep, armed: None })
    }

    /// Works for a few turns. Ready with `true` when there is more to do, with `false` when the socket has failed.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        // Whether all but the socket waits.
        let mut quiet = false;
        for _ in 0..TURNS_MAX {
            if self.flush(cx).is_pending() {
                return Poll::Pending;
            }
            let polled = self.transport.poll_receive(cx);
            if quiet && polled.is_pending() {
                self.core.check_sleep();
                return Poll::Pending;
            }
            let now = self.core.ctx.now();
            let received = match polled {
                Poll::Ready(Ok(())) => {
                    while let Some(change) = self.transport.poll_change() {
                        self.core.change(change);
                    }
                    self.core.receive(now, &self.transport, &self.room);
                    self.room.clear();
                    while let Some(path) = self.core.server.poll_validated() {
                        self.transport.validate(path);
                    }
                    // Clients that have been answered go on while the rest is handled.
                    if self.flush(cx).is_pending() {
                        return Poll::Pending;
                    }
                    true
                }
                Poll::Ready(Err(error)) => {
                    tracing::error!(%error, "the CoAP socket cannot be read");
                    return Poll::Ready(false);
                }
                Poll::Pending => false,
            };
            let mut busy = self.core.notify(cx);
            busy |= self.core.complete(cx);
            busy |= self.poll_deadline(now, cx);
            self.core.settle();
            let Core { ctx, admission, .. } = &self.core;
            busy |= self.transport.review(&mut |association| admission.may_go_on(ctx, association));
            busy |= !self.core.watches.ready.is_empty();
            if !received && !busy && self.core.out.is_empty() {
                self.core.check_sleep();
                return Poll::Pending;
            }
            quiet = !busy;
        }
        Poll::Ready(true)
    }

    /// Ends all observations with 5.03, because the gateway shuts down.
    fn close(&mut self) {
        self.core.say_goodbye();
    }

    /// Sends what the socket takes at once.
    fn poll_goodbye(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let _ = self.flush(cx);
        self.transport.goodbye(cx);
        Poll::Ready(())
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.core.out.is_empty() {
            return Poll::Ready(());
        }
        self.transport
            .poll_send(cx, &mut self.core.out)
            .map(|bytes| self.core.ctx.shared.metrics.coap.bytes_out.add(bytes))
    }

    /// Does what is due; sets the alarm otherwise.
    fn poll_deadline(&mut self, now: Timestamp, cx: &mut Context<'_>) -> bool {
        let Some(at) = self.core.next_timeout() else { return false };
        if now < at {
            if self.armed == Some(at) {
                return false;
            }
            self.armed = Some(at);
            self.sleep.as_mut().reset(self.core.ctx.shared.clock.instant(at));
            // A task that has used up its budget would be polled again, and miss the alarm.
            if pin!(unconstrained(self.sleep.as_mut())).poll(cx).is_pending() {
                return false;
            }
        }
        self.armed = None;
        self.core.handle_timeout();
        true
    }
}

/// Serves one worker's socket until drain.
pub(crate) async fn run<T: Transport>(ctx: Rc<CoapContext>, transport: T, listener: Listener) {
    let mut drain = Box::pin(ctx.closing());
    // This task is woken for each datagram: it asks for the shutdown only when it may have come.
    let mut phases = ctx.phases();
    let mut door = match Door::open(ctx, transport, listener) {
        Ok(door) => door,
        Err(error) => {
            tracing::error!(%error, "the CoAP socket cannot be used");
            return;
        }
    };
    // Between turns the runtime polls the other sockets: a task that only wakes itself is run dozens of times first.
    while poll_fn(|cx| {
        if phases.is_news() && drain.as_mut().poll(cx).is_ready() {
            return Poll::Ready(false);
        }
        door.poll(cx)
    })
    .await
    {
        tokio::task::yield_now().await;
    }
    door.close();
    // The final notifications, as far as the socket takes them at once.
    poll_fn(|cx| door.poll_goodbye(cx)).await;
}

impl Core {
    pub(super) fn new(ctx: Rc<CoapContext>, machine: ServerConfig, listener: Listener) -> io::Result<Self> {
        let is_reliable = machine.reliable;
        let mut server = Server::new(machine, ctx.door.seed()?, ctx.door.echo_key());
        let unopened = Rc::default();
        if let Some(protection) = oscore::protection(&ctx, &unopened) {
            server.set_protection(protection);
        }
        let slot = ctx.bus().slot(Notifications::new(ctx.door.config.notification_bytes_max), ctx.id);
        let claim = slot.claim(ctx.id);
        Ok(Self {
            admission: Admission::new(listener, slot.id()),
            unopened,
            generation: ctx.authority().generation(),
            server,
            out: Outbox::default(),
            slot,
            claim,
            watches: Watches::default(),
            deferred: VecDeque::new(),
            holding: Holding::default(),
            slow_down: None,
            entries: VecDeque::new(),
            waiting: Waiting::default(),
            topics: String::new(),
            looks: 0,
            lists: Allowance::default(),
            counted: Counters::default(),
            peers_counted: 0,
            uploads_counted: 0,
            is_reliable,
            ctx,
        })
    }

    /// Handles an association that has come or gone.
    fn change(&mut self, change: Change) {
        match change {
            Change::Opened(path, channel) => {
                let Listener { by, anonymous, sources } = self.admission.listener();
                let mark = self.admission.mark(&self.ctx, &channel);
                let peer = Peer { sources, listener: by, ..Peer::plain(path.remote, anonymous) }.over(channel);
                self.opened(path, peer, mark);
            }
            Change::Limited(path, bytes_max) => self.server.limit_messages(&path, bytes_max),
            Change::Moved { path, validated } => {
                self.server.moved(self.machine_now(), &path, validated, &mut self.out);
            }
            Change::Withheld(path) => self.server.withheld(self.machine_now(), &path, &mut self.out),
            Change::Closed(path) => {
                self.admission.close(path.association);
                self.server.forget(&path);
                self.note_events();
            }
        }
    }

    /// Notes an association or a connection, and whose it is.
    pub(super) fn opened(&mut self, path: Path, peer: Peer, mark: KeyMark) {
        self.admission.open(path.association, peer, mark);
        let who = Who::Association(path.association);
        let identity = self.admission.identity(&self.ctx, self.ctx.now(), &who);
        if let Some(user) = identity.and_then(|identity| identity.user()) {
            self.server.belongs_to(&path, user);
        }
    }

    /// The machine's clock is the bus's.
    pub(super) fn machine_now(&self) -> fogmux_coap::Timestamp {
        machine_time(self.ctx.now())
    }

    /// Handles the messages of a turn: publishes all of them at once, and responds.
    fn receive<'a>(&mut self, now: Timestamp, transport: &'a impl Transport, room: &'a Room) {
        let mut batch = Batch::new(std::mem::take(&mut self.topics));
        let mut bytes = 0;
        for (path, datagram) in transport.datagrams() {
            bytes += datagram.len() as u64;
            if let Some(incoming) = self.server.handle_in(machine_time(now), path, datagram, Some(room), &mut self.out)
            {
                self.dispatch(now, incoming, &mut batch);
            } else {
                self.unopened.log(&self.ctx.shared, path.remote);
            }
        }
        self.publish(now, &mut batch);
        self.topics = batch.into_topics();
        self.ctx.shared.metrics.coap.bytes_in.add(bytes);
    }

    pub(super) fn dispatch<'a>(&mut self, now: Timestamp, incoming: Incoming<'a, Path>, batch: &mut Batch<'a>) {
        let Incoming { request, ticket } = incoming;
        let who = Who::of(&ticket);
        let Some(identity) = self.admission.identity(&self.ctx, now, &who) else {
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
        let ask = Ask { now, from: ticket.peer().remote, who: &who, identity: &identity, parameters };
        match (target, request.method) {
            (Target::Topic, Code::PUT | Code::POST | Code::DELETE) => {
                self.write(&ask, request, ticket, start, batch);
            }
            (Target::Topic | Target::Root | Target::WellKnown, Code::GET | Code::FETCH) => {
                // Earlier publications of the same turn must be visible.
                self.publish(now, batch);
                self.read(&ask, &request, ticket, target, batch.topics.get(start..).unwrap_or_default());
                batch.topics.truncate(start);
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

    /// The topic if it is valid and may be read.
    fn readable<'a>(&self, ask: &Ask<'_>, topic: &'a str) -> Result<TopicRef<'a>, Response<'static>> {
        let topic = TopicRef::new(topic).map_err(|_| Response::diagnostic(Code::BAD_REQUEST, "not a topic"))?;
        match ask.identity.refusal(&self.ctx, Some(ask.from), Action::Read, topic.as_str()) {
            Some(code) => Err(Response::new(code)),
            None => Ok(topic),
        }
    }

    pub(super) fn respond(&mut self, now: Timestamp, ticket: Ticket<Path>, response: &Response<'_>) {
        self.server.respond(machine_time(now), ticket, response, &mut self.out);
    }

    /// When the next timeout of the machine or of an observed value is due.
    pub(super) fn next_timeout(&self) -> Option<Timestamp> {
        let machine = self.server.next_timeout().map(|at| Timestamp::from_millis(at.as_millis()));
        [machine, self.watches.next_expiry()].into_iter().flatten().min()
    }

    /// Handles due timeouts.
    pub(super) fn handle_timeout(&mut self) {
        let now = self.ctx.now();
        self.server.handle_timeout(machine_time(now), &mut self.out);
        self.expire(now);
    }

    /// Asserts, in debug builds, that no observer waits for something that it could be notified of now.
    pub(super) fn check_sleep(&self) {
        liveness::check_sleep(&self.ctx, "coap", || {
            let due = self.next_timeout().is_some_and(|at| at <= self.ctx.now());
            if !self.entries.is_empty() {
                return Some(None);
            }
            (!due).then(|| self.watches.forgotten(self.machine_now(), &self.server)).flatten().map(Some)
        });
    }

    /// Whether there is work besides the mailbox and timeouts.
    pub(super) fn has_pending(&self) -> bool {
        !self.deferred.is_empty() || !self.watches.ready.is_empty()
    }

    /// Checks the permissions of observers again if the rules have changed.
    pub(super) fn look_again(&mut self) {
        let generation = self.ctx.authority().generation();
        if self.generation != generation {
            self.generation = generation;
            self.review();
        }
    }

    /// Removes ended observations, and updates the metrics.
    pub(super) fn settle(&mut self) {
        self.look_again();
        self.note_events();
        let (counters, metrics) = (*self.server.counters(), &self.ctx.shared.metrics.coap);
        if counters != self.counted {
            metrics.misbehaved.add(counters.malformed - self.counted.malformed);
            metrics.timed_out.add(counters.timed_out - self.counted.timed_out);
            metrics.rejected.add(counters.peers_refused - self.counted.peers_refused);
            self.counted = counters;
        }
        if let Some((count, owner)) = self.server.take_gave_way() {
            self.ctx.shared.metrics.shares.gave_way(Table::CoapUploads, &owner, count, self.ctx.now());
        }
        let uploads = i64::try_from(self.server.uploads_bytes()).unwrap_or(i64::MAX);
        if uploads != self.uploads_counted {
            self.ctx.shared.metrics.coap_uploads_bytes.change(uploads - self.uploads_counted);
            self.uploads_counted = uploads;
        }
        if self.is_reliable {
            // Stream connections are counted where they are accepted.
            return;
        }
        // DTLS sessions, whether they observe or not; without DTLS, the endpoints that observe something.
        let peers = self.server.observing_peers().max(self.admission.associations());
        let peers = i64::try_from(peers).unwrap_or(i64::MAX);
        if peers != self.peers_counted {
            metrics.connections.change(peers - self.peers_counted);
            self.peers_counted = peers;
        }
    }
}

/// The parts of a request that are needed besides its ticket.
pub(super) struct Ask<'a> {
    pub(super) now: Timestamp,
    pub(super) from: SocketAddr,
    pub(super) who: &'a Who,
    pub(super) identity: &'a Arc<Identity>,
    pub(super) parameters: Parameters<'a>,
}

/// The same moment on the machine's clock.
pub(super) const fn machine_time(now: Timestamp) -> fogmux_coap::Timestamp {
    fogmux_coap::Timestamp::from_millis(now.as_millis())
}

#[cfg(test)]
mod tests;
