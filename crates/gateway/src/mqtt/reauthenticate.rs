//! Re-authentication on an open connection (§4.12.1): the same method and user, a credential that may last longer or
//! grant other rights. Meanwhile the connection goes on as before.

use std::sync::Arc;

use fogmux_auth::{
    Door, Refused, Verified,
    sasl::{Exchange, Step},
};
use fogmux_mqtt::{Auth, AuthStep, Authentication, Packet, PropertyBuffer, ReasonCode};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    authenticate::{self, SASL},
    connection::{Connection, End},
};
use crate::{Peer, audit::RefusedLogin, credential, credential::Expiry};

/// The state that a client with extended authentication needs to re-authenticate.
pub(super) struct Extended {
    method: Box<str>,
    peer: Peer,
    /// Whether an AUTH of ours awaits its answer.
    exchange: Option<Exchange>,
}

impl Extended {
    pub(super) fn new(method: Box<str>, peer: &Peer) -> Self {
        Self { method, peer: peer.clone(), exchange: None }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// An AUTH of the client.
    pub(super) fn reauthenticate(&mut self, auth: &Auth<'_>) -> Result<(), End> {
        let mut extended = self.rare().extended.take();
        let (method, running) = match &extended {
            Some(extended) => (Some(&*extended.method), extended.exchange.is_some()),
            None => (None, false),
        };
        let asked = auth.step(method, running).map_err(|error| self.misbehaved(&error, error.reason()))?;
        let Some(held) = &mut extended else { return Err(End::Unauthorized) };
        let step = match asked {
            AuthStep::Continue(data) => held.exchange.as_mut().map(|running| running.respond(data.unwrap_or_default())),
            AuthStep::Reauthenticate(data) => Some(self.begin(held, data)),
        };
        let result = self.go_on(held, step.unwrap_or(Step::Refused(Refused::Mechanism)));
        self.rare().extended = extended;
        result
    }

    fn begin(&self, held: &mut Extended, data: Option<&[u8]>) -> Step {
        let hello = Authentication { method: &held.method, data };
        // The handshake is still the same; the rules may have changed.
        let channel = credential::of_channel(&self.ctx, &held.peer).unwrap_or_default();
        let (exchange, step) = authenticate::begin(&self.ctx, &held.peer, channel.as_ref(), &hello);
        held.exchange = exchange;
        step
    }

    /// [MQTT-4.12.1-2]: a client that fails is disconnected.
    fn go_on(&mut self, held: &mut Extended, step: Step) -> Result<(), End> {
        let user = held.exchange.as_ref().and_then(Exchange::user).unwrap_or_default().to_owned();
        let claimed = held.exchange.as_ref().and_then(Exchange::claimed).unwrap_or_default().to_owned();
        let client = Arc::clone(&self.client.publisher.client);
        let line = RefusedLogin::of(&held.peer, Door::Mqtt, SASL, "");
        let line = RefusedLogin { claimed: &claimed, client: &client, ..line };
        credential::may_try(&self.ctx, line, &user).map_err(|_| End::Unauthorized)?;
        match step {
            Step::Challenge(data) => self.say(&held.method, ReasonCode::CONTINUE_AUTHENTICATION, Some(&data)),
            Step::Done { principal, data, expires_unix_s } => {
                held.exchange = None;
                let who = credential::bounded(&held.peer, Verified { principal, expires_unix_s });
                let access = self.client.gate.access();
                let same = credential::agree(Some(access.principal()), who);
                let who = credential::noted(&self.ctx, line, &user, same).map_err(|_| End::Unauthorized)?;
                self.renew(&who);
                self.say(&held.method, ReasonCode::SUCCESS, data.as_deref())
            }
            Step::Refused(refused) => {
                let _ = credential::noted(&self.ctx, line, &user, Err::<(), _>(refused));
                Err(End::Unauthorized)
            }
            // Methods that carry a password are not offered.
            Step::Check(_) | Step::Ask { .. } => Err(End::Unauthorized),
        }
    }

    /// The new credential's rights apply from now on.
    fn renew(&mut self, who: &Verified) {
        self.rare().expires = who.expires_unix_s.map(|unix_s| Expiry::new(&self.ctx, unix_s));
        // The alarm may still be set for the expiry of the old credential; the deadline is checked when it rings.
        let access = self
            .ctx
            .authority()
            .access(&who.principal, Arc::clone(&self.client.publisher.client), Door::Mqtt)
            .of_peer(self.wakes.listed.address());
        let _ = self.mailbox.with(|mailbox| {
            if let Some(durable) = &mut mailbox.durable {
                durable.renew(&who.principal);
            }
        });
        if self.client.gate.renew(Arc::new(access)) {
            self.writable = None;
            self.ctx.bus().invalidate();
        }
    }

    fn say(&mut self, method: &str, reason: ReasonCode, data: Option<&[u8]>) -> Result<(), End> {
        let mut list = PropertyBuffer::new();
        Authentication { method, data }.push(&mut list).map_err(|_| End::Closed)?;
        self.answer(&Packet::Auth(Auth { reason, properties: list.properties() }))
    }
}
