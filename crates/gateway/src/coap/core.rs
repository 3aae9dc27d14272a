//! The CoAP of a worker's socket, or of its streams: the machine, the mailbox, and the handling of requests.

use std::{collections::VecDeque, io, net::SocketAddr, rc::Rc, sync::Arc};

use fogmux_auth::Action;
use fogmux_bus::{Claim, Slot, SlowDown, Timestamp, TopicRef};
use fogmux_coap::{
    Code, Incoming, ObserveWish, Outbox, Request, Response, Server, ServerConfig, Ticket,
    server::{Counters, Room},
};
use fogmux_dtls::End;

use super::{
    backlog::Waiting,
    context::CoapContext,
    holding::Holding,
    identity::{Admission, Identity, Who},
    looks::Allowance,
    mailbox::{Entry, Notifications},
    observe::Watches,
    oscore,
    outcomes::Outcomes,
    pending::Pending,
    publish::Batch,
    shown::ShownLast,
    translate::{self, Parameters, Target},
    transport::{Change, Listener, Path, Transport},
};
use crate::{Peer, liveness, recheck::Recheck, shares::Table, stops::Running, turn::Deliveries};

/// Everything but the transport, so that the messages read can be borrowed from that.
pub(super) struct Core {
    pub(super) ctx: Rc<CoapContext>,
    pub(super) server: Server<Path>,
    pub(super) out: Outbox<Path>,
    pub(super) slot: Arc<Slot<Notifications>>,
    pub(super) claim: Claim,
    pub(super) admission: Admission,
    pub(super) unopened: Rc<oscore::Unopened>,
    /// The rules that observers were last checked against, and their queued messages.
    pub(super) recheck: Recheck,
    pub(super) watches: Watches,
    /// Answers that wait for the disk.
    pub(super) pending: Pending,
    /// Answers to datagrams that wait for subscribers.
    pub(super) holding: Holding,
    /// The pause that subscribers ask of the connection whose messages are being handled.
    pub(super) slow_down: Option<SlowDown>,
    /// Messages taken from the mailbox of which observers have not been notified yet.
    pub(super) entries: VecDeque<Entry>,
    /// The topics in the backlogs of observers.
    pub(super) waiting: Waiting,
    /// The outcomes of deliveries that are not counted yet.
    pub(super) outcomes: Outcomes,
    /// The messages that the mailbox was last told are waiting outside of it.
    outside: usize,
    /// The notifications sent last in this turn.
    pub(super) shown: ShownLast,
    /// The buffer for the topics of a turn.
    pub(super) topics: String,
    /// Retained messages looked at for observers in this turn.
    pub(super) looks: usize,
    /// Deliveries of publications in this turn.
    pub(super) deliveries: Deliveries,
    /// The number of topics that requests for lists may still look at.
    pub(super) lists: Allowance,
    counted: Counters,
    peers_counted: i64,
    uploads_counted: i64,
    lost_counted: u64,
    /// Streams, not datagrams.
    pub(super) is_reliable: bool,
}

impl Core {
    pub(super) fn new(ctx: Rc<CoapContext>, machine: ServerConfig, listener: Listener) -> io::Result<Self> {
        let is_reliable = machine.reliable;
        let mut server = Server::new(machine, ctx.door.seed()?, ctx.door.echo_key());
        server.set_origin(ctx.shared.clock.unix_ms(Timestamp::ZERO));
        let unopened = Rc::default();
        if let Some(protection) = oscore::protection(&ctx, &unopened) {
            server.set_protection(protection);
        }
        if ctx.wants_oscore(listener.by) {
            server.demand_protection(0);
        }
        let config = &ctx.door.config;
        let mailbox = Notifications::new(config.notification_bytes_max, config.notifications_max);
        let slot = ctx.bus().slot(mailbox, ctx.id);
        let claim = slot.claim(ctx.id);
        Ok(Self {
            admission: Admission::new(listener, slot.id()),
            unopened,
            recheck: Recheck::new(ctx.authority().generation()),
            server,
            out: Outbox::default(),
            slot,
            claim,
            watches: Watches::default(),
            pending: Pending::default(),
            holding: Holding::default(),
            slow_down: None,
            entries: VecDeque::new(),
            waiting: Waiting::default(),
            outcomes: Outcomes::default(),
            outside: 0,
            shown: ShownLast::default(),
            topics: String::new(),
            looks: 0,
            deliveries: Deliveries::default(),
            lists: Allowance::default(),
            counted: Counters::default(),
            peers_counted: 0,
            uploads_counted: 0,
            lost_counted: 0,
            is_reliable,
            ctx,
        })
    }

    /// Handles an association that has come or gone.
    pub(super) fn change(&mut self, change: Change) {
        match change {
            Change::Opened(path, channel) => {
                let Listener { by, anonymous, sources } = self.admission.listener();
                let peer = Peer { sources, listener: by, ..Peer::plain(path.remote, anonymous) }.over(channel);
                self.opened(path, peer);
            }
            Change::Limited(path, bytes_max) => self.server.limit_messages(&path, bytes_max),
            Change::Moved { path, validated } => {
                self.server.moved(self.machine_now(), &path, validated, &mut self.out);
            }
            Change::Withheld(path) => self.server.withheld(self.machine_now(), &path, &mut self.out),
            Change::Closed(path, end) => {
                if end == End::Evicted {
                    let principal = self.admission.principal_of(&self.ctx, path.association);
                    let shares = &self.ctx.shared.metrics.shares;
                    shares.dtls_session_gave_way(&principal, path.remote, self.ctx.now());
                }
                self.admission.close(path.association);
                self.server.forget(&path);
                self.note_events();
            }
        }
    }

    /// Notes an association or a connection, and whose it is.
    pub(super) fn opened(&mut self, path: Path, peer: Peer) {
        if self.ctx.wants_oscore(peer.listener) {
            self.server.demand_protection(path.association);
        }
        self.admission.open(path.association, peer);
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
    pub(super) fn receive<'a>(&mut self, now: Timestamp, transport: &'a impl Transport, room: &'a Room) {
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
        !self.pending.is_empty() || !self.watches.ready.is_empty()
    }

    /// Checks the permissions of observers again if the rules have changed, and forgets lists and values of several
    /// topics that were made by the old rules.
    pub(super) fn look_again(&mut self) {
        if self.recheck.note(self.ctx.authority().generation()) {
            self.server.forget_representations();
            self.review();
        }
    }

    /// Counts what has become of deliveries, and what waits.
    pub(super) fn count_outcomes(&mut self) {
        self.outcomes.count(self.ctx.bus().counters());
        let outside = self.entries.len() + self.waiting.len();
        if outside != self.outside {
            self.outside = outside;
            self.slot.with(|mailbox| mailbox.note_outside(outside));
        }
    }

    /// Ends a turn: removes ended observations, and updates the metrics.
    pub(super) fn settle(&mut self) {
        self.shown.forget();
        self.look_again();
        self.note_events();
        self.count_outcomes();
        let (counters, metrics) = (*self.server.counters(), &self.ctx.shared.metrics.coap);
        if counters != self.counted {
            metrics.misbehaved.add(counters.malformed - self.counted.malformed);
            metrics.timed_out.add(counters.timed_out - self.counted.timed_out);
            metrics.unauthenticated.add(counters.unprotected - self.counted.unprotected);
            metrics.rejected.add(counters.peers_refused - self.counted.peers_refused);
            self.ctx.shared.metrics.coap_too_long.add(counters.too_long - self.counted.too_long);
            self.counted = counters;
        }
        if let Some((count, owner)) = self.server.take_gave_way() {
            self.ctx.shared.metrics.shares.gave_way(Table::CoapUploads, &owner, count, self.ctx.now());
        }
        if let Some((count, owner)) = self.server.take_downloads_gave_way() {
            self.ctx.shared.metrics.shares.gave_way(Table::CoapDownloads, &owner, count, self.ctx.now());
        }
        let lost = self.server.events_lost();
        if lost != self.lost_counted {
            self.ctx.shared.metrics.coap_events_lost.add(lost - self.lost_counted);
            self.lost_counted = lost;
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

/// A moment in running time on the clock of a connection's session, whose deadlines are all for the peer.
pub(super) const fn session_time(now: Running) -> fogmux_coap::Timestamp {
    fogmux_coap::Timestamp::from_millis(now.as_millis())
}
