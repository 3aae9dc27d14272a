//! Authentication of a peer, as far as it is the same for every protocol.
//!
//! A handshake shows a certificate or the identity of a pre-shared key ([`of_channel`]); the protocol inside may show a
//! name with a password or a token ([`log_in`]). Several credentials have to be of the same principal ([`agree`]).

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use fogmux_auth::{
    Attempt, CertificateIdentity, Door, LogIn, Principal, Question, Refused, SourceKind, SourceSet, Verified,
    looks_like_token, prepared_name,
    sasl::{Context, SaslChannel},
};
use fogmux_bus::Timestamp;
use fogmux_net::{Channel, ClientCertificate};

pub(crate) use crate::audit::Denied;
use crate::{
    Peer, Shared, WorkerContext,
    audit::{self, RefusedLogin},
};

/// The principal that the handshake has shown; `None` if it has shown no credential that the listener takes.
///
/// # Errors
/// A credential that the listener takes, but that maps to no user, or a pre-shared key that is not its identity's any
/// more. It was proven and no guess, so no back-off follows.
pub(crate) fn of_channel(ctx: &WorkerContext, peer: &Peer) -> Result<Option<Principal>, Refused> {
    peer.channel.as_deref().map_or(Ok(None), |channel| shown_by(&ctx.shared, channel, peer.sources))
}

/// The same by the channel alone.
pub(crate) fn shown_by(shared: &Shared, channel: &Channel, sources: SourceSet) -> Result<Option<Principal>, Refused> {
    if let Some(certificate) = channel.certificate.as_deref().filter(|_| sources.contains(SourceKind::Certificate)) {
        let identity = names_of(certificate, &shared.realm);
        return shared.authority.certificate(&identity).map(Some);
    }
    if let Some(psk) = channel.psk.as_ref().filter(|_| sources.contains(SourceKind::Psk)) {
        return shared.authority.psk(&psk.identity, psk.mark).map(Some);
    }
    Ok(None)
}

/// The credential that the handshake of a connection has shown, to be judged again when the rules change: a certificate
/// may be refused by then, or belong to another user, and an identity may have another key.
#[derive(Clone, Debug)]
pub(crate) struct Handshake {
    channel: Arc<Channel>,
    sources: SourceSet,
}

impl Handshake {
    /// `None` if the handshake has shown no credential.
    pub(crate) fn of(peer: &Peer) -> Option<Self> {
        let channel = peer.channel.as_ref()?;
        let has_shown = channel.certificate.is_some() || channel.psk.is_some();
        has_shown.then(|| Self { channel: Arc::clone(channel), sources: peer.sources })
    }

    fn admits(&self, ctx: &WorkerContext, principal: &Principal) -> bool {
        match shown_by(&ctx.shared, &self.channel, self.sources) {
            Ok(Some(shown)) if shown.source == principal.source => shown.is_same_login(principal),
            // Another credential was shown inside, which has to be of the same user.
            Ok(Some(shown)) => shown.name == principal.name,
            Ok(None) => true,
            Err(_) => false,
        }
    }
}

/// Whether a connection would still be let in: by the credential of its principal, and by that of its handshake.
pub(crate) fn holds(ctx: &WorkerContext, handshake: Option<&Handshake>, principal: &Principal) -> bool {
    ctx.authority().admits(principal) && handshake.is_none_or(|handshake| handshake.admits(ctx, principal))
}

/// The identity of a client certificate; addresses of `realm` are those of our users.
#[must_use]
pub fn names_of<'c>(certificate: &'c ClientCertificate, realm: &'c str) -> CertificateIdentity<'c> {
    CertificateIdentity {
        sha256: &certificate.sha256,
        common_name: certificate.common_name.as_deref(),
        dns: &certificate.dns,
        emails: &certificate.emails,
        uris: &certificate.uris,
        xmpp_addresses: &certificate.xmpp_addresses,
        realm,
    }
}

/// A name and a password, or a token in its place.
#[derive(Clone, Copy)]
pub(crate) struct Login<'a> {
    pub(crate) door: Door,
    /// The client identifier, where the door has one.
    pub(crate) client: &'a str,
    pub(crate) user: &'a str,
    pub(crate) password: &'a [u8],
}

/// Verifies a name and a password by the configured sources. Failures count for the back-off at every door. Beside a
/// token the name is ignored: MQTT 3.1.1 requires one with every password, and clients send any.
pub(crate) async fn log_in(ctx: &WorkerContext, peer: &Peer, login: Login<'_>) -> Result<Verified, Denied> {
    let token = looks_like_token(login.password) && ctx.authority().offered(peer.sources).contains(SourceKind::Token);
    let login = if token { Login { user: "", ..login } } else { login };
    let verified = verify(ctx, peer, login).await;
    verified.inspect_err(|refused| {
        let Login { door, client, user: claimed, .. } = login;
        let by = if token { "token" } else { "password" };
        let token = std::str::from_utf8(login.password).ok().filter(|_| token);
        let line = RefusedLogin { from: peer.address, door, by, claimed, token, client, reason: "" };
        audit::denied(ctx, line, *refused);
    })
}

async fn verify(ctx: &WorkerContext, peer: &Peer, login: Login<'_>) -> Result<Verified, Denied> {
    // One user has one name, whatever the spelling: for the back-off and for the callback.
    let name = prepared_name(login.user);
    let attempt = begin(ctx, peer, name.as_deref().unwrap_or_default())?;
    let unix_s = unix_s();
    let verified = match ctx.authority().log_in(peer.sources, login.user, login.password, unix_s) {
        LogIn::Known(known) => known,
        LogIn::Check(check) => ctx.shared.verifiers.verify(peer.address.ip(), check).await.map(Verified::from),
        LogIn::Ask(check) => {
            let Login { door, client, password, .. } = login;
            match name.as_deref() {
                Some(user) => {
                    let question = Question { user, password, client, door, address: peer.address.ip() };
                    check.run(question, ctx.now().as_millis(), unix_s).await
                }
                None => Err(Refused::Credentials),
            }
        }
    };
    let verified = still_admitted(ctx, verified);
    settle(ctx, attempt, &verified);
    note_password(ctx, peer, &verified);
    verified.map_err(Denied::Refused)
}

/// Asks once more about a credential whose verification has waited: it may have been withdrawn meanwhile.
pub(crate) fn still_admitted(ctx: &WorkerContext, verified: Result<Verified, Refused>) -> Result<Verified, Refused> {
    verified.and_then(|who| if ctx.authority().admits(&who.principal) { Ok(who) } else { Err(Refused::Credentials) })
}

/// Notes a login by password, so that the source keeps a place in the queue of logins.
pub(crate) fn note_password(ctx: &WorkerContext, peer: &Peer, verified: &Result<Verified, Refused>) {
    if let Ok(verified) = verified
        && verified.principal.source == SourceKind::Password
    {
        ctx.shared.verifiers.succeeded(peer.address.ip(), &verified.principal.name);
    }
}

/// Begins an attempt to log in as a user, which counts as a failure until it is [settled](settle).
pub(crate) fn begin<'c>(ctx: &'c WorkerContext, peer: &Peer, user: &str) -> Result<Attempt<'c>, Denied> {
    ctx.shared.logins.begin(peer.address.ip(), user, ctx.now().as_millis()).map_err(Denied::TooOften)
}

/// Ends an attempt with its outcome.
pub(crate) fn settle<T>(ctx: &WorkerContext, attempt: Attempt<'_>, verified: &Result<T, Refused>) {
    match verified {
        Ok(_) => attempt.succeeded(ctx.now().as_millis()),
        Err(refused) if refused.is_guess() => attempt.failed(ctx.now().as_millis()),
        Err(_) => attempt.taken_back(),
    }
}

/// Whether a login as `user` from that address is allowed now; if not, the line about it is logged.
pub(crate) fn may_try(ctx: &WorkerContext, line: RefusedLogin<'_>, user: &str) -> Result<(), Denied> {
    let prepared = prepared_name(user).unwrap_or_default();
    let allowed = ctx.shared.logins.may_try(line.from.ip(), &prepared, ctx.now().as_millis());
    allowed.map_err(|wait| {
        audit::denied(ctx, line, wait.into());
        Denied::TooOften(wait)
    })
}

/// Notes the outcome of an attempt as `user`, and logs the line about a refusal.
pub(crate) fn noted<T>(
    ctx: &WorkerContext,
    line: RefusedLogin<'_>,
    user: &str,
    verified: Result<T, Refused>,
) -> Result<T, Denied> {
    let from = line.from.ip();
    if let Err(refused) = &verified {
        audit::denied(ctx, line, (*refused).into());
    }
    match &verified {
        Ok(_) => ctx.shared.logins.succeeded(from, user, ctx.now().as_millis()),
        Err(refused) if refused.is_guess() => {
            ctx.shared.logins.failed(from, user, ctx.now().as_millis());
        }
        Err(_) => {}
    }
    verified.map_err(Denied::Refused)
}

/// Combines the principal of the channel with that of the credential shown inside.
///
/// # Errors
/// They are different users.
pub(crate) fn agree(of_channel: Option<&Principal>, shown: Verified) -> Result<Verified, Refused> {
    match of_channel {
        Some(principal) if principal.name != shown.principal.name => Err(Refused::Identity),
        Some(_) | None => Ok(shown),
    }
}

/// The properties of a connection for a SASL exchange.
pub(crate) fn sasl(ctx: &WorkerContext, peer: &Peer, of_channel: Option<&Principal>) -> Context {
    let channel = peer.channel.as_deref();
    Context {
        channel: SaslChannel {
            secure: peer.secure,
            exporter: channel.and_then(|channel| channel.exporter.as_deref().copied()),
            end_point: channel.and_then(|channel| channel.end_point.clone()),
            certificate: of_channel.filter(|principal| principal.source == SourceKind::Certificate).cloned(),
        },
        anonymous: false,
        realm: None,
        sources: ctx.authority().offered(peer.sources),
        now_unix_s: unix_s(),
    }
}

/// Limits a credential to the validity of the certificate below it.
pub(crate) fn bounded(peer: &Peer, who: Verified) -> Verified {
    let certificate = peer.channel.as_ref().and_then(|channel| channel.certificate.as_deref());
    let Some(certificate) = certificate.filter(|_| peer.sources.contains(SourceKind::Certificate)) else { return who };
    let end = certificate.not_after_unix_s.min(who.expires_unix_s.unwrap_or(u64::MAX));
    Verified { expires_unix_s: Some(end), ..who }
}

/// The wall clock in seconds since 1970. It is read each time: a Pi may start in 1970 and learn the time later.
pub(crate) fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// A moment of the wall clock, in seconds since 1970, as the bus counts.
pub(crate) fn timestamp(ctx: &WorkerContext, unix_s: u64) -> Timestamp {
    let left = unix_s.saturating_sub(self::unix_s());
    // A far end is none.
    if left > u64::from(u32::MAX) { Timestamp::NEVER } else { ctx.now() + Duration::from_secs(left) }
}

/// The expiry of a credential, by the wall clock and as a bus timestamp.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expiry {
    unix_s: u64,
    at: Timestamp,
}

impl Expiry {
    /// From seconds since 1970.
    pub(crate) fn new(ctx: &WorkerContext, unix_s: u64) -> Self {
        Self { unix_s, at: timestamp(ctx, unix_s) }
    }

    /// The same end by the clock as it is now: it may have been set since.
    pub(crate) fn look_again(self, ctx: &WorkerContext) -> Self {
        Self::new(ctx, self.unix_s)
    }

    /// One that another clock has counted.
    #[cfg(test)]
    pub(crate) const fn counted(unix_s: u64, at: Timestamp) -> Self {
        Self { unix_s, at }
    }

    pub(crate) const fn at(self) -> Timestamp {
        self.at
    }
}
