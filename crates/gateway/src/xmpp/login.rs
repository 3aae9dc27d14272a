//! From the first byte to a bound resource: STARTTLS, SASL, binding, all before one deadline.

use std::{future::poll_fn, io, rc::Rc, sync::Arc, time::Duration};

use fogmux_auth::{
    Principal, Refused,
    sasl::{self, Exchange, PasswordCheck, Step},
};
use fogmux_bus::{Completion, FifoLimits, FifoMailbox, Publisher};
use fogmux_xmpp::{
    Jid, ServerEvent, ServerStream, StanzaCondition, StreamCondition, StreamError,
    stream::{BindRequest, Offer, SaslCondition, StartTls},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    time::Instant,
};

use super::{
    access::Gate,
    accounts::Resource,
    control::Control,
    core::{Core, Me},
    read,
    session::Session,
};
use crate::{Peer, WorkerContext};

/// What a login came to.
pub(super) enum Login<S> {
    /// The client waits for a TLS handshake.
    StartTls(Box<Halted<S>>),
    /// Logged in.
    Bound(Box<Session<S>>),
    /// The connection is over.
    Gone,
}

/// A login that goes on over TLS.
pub(super) struct Halted<S> {
    stream: S,
    rest: Rest,
}

/// What a login is without its stream.
pub(super) struct Rest {
    machine: ServerStream,
    pub(super) deadline: Instant,
}

impl<S> Halted<S> {
    pub(super) fn split(self) -> (S, Rest) {
        (self.stream, self.rest)
    }
}

/// Begins on a fresh connection.
pub(super) async fn first<S>(ctx: &Rc<WorkerContext>, stream: S, peer: Peer, tls: bool) -> Login<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let door = &ctx.shared.xmpp;
    let context = context(ctx, peer, peer.secure);
    let mut offer = offer(&context, tls.then_some(peer));
    if !peer.secure && !peer.is_loopback() {
        // Without TLS nobody logs in from elsewhere, whether or not there is a certificate to begin it with.
        offer.mechanisms = Vec::new();
    }
    let now = Duration::from_millis(ctx.now().as_millis());
    let machine = ServerStream::new(Arc::clone(&door.server), offer, random(), now);
    let deadline = Instant::now() + door.config.login_timeout;
    negotiate(ctx, stream, peer, context, Rest { machine, deadline }).await
}

/// Goes on after STARTTLS.
pub(super) async fn secured<S>(ctx: &Rc<WorkerContext>, stream: S, peer: Peer, mut rest: Rest) -> Login<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let context = context(ctx, peer, true);
    rest.machine.tls_established(offer(&context, None));
    negotiate(ctx, stream, peer, context, rest).await
}

fn context(ctx: &WorkerContext, peer: Peer, tls: bool) -> sasl::Context {
    let anonymous = peer.anonymous && ctx.authority().anonymous(peer.is_loopback()).is_some();
    let realm = Some(ctx.shared.xmpp.server.domain.as_str().into());
    sasl::Context { tls, anonymous, realm, ..sasl::Context::default() }
}

/// STARTTLS is required but on loopback, where tools of the same machine come from.
fn offer(context: &sasl::Context, starttls: Option<Peer>) -> Offer {
    let starttls = match starttls {
        None => StartTls::Unavailable,
        Some(peer) if peer.is_loopback() => StartTls::Offered,
        Some(_) => StartTls::Required,
    };
    Offer { starttls, mechanisms: sasl::mechanisms(context).map(sasl::Mechanism::name).collect() }
}

async fn negotiate<S>(ctx: &Rc<WorkerContext>, stream: S, peer: Peer, context: sasl::Context, rest: Rest) -> Login<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let deadline = rest.deadline;
    let mut attempt = Attempt {
        ctx: Rc::clone(ctx),
        stream,
        peer,
        context,
        machine: rest.machine,
        exchange: None,
        principal: None,
        input: Vec::new(),
        out: Vec::new(),
    };
    let ended = tokio::select! {
        biased;
        ended = attempt.run() => ended,
        () = tokio::time::sleep_until(deadline) => Err(StreamError::new(StreamCondition::ConnectionTimeout, "login took too long")),
        () = ctx.drain() => Err(StreamError::new(StreamCondition::SystemShutdown, "")),
    };
    match ended {
        Ok(Ended::StartTls) => {
            let rest = Rest { machine: attempt.machine, deadline };
            Login::StartTls(Box::new(Halted { stream: attempt.stream, rest }))
        }
        Ok(Ended::Bound(request)) => attempt.bind(&request).await,
        Ok(Ended::Gone) => Login::Gone,
        Err(error) => {
            if error.condition == StreamCondition::ConnectionTimeout {
                ctx.shared.metrics.xmpp.timed_out.increment();
            }
            attempt.machine.fail(error, &mut attempt.out);
            attempt.goodbye().await;
            Login::Gone
        }
    }
}

/// How the exchange of stanzas before a session ended.
enum Ended {
    StartTls,
    Bound(BindRequest),
    Gone,
}

/// What the machine wants of its shell; the events of [`ServerEvent`] that can come before a session.
enum Want {
    StartTls,
    Step(Step),
    Bind(BindRequest),
}

struct Attempt<S> {
    ctx: Rc<WorkerContext>,
    stream: S,
    peer: Peer,
    context: sasl::Context,
    machine: ServerStream,
    exchange: Option<Exchange>,
    principal: Option<Principal>,
    input: Vec<u8>,
    out: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Attempt<S> {
    async fn run(&mut self) -> Result<Ended, StreamError> {
        loop {
            while let Some(want) = self.advance() {
                match want {
                    Want::StartTls => {
                        // RFC 6120 §5.4.3.3
                        self.input = Vec::new();
                        return Ok(self.flush().await.map_or(Ended::Gone, |()| Ended::StartTls));
                    }
                    Want::Step(step) => self.step(step).await,
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
            if self.flush().await.is_err() || !matches!(self.read().await, Ok(1..)) {
                return Ok(Ended::Gone);
            }
        }
    }

    /// Hands the machine what came; what it wants next, if anything.
    fn advance(&mut self) -> Option<Want> {
        let (used, event) = self.machine.handle(&self.input, &mut self.out);
        let want = match event {
            Some(ServerEvent::StartTls) => Some(Want::StartTls),
            Some(ServerEvent::Authenticate { mechanism, initial }) => {
                let authority = self.ctx.authority();
                // XEP-0175 §3 shows no initial response where there is nothing to say.
                let initial = initial.or_else(|| (mechanism == sasl::Mechanism::Anonymous.name()).then(Vec::new));
                let (exchange, step) = Exchange::start(authority, self.context.clone(), mechanism, initial.as_deref());
                self.exchange = Some(exchange);
                Some(Want::Step(step))
            }
            Some(ServerEvent::Response(data)) => {
                let malformed = Step::Refused(Refused::Malformed("no exchange"));
                Some(Want::Step(self.exchange.as_mut().map_or(malformed, |exchange| exchange.respond(&data))))
            }
            Some(ServerEvent::Bind(request)) => Some(Want::Bind(request)),
            Some(ServerEvent::Failed(error)) => {
                tracing::debug!(%error, "login failed");
                self.ctx.shared.metrics.xmpp.misbehaved.increment();
                None
            }
            // Stanzas come only once a resource is bound.
            Some(ServerEvent::Aborted | ServerEvent::Ended | ServerEvent::Stanza(_)) | None => None,
        };
        if used >= self.input.len() {
            self.input = Vec::new();
        } else {
            self.input.drain(..used);
        }
        want
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Challenge(data) => self.machine.challenge(&data, &mut self.out),
            Step::Done { principal, data } => self.succeed(principal, data.as_deref()),
            Step::Refused(refused) => self.refuse(refused),
            Step::Check(check) => self.check(check).await,
        }
    }

    /// Verifies a password where blocking is allowed. Failures make the next attempt wait.
    async fn check(&mut self, check: PasswordCheck) {
        let (door, address) = (&self.ctx.shared.xmpp, self.peer.address.ip());
        let user = check.user().to_owned();
        let wait = door.backoff().wait(self.ctx.now().as_millis(), address, &user);
        if wait.is_some() {
            return self.machine.refuse(SaslCondition::TemporaryAuthFailure, &mut self.out);
        }
        let verified = tokio::task::spawn_blocking(move || check.run()).await.unwrap_or(Err(Refused::Busy));
        match verified {
            Ok(principal) => {
                self.ctx.shared.xmpp.backoff().succeeded(&user);
                self.succeed(principal, None);
            }
            Err(refused) => {
                if refused == Refused::Credentials {
                    self.ctx.shared.xmpp.backoff().failed(self.ctx.now().as_millis(), address, &user);
                }
                self.refuse(refused);
            }
        }
    }

    fn refuse(&mut self, refused: Refused) {
        self.exchange = None;
        let condition = match refused {
            Refused::Credentials | Refused::ChannelBinding => SaslCondition::NotAuthorized,
            Refused::Busy => SaslCondition::TemporaryAuthFailure,
            Refused::Mechanism => SaslCondition::InvalidMechanism,
            Refused::Malformed(_) => SaslCondition::MalformedRequest,
            Refused::Identity => SaslCondition::InvalidAuthzid,
        };
        self.ctx.shared.metrics.xmpp.unauthenticated.increment();
        self.machine.refuse(condition, &mut self.out);
    }

    fn succeed(&mut self, principal: Principal, data: Option<&[u8]>) {
        self.exchange = None;
        let local = if principal.anonymous { random_name() } else { escape_local(&principal.name) };
        let domain = self.ctx.shared.xmpp.server.domain.as_str();
        match Jid::from_parts(Some(&local), domain, None) {
            Ok(jid) => {
                self.principal = Some(principal);
                self.machine.succeed(jid, data, &mut self.out);
            }
            // A name that is too long for an address.
            Err(_) => self.machine.refuse(SaslCondition::InvalidAuthzid, &mut self.out),
        }
    }

    fn full_address(&self, request: &BindRequest) -> Option<Jid> {
        let resource = request.resource.as_deref().map_or_else(random_name, str::to_owned);
        self.machine.jid()?.with_resource(&resource).ok()
    }

    /// Binds the resource: from here on the connection is known to its account.
    async fn bind(mut self, request: &BindRequest) -> Login<S> {
        let (Some(jid), Some(principal)) = (self.full_address(request), self.principal.take()) else {
            return Login::Gone;
        };
        let ctx = Rc::clone(&self.ctx);
        let door = &ctx.shared.xmpp;
        let limits = FifoLimits { messages: door.config.mailbox_messages_max, bytes: door.config.mailbox_bytes_max };
        let inbox = ctx.bus().slot(FifoMailbox::new(limits), ctx.id);
        let claim = inbox.claim(ctx.id);
        let access = ctx.authority().access(&principal, jid.resource().unwrap_or_default(), fogmux_auth::Door::Xmpp);
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
            door: fogmux_bus::Door::Xmpp,
            slot: Some(inbox.id()),
        });
        let me = Me { jid, gate, publisher, inbox, control };
        let core =
            Core { ctx, machine: self.machine, me, out: self.out, waiting: Completion::Ready, replays: Vec::new() };
        Login::Bound(Box::new(Session::new(self.stream, core, claim, self.input)))
    }

    async fn read(&mut self) -> io::Result<usize> {
        let (ctx, stream, input) = (&self.ctx, &mut self.stream, &mut self.input);
        poll_fn(|cx| read::poll_take(ctx, stream, input, cx, |_| 0)).await
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.out).await?;
        self.out = Vec::new();
        self.stream.flush().await
    }

    /// Writes what is left to say, with a second for it to get through.
    async fn goodbye(&mut self) {
        let farewell = async {
            self.flush().await?;
            self.stream.shutdown().await
        };
        let _ = tokio::time::timeout(Duration::from_secs(1), farewell).await;
    }
}

/// XEP-0106: what a local part cannot have is written as its code. Upper case is too, for addresses are folded and
/// names are not: `Ada` and `ada` stay two users.
fn escape_local(name: &str) -> String {
    let mut local = String::with_capacity(name.len());
    for c in name.chars() {
        let special =
            matches!(c, ' ' | '"' | '&' | '\'' | '/' | ':' | '<' | '>' | '@' | '\\') || c.is_ascii_uppercase();
        if special {
            local.push_str(&format!("\\{:02x}", u32::from(c)));
        } else {
            local.push(c);
        }
    }
    local
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    // Without random numbers the process would not have started: keys and salts need them first.
    let _ = getrandom::fill(&mut bytes);
    u64::from_ne_bytes(bytes)
}

/// A name that nobody guesses.
pub(super) fn random_name() -> String {
    format!("{:016x}", random())
}
