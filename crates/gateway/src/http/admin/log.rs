//! `/api/v1/log-level`: the filter of the log, until the next start or reload.

use std::rc::Rc;

use bytes::Bytes;
use fogmux_http::{
    Problem,
    api::{BYTES_MAX, LogLevel},
};
use http::request::Parts;
use http_body::Body;

use super::{
    super::{conn::Conn, identity::Identity, state},
    changes,
};
use crate::{
    administration::{Command, Refusal, Requester},
    audit,
};

/// The filter.
pub(super) async fn read(conn: &Rc<Conn>) -> Result<Vec<u8>, Problem<'static>> {
    let asked = conn.ctx.shared.administration.ask(Command::LogFilter).await;
    document(asked)
}

/// Replaces it.
pub(super) async fn write<B>(
    conn: &Rc<Conn>,
    identity: &Identity,
    parts: &Parts,
    body: B,
) -> Result<Vec<u8>, Problem<'static>>
where
    B: Body<Data = Bytes> + Unpin,
{
    // A program on this machine must not be able to silence the log.
    state::check_access_changes(conn, identity)?;
    let collected = changes::json(conn, identity, parts, body, BYTES_MAX).await?;
    let LogLevel { filter } = LogLevel::parse(collected.bytes())?;
    let (peer, principal, given) = (conn.peer.clone(), identity.principal().clone(), filter.clone());
    let note = move |_: &String| audit::log_changed(&peer, &principal, &given);
    let by = Requester { principal: identity.principal().clone(), force: false };
    document(changes::carry_out(conn, |answer| Command::SetLogFilter(filter, by, answer), note).await)
}

fn document(asked: Result<String, Refusal>) -> Result<Vec<u8>, Problem<'static>> {
    asked.map(|filter| LogLevel { filter }.to_json()).map_err(|refusal| changes::refused(&refusal))
}
