//! Who asks: Basic credentials or nobody, turned into permissions once for each connection.

use std::{cell::RefCell, rc::Rc, sync::Arc};

use fogmux_auth::{Access, Action, Decision, Principal, Refused};
use fogmux_bus::{Publisher, ReadGate};
use fogmux_http::{
    Kind, Problem,
    authorization::{self, Credentials},
};
use http::{HeaderMap, header::AUTHORIZATION};

use crate::{Peer, WorkerContext};

/// Principals remembered on one connection; a proxy may carry several.
const KNOWN_MAX: usize = 8;

/// Somebody who may ask, with what the bus wants to know of a publisher.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) gate: Arc<Gate>,
    pub(super) publisher: Arc<Publisher>,
}

impl Identity {
    fn new(ctx: &WorkerContext, principal: &Principal) -> Rc<Self> {
        let access = ctx.authority().access(principal, "", fogmux_auth::Door::Http);
        let publisher = Publisher {
            principal: Arc::clone(&principal.name),
            client: Arc::from(""),
            door: fogmux_bus::Door::Http,
            slot: None,
        };
        Rc::new(Self { gate: Arc::new(Gate(access)), publisher: Arc::new(publisher) })
    }

    pub(super) fn principal(&self) -> &Principal {
        self.gate.0.principal()
    }
}

/// Permissions, as the bus asks for them.
pub(super) struct Gate(Access);

impl Gate {
    pub(super) fn access(&self) -> &Access {
        &self.0
    }

    /// Whether the action is allowed; 403 with the rule that refuses it.
    pub(super) fn check(&self, ctx: &WorkerContext, action: Action, topic: &str) -> Result<(), Problem<'static>> {
        let allowed = match action {
            Action::Read => self.0.may_read(topic),
            Action::Write => self.0.may_write(topic),
        };
        if allowed { Ok(()) } else { Err(forbidden(ctx, &self.0.decide(action, topic))) }
    }
}

/// 403 with the reason.
pub(super) fn forbidden(ctx: &WorkerContext, decision: &Decision) -> Problem<'static> {
    ctx.shared.metrics.http.unauthorized.increment();
    Problem::new(Kind::Forbidden).detail(decision.to_string())
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("principal", self.0.principal()).finish_non_exhaustive()
    }
}

impl ReadGate for Gate {
    fn may_read(&self, topic: &str) -> bool {
        self.0.may_read(topic)
    }
}

/// What a request's credentials come to.
pub(super) enum Identified {
    /// Known.
    Now(Rc<Identity>),
    /// To be verified, which takes a while.
    Verify(Credentials),
}

/// The identities of one connection.
#[derive(Debug)]
pub(super) struct Identities {
    ctx: Rc<WorkerContext>,
    peer: Peer,
    /// Under which generation of the rules nobody in particular was let in.
    anonymous: RefCell<Option<(u64, Rc<Identity>)>>,
    known: RefCell<Vec<Rc<Identity>>>,
}

impl Identities {
    pub(super) fn new(ctx: &Rc<WorkerContext>, peer: Peer) -> Self {
        Self { ctx: Rc::clone(ctx), peer, anonymous: RefCell::default(), known: RefCell::default() }
    }

    /// Who a request says it is from.
    pub(super) fn identify(&self, headers: &HeaderMap) -> Result<Identified, Problem<'static>> {
        let Some(value) = headers.get(AUTHORIZATION) else {
            return self.anonymous().map(Identified::Now).ok_or(Problem::new(Kind::Unauthorized));
        };
        let credentials = authorization::parse(value.as_bytes()).map_err(|unusable| {
            self.ctx.shared.metrics.http.unauthenticated.increment();
            Problem::new(Kind::Unauthorized).detail(unusable.to_string())
        })?;
        match self.ctx.authority().recall(&credentials.user, credentials.password.as_bytes()) {
            Some(principal) => Ok(Identified::Now(self.remember(&principal))),
            None => Ok(Identified::Verify(credentials)),
        }
    }

    /// Verifies a password on a thread that may block. Failures make the next attempt of that address wait.
    pub(super) async fn verify(&self, credentials: Credentials) -> Result<Rc<Identity>, Problem<'static>> {
        let door = &self.ctx.shared.http;
        let address = self.peer.address.ip();
        let wait = door.backoff().wait(self.ctx.now().as_millis(), address, &credentials.user);
        if let Some(wait) = wait {
            let seconds = u32::try_from(wait.as_secs().saturating_add(1)).unwrap_or(u32::MAX);
            return Err(Problem::new(Kind::TooManyRequests).detail("too many failed logins").retry_after(seconds));
        }
        let authority = Arc::clone(self.ctx.authority());
        let Credentials { user, password } = credentials;
        let name = user.clone();
        let verified = tokio::task::spawn_blocking(move || authority.password(&user, password.as_bytes())).await;
        match verified {
            Ok(Ok(principal)) => {
                door.backoff().succeeded(&name);
                Ok(self.remember(&principal))
            }
            Ok(Err(Refused::Busy)) => {
                Err(Problem::new(Kind::Unavailable).detail(Refused::Busy.to_string()).retry_after(1))
            }
            Ok(Err(
                Refused::Credentials
                | Refused::Mechanism
                | Refused::Malformed(_)
                | Refused::Identity
                | Refused::ChannelBinding,
            )) => {
                door.backoff().failed(self.ctx.now().as_millis(), address, &name);
                self.ctx.shared.metrics.http.unauthenticated.increment();
                Err(Problem::new(Kind::Unauthorized).detail("the name or the password is wrong"))
            }
            Err(_) => Err(Problem::new(Kind::Internal)),
        }
    }

    fn anonymous(&self) -> Option<Rc<Identity>> {
        if !self.peer.anonymous {
            return None;
        }
        let generation = self.ctx.authority().generation();
        if let Some((known, identity)) = &*self.anonymous.borrow()
            && *known == generation
        {
            return Some(Rc::clone(identity));
        }
        let principal = self.ctx.authority().anonymous(self.peer.is_loopback())?;
        let identity = Identity::new(&self.ctx, &principal);
        *self.anonymous.borrow_mut() = Some((generation, Rc::clone(&identity)));
        Some(identity)
    }

    fn remember(&self, principal: &Principal) -> Rc<Identity> {
        let mut known = self.known.borrow_mut();
        if let Some(identity) = known.iter().find(|identity| identity.principal() == principal) {
            return Rc::clone(identity);
        }
        if known.len() >= KNOWN_MAX {
            known.remove(0);
        }
        let identity = Identity::new(&self.ctx, principal);
        known.push(Rc::clone(&identity));
        identity
    }
}
