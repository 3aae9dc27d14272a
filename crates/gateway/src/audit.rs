//! Log lines about refused logins and refused actions, for operators and for programs that read logs (fail2ban).
//!
//! A line names the peer first. All text that a peer chose is quoted, escaped and cut, so that no peer can write a line
//! or a field of its own. A line never holds a secret. The rate of lines is bounded by [`fogmux_auth::Refusals`].

#[cfg(feature = "http")]
use std::sync::Arc;
use std::{borrow::Cow, net::SocketAddr};

use fogmux_auth::{
    Access, Action, Decision, Door, Principal, Refused, Suppressed, Wait, WaitCause, holds_token, looks_like_token,
};
#[cfg(feature = "http")]
use fogmux_fair::Owner;
use fogmux_net::{ClientCertificate, NOT_YET_VALID, RefusedCertificate};

#[cfg(feature = "http")]
use crate::refused::{self, Refusal, What, When};
use crate::{
    Peer, Shared, WorkerContext,
    clients::Arrived,
    shown::{cut, shown_client},
};

/// The target of these lines, which no `log.filter` hides.
pub const TARGET: &str = "fogmux::audit";
/// The reason [`NOT_YET_VALID`] by a clock in the past: it is the clock that has to be mended, not the certificate.
const NOT_YET_VALID_BY_CLOCK: &str = "certificate not yet valid; the gateway's clock may be in the past";

/// Why a login was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// Too many recent failures.
    TooOften(Wait),
    /// The authority refused it.
    Refused(Refused),
}

impl From<Refused> for Denied {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl From<Wait> for Denied {
    fn from(wait: Wait) -> Self {
        Self::TooOften(wait)
    }
}

/// A login that was refused.
#[derive(Clone, Copy)]
pub(crate) struct RefusedLogin<'a> {
    pub(crate) from: SocketAddr,
    pub(crate) door: Door,
    /// The kind of credential: `password`, `token`, `certificate`, `psk` …
    pub(crate) by: &'a str,
    /// The name or identity that the peer claimed, or `""`.
    pub(crate) claimed: &'a str,
    /// The token that was shown, which is never logged: the user that it names is what was claimed.
    pub(crate) token: Option<&'a str>,
    /// The client identifier, or `""`.
    pub(crate) client: &'a str,
    pub(crate) reason: &'a str,
}

impl<'a> RefusedLogin<'a> {
    /// A refusal of a peer that has claimed no name.
    pub(crate) const fn of(peer: &Peer, door: Door, by: &'a str, reason: &'a str) -> Self {
        Self { from: peer.address, door, by, claimed: "", token: None, client: "", reason }
    }

    /// A refusal of a client certificate in a handshake.
    pub(crate) fn of_certificate(from: SocketAddr, door: Door, refused: &'a RefusedCertificate) -> Self {
        let RefusedCertificate { claimed, reason } = refused;
        Self { from, door, by: "certificate", claimed, token: None, client: "", reason }
    }

    /// Logs it, unless too many lines were written of late.
    #[cold]
    pub(crate) fn log(mut self, shared: &Shared) {
        if self.reason == NOT_YET_VALID && is_clock_behind(shared) {
            self.reason = NOT_YET_VALID_BY_CLOCK;
        }
        #[cfg(feature = "http")]
        self.keep(shared);
        let Self { from, door, by, client, reason, .. } = self;
        let Some(suppressed) = shared.refusals.admit_login(from.ip(), shared.clock.now().as_millis()) else { return };
        let Suppressed { same: suppressed, others: suppressed_others } = suppressed;
        let (peer, port, door) = (from.ip().to_canonical(), from.port(), door.name());
        let claimed = self.shown_claim(shared);
        let client = shown_client(client);
        tracing::warn!(
            target: TARGET,
            %peer, port, %door, %by, ?claimed, ?client, ?reason, suppressed, suppressed_others,
            "login refused"
        );
    }

    /// The name that was claimed, in the form in which others see it.
    fn shown_claim(&self, shared: &Shared) -> String {
        // Clients also put tokens where a name belongs.
        let token = self.token.or_else(|| looks_like_token(self.claimed.as_bytes()).then_some(self.claimed));
        let of_token = token.map(|token| shared.authority.claimed_user(token).unwrap_or_default());
        let claimed = of_token.as_deref().unwrap_or(self.claimed);
        if holds_token(claimed) { String::new() } else { cut(claimed).to_owned() }
    }

    /// Keeps it for the administration API.
    #[cfg(feature = "http")]
    fn keep(&self, shared: &Shared) {
        let Self { from, door, by, claimed, token, client, reason } = *self;
        let owner = refused::of_address(Some(from.ip()));
        let same = (door, by, claimed, token, client, reason);
        shared.last_refusals.note(&owner, same, when(shared), || Refusal {
            door,
            from: Some(from),
            client: shown_client(client).into(),
            what: What::Login { by: by.into(), claimed: self.shown_claim(shared).into(), reason: cut(reason).into() },
        });
    }
}

fn is_clock_behind(shared: &Shared) -> bool {
    shared.metrics.certificates.is_clock_behind(shared.clock.unix_ms(shared.clock.now()) / 1000)
}

/// Logs that a credential was not accepted.
#[cold]
pub(crate) fn denied(ctx: &WorkerContext, login: RefusedLogin<'_>, denied: Denied) {
    let reason = reason(denied);
    RefusedLogin { reason, ..login }.log(&ctx.shared);
}

/// Logs that the credential of a handshake was proven, but maps to no user.
#[cold]
pub(crate) fn nobodys(ctx: &WorkerContext, peer: &Peer, door: Door) {
    let (by, claimed) = shown_by(peer);
    let line = RefusedLogin::of(peer, door, by, "proven, but nobody's here");
    RefusedLogin { claimed: &claimed, ..line }.log(&ctx.shared);
}

/// The kind of credential that the handshake has shown, and what it claims.
pub(crate) fn shown_by(peer: &Peer) -> (&'static str, Cow<'_, str>) {
    let channel = peer.channel.as_deref();
    let identity = channel.and_then(|channel| channel.psk.as_ref()).map(|psk| String::from_utf8_lossy(&psk.identity));
    let certificate = channel.and_then(|channel| channel.certificate.as_deref());
    match (identity, certificate) {
        (_, Some(certificate)) => ("certificate", certificate.claimed().into_string().into()),
        (Some(identity), None) => ("psk", identity),
        (None, None) => ("handshake", Cow::default()),
    }
}

/// Logs that the certificate of a handshake has expired since.
#[cold]
pub(crate) fn expired(ctx: &WorkerContext, peer: &Peer, door: Door) {
    let certificate = peer.channel.as_deref().and_then(|channel| channel.certificate.as_deref());
    let claimed = certificate.map(ClientCertificate::claimed).unwrap_or_default();
    let line = RefusedLogin::of(peer, door, "certificate", "certificate expired");
    RefusedLogin { claimed: &claimed, ..line }.log(&ctx.shared);
}

/// The reason in words. The client is told less.
const fn reason(denied: Denied) -> &'static str {
    match denied {
        Denied::TooOften(wait) => too_often(wait),
        Denied::Refused(Refused::Credentials) => "wrong name or secret",
        Denied::Refused(Refused::Busy) => "logins cannot be checked now",
        Denied::Refused(Refused::Mechanism) => "mechanism not offered",
        Denied::Refused(Refused::Malformed(_)) => "malformed",
        Denied::Refused(Refused::Identity) => "credentials of different users",
        Denied::Refused(Refused::ChannelBinding) => "channel binding does not fit",
        Denied::Refused(Refused::Barred) => "no longer valid, or for others",
    }
}

/// The reason of an attempt that was not judged. `deploy/fail2ban` counts the first: whoever waits for a name may be
/// its owner, at whose name strangers guess.
pub(crate) const fn too_often(wait: Wait) -> &'static str {
    match wait.cause {
        WaitCause::Address => "too many failed attempts from this address",
        WaitCause::Name => "too many failed attempts at this name",
        WaitCause::UnderWay => "too many attempts at once",
    }
}

/// Logs an action that the rules refuse, once a day and at a limited rate. `from` is the client's address if `access`
/// does not name it.
#[cold]
pub(crate) fn refused_action(
    ctx: &WorkerContext,
    access: &Access,
    from: Option<SocketAddr>,
    action: Action,
    topic: &str,
    decision: &Decision,
) {
    let from = from.or_else(|| access.peer());
    #[cfg(feature = "http")]
    keep_action(&ctx.shared, access, from, (action, topic, decision));
    let address = from.map(|from| from.ip());
    let noted = ctx.shared.refusals.note(access, address, action, topic, decision, ctx.now().as_millis());
    let Some(Suppressed { same: suppressed, others: suppressed_others }) = noted else { return };
    let peer = address.map_or_else(|| "-".to_owned(), |address| address.to_canonical().to_string());
    let port = from.map_or(0, |from| from.port());
    let (principal, client, door) = (&*access.principal().name, shown_client(access.client()), access.door().name());
    let topic = cut(topic);
    tracing::warn!(
        target: TARGET,
        %peer, port, %door, ?principal, ?client, ?action, ?topic, %decision, suppressed, suppressed_others,
        "action refused"
    );
}

/// Keeps a refused action for the administration API.
#[cfg(feature = "http")]
fn keep_action(
    shared: &Shared,
    access: &Access,
    from: Option<SocketAddr>,
    (action, topic, decision): (Action, &str, &Decision),
) {
    let (principal, client, door) = (access.principal(), access.client(), access.door());
    let owner = if principal.anonymous {
        refused::of_address(from.map(|from| from.ip()))
    } else {
        Owner::principal(Arc::clone(&principal.name))
    };
    let rule = decision.rule.as_ref().map(|rule| (rule.file(), rule.line()));
    let same = (door, from.map(|from| from.ip()), client, action, topic, rule);
    shared.last_refusals.note(&owner, same, when(shared), || Refusal {
        door,
        from,
        client: shown_client(client).into(),
        what: What::Action {
            principal: (*principal.name).into(),
            granted: Arc::clone(principal.granted()),
            action,
            topic: cut(topic).into(),
            is_cut: cut(topic).len() < topic.len(),
            rule: decision.rule.clone(),
        },
    });
}

#[cfg(feature = "http")]
fn when(shared: &Shared) -> When {
    let now = shared.clock.now();
    When { now_ms: now.as_millis(), unix_ms: shared.clock.unix_ms(now) }
}

/// Logs that an administrator has ended a connection.
pub(crate) fn disconnected(by: &Peer, principal: &Principal, client: &Arrived) {
    let (peer, port) = (by.address.ip().to_canonical(), by.address.port());
    let (by, door) = (&*principal.name, client.door.name());
    let (address, principal, client) =
        (client.address, &*client.publisher.principal, shown_client(&client.publisher.client));
    tracing::info!(target: TARGET, %peer, port, ?by, %door, %address, ?principal, ?client, "client disconnected");
}

/// Logs that an event stream has ended because its reader has lost its right, at the rate of refused actions.
#[cfg(feature = "http")]
#[cold]
pub(crate) fn stream_ended(ctx: &WorkerContext, access: &Access, reason: &str) {
    let from = access.peer();
    let noted = ctx.shared.refusals.note_end(access, from, reason, ctx.now().as_millis());
    let Some(Suppressed { same: suppressed, others: suppressed_others }) = noted else { return };
    let peer = from.map_or_else(|| "-".to_owned(), |from| from.ip().to_canonical().to_string());
    let port = from.map_or(0, |from| from.port());
    let (principal, door) = (&*access.principal().name, access.door().name());
    tracing::info!(
        target: TARGET,
        %peer, port, %door, ?principal, ?reason, suppressed, suppressed_others,
        "event stream ended"
    );
}

/// A change of a user by an administrator.
#[cfg(feature = "http")]
#[derive(Debug)]
pub(crate) struct UserChanged {
    pub(crate) user: String,
    /// Whether there is a new password.
    pub(crate) password: bool,
    pub(crate) groups: Option<String>,
    pub(crate) disabled: Option<bool>,
    pub(crate) force: bool,
}

/// Logs that an administrator has added or changed a user.
#[cfg(feature = "http")]
pub(crate) fn user_changed(by: &Peer, principal: &Principal, changed: &UserChanged, added: bool) {
    let (peer, port, by) = (by.address.ip().to_canonical(), by.address.port(), &*principal.name);
    let UserChanged { user, password, groups, disabled, force } = changed;
    let (user, groups) = (cut(user), groups.as_deref().map(cut));
    tracing::info!(target: TARGET, %peer, port, ?by, ?user, added, password, ?groups, ?disabled, force, "user changed");
}

/// Logs that an administrator has removed a user.
#[cfg(feature = "http")]
pub(crate) fn user_removed(by: &Peer, principal: &Principal, user: &str, force: bool) {
    let (peer, port, by) = (by.address.ip().to_canonical(), by.address.port(), &*principal.name);
    let user = cut(user);
    tracing::info!(target: TARGET, %peer, port, ?by, ?user, force, "user removed");
}

/// Logs that an administrator has changed the access rules.
#[cfg(feature = "http")]
pub(crate) fn rules_changed(by: &Peer, principal: &Principal, file: &std::path::Path, bytes: usize, force: bool) {
    let (peer, port, by) = (by.address.ip().to_canonical(), by.address.port(), &*principal.name);
    tracing::info!(target: TARGET, %peer, port, ?by, ?file, bytes, force, "access rules changed");
}

/// Logs that an administrator has changed the filter of the log.
#[cfg(feature = "http")]
pub(crate) fn log_changed(by: &Peer, principal: &Principal, filter: &str) {
    let (peer, port, by) = (by.address.ip().to_canonical(), by.address.port(), &*principal.name);
    let filter = cut(filter);
    tracing::info!(target: TARGET, %peer, port, ?by, ?filter, "log filter changed");
}

/// Logs that an administrator has ended an MQTT session.
#[cfg(feature = "http")]
pub(crate) fn session_ended(by: &Peer, principal: &Principal, ended: &crate::held::Ended) {
    let (peer, port, by) = (by.address.ip().to_canonical(), by.address.port(), &*principal.name);
    let (principal, client) = (&*ended.principal, shown_client(&ended.client));
    tracing::info!(target: TARGET, %peer, port, ?by, ?principal, ?client, "session ended");
}

/// Logs that an administrator is sent a backup, which has all keys.
#[cfg(feature = "http")]
pub(crate) fn backup_begun(by: &Peer, principal: &Principal) {
    let (peer, port, by) = (by.address.ip().to_canonical(), by.address.port(), &*principal.name);
    tracing::info!(target: TARGET, %peer, port, ?by, "backup begun");
}

/// Logs that an administrator has submitted a measurement.
#[cfg(feature = "http")]
pub(crate) fn bench_submitted(by: &Peer, principal: &Principal, id: u64, command: &str, anyway: bool) {
    let (peer, port, by) = (by.address.ip().to_canonical(), by.address.port(), &*principal.name);
    tracing::info!(target: TARGET, %peer, port, ?by, id, ?command, anyway, "measurement submitted");
}

/// Logs that an administrator has ended a measurement, or removed its results.
#[cfg(feature = "http")]
pub(crate) fn bench_ended(by: &Peer, principal: &Principal, id: u64, ended: crate::administration::bench::Ended) {
    let (peer, port, by) = (by.address.ip().to_canonical(), by.address.port(), &*principal.name);
    tracing::info!(target: TARGET, %peer, port, ?by, id, ?ended, "measurement ended or removed");
}
