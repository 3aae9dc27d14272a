//! Authentication of a client: by the handshake, by name and password, by extended authentication (§4.12), or
//! anonymous.
//!
//! Several credentials have to be of the same principal. A user name without a password, beside another credential, has
//! to be the principal's. Alone it is ignored on a listener that admits anonymous clients, and refused on others; if
//! the configuration allows it, it is a credential of its own: a token, or a name with an empty password.

use fogmux_auth::{
    Door, Principal, Refused, SourceKind, Verified, looks_like_token,
    sasl::{Exchange, Step},
};
use fogmux_mqtt::{Authentication, Connect, ReasonCode};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::{
    context::MqttContext,
    early::Early,
    login::{Failed, Refusal},
};
use crate::{
    Peer,
    audit::{self, RefusedLogin},
    credential::{self, Denied},
};

/// The credential that the log names where a client logs in by extended authentication.
pub(super) const SASL: &str = "sasl";

/// An authenticated client.
pub(super) struct Admitted {
    pub(super) who: Verified,
    /// The data of extended authentication for CONNACK.
    pub(super) last: Option<Last>,
}

/// The end of an exchange.
pub(super) struct Last {
    pub(super) method: Box<str>,
    pub(super) data: Option<Vec<u8>>,
}

/// A client that logs in.
pub(super) struct Login<'a, S> {
    pub(super) ctx: &'a MqttContext,
    pub(super) peer: &'a Peer,
    pub(super) connect: &'a Connect<'a>,
    pub(super) stream: &'a mut S,
    pub(super) rest: &'a mut Early,
}

impl<'a, S: AsyncRead + AsyncWrite + Unpin> Login<'a, S> {
    /// Judges all credentials of the client.
    pub(super) async fn authenticate(mut self) -> Result<Admitted, Failed> {
        if let Some(principal) = &self.peer.link {
            return Ok(Admitted { who: Verified::from(principal.clone()), last: None });
        }
        let channel = credential::of_channel(self.ctx, self.peer).map_err(|_| {
            audit::nobodys(self.ctx, self.peer, Door::Mqtt);
            self.refused((ReasonCode::NOT_AUTHORIZED, "the certificate or key is nobody's here"))
        })?;
        let shown = match self.password(channel.as_ref()) {
            Some((user, password)) => Some(self.log_in(user, password).await?),
            None => None,
        };
        let claimed = self.connect.user.filter(|name| !name.is_empty() && shown.is_none());
        let extended = match Authentication::of(self.connect.properties) {
            Some(hello) => Some(self.extended(&hello, channel.as_ref()).await?),
            None => None,
        };
        let (who, last) = match (extended, shown) {
            (Some((who, last)), None) => (who, Some(last)),
            (Some((who, last)), Some(shown)) => (self.agree(Some(&shown.principal), who)?, Some(last)),
            (None, Some(shown)) => (shown, None),
            (None, None) => (self.without_words(channel.as_ref())?, None),
        };
        let who = self.agree(channel.as_ref(), who)?;
        self.check_name(claimed, &who.principal)?;
        Ok(Admitted { who: credential::bounded(self.peer, who), last })
    }

    fn log(&self, by: &str, reason: &str) {
        let (claimed, client) = (self.connect.user.unwrap_or_default(), self.connect.client_id);
        RefusedLogin { claimed, client, ..RefusedLogin::of(self.peer, Door::Mqtt, by, reason) }.log(&self.ctx.shared);
    }

    const fn refused(&self, refusal: Refusal) -> Failed {
        Failed::Refused(self.connect.version, refusal)
    }

    fn agree(&self, first: Option<&Principal>, second: Verified) -> Result<Verified, Failed> {
        credential::agree(first, second).map_err(|_| {
            self.log("handshake", "credentials of different users");
            self.refused((ReasonCode::BAD_USER_NAME_OR_PASSWORD, "the credentials are of different users"))
        })
    }

    /// The name and password to verify, if the client shows any.
    fn password(&self, channel: Option<&Principal>) -> Option<(&'a str, &'a [u8])> {
        let user = self.connect.user.unwrap_or_default();
        if let Some(password) = self.connect.password {
            return Some((user, password));
        }
        let other = channel.is_some() || Authentication::of(self.connect.properties).is_some();
        if user.is_empty() || other || !self.ctx.door.config.user_without_password {
            return None;
        }
        let tokens = self.ctx.authority().offered(self.peer.sources).contains(SourceKind::Token);
        if tokens && looks_like_token(user.as_bytes()) {
            return Some(("", user.as_bytes()));
        }
        self.anonymous().is_none().then_some((user, &[]))
    }

    /// The anonymous principal, if the listener admits it.
    fn anonymous(&self) -> Option<Principal> {
        // The policy is that of this listener alone.
        let open = self.peer.may_be_anonymous(&self.ctx.shared.listening);
        self.ctx.authority().anonymous(open).filter(|_| open)
    }

    /// A password, or a token in its place.
    async fn log_in(&mut self, user: &str, password: &[u8]) -> Result<Verified, Failed> {
        let exposed = self.peer.is_exposed();
        if exposed && !self.ctx.door.config.password_without_tls {
            self.log("password", "sent without TLS");
            return Err(self.refused((ReasonCode::NOT_AUTHORIZED, "passwords are taken over TLS only")));
        }
        let login = credential::Login { door: Door::Mqtt, client: self.connect.client_id, user, password };
        let verified = credential::log_in(self.ctx, self.peer, login);
        // A login may wait for its turn: a client that hangs up meanwhile gives up its place.
        self.rest.while_there(self.stream, verified).await?.map_err(|denied| {
            self.refused(match denied {
                Denied::Refused(Refused::Mechanism) => (ReasonCode::NOT_AUTHORIZED, "passwords are not taken here"),
                Denied::Refused(_) | Denied::TooOften(_) => refusal(denied, ReasonCode::BAD_USER_NAME_OR_PASSWORD),
            })
        })
    }

    /// The principal of the handshake, or anonymous if that is allowed.
    fn without_words(&self, channel: Option<&Principal>) -> Result<Verified, Failed> {
        let principal = channel.cloned().or_else(|| self.anonymous());
        let required = || {
            self.log("none", "no credential shown");
            self.refused((ReasonCode::NOT_AUTHORIZED, "credentials are required here"))
        };
        principal.map(Verified::from).ok_or_else(required)
    }

    fn check_name(&self, claimed: Option<&str>, principal: &Principal) -> Result<(), Failed> {
        match claimed {
            // The name is ignored: it gives no right that an anonymous client would not have.
            Some(_) if principal.anonymous => Ok(()),
            Some(name) if *name != *principal.name => {
                self.log("handshake", "the user name is another's");
                Err(self.refused((ReasonCode::BAD_USER_NAME_OR_PASSWORD, "the user name is another's")))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// §4.12: exchanges challenges and responses until the exchange ends.
    async fn extended(
        &mut self,
        hello: &Authentication<'_>,
        channel: Option<&Principal>,
    ) -> Result<(Verified, Last), Failed> {
        let failed = |denied| Failed::Refused(self.connect.version, refusal(denied, ReasonCode::NOT_AUTHORIZED));
        let line = RefusedLogin { client: self.connect.client_id, ..RefusedLogin::of(self.peer, Door::Mqtt, SASL, "") };
        credential::may_try(self.ctx, line, "").map_err(failed)?;
        let (mut exchange, mut step) = begin(self.ctx, self.peer, channel, hello);
        loop {
            let user = exchange.as_ref().and_then(Exchange::user).unwrap_or_default();
            let claimed = exchange.as_ref().and_then(Exchange::claimed).unwrap_or_default();
            let line = RefusedLogin { claimed, ..line };
            credential::may_try(self.ctx, line, user).map_err(failed)?;
            let data = match step {
                Step::Challenge(data) => data,
                Step::Done { principal, data, expires_unix_s } => {
                    let who = Verified { principal, expires_unix_s };
                    let who = credential::noted(self.ctx, line, user, Ok(who)).map_err(failed)?;
                    return Ok((who, Last { method: hello.method.into(), data }));
                }
                Step::Refused(refused) => {
                    let judged = Err::<(), _>(refused);
                    return Err(
                        credential::noted(self.ctx, line, user, judged).map_or_else(failed, |()| Failed::Silently)
                    );
                }
                // Methods that carry a password are not offered.
                Step::Check(_) | Step::Ask { .. } => return Err(failed(Refused::Mechanism.into())),
            };
            let said = Authentication { method: hello.method, data: Some(&data) };
            let mut out = Vec::new();
            said.encode(ReasonCode::CONTINUE_AUTHENTICATION, &mut out).map_err(|_| Failed::Silently)?;
            if !u32::try_from(out.len()).is_ok_and(|bytes| bytes <= self.connect.packet_bytes_max()) {
                // [MQTT-3.1.2-24]
                let why = "the Maximum Packet Size is too small for AUTH";
                return Err(self.refused((ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR, why)));
            }
            let sent = async {
                self.stream.write_all(&out).await?;
                self.stream.flush().await
            };
            self.rest.in_time(sent).await?.map_err(|_| Failed::Silently)?;
            let answer = self.rest.read_auth(self.stream, hello.method).await?;
            step = exchange.as_mut().map_or(Step::Refused(Refused::Mechanism), |exchange| exchange.respond(&answer));
        }
    }
}

/// Begins an exchange. Mechanisms that CONNECT has fields for are not offered.
pub(super) fn begin(
    ctx: &MqttContext,
    peer: &Peer,
    channel: Option<&Principal>,
    hello: &Authentication<'_>,
) -> (Option<Exchange>, Step) {
    if matches!(hello.method, "PLAIN" | "ANONYMOUS") {
        return (None, Step::Refused(Refused::Mechanism));
    }
    let context = credential::sasl(ctx, peer, channel);
    let (exchange, step) = Exchange::start(ctx.authority(), context, hello.method, hello.data);
    (Some(exchange), step)
}

/// The refusal for the client; `wrong` is the code for a wrong credential.
const fn refusal(denied: Denied, wrong: ReasonCode) -> Refusal {
    match denied {
        Denied::TooOften(_) => (ReasonCode::CONNECTION_RATE_EXCEEDED, "too many failed attempts, try later"),
        Denied::Refused(Refused::Busy) => (ReasonCode::SERVER_BUSY, "logins cannot be checked now"),
        Denied::Refused(Refused::Mechanism) => {
            (ReasonCode::BAD_AUTHENTICATION_METHOD, "the authentication method is not offered here")
        }
        Denied::Refused(
            Refused::Credentials
            | Refused::Malformed(_)
            | Refused::Identity
            | Refused::ChannelBinding
            | Refused::Barred,
        ) => (wrong, "not authorised"),
    }
}
