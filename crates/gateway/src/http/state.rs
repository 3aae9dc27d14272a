//! Access to pages about the state of the gateway: `/metrics`, the reasons of `/readyz`, and administration.
//!
//! They ask the rules for `$SYS/metrics`. Where no rule speaks of it, they are for clients on this machine only: for
//! the operator and a Prometheus beside the gateway. A request that a proxy passes on is not one of this machine.
//!
//! The API asks them for `$fogmux/admin`: the right to read it shows, the right to write it changes. Only a rule of the
//! access file grants it, and never to anonymous clients of other machines. Where no rule speaks of it, it is for the
//! user that the first start creates, and for this machine as long as the listener admits anonymous clients there.

use std::fmt::Write as _;

use fogmux_auth::{Action, Decision};
use fogmux_http::{Kind, Problem};
use fogmux_store::JournalStore;
use http::Response;

use super::{conn::Conn, identity::Identity, payload::Payload, respond};
use crate::{
    administration::{TOPIC as ADMIN_TOPIC, administers, changes_access, is_ruled},
    listening::base,
};

/// The topic that rules name to grant these pages.
const TOPIC: &str = "$SYS/metrics";

/// Whether the client may see the state of the gateway.
///
/// # Errors
/// 403 with the rule that refuses it.
pub(super) fn check(conn: &Conn, identity: &Identity) -> Result<(), Problem<'static>> {
    let decision = identity.gate.access().decide(Action::Read, TOPIC);
    if decision.allowed || (decision.rule.is_none() && conn.peer.is_loopback()) {
        return Ok(());
    }
    Err(identity.gate.forbidden(&conn.ctx, Action::Read, TOPIC, &decision))
}

/// Whether the client may administer the gateway.
///
/// # Errors
/// 401 for a client that has shown no credential and may show one, else 403 with the rule that refuses it.
pub(super) fn check_admin(conn: &Conn, identity: &Identity, action: Action) -> Result<(), Problem<'static>> {
    let (who, local) = (identity.principal(), conn.peer.is_loopback());
    let decision = identity.gate.access().decide(action, ADMIN_TOPIC);
    if administers(&decision, who, local, conn.peer.may_be_anonymous(&conn.ctx.shared.listening)) {
        return Ok(());
    }
    let ruled = is_ruled(&decision);
    let refused = Decision { allowed: false, rule: decision.rule.filter(|_| ruled && !decision.allowed) };
    let forbidden = identity.gate.forbidden(&conn.ctx, action, ADMIN_TOPIC, &refused);
    Err(if who.anonymous { Problem::new(Kind::Unauthorized) } else { forbidden })
}

/// Whether the client may change users and rules: those may whom a rule names, and the user of the first start.
///
/// # Errors
/// 401 for anonymous clients, else 403.
pub(super) fn check_access_changes(conn: &Conn, identity: &Identity) -> Result<(), Problem<'static>> {
    let decision = identity.gate.access().decide(Action::Write, ADMIN_TOPIC);
    let who = identity.principal();
    if changes_access(&decision, who) {
        return Ok(());
    }
    let refused = Decision { allowed: false, rule: None };
    let forbidden = identity.gate.forbidden(&conn.ctx, Action::Write, ADMIN_TOPIC, &refused);
    let detail =
        "users, rules and the log are changed by the user admin, and by those whom a rule for $fogmux/admin names";
    Err(if who.anonymous { Problem::new(Kind::Unauthorized) } else { forbidden }.detail(detail))
}

/// Whether the gateway takes publications, as a probe asks it: the status is for everybody, the reason for this
/// machine.
pub(super) fn ready(conn: &Conn) -> Result<Response<Payload>, Problem<'static>> {
    let ctx = &conn.ctx;
    if ctx.is_draining() {
        return Err(Problem::new(Kind::Unavailable).detail("the gateway is shutting down"));
    }
    let store = ctx.shared.metrics.store.get();
    let local = conn.peer.is_loopback();
    if let Some(reason) = store.and_then(JournalStore::why_stopped) {
        let problem = Problem::new(Kind::Unavailable);
        let state = store.map(|store| store.counters().state).unwrap_or_default().name();
        return Err(if local { problem.detail(format!("the store is {state}: {reason}")) } else { problem });
    }
    let mut text = "ready\n".to_owned();
    if local && store.is_some_and(|store| store.counters().has_lost()) {
        text += "the store was damaged; the log says what is lost\n";
    }
    // The gateway is ready at all others: a network that is late must not take it out of service on those it has.
    for (listen, error) in ctx.shared.listening.shut().filter(|_| local) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "listeners.{}: {} is not open: {error}", base(&listen.name), listen.address);
    }
    if let Some(why) = ctx.shared.waiting.get().filter(|_| local) {
        let _ = writeln!(text, "waiting: {why}");
    }
    // Another broker that is away does not keep this one from its work.
    for link in ctx.shared.links.each().iter().filter(|_| local) {
        if link.connected_since_unix_ms().is_none() {
            let why = link.last_error().map_or_else(|| "connecting".to_owned(), |error| error.text);
            let _ = writeln!(text, "links.{}: {} is down: {why}", link.name, link.url);
        }
    }
    Ok(respond::own("text/plain; charset=utf-8", text))
}
