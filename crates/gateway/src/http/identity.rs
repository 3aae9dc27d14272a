//! The identity of a request: by `Authorization`, a session's cookie, the handshake, or anonymous. Turned into
//! permissions once for each connection.

mod gate;

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
};

use fogmux_auth::{Door, LogIn, Principal, Refused, SourceKind, Verified};
use fogmux_bus::{Publisher, Timestamp};
use fogmux_fair::Owner;
use fogmux_http::{
    Kind, Problem,
    authorization::{self, Authorization, Credentials},
    cookie, session,
};
use http::{
    HeaderMap, HeaderValue,
    header::{AUTHORIZATION, COOKIE},
};
use sha2::{Digest as _, Sha256};

pub(super) use self::gate::Gate;
use super::{conn::Conn, context::HttpContext};
use crate::{
    Peer,
    audit::{self, RefusedLogin},
    credential::{self, Denied, Expiry, Handshake, Login},
    unfinished,
};

/// Credentials remembered on one connection; a proxy may carry several.
const KNOWN_MAX: usize = 8;

/// Why a credential with an end is accepted no more.
pub(super) const EXPIRED: &str = "the credential has expired";

/// An authenticated client, with its publisher for the bus.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) gate: Arc<Gate>,
    pub(super) publisher: Arc<Publisher>,
    /// When the credential ends.
    expires: Cell<Option<Expiry>>,
    /// The session whose cookie was shown.
    session: Option<session::Key>,
}

impl Identity {
    fn new(ctx: &HttpContext, peer: &Peer, who: &Verified, session: Option<session::Key>) -> Rc<Self> {
        let access = ctx.authority().access(&who.principal, "", Door::Http).of_peer(peer.address);
        let publisher = Publisher {
            principal: Arc::clone(&who.principal.name),
            client: Arc::default(),
            door: Some(Door::Http),
            slot: None,
        };
        let expires = Cell::new(who.expires_unix_s.map(|unix_s| Expiry::new(ctx, unix_s)));
        Rc::new(Self { gate: Arc::new(Gate(access)), publisher: Arc::new(publisher), expires, session })
    }

    pub(super) fn principal(&self) -> &Principal {
        self.gate.0.principal()
    }

    /// The owner of what its requests leave unfinished.
    pub(super) fn owner(&self, conn: &Conn) -> Owner {
        unfinished::owner(self.principal(), conn.peer.address)
    }

    /// When the credential ends.
    pub(super) fn expires(&self) -> Timestamp {
        self.expires.get().map_or(Timestamp::NEVER, Expiry::at)
    }

    /// Whether the credential would still be accepted. Streams and WebSockets ask this from time to time.
    pub(super) fn holds(&self, ctx: &HttpContext, peer: &Peer) -> bool {
        self.why_over(ctx, peer).is_none()
    }

    /// Why the credential would not be accepted any more.
    pub(super) fn why_over(&self, ctx: &HttpContext, peer: &Peer) -> Option<&'static str> {
        let in_session = || self.session.is_none_or(|key| ctx.door.find_session(ctx, &key).is_some());
        self.expires.set(self.expires.get().map(|expires| expires.look_again(ctx)));
        if ctx.now() >= self.expires() {
            return Some(EXPIRED);
        }
        if !ctx.authority().admits(self.principal()) {
            return Some("the user was removed or disabled, or its credential was changed");
        }
        if !credential::holds(ctx, Handshake::of(peer).as_ref(), self.principal()) {
            return Some("the certificate or key of the handshake was taken back");
        }
        (!in_session()).then_some("the session has ended")
    }
}

impl Identity {
    /// Checks the credential again, if the rules have changed since a generation of them: the body of a request may
    /// have taken minutes to come.
    ///
    /// # Errors
    /// 403.
    pub(super) fn check_again(&self, conn: &Conn, generation: u64) -> Result<(), Problem<'static>> {
        if generation == conn.ctx.authority().generation() || self.holds(&conn.ctx, &conn.peer) {
            return Ok(());
        }
        Err(Problem::new(Kind::Forbidden).detail("the credential has ended"))
    }
}

/// The result of looking at a request's credentials.
pub(super) enum Identified {
    /// Known.
    Now(Rc<Identity>),
    /// To be verified, which takes a while.
    Verify(Pending),
}

/// A name and a password that wait to be verified.
pub(super) struct Pending {
    credentials: Credentials,
    shown: Shown,
}

/// The key under which a credential that is about to be judged is remembered.
#[derive(Clone, Copy)]
struct Shown {
    digest: session::Key,
    /// The generation of the rules, read before the judgement, so that it is not remembered under newer ones.
    generation: u64,
    /// The session whose cookie it is.
    session: Option<session::Key>,
}

/// A credential that was accepted on this connection.
#[derive(Debug)]
struct Known {
    digest: session::Key,
    /// The generation of the rules by which it was.
    generation: u64,
    identity: Rc<Identity>,
}

/// The identities of one connection.
#[derive(Debug)]
pub(super) struct Identities {
    ctx: Rc<HttpContext>,
    peer: Rc<Peer>,
    /// The identity of requests without credentials, and the generation of the rules: the owner of the certificate, or
    /// anonymous.
    silent: RefCell<Option<(u64, Rc<Identity>)>>,
    known: RefCell<Vec<Known>>,
}

impl Identities {
    pub(super) fn new(ctx: &Rc<HttpContext>, peer: Rc<Peer>) -> Self {
        Self { ctx: Rc::clone(ctx), peer, silent: RefCell::default(), known: RefCell::default() }
    }

    /// Identifies the client of a request.
    pub(super) fn identify(&self, headers: &HeaderMap) -> Result<Identified, Problem<'static>> {
        if headers.contains_key(AUTHORIZATION) {
            return self.by_authorization(headers);
        }
        match self.by_cookie(headers)? {
            Some(identity) => Ok(Identified::Now(identity)),
            None => self.silent().map(Identified::Now),
        }
    }

    fn by_authorization(&self, headers: &HeaderMap) -> Result<Identified, Problem<'static>> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return Err(Problem::new(Kind::BadRequest).detail("one Authorization is enough"));
        };
        let digest = digest(value.as_bytes());
        if let Some(identity) = self.recall(&digest) {
            return Ok(Identified::Now(identity));
        }
        self.check_exposure()?;
        let authorization = authorization::parse(value.as_bytes()).map_err(|unusable| {
            self.ctx.shared.metrics.http.unauthenticated.increment();
            self.needed().detail(unusable.to_string())
        })?;
        let shown = Shown { digest, generation: self.ctx.authority().generation(), session: None };
        match authorization {
            Authorization::Basic(credentials) => self.by_password(Pending { credentials, shown }),
            Authorization::Bearer(token) => self.by_token(token, shown).map(Identified::Now),
        }
    }

    /// The result if it is known without waiting.
    fn by_password(&self, pending: Pending) -> Result<Identified, Problem<'static>> {
        let Credentials { user, password } = &pending.credentials;
        let line = RefusedLogin { claimed: user, ..RefusedLogin::of(&self.peer, Door::Http, "password", "") };
        credential::may_try(&self.ctx, line, user).map_err(|denied| self.problem(denied))?;
        let unix_s = credential::unix_s();
        match self.ctx.authority().log_in(self.peer.sources, user, password.as_bytes(), unix_s) {
            LogIn::Known(Ok(who)) => self.believe(who, pending.shown).map(Identified::Now),
            LogIn::Known(Err(_)) | LogIn::Check(_) | LogIn::Ask(_) => Ok(Identified::Verify(pending)),
        }
    }

    /// Verifies a password, which takes a while. Failures make the next attempts wait.
    pub(super) async fn verify(&self, pending: Pending) -> Result<Rc<Identity>, Problem<'static>> {
        let who = self.log_in(&pending.credentials).await?;
        self.believe(who, pending.shown)
    }

    /// The same for a login by a page.
    pub(super) async fn log_in(&self, credentials: &Credentials) -> Result<Verified, Problem<'static>> {
        self.check_exposure()?;
        let (user, password) = (&*credentials.user, credentials.password.as_bytes());
        let login = Login { door: Door::Http, client: "", user, password };
        let verified = credential::log_in(&self.ctx, &self.peer, login).await;
        verified.map_err(|denied| self.problem(denied)).and_then(|who| self.agree(who))
    }

    fn by_token(&self, token: &str, shown: Shown) -> Result<Rc<Identity>, Problem<'static>> {
        if !self.offered(SourceKind::Token) {
            self.ctx.shared.metrics.http.unauthenticated.increment();
            return Err(self.needed().detail("tokens are not taken here"));
        }
        let line = RefusedLogin { token: Some(token), ..RefusedLogin::of(&self.peer, Door::Http, "token", "") };
        credential::may_try(&self.ctx, line, "").map_err(|denied| self.problem(denied))?;
        let verified = self.ctx.authority().token(token, credential::unix_s());
        let verified = credential::noted(&self.ctx, line, "", verified).map_err(|_| {
            self.ctx.shared.metrics.http.unauthenticated.increment();
            Problem::new(Kind::InvalidToken)
        })?;
        self.believe(verified, shown)
    }

    /// The cookie of a session that has ended is no cookie, and neither is one of a login that this listener would not
    /// have taken.
    fn by_cookie(&self, headers: &HeaderMap) -> Result<Option<Rc<Identity>>, Problem<'static>> {
        let Some(value) = cookie::find(headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes)) else {
            return Ok(None);
        };
        let key = digest(value);
        let generation = self.ctx.authority().generation();
        let taken = |who: &Verified| self.peer.sources.contains(who.principal.source);
        let Some(who) = self.ctx.door.find_session(&self.ctx, &key).filter(taken) else { return Ok(None) };
        self.check_exposure()?;
        if let Some(identity) = self.recall(&key) {
            return Ok(Some(identity));
        }
        if !self.ctx.authority().admits(&who.principal) {
            self.ctx.door.end_session(&key);
            return Ok(None);
        }
        self.believe(who, Shown { digest: key, generation, session: Some(key) }).map(Some)
    }

    /// The identity of a request without credentials.
    fn silent(&self) -> Result<Rc<Identity>, Problem<'static>> {
        let generation = self.ctx.authority().generation();
        if let Some((known, identity)) = &*self.silent.borrow()
            && *known == generation
            && (identity.expires() == Timestamp::NEVER || self.ctx.now() < identity.expires())
        {
            return Ok(Rc::clone(identity));
        }
        let open = self.peer.may_be_anonymous(&self.ctx.shared.listening);
        let anonymous = || self.ctx.authority().anonymous(open).filter(|_| open);
        let principal = self.of_channel()?.or_else(anonymous).ok_or_else(|| self.needed())?;
        let channel = self.peer.channel.as_ref().filter(|_| principal.source == SourceKind::Certificate);
        if channel.is_some_and(|channel| is_over(channel)) {
            audit::expired(&self.ctx, &self.peer, Door::Http);
            return Err(Problem::new(Kind::Forbidden).detail("the certificate has ended"));
        }
        let identity = Identity::new(&self.ctx, &self.peer, &credential::bounded(&self.peer, principal.into()), None);
        *self.silent.borrow_mut() = Some((generation, Rc::clone(&identity)));
        Ok(identity)
    }

    fn of_channel(&self) -> Result<Option<Principal>, Problem<'static>> {
        credential::of_channel(&self.ctx, &self.peer).map_err(|_| {
            self.ctx.shared.metrics.http.unauthenticated.increment();
            audit::nobodys(&self.ctx, &self.peer, Door::Http);
            Problem::new(Kind::Forbidden).detail("the certificate or key is nobody's here")
        })
    }

    /// Several credentials have to be of the same principal.
    fn agree(&self, who: Verified) -> Result<Verified, Problem<'static>> {
        let channel = self.of_channel()?;
        let claimed = Arc::clone(&who.principal.name);
        credential::agree(channel.as_ref(), who).map_err(|refused| {
            let line = RefusedLogin { claimed: &claimed, ..RefusedLogin::of(&self.peer, Door::Http, "handshake", "") };
            audit::denied(&self.ctx, line, refused.into());
            self.problem(refused.into())
        })
    }

    fn believe(&self, who: Verified, shown: Shown) -> Result<Rc<Identity>, Problem<'static>> {
        let Shown { digest, generation, session } = shown;
        let who = credential::bounded(&self.peer, self.agree(who)?);
        let identity = Identity::new(&self.ctx, &self.peer, &who, session);
        let mut known = self.known.borrow_mut();
        known.retain(|known| known.generation == generation && known.digest != digest);
        if known.len() >= KNOWN_MAX {
            known.remove(0);
        }
        known.push(Known { digest, generation, identity: Rc::clone(&identity) });
        Ok(identity)
    }

    fn recall(&self, digest: &session::Key) -> Option<Rc<Identity>> {
        let (now, generation) = (self.ctx.now(), self.ctx.authority().generation());
        let known = self.known.borrow();
        let holds = |known: &&Known| known.generation == generation && now < known.identity.expires();
        let found = known.iter().find(|known| known.digest == *digest).filter(holds)?;
        Some(Rc::clone(&found.identity))
    }

    fn offered(&self, kind: SourceKind) -> bool {
        self.ctx.authority().offered(self.peer.sources).contains(kind)
    }

    /// Passwords, tokens and cookies must not be sent in the clear.
    fn check_exposure(&self) -> Result<(), Problem<'static>> {
        let exposed = self.peer.is_exposed();
        if exposed && !self.ctx.door.config.password_without_tls {
            self.ctx.shared.metrics.http.unauthenticated.increment();
            RefusedLogin::of(&self.peer, Door::Http, "password", "sent without TLS").log(&self.ctx.shared);
            return Err(Problem::new(Kind::Forbidden).detail("passwords, tokens and cookies are taken over TLS only"));
        }
        Ok(())
    }

    /// The refusal without credentials: 401 if a request can show one, 403 if only a handshake can.
    fn needed(&self) -> Problem<'static> {
        let said = [SourceKind::Password, SourceKind::Callback, SourceKind::Token];
        if said.into_iter().any(|kind| self.offered(kind)) {
            return Problem::new(Kind::Unauthorized);
        }
        Problem::new(Kind::Forbidden).detail("a client certificate is needed here")
    }

    /// The challenges of a 401 on this listener (RFC 9110 §11.6.1).
    pub(super) fn challenges(&self, kind: Kind) -> impl Iterator<Item = &'static str> {
        let shown = kind == Kind::InvalidToken;
        let token = if shown { authorization::BEARER_INVALID } else { authorization::BEARER };
        let password = self.offered(SourceKind::Password) || self.offered(SourceKind::Callback);
        let token = self.offered(SourceKind::Token).then_some(token);
        password.then_some(authorization::BASIC).into_iter().chain(token)
    }

    fn problem(&self, denied: Denied) -> Problem<'static> {
        match denied {
            Denied::TooOften(wait) => {
                let seconds = u32::try_from(wait.time.as_secs().saturating_add(1)).unwrap_or(u32::MAX);
                Problem::new(Kind::TooManyRequests).detail("too many failed logins").retry_after(seconds)
            }
            Denied::Refused(Refused::Busy) => {
                Problem::new(Kind::Unavailable).detail(Refused::Busy.to_string()).retry_after(1)
            }
            Denied::Refused(Refused::Mechanism) => self.needed().detail("passwords are not taken here"),
            Denied::Refused(Refused::Identity) => {
                self.ctx.shared.metrics.http.unauthenticated.increment();
                self.needed().detail("the credentials are of different users")
            }
            Denied::Refused(
                Refused::Credentials | Refused::Malformed(_) | Refused::ChannelBinding | Refused::Barred,
            ) => {
                self.ctx.shared.metrics.http.unauthenticated.increment();
                Problem::new(Kind::Unauthorized).detail("the name or the password is wrong")
            }
        }
    }
}

/// Whether the certificate of a connection has expired since the handshake.
fn is_over(channel: &fogmux_net::Channel) -> bool {
    channel.certificate.as_ref().is_some_and(|certificate| certificate.not_after_unix_s <= credential::unix_s())
}

/// The digest under which a secret is remembered.
pub(super) fn digest(secret: &[u8]) -> session::Key {
    Sha256::digest(secret).into()
}
