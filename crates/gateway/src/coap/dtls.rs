//! CoAP over DTLS (RFC 7252 §9.1): a socket whose datagrams are opened before the machine sees them, and sealed after.
//!
//! The kernel gives all datagrams of one address and port to the same worker, so each worker has its own endpoint; they
//! share the key of cookies and the record of failed attempts. A peer that has moved to another port may reach another
//! worker, which hands its datagrams over.

use std::{
    collections::VecDeque,
    io,
    net::{SocketAddr, UdpSocket},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use fogmux_bus::Timestamp;
use fogmux_coap::Outbox;
use fogmux_dtls::{Association, CookieKey, End, Endpoint, EndpointConfig, Event, Inbox, Peer as _, Sent};
use fogmux_net::{
    Channel, HandshakeFailure,
    dtls::{ListenerCredentials, platform},
};
use tokio::{sync::watch, task::unconstrained, time::Sleep};

use super::{
    context::CoapContext,
    handover::{Handover, Whose},
    handshakes::{Handshakes, log_refused},
    owners::{self, Counted},
    socket::Socket,
    transport::{Change, Listener, Path, Transport},
};
use crate::psk_guard;

/// The time for handshakes in one turn. A step with certificates takes a few hundred microseconds, so that a flood of
/// handshakes delays other clients by no more than about a millisecond.
const HANDSHAKES_PER_TURN: Duration = Duration::from_micros(300);

impl fogmux_dtls::Peer for Path {
    fn address(&self) -> SocketAddr {
        self.remote
    }
}

/// The parts of a worker's DTLS socket; all but the handover are the same for every worker.
#[derive(Debug)]
pub struct DtlsListener {
    /// Its certificate and keys, and the authorities it trusts.
    pub credentials: ListenerCredentials,
    /// The key of cookies.
    pub cookies: Arc<CookieKey>,
    /// The clients that the listener admits.
    pub admits: Listener,
    /// Datagrams that reached the wrong worker.
    pub handover: Handover,
}

/// A UDP socket with DTLS on it.
pub(super) struct Dtls {
    ctx: Rc<CoapContext>,
    socket: Socket,
    /// Its peers are paths without association; the CoAP machine's paths have one.
    endpoint: Endpoint<Path>,
    handover: Handover,
    /// Datagrams of handshakes that wait for their turn.
    handshakes: Handshakes,
    /// The places of those among the datagrams just read.
    unopened: Vec<usize>,
    inbox: Inbox<Path>,
    /// Protected datagrams to be sent.
    sealed: Outbox<Path>,
    changes: VecDeque<Change>,
    /// Sessions that ended with the last datagrams. The CoAP machine is told after it has handled those.
    ended: Vec<(Path, End)>,
    sleep: Pin<Box<Sleep>>,
    armed: Option<Duration>,
    rules: watch::Receiver<()>,
    /// Completes when the rules have changed; made when there is a session.
    changed: Option<Pin<Box<dyn Future<Output = ()>>>>,
    /// The generation of the rules that sessions were last reviewed under, and where that goes on.
    reviewed: u64,
    review_from: Option<usize>,
    counted: Counted,
}

impl Dtls {
    pub(super) fn new(ctx: Rc<CoapContext>, socket: UdpSocket, listener: DtlsListener) -> io::Result<Self> {
        let DtlsListener { credentials, cookies, handover, admits } = listener;
        let (suites, suites_13) = (credentials.suites().to_vec(), credentials.suites_13().to_vec());
        let config = EndpointConfig { suites, suites_13, ..ctx.door.config.dtls.clone() };
        let credentials = credentials.guarded(Arc::new(psk_guard::Datagrams(Arc::clone(&ctx.shared))));
        let (shared, door) = (Arc::clone(&ctx.shared), Arc::clone(&ctx.door));
        let credentials = credentials.admitting_anonymous(Arc::new(move || admits.admits_anonymous(&shared, &door)));
        let credentials = credentials.sharing_by(owners::principals(&ctx.shared, admits));
        let (rules, reviewed) = (ctx.authority().changes(), ctx.authority().generation());
        let mut endpoint = Endpoint::new(config, Arc::new(credentials), platform(), cookies);
        if let Some(number) = handover.number() {
            endpoint = endpoint.identified_by(number);
        }
        Ok(Self {
            socket: Socket::new(socket)?,
            endpoint,
            handover,
            ctx,
            inbox: Inbox::default(),
            sealed: Outbox::default(),
            handshakes: Handshakes::default(),
            unopened: Vec::new(),
            changes: VecDeque::new(),
            ended: Vec::new(),
            sleep: Box::pin(tokio::time::sleep(Duration::ZERO)),
            armed: None,
            rules,
            changed: None,
            reviewed,
            review_from: None,
            counted: Counted::default(),
        })
    }

    fn now(&self) -> Duration {
        Duration::from_millis(self.ctx.now().as_millis())
    }

    /// Handles due timeouts and sets the alarm for the next. Returns whether something was due.
    fn poll_due(&mut self, cx: &mut Context<'_>) -> bool {
        let mut worked = false;
        while let Some(at) = self.endpoint.next_timeout() {
            if self.armed != Some(at) {
                let millis = u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
                self.sleep.as_mut().reset(self.ctx.shared.clock.instant(Timestamp::from_millis(millis)));
                self.armed = Some(at);
            }
            if self.sleep.as_mut().poll(cx).is_pending() {
                break;
            }
            self.armed = None;
            // The runtime's timer has a granularity of its own: when it fires, the timeout is due.
            let now = self.now().max(at);
            let sealed = &mut self.sealed;
            self.endpoint.handle_timeout(now, &mut self.inbox, &mut |to, datagram| sealed.push(to, datagram));
            worked = true;
        }
        worked
    }

    /// Watches the rules: sessions at rest have nothing else to wake for. Returns whether they have changed.
    fn poll_rules(&mut self, cx: &mut Context<'_>) -> bool {
        // The task is registered already, by a future that it polled before.
        if self.endpoint.sessions() == 0 || self.changed.is_some() && !self.rules.has_changed().unwrap_or(false) {
            return false;
        }
        let mut worked = false;
        loop {
            worked |= self.changed.is_some();
            self.rules.mark_unchanged();
            let mut rules = self.rules.clone();
            // A task that has used up its budget would be polled again, and not be registered.
            let mut changed: Pin<Box<dyn Future<Output = ()>>> = Box::pin(unconstrained(async move {
                // An error means that the gateway is gone altogether.
                let _ = rules.changed().await;
            }));
            let is_pending = changed.as_mut().poll(cx).is_pending();
            self.changed = Some(changed);
            if is_pending {
                return worked;
            }
        }
    }

    /// Handles datagrams that reached other workers. Returns whether there were any.
    fn poll_astray(&mut self, cx: &mut Context<'_>) -> bool {
        let mut worked = false;
        while let Poll::Ready((path, datagram)) = self.handover.poll(cx) {
            let (now, sealed) = (self.now(), &mut self.sealed);
            self.endpoint.handle(now, path, &datagram, &mut self.inbox, &mut |to, datagram| sealed.push(to, datagram));
            worked = true;
        }
        worked
    }

    /// Handles the datagrams of sessions that were read, and notes the places of the others.
    fn open_read(&mut self) {
        let now = self.now();
        self.unopened.clear();
        for (place, (path, datagram)) in self.socket.datagrams().enumerate() {
            match self.handover.take(path, datagram) {
                Whose::Ours => {}
                Whose::Given => continue,
                Whose::Nobodys => {
                    self.ctx.shared.metrics.coap.rejected.increment();
                    continue;
                }
            }
            let sealed = &mut self.sealed;
            let send = &mut |to, datagram: &[u8]| sealed.push(to, datagram);
            if !self.endpoint.handle_of_session(now, path, datagram, &mut self.inbox, send) {
                self.unopened.push(place);
            }
        }
    }

    /// Handles handshakes for a limited time: those that wait, then those that were read. The rest have their turn
    /// after sessions and other tasks. Returns whether there were any.
    fn shake_hands(&mut self) -> bool {
        let Self { handshakes, unopened, endpoint, inbox, sealed, socket, .. } = self;
        let count = handshakes.len() + unopened.len();
        if count == 0 {
            return false;
        }
        let now = Duration::from_millis(self.ctx.now().as_millis());
        let mut shake = |path, datagram: &[u8]| {
            endpoint.handle(now, path, datagram, inbox, &mut |to, datagram| sealed.push(to, datagram));
        };
        // A single one needs no clock.
        let began = (count > 1).then(Instant::now);
        let is_over = || began.is_some_and(|began| began.elapsed() >= HANDSHAKES_PER_TURN);
        let mut over = false;
        while !over && let Some((path, datagram)) = handshakes.pop() {
            shake(path, &datagram);
            over = is_over();
        }
        let mut places = unopened.drain(..).peekable();
        for (place, (path, datagram)) in socket.datagrams().enumerate() {
            if places.peek().is_none() {
                break;
            }
            if places.next_if_eq(&place).is_none() {
                continue;
            }
            if !over {
                shake(path, datagram);
                over = is_over();
            } else if !handshakes.push(path, datagram) {
                self.ctx.shared.metrics.coap.rejected.increment();
            }
        }
        true
    }

    /// Turns the endpoint's events into changes.
    fn note(&mut self) {
        let shared = &self.ctx.shared;
        let mut unreadable = Vec::new();
        for event in self.inbox.events() {
            match event {
                Event::Established { peer, association, channel } => {
                    let Ok(channel) = Channel::of_dtls(channel) else {
                        unreadable.push((peer, association));
                        continue;
                    };
                    if let Some(psk) = &channel.psk {
                        let user = String::from_utf8_lossy(&psk.identity);
                        shared.logins.succeeded(peer.address().ip(), &user, self.ctx.now().as_millis());
                    }
                    shared.metrics.coap.accepted.increment();
                    let path = within(peer, association);
                    self.changes.push_back(Change::Opened(path, Arc::new(channel)));
                    let bytes_max = self.endpoint.data_max(peer, association);
                    self.changes.extend(bytes_max.map(|bytes_max| Change::Limited(path, bytes_max)));
                }
                Event::Moved { peer, association, validated } => {
                    self.changes.push_back(Change::Moved { path: within(peer, association), validated });
                }
                Event::Ended { peer, association, end } => {
                    tracing::debug!(peer = %peer.remote, ?end, "DTLS session ended");
                    if end == End::Evicted {
                        shared.metrics.coap.rejected.increment();
                    }
                    self.ended.push((within(peer, association), end));
                }
                Event::Failed { peer, alert, refused } => {
                    tracing::debug!(peer = %peer.remote, %alert, "DTLS handshake failed");
                    shared.metrics.coap.unauthenticated.increment();
                    let reason = HandshakeFailure::of_dtls(alert, refused);
                    shared.metrics.handshakes.note_dtls(reason, 1);
                    if let Some(refused) = refused {
                        log_refused(shared, peer.remote, alert, refused);
                    }
                }
                Event::Data { .. } => {}
            }
        }
        self.counted.note(shared, self.endpoint.counters());
        // Our verifier refuses such certificates; nobody may speak here whose certificate is not known.
        for (peer, association) in unreadable {
            let sealed = &mut self.sealed;
            self.inbox.clear();
            self.endpoint.close(peer, association, &mut self.inbox, &mut |to, datagram| sealed.push(to, datagram));
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.sealed.is_empty() {
            return Poll::Ready(());
        }
        self.socket.poll_send(cx, &mut self.sealed).map(drop)
    }
}

impl Transport for Dtls {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inbox.clear();
        if self.poll_flush(cx).is_pending() {
            return Poll::Pending;
        }
        let mut worked = !self.ended.is_empty() || !self.changes.is_empty();
        self.changes.extend(self.ended.drain(..).map(|(path, end)| Change::Closed(path, end)));
        worked |= self.poll_due(cx);
        worked |= self.poll_rules(cx);
        let read = self.socket.poll_receive(cx)?.is_ready();
        if read {
            self.open_read();
        }
        worked |= self.poll_astray(cx);
        worked |= self.shake_hands();
        self.note();
        // Datagrams that the kernel does not take now go first the next time.
        let _ = self.poll_flush(cx);
        if read || worked { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn datagrams(&self) -> impl Iterator<Item = (Path, &[u8])> {
        self.inbox.events().filter_map(|event| match event {
            Event::Data { peer, association, data } => Some((within(peer, association), data)),
            Event::Established { .. } | Event::Moved { .. } | Event::Ended { .. } | Event::Failed { .. } => None,
        })
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, out: &mut Outbox<Path>) -> Poll<u64> {
        if self.poll_flush(cx).is_pending() {
            return Poll::Pending;
        }
        let now = self.now();
        let mut bytes = 0;
        for (path, datagram) in out.iter() {
            let (sealed, bytes) = (&mut self.sealed, &mut bytes);
            let send = &mut |to, datagram: &[u8]| {
                *bytes += datagram.len() as u64;
                sealed.push(to, datagram);
            };
            let association = Association::numbered(path.association);
            match self.endpoint.send(now, outside(path), association, datagram, send) {
                // A session that has ended is sent nothing.
                Sent::Yes | Sent::Ended => {}
                Sent::Withheld => self.changes.push_back(Change::Withheld(path)),
                Sent::TooLong => {
                    tracing::debug!(peer = %path.remote, bytes = datagram.len(), "a message is too long for its peer");
                    self.ctx.shared.metrics.coap_too_long.increment();
                }
            }
        }
        out.clear();
        let _ = self.poll_flush(cx);
        Poll::Ready(bytes)
    }

    fn validate(&mut self, path: Path) {
        self.endpoint.validate(outside(path), Association::numbered(path.association));
    }

    fn review(&mut self, may_go_on: &mut dyn FnMut(u64) -> bool) -> bool {
        let generation = self.ctx.authority().generation();
        if self.reviewed != generation {
            (self.reviewed, self.review_from) = (generation, Some(0));
        }
        let Some(from) = self.review_from else { return false };
        // All that was in it has been handled.
        self.inbox.clear();
        let Self { endpoint, inbox, sealed, .. } = self;
        let holds = &mut |association: Association| may_go_on(association.number());
        self.review_from = endpoint.review(from, holds, inbox, &mut |to, datagram| sealed.push(to, datagram));
        self.note();
        self.review_from.is_some() || !self.ended.is_empty() || !self.sealed.is_empty()
    }

    fn goodbye(&mut self, cx: &mut Context<'_>) {
        let sealed = &mut self.sealed;
        self.endpoint.close_all(&mut self.inbox, &mut |to, datagram| sealed.push(to, datagram));
        let _ = self.poll_flush(cx);
    }

    fn poll_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }
}

/// A peer's path as the machine knows it.
const fn within(peer: Path, association: Association) -> Path {
    Path { association: association.number(), ..peer }
}

/// The same path as the endpoint knows it.
const fn outside(path: Path) -> Path {
    Path { association: 0, ..path }
}
