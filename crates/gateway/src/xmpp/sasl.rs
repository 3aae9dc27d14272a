//! Authentication (RFC 6120 §6): the mechanisms that a connection offers, and the exchange.
//!
//! The mechanisms follow from the listener's credentials, from those that are configured, and from the channel: none
//! that reveals a secret without TLS, `-PLUS` if there is a channel binding, EXTERNAL if the client has shown a
//! certificate.

use fogmux_auth::{
    CertificateIdentity, Door, Principal, Question, Refused, Verified,
    sasl::{self, Exchange, Mechanism, Step},
};
use fogmux_net::ClientCertificate;
use fogmux_xmpp::{
    Jid,
    stream::{Offer, SaslCondition, StartTls},
};

use super::{context::XmppContext, names};
use crate::{
    Peer,
    audit::{self, RefusedLogin},
    credential,
};

/// Longest authorisation identity: an address.
const AUTHZID_BYTES_MAX: usize = 3071;

/// The outcome of a client's message.
pub(super) enum Outcome {
    /// It goes on.
    Challenge(Vec<u8>),
    /// Logged in; with data for the client, if any.
    Success(Verified, Option<Vec<u8>>),
    /// Not logged in.
    Failure(SaslCondition),
}

/// The logins of one connection over one channel.
pub(super) struct Logins {
    context: sasl::Context,
    state: State,
}

enum State {
    Idle,
    Exchange(Box<Exchange>),
    /// EXTERNAL without an authorisation identity so far.
    External,
}

impl Logins {
    pub(super) fn new(ctx: &XmppContext, peer: &Peer) -> Self {
        let of_channel = credential::of_channel(ctx, peer).inspect_err(|refused| {
            tracing::debug!(%refused, "a client certificate that is nobody's here");
            audit::nobodys(ctx, peer, Door::Xmpp);
        });
        // The policy is that of this listener. A client with a certificate is not anonymous.
        let open = peer.may_be_anonymous(&ctx.shared.listening);
        let anonymous = open && of_channel == Ok(None) && ctx.authority().anonymous(open).is_some();
        let realm = Some(ctx.door.server.domain.as_str().into());
        let context = credential::sasl(ctx, peer, of_channel.as_ref().ok().and_then(Option::as_ref));
        Self { context: sasl::Context { anonymous, realm, ..context }, state: State::Idle }
    }

    /// The mechanisms for the stream's features. Without TLS there are none for remote clients, even if there is no
    /// certificate for TLS.
    pub(super) fn offer(&self, peer: &Peer, starttls: StartTls) -> Offer {
        if peer.is_exposed() {
            return Offer { starttls, mechanisms: Vec::new(), channel_bindings: Vec::new() };
        }
        let bound = sasl::mechanisms(&self.context).any(|mechanism| matches!(mechanism, Mechanism::ScramPlus(_)));
        let channel_bindings = self.context.bindings().filter(|_| bound).map(|binding| binding.kind).collect();
        let mechanisms = sasl::mechanisms(&self.context).map(Mechanism::name).collect();
        Offer { starttls, mechanisms, channel_bindings }
    }

    /// Begins an exchange.
    pub(super) async fn start(
        &mut self,
        ctx: &XmppContext,
        peer: &Peer,
        mechanism: &str,
        initial: Option<Vec<u8>>,
    ) -> Outcome {
        self.state = State::Idle;
        if credential::of_channel(ctx, peer).is_err() {
            // A certificate that was shown counts whatever follows, as at every door, and it may have been withdrawn
            // since the connection came.
            return Outcome::Failure(SaslCondition::NotAuthorized);
        }
        if credential::may_try(ctx, RefusedLogin::of(peer, Door::Xmpp, "sasl", ""), "").is_err() {
            return Outcome::Failure(SaslCondition::TemporaryAuthFailure);
        }
        if mechanism == Mechanism::External.name() && self.context.channel.certificate.is_some() {
            return match initial {
                Some(authzid) => self.external(ctx, peer, &authzid),
                None => {
                    self.state = State::External;
                    Outcome::Challenge(Vec::new())
                }
            };
        }
        self.context.now_unix_s = credential::unix_s();
        let (exchange, step) = Exchange::start(ctx.authority(), self.context.clone(), mechanism, initial.as_deref());
        self.settle(ctx, peer, exchange, step).await
    }

    /// Continues the exchange.
    pub(super) async fn respond(&mut self, ctx: &XmppContext, peer: &Peer, data: &[u8]) -> Outcome {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Exchange(mut exchange) => {
                let step = exchange.respond(data);
                self.settle(ctx, peer, *exchange, step).await
            }
            State::External => self.external(ctx, peer, data),
            State::Idle => Outcome::Failure(SaslCondition::MalformedRequest),
        }
    }

    /// Aborts the exchange.
    pub(super) fn abort(&mut self) {
        self.state = State::Idle;
    }

    async fn settle(&mut self, ctx: &XmppContext, peer: &Peer, exchange: Exchange, step: Step) -> Outcome {
        let user: Box<str> = exchange.user().unwrap_or_default().into();
        let claimed: Box<str> = exchange.claimed().unwrap_or_default().into();
        let line = RefusedLogin { claimed: &claimed, ..RefusedLogin::of(peer, Door::Xmpp, "sasl", "") };
        let attempt = match &step {
            // No credential has been shown that could be wrong.
            Step::Challenge(_) => credential::may_try(ctx, line, &user).map(|()| None),
            Step::Done { principal, .. } if principal.anonymous => Ok(None),
            Step::Done { .. } | Step::Refused(_) | Step::Check(_) | Step::Ask { .. } => {
                credential::begin(ctx, peer, &user).map(Some).inspect_err(|denied| audit::denied(ctx, line, *denied))
            }
        };
        let Ok(attempt) = attempt else { return Outcome::Failure(SaslCondition::TemporaryAuthFailure) };
        let mut last = None;
        let verified = match step {
            Step::Challenge(data) => {
                self.state = State::Exchange(Box::new(exchange));
                return Outcome::Challenge(data);
            }
            Step::Done { principal, data, expires_unix_s } => {
                last = data;
                Ok(Verified { principal, expires_unix_s })
            }
            Step::Refused(refused) => Err(refused),
            Step::Check(check) => ctx.shared.verifiers.verify(peer.address.ip(), check).await.map(Verified::from),
            Step::Ask { check, user, password } => {
                let question = Question {
                    user: &user,
                    password: &password,
                    client: "",
                    door: Door::Xmpp,
                    address: peer.address.ip(),
                };
                check.run(question, ctx.now().as_millis(), credential::unix_s()).await
            }
        };
        let verified = credential::still_admitted(ctx, verified);
        let verified = verified.and_then(|verified| self.agreed(ctx, peer, verified));
        if let Some(attempt) = attempt {
            credential::settle(ctx, attempt, &verified);
        }
        credential::note_password(ctx, peer, &verified);
        match verified {
            Ok(verified) => Outcome::Success(credential::bounded(peer, verified), last),
            Err(refused) => {
                audit::denied(ctx, line, refused.into());
                failure(refused)
            }
        }
    }

    /// A client with a certificate that logs in by another mechanism has to be the certificate's owner, or the user of
    /// one of its addresses; otherwise it is refused as for a wrong password.
    fn agreed(&self, ctx: &XmppContext, peer: &Peer, shown: Verified) -> Result<Verified, Refused> {
        let of_channel = credential::of_channel(ctx, peer)?;
        let certificate = peer.channel.as_deref().and_then(|channel| channel.certificate.as_deref());
        let certificate = certificate.filter(|_| self.context.channel.certificate.is_some());
        if certificate.is_some_and(|certificate| is_addressed(ctx, certificate, &shown.principal.name)) {
            return Ok(shown);
        }
        credential::agree(of_channel.as_ref(), shown).map_err(|_| Refused::Barred)
    }

    /// EXTERNAL (XEP-0178 §3): the handshake has verified the certificate; which of its names is meant is left to say.
    fn external(&self, ctx: &XmppContext, peer: &Peer, authzid: &[u8]) -> Outcome {
        let certificate = peer.channel.as_deref().and_then(|channel| channel.certificate.as_deref());
        let identity = std::str::from_utf8(authzid).ok();
        let identity = identity.filter(|identity| identity.len() <= AUTHZID_BYTES_MAX && !identity.contains('\0'));
        let found = match (certificate, identity) {
            (None, _) => Err(Refused::Mechanism),
            (_, None) => Err(Refused::Malformed("authorisation identity")),
            (Some(certificate), Some(identity)) => whose(ctx, certificate, Some(identity).filter(|i| !i.is_empty())),
        };
        match found {
            Ok(principal) => Outcome::Success(credential::bounded(peer, principal.into()), None),
            Err(refused) => {
                let of_certificate = || certificate.map(ClientCertificate::claimed).unwrap_or_default();
                let named = identity.filter(|identity| !identity.is_empty()).map(Box::from);
                let claimed = &*named.unwrap_or_else(of_certificate);
                let line = RefusedLogin { claimed, ..RefusedLogin::of(peer, Door::Xmpp, "certificate", "") };
                audit::denied(ctx, line, refused.into());
                failure(refused)
            }
        }
    }
}

/// The owner of a certificate: by its addresses at our domain (id-on-xmppAddr), of which the client chooses when there
/// are several, else as at any other door, dNSName included. An entry of the certificates file stands above both.
fn whose(ctx: &XmppContext, certificate: &ClientCertificate, authzid: Option<&str>) -> Result<Principal, Refused> {
    let domain = &ctx.door.server.domain;
    let owner = ctx.authority().certificate(&credential::names_of(certificate, domain.as_str()))?;
    let names = addressed(certificate, domain);
    let named = match (authzid, &*names) {
        (Some(authzid), _) => names.iter().find(|name| names::is_identity_of(authzid, name, domain)),
        (None, [only]) => Some(only),
        (None, _) => None,
    };
    let principal = match named {
        Some(name) => ctx.authority().certificate(&named_by(certificate, name, domain))?,
        None => owner,
    };
    match authzid {
        Some(authzid) if !names::is_identity_of(authzid, &principal.name, domain) => Err(Refused::Identity),
        // With several addresses the client has to choose one.
        None if names.len() > 1 && named.is_none() => Err(Refused::Identity),
        Some(_) | None => Ok(principal),
    }
}

/// The users of our domain whose addresses are in a certificate.
fn addressed(certificate: &ClientCertificate, domain: &Jid) -> Vec<String> {
    let mut names: Vec<String> =
        certificate.xmpp_addresses.iter().filter_map(|address| names::user_of(address, domain)).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Whether one of a certificate's addresses is that user's.
fn is_addressed(ctx: &XmppContext, certificate: &ClientCertificate, user: &str) -> bool {
    let domain = &ctx.door.server.domain;
    addressed(certificate, domain).iter().any(|name| {
        let owner = ctx.authority().certificate(&named_by(certificate, name, domain));
        owner.is_ok_and(|owner| *owner.name == *user)
    })
}

/// A certificate's names, with one of its addresses in the first place.
fn named_by<'c>(certificate: &'c ClientCertificate, name: &'c str, domain: &'c Jid) -> CertificateIdentity<'c> {
    CertificateIdentity { common_name: Some(name), ..credential::names_of(certificate, domain.as_str()) }
}

/// RFC 6120 §6.5.
fn failure(refused: Refused) -> Outcome {
    tracing::debug!(%refused, "no login");
    Outcome::Failure(match refused {
        Refused::Credentials | Refused::ChannelBinding | Refused::Barred => SaslCondition::NotAuthorized,
        Refused::Busy => SaslCondition::TemporaryAuthFailure,
        Refused::Mechanism => SaslCondition::InvalidMechanism,
        Refused::Malformed(_) => SaslCondition::MalformedRequest,
        Refused::Identity => SaslCondition::InvalidAuthzid,
    })
}
