//! The identity of a request: the owner of its security context or of its association, or anonymous where that is
//! allowed.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, OnceLock},
};

use fogmux_auth::{Access, Action, Door, Principal, SourceKind, Verified};
use fogmux_bus::{Publisher, ReadGate, SlotId, Timestamp};
use fogmux_coap::{Code, Ticket};
use foldhash::quality::RandomState;

use super::{
    context::CoapContext,
    transport::{Listener, Path},
};
use crate::{Peer, audit, credential};

/// Security contexts whose owners are remembered.
const CONTEXTS_MAX: usize = 65_536;

/// An authenticated client: its permissions, in the form that the bus asks for, and its publisher.
pub(super) struct Identity {
    access: Access,
    slot: Option<SlotId>,
    /// There from its first publication on, because many devices only read or wait.
    publisher: OnceLock<Arc<Publisher>>,
    /// When its credential expires.
    until: Timestamp,
}

impl ReadGate for Identity {
    fn may_read(&self, topic: &str) -> bool {
        self.access.may_read(topic)
    }

    fn principal(&self) -> Option<Arc<str>> {
        Some(Arc::clone(&self.access.principal().name))
    }
}

/// The kind of proof that a request comes with.
#[derive(Clone, Debug)]
pub(super) enum Who {
    /// None.
    Anybody,
    /// The association or connection it came on.
    Association(u64),
    /// A security context of this user, whatever it came through.
    Context { scope: u64, user: Arc<str>, association: u64 },
}

impl Who {
    /// The kind of proof of a request. End-to-end protection takes precedence over the association.
    pub(super) fn of(ticket: &Ticket<Path>) -> Self {
        match (ticket.exchange(), ticket.peer().association) {
            (Some(exchange), association) => {
                Self::Context { scope: exchange.scope(), user: Arc::clone(exchange.user()), association }
            }
            (None, 0) => Self::Anybody,
            (None, association) => Self::Association(association),
        }
    }
}

/// An identity under one generation of the rules, until its credential expires.
struct Known {
    generation: u64,
    identity: Option<Arc<Identity>>,
}

impl Known {
    /// None known yet.
    const NOTHING: Self = Self { generation: NEVER, identity: None };

    /// The known identity, looked up again if the rules have changed or it has expired.
    fn get(
        &mut self,
        ctx: &CoapContext,
        now: Timestamp,
        look_up: impl FnOnce() -> Option<Arc<Identity>>,
    ) -> Option<Arc<Identity>> {
        let generation = ctx.authority().generation();
        let is_over = self.identity.as_ref().is_some_and(|identity| identity.is_over(now));
        if self.generation != generation || is_over {
            *self = Self { generation, identity: look_up() };
        }
        self.identity.clone()
    }
}

/// The identities of a socket's clients, looked up again when the rules change.
pub(super) struct Admission {
    listener: Listener,
    slot: SlotId,
    nobody: Known,
    /// In boxes: a table has room for twice as many as there are.
    associations: HashMap<u64, Box<Associated>, RandomState>,
    contexts: HashMap<u64, Known, RandomState>,
}

/// An association or a connection.
struct Associated {
    peer: Peer,
    known: Known,
}

/// No generation of rules has this number.
const NEVER: u64 = u64::MAX;

impl Admission {
    pub(super) fn new(listener: Listener, slot: SlotId) -> Self {
        Self { listener, slot, nobody: Known::NOTHING, associations: HashMap::default(), contexts: HashMap::default() }
    }

    /// Adds an association or a connection.
    pub(super) fn open(&mut self, association: u64, peer: Peer) {
        self.associations.insert(association, Box::new(Associated { peer, known: Known::NOTHING }));
    }

    /// Whether an association may go on after the rules have changed: the key that made it is still its identity's, its
    /// certificate is still somebody's, or it needs neither.
    pub(super) fn may_go_on(&self, ctx: &CoapContext, association: u64) -> bool {
        let Some(Associated { peer, .. }) = self.associations.get(&association).map(|it| &**it) else {
            return true;
        };
        let Some(channel) = &peer.channel else { return true };
        match &channel.psk {
            Some(psk) => ctx.authority().psk(&psk.identity, psk.mark).is_ok(),
            None if channel.certificate.is_some() => credential::of_channel(ctx, peer).is_ok(),
            None => self.listener.admits_anonymous(&ctx.shared, &ctx.door),
        }
    }

    /// The name of the principal of an association, for a log: of one that is nobody's, what its peer has claimed.
    pub(super) fn principal_of(&self, ctx: &CoapContext, association: u64) -> Arc<str> {
        let Some(Associated { peer, .. }) = self.associations.get(&association).map(|it| &**it) else {
            return Arc::default();
        };
        match credential::of_channel(ctx, peer) {
            Ok(Some(principal)) => Arc::clone(&principal.name),
            Ok(None) => Arc::clone(&Principal::anonymous().name),
            Err(_) => audit::shown_by(peer).1.into(),
        }
    }

    /// Removes it.
    pub(super) fn close(&mut self, association: u64) {
        self.associations.remove(&association);
    }

    /// The number of associations.
    pub(super) fn associations(&self) -> usize {
        self.associations.len()
    }

    /// The listener's policy.
    pub(super) const fn listener(&self) -> Listener {
        self.listener
    }

    /// The identity of a request; `None` is answered 4.01. `now` is the turn's, so that no request reads the clock.
    pub(super) fn identity(&mut self, ctx: &CoapContext, now: Timestamp, who: &Who) -> Option<Arc<Identity>> {
        let (slot, listener) = (self.slot, self.listener);
        // The listener's own policy counts, whatever its address.
        let anybody = |listens: bool| ctx.authority().anonymous(listens).filter(|_| listens);
        match who {
            Who::Anybody => self.nobody.get(ctx, now, || {
                let open = |by| ctx.shared.listening.admits(by);
                Some(Identity::of(ctx, slot, &anybody(listener.by.map_or(listener.anonymous, open))?.into()))
            }),
            Who::Association(association) => {
                let Associated { peer, known } = &mut **self.associations.get_mut(association)?;
                known.get(ctx, now, || {
                    let principal = match credential::of_channel(ctx, peer) {
                        Ok(Some(principal)) => principal,
                        Ok(None) => anybody(peer.may_be_anonymous(&ctx.shared.listening))?,
                        Err(refused) => {
                            tracing::debug!(%refused, "a CoAP association is nobody's");
                            audit::nobodys(ctx, peer, Door::Coap);
                            return None;
                        }
                    };
                    let who = credential::bounded(peer, principal.into());
                    if who.expires_unix_s.is_some_and(|end| end <= credential::unix_s()) {
                        tracing::debug!("the certificate of a CoAP association has ended");
                        audit::expired(ctx, peer, Door::Coap);
                        return None;
                    }
                    Some(Identity::of(ctx, slot, &who))
                })
            }
            Who::Context { scope, user, association } => {
                let through = self.associations.get(association).map(|it| it.peer.sources);
                if !through.unwrap_or(listener.sources).contains(SourceKind::Oscore) {
                    return None;
                }
                if self.contexts.len() >= CONTEXTS_MAX && !self.contexts.contains_key(scope) {
                    self.contexts.clear();
                }
                let known = self.contexts.entry(*scope).or_insert(Known::NOTHING);
                known.get(ctx, now, || {
                    // A withdrawn context belongs to nobody.
                    let user = ctx.door.oscore.holds(*scope).then_some(user)?;
                    Some(Identity::of(ctx, slot, &ctx.authority().oscore(user).ok()?.into()))
                })
            }
        }
    }
}

/// The permissions of a client without any credential at a listener; `None` where it is not admitted.
#[cfg(target_os = "linux")]
pub(super) fn of_anybody(ctx: &CoapContext, listener: Listener) -> Option<Identity> {
    let (open, oscore_only) = match listener.by {
        Some(place) => (ctx.shared.listening.admits(place), ctx.shared.listening.oscore_only(place)),
        None => (listener.anonymous, false),
    };
    let principal = ctx.authority().anonymous(open).filter(|_| open && !oscore_only)?;
    Some(Identity::new(ctx, None, &principal.into()))
}

impl Identity {
    fn of(ctx: &CoapContext, slot: SlotId, who: &Verified) -> Arc<Self> {
        Arc::new(Self::new(ctx, Some(slot), who))
    }

    fn new(ctx: &CoapContext, slot: Option<SlotId>, who: &Verified) -> Self {
        let Verified { principal, expires_unix_s } = who;
        let access = ctx.authority().access(principal, "", Door::Coap);
        let until = expires_unix_s.map_or(Timestamp::NEVER, |end| credential::timestamp(ctx, end));
        Self { access, slot, publisher: OnceLock::new(), until }
    }

    /// The publisher of its messages.
    pub(super) fn publisher(&self) -> &Arc<Publisher> {
        self.publisher.get_or_init(|| {
            let principal = Arc::clone(&self.principal().name);
            let (client, door) = (Arc::default(), Some(Door::Coap));
            Arc::new(Publisher { principal, client, door, slot: self.slot })
        })
    }

    /// Whether the credential has expired.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        self.until <= now
    }

    /// `None` when the action is allowed; 4.03 when it is not.
    pub(super) fn refusal(
        &self,
        ctx: &CoapContext,
        from: Option<SocketAddr>,
        action: Action,
        topic: &str,
    ) -> Option<Code> {
        let allowed = match action {
            Action::Read => self.access.may_read(topic),
            Action::Write => self.access.may_write(topic),
        };
        if allowed {
            return None;
        }
        self.note(ctx, from, action, topic);
        Some(Code::FORBIDDEN)
    }

    /// Whether nothing that the filter matches may be read.
    pub(super) fn may_read_nothing(&self, ctx: &CoapContext, from: Option<SocketAddr>, filter: &str) -> bool {
        let nothing = matches!(self.access.may_subscribe(filter), fogmux_auth::Reach::Nothing(_));
        if nothing {
            self.note(ctx, from, Action::Read, filter);
        }
        nothing
    }

    /// Its principal.
    pub(super) fn principal(&self) -> &Principal {
        self.access.principal()
    }

    /// Its user, if it is not anonymous.
    pub(super) fn user(&self) -> Option<Arc<str>> {
        let principal = self.principal();
        (!principal.anonymous).then(|| Arc::clone(&principal.name))
    }

    /// Whether both are the same principal, with the same groups and variables.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.access.principal() == other.access.principal()
    }

    #[cold]
    fn note(&self, ctx: &CoapContext, from: Option<SocketAddr>, action: Action, topic: &str) {
        ctx.shared.metrics.coap.unauthorized.increment();
        let decision = self.access.decide(action, topic);
        audit::refused_action(ctx, &self.access, from, action, topic, &decision);
    }
}
