//! Logging in: STARTTLS, SASL and resource binding, all before one deadline.

use std::{future::poll_fn, io, pin::pin, rc::Rc, sync::Arc, time::Duration};

use fogmux_auth::Verified;
use fogmux_bus::{Door, FifoLimits, FifoMailbox, Publisher};
use fogmux_fair::Owner;
use fogmux_xmpp::{
    Jid, ServerEvent, ServerStream, StanzaCondition, StreamCondition, StreamError,
    stream::{BindRequest, SaslCondition, StartTls},
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

use super::{
    access::Gate,
    accounts::{Presence, Resource},
    context::XmppContext,
    control::Control,
    core::{Core, Me},
    names::escape_local,
    read,
    sasl::{Logins, Outcome},
    session::Session,
};
use crate::{
    Peer,
    credential::Handshake,
    deadline::in_time,
    stops::Running,
    unfinished::{Place, SMALL_BYTES, owner},
};

/// The result of a login.
pub(super) enum Login<S> {
    /// The client waits for a TLS handshake.
    StartTls(Box<Halted<S>>),
    /// Logged in.
    Bound(Box<Session<S>>),
    /// The connection is over.
    Gone,
}

/// A login that continues over TLS.
pub(super) struct Halted<S> {
    stream: S,
    rest: Rest,
}

/// The state of a login besides its stream.
pub(super) struct Rest {
    machine: ServerStream,
    pub(super) deadline: Running,
}

impl<S> Halted<S> {
    pub(super) fn split(self) -> (S, Rest) {
        (self.stream, self.rest)
    }
}

/// Begins on a fresh connection.
pub(super) async fn first<S>(ctx: &Rc<XmppContext>, stream: S, peer: Peer, starttls: StartTls) -> Login<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let door = &ctx.door;
    let logins = Logins::new(ctx, &peer);
    let now = Duration::from_millis(ctx.now().as_millis());
    let machine = ServerStream::new(Arc::clone(&door.server), logins.offer(&peer, starttls), random(), now);
    let deadline = ctx.running() + door.config.login_timeout;
    negotiate(ctx, stream, peer, logins, Rest { machine, deadline }).await
}

/// Goes on after STARTTLS.
pub(super) async fn secured<S>(ctx: &Rc<XmppContext>, stream: S, peer: Peer, mut rest: Rest) -> Login<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let logins = Logins::new(ctx, &peer);
    rest.machine.tls_established(logins.offer(&peer, StartTls::Unavailable));
    rest.machine.reseed(random());
    negotiate(ctx, stream, peer, logins, rest).await
}

async fn negotiate<S>(ctx: &Rc<XmppContext>, stream: S, peer: Peer, logins: Logins, rest: Rest) -> Login<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let place = Place::new(&ctx.door.unfinished, Owner::nameless(peer.address.ip()));
    let waiter = Arc::clone(place.waiter());
    let mut attempt = Attempt {
        ctx: Rc::clone(ctx),
        stream,
        peer,
        logins,
        machine: rest.machine,
        verified: None,
        input: Vec::new(),
        out: Vec::new(),
        deadline: rest.deadline,
        place,
    };
    let ended = tokio::select! {
        biased;
        () = waiter.gave_way() => Err(crowded()),
        ended = attempt.run() => ended,
        () = ctx.drain() => Err(StreamError::new(StreamCondition::SystemShutdown, "")),
    };
    match ended {
        Ok(Ended::StartTls) => {
            let rest = Rest { machine: attempt.machine, deadline: attempt.deadline };
            Login::StartTls(Box::new(Halted { stream: attempt.stream, rest }))
        }
        Ok(Ended::Bound(request)) => attempt.bind(&request).await,
        Ok(Ended::Gone) => Login::Gone,
        Err(error) => {
            if error.condition == StreamCondition::ConnectionTimeout {
                ctx.shared.metrics.xmpp.timed_out.increment();
            }
            attempt.input = Vec::new();
            attempt.machine.fail(error, &mut attempt.out);
            attempt.goodbye().await;
            Login::Gone
        }
    }
}

fn crowded() -> StreamError {
    StreamError::new(StreamCondition::ResourceConstraint, "too many large stanzas at once")
}

fn late() -> StreamError {
    StreamError::new(StreamCondition::ConnectionTimeout, "login took too long")
}

/// How the exchange of stanzas before a session ended.
enum Ended {
    StartTls,
    Bound(BindRequest),
    Gone,
}

/// The events of [`ServerEvent`] that can come before a session.
enum Want {
    StartTls,
    Authenticate(&'static str, Option<Vec<u8>>),
    Respond(Vec<u8>),
    Bind(BindRequest),
}

/// Bytes taken from a client while its password is verified.
const EARLY_BYTES_MAX: usize = 2048;

struct Attempt<S> {
    ctx: Rc<XmppContext>,
    stream: S,
    peer: Peer,
    logins: Logins,
    machine: ServerStream,
    verified: Option<Verified>,
    input: Vec<u8>,
    out: Vec<u8>,
    /// When the client has to have said everything. The time that a password takes to be verified is the gateway's,
    /// which has a bound of its own: it is added.
    deadline: Running,
    /// Its place among the unfinished stanzas of all clients.
    place: Place,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Attempt<S> {
    async fn run(&mut self) -> Result<Ended, StreamError> {
        loop {
            while let Some(want) = self.advance() {
                match want {
                    Want::StartTls => {
                        // RFC 6120 §5.4.3.3
                        self.input = Vec::new();
                        let (ctx, deadline) = (Rc::clone(&self.ctx), self.deadline);
                        let flushed = in_time(&ctx, deadline, self.flush()).await.map_err(|_| late())?;
                        return Ok(flushed.map_or(Ended::Gone, |()| Ended::StartTls));
                    }
                    Want::Authenticate(mechanism, initial) => {
                        let began = self.ctx.running();
                        let work = self.logins.start(&self.ctx, &self.peer, mechanism, initial);
                        let done = while_there(&self.ctx, &mut self.stream, &mut self.input, work).await;
                        let Some(outcome) = done else { return Ok(Ended::Gone) };
                        self.settle(outcome);
                        self.deadline = self.deadline + self.ctx.running().since(began);
                    }
                    Want::Respond(data) => {
                        let began = self.ctx.running();
                        let work = self.logins.respond(&self.ctx, &self.peer, &data);
                        let done = while_there(&self.ctx, &mut self.stream, &mut self.input, work).await;
                        let Some(outcome) = done else { return Ok(Ended::Gone) };
                        self.settle(outcome);
                        self.deadline = self.deadline + self.ctx.running().since(began);
                    }
                    Want::Bind(request) => match self.full_address(&request) {
                        Some(_) => return Ok(Ended::Bound(request)),
                        None => self.machine.bind_refused(&request, StanzaCondition::BadRequest, &mut self.out),
                    },
                }
            }
            if self.machine.is_closed() {
                self.goodbye().await;
                return Ok(Ended::Gone);
            }
            let (ctx, deadline) = (Rc::clone(&self.ctx), self.deadline);
            let exchange = async {
                self.flush().await?;
                self.read().await
            };
            if !matches!(in_time(&ctx, deadline, exchange).await.map_err(|_| late())?, Ok(1..)) {
                return Ok(Ended::Gone);
            }
        }
    }

    /// Hands input to the machine. Returns its next event, if any.
    fn advance(&mut self) -> Option<Want> {
        let (used, event) = self.machine.handle(&self.input, &mut self.out);
        let want = match event {
            Some(ServerEvent::StartTls) => Some(Want::StartTls),
            Some(ServerEvent::Authenticate { mechanism, initial }) => Some(Want::Authenticate(mechanism, initial)),
            Some(ServerEvent::Response(data)) => Some(Want::Respond(data)),
            Some(ServerEvent::Bind(request)) => Some(Want::Bind(request)),
            Some(ServerEvent::Failed(error)) => {
                tracing::debug!(%error, "login failed");
                self.ctx.shared.metrics.xmpp.misbehaved.increment();
                None
            }
            Some(ServerEvent::Aborted) => {
                self.logins.abort();
                None
            }
            // Stanzas come only once a resource is bound.
            Some(ServerEvent::Ended | ServerEvent::Stanza(_)) | None => None,
        };
        if used >= self.input.len() {
            self.input = Vec::new();
        } else {
            self.input.drain(..used);
        }
        want
    }

    fn settle(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Challenge(data) => self.machine.challenge(&data, &mut self.out),
            Outcome::Success(verified, data) => self.succeed(verified, data.as_deref()),
            Outcome::Failure(condition) => {
                self.ctx.shared.metrics.xmpp.unauthenticated.increment();
                self.machine.refuse(condition, &mut self.out);
            }
        }
    }

    fn succeed(&mut self, verified: Verified, data: Option<&[u8]>) {
        let name = &verified.principal.name;
        let local = if verified.principal.anonymous { random_name() } else { escape_local(name) };
        let domain = self.ctx.door.server.domain.as_str();
        match Jid::from_parts(Some(&local), domain, None) {
            Ok(jid) => {
                self.place = self.place.owned_by(owner(&verified.principal, self.peer.address));
                self.verified = Some(verified);
                self.machine.succeed(jid, data, &mut self.out);
                self.machine.reseed(random());
            }
            // A name that is too long for an address.
            Err(_) => self.machine.refuse(SaslCondition::InvalidAuthzid, &mut self.out),
        }
    }

    fn full_address(&self, request: &BindRequest) -> Option<Jid> {
        let resource = request.resource.as_deref().map_or_else(random_name, str::to_owned);
        self.machine.jid()?.with_resource(&resource).ok()
    }

    /// Binds the resource, and adds the connection to its account.
    async fn bind(mut self, request: &BindRequest) -> Login<S> {
        let (Some(jid), Some(verified)) = (self.full_address(request), self.verified.take()) else {
            return Login::Gone;
        };
        let Verified { principal, expires_unix_s } = verified;
        let ctx = Rc::clone(&self.ctx);
        let door = &ctx.door;
        let limits = FifoLimits { messages: door.config.mailbox_messages_max, bytes: door.config.mailbox_bytes_max };
        let account = ctx.bus().memory().account(owner(&principal, self.peer.address));
        let inbox = ctx.bus().slot(FifoMailbox::new(limits).of(account).at(Door::Xmpp), ctx.id);
        let claim = inbox.claim(ctx.id);
        let access = ctx.authority().access(&principal, jid.resource().unwrap_or_default(), Door::Xmpp);
        let access = access.of_peer(self.peer.address);
        let affiliate: Arc<str> = if principal.anonymous {
            format!("{}@{}", principal.name, door.server.domain).into()
        } else {
            jid.bare_str().into()
        };
        let gate = Arc::new(Gate::new(access, &door.nodes, &affiliate));
        let control = Arc::new(Control::default());
        let resource = Resource {
            inbox: Arc::clone(&inbox),
            gate: Arc::clone(&gate),
            control: Arc::clone(&control),
            acknowledges: false,
            presence: Presence::default(),
        };
        if door.accounts.join(ctx.bus(), &jid, &principal, resource).is_err() {
            let error = StreamError::new(StreamCondition::Conflict, "the address is in use by another account");
            self.machine.fail(error, &mut self.out);
            self.goodbye().await;
            return Login::Gone;
        }
        self.machine.bound(request, jid.clone(), &mut self.out);
        let publisher = Arc::new(Publisher {
            principal: Arc::clone(&principal.name),
            client: jid.as_str().into(),
            door: Some(Door::Xmpp),
            slot: Some(inbox.id()),
        });
        let me = Me { jid, gate, publisher, inbox, control };
        let core = Core::new(ctx, self.machine, me, self.out);
        let publisher = &core.me.publisher;
        let listed = core.ctx.enter(Door::Xmpp, &self.peer, publisher);
        let ends = (expires_unix_s, Handshake::of(&self.peer));
        Login::Bound(Box::new(Session::new(self.stream, (core, listed), claim, self.input, ends)))
    }

    async fn read(&mut self) -> io::Result<usize> {
        let (ctx, stream, input) = (&self.ctx, &mut self.stream, &mut self.input);
        let read = poll_fn(|cx| read::poll_take(ctx, stream, input, cx, |_| 0)).await?;
        let counted = if input.len() <= SMALL_BYTES { 0 } else { input.capacity() };
        // If it has to end, its waiter tells.
        let _ = self.place.set(ctx, counted, input.len());
        Ok(read)
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.out).await?;
        self.out = Vec::new();
        self.stream.flush().await
    }

    /// Writes the remaining output, within a second.
    async fn goodbye(&mut self) {
        if let Ok(Ok(())) = tokio::time::timeout(Duration::from_secs(1), self.flush()).await {
            read::linger(&mut self.stream).await;
        }
    }
}

/// Waits for the verification of a password as long as the client stays: one that hangs up gives up its place in the
/// queue. A little of what it sends meanwhile is taken, to see its end. `None`: it has gone.
async fn while_there<S: AsyncRead + Unpin, T>(
    ctx: &XmppContext,
    stream: &mut S,
    input: &mut Vec<u8>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    while input.len() < EARLY_BYTES_MAX {
        tokio::select! {
            biased;
            done = &mut work => return Some(done),
            read = poll_fn(|cx| read::poll_take(ctx, stream, input, cx, |_| 0)) => {
                if !matches!(read, Ok(1..)) {
                    return None;
                }
            }
        }
    }
    Some(work.await)
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    // Without random numbers the process would not have started: keys and salts need them first.
    let _ = getrandom::fill(&mut bytes);
    u64::from_ne_bytes(bytes)
}

/// A random name.
pub(super) fn random_name() -> String {
    format!("{:016x}", random())
}
