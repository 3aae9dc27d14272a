//! Access to pages about the state of the gateway: `/metrics`, and the reasons of `/readyz`.
//!
//! They ask the rules for `$SYS/metrics`. Where no rule speaks of it, they are for clients on this machine only: for
//! the operator and a Prometheus beside the gateway. A request that a proxy passes on is not one of this machine.

use fogmux_auth::Action;
use fogmux_http::{Kind, Problem};
use fogmux_store::JournalStore;
use http::Response;

use super::{conn::Conn, identity::Identity, payload::Payload, respond};

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
    let lost = local && store.is_some_and(|store| store.counters().has_lost());
    let text = if lost { "ready\nthe store was damaged; the log says what is lost\n" } else { "ready\n" };
    Ok(respond::own("text/plain; charset=utf-8", text))
}
