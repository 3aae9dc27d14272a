//! The common part of changes of users, rules and the log: who may, what is sent, and why it is refused.

use std::{rc::Rc, sync::Arc};

use bytes::Bytes;
use fogmux_http::{
    Kind, Problem, accept,
    api::{CONTENT_TYPE, ChangeParameters},
};
use http::request::Parts;
use http_body::Body;
use tokio::task::spawn_local;

use super::super::{
    body::{self, Bounds, Collected},
    conn::Conn,
    identity::Identity,
    state, topics,
};
use crate::administration::{Answer, Command, Refusal, Requester};

/// The reason why nothing is changed while the configuration does not allow it.
pub(super) const OFF: &str = "auth.api_changes = true allows changes of users and rules, and backups";

/// The requester of a change of users or rules.
///
/// # Errors
/// 401 or 403, also where changes are switched off.
pub(super) fn requester(conn: &Conn, identity: &Identity, parts: &Parts) -> Result<Requester, Problem<'static>> {
    state::check_access_changes(conn, identity)?;
    if !conn.ctx.shared.administration.allows_changes() {
        return Err(Problem::new(Kind::ChangesOff).detail(OFF));
    }
    let ChangeParameters { force } = ChangeParameters::parse(parts.uri.query())?;
    Ok(Requester { principal: identity.principal().clone(), force })
}

/// A body of JSON.
pub(super) async fn json<B>(
    conn: &Rc<Conn>,
    identity: &Identity,
    parts: &Parts,
    body: B,
    bytes_max: usize,
) -> Result<Collected, Problem<'static>>
where
    B: Body<Data = Bytes> + Unpin,
{
    if !is(parts, CONTENT_TYPE)? {
        return Err(Problem::new(Kind::UnsupportedMediaType).detail("a change is application/json"));
    }
    collect(conn, identity, parts, body, bytes_max).await
}

/// Whether the body has this type.
pub(super) fn is(parts: &Parts, content_type: &str) -> Result<bool, Problem<'static>> {
    let given = topics::content_type(&parts.headers)?.map(accept::essence);
    Ok(given.is_some_and(|given| given.eq_ignore_ascii_case(content_type)))
}

/// A body of any type.
pub(super) async fn collect<B>(
    conn: &Rc<Conn>,
    identity: &Identity,
    parts: &Parts,
    body: B,
    bytes_max: usize,
) -> Result<Collected, Problem<'static>>
where
    B: Body<Data = Bytes> + Unpin,
{
    let bounds = Bounds::of(&conn.ctx.door.config, bytes_max);
    body::collect(&conn.ctx, &parts.headers, body, bounds, identity.owner(conn)).await
}

/// Has a command carried out, and notes it. Both happen to their end, whether the client waits or not: no change goes
/// unnoted.
pub(super) async fn carry_out<T: 'static>(
    conn: &Conn,
    command: impl FnOnce(Answer<T>) -> Command + 'static,
    note: impl FnOnce(&T) + 'static,
) -> Result<T, Refusal> {
    let shared = Arc::clone(&conn.ctx.shared);
    let task = spawn_local(async move {
        let done = shared.administration.ask(command).await;
        if let Ok(done) = &done {
            note(done);
        }
        done
    });
    task.await.unwrap_or(Err(Refusal::Busy))
}

/// The answer to a command that was refused.
pub(super) fn refused(refusal: &Refusal) -> Problem<'static> {
    let kind = match refusal {
        Refusal::Unchangeable(_) => Kind::Unchangeable,
        Refusal::Changed => Kind::PreconditionFailed,
        Refusal::Invalid(_) => Kind::InvalidRules,
        Refusal::Unusable(_) => Kind::Unusable,
        Refusal::LosesAdministration => Kind::LosesAdministration,
        Refusal::Forbidden => Kind::Forbidden,
        Refusal::Unknown | Refusal::Missing(_) => Kind::NotFound,
        Refusal::Failed(_) => Kind::Unavailable,
        Refusal::Loaded(_) => return Problem::new(Kind::Loaded).detail(refusal.to_string()).retry_after(10),
        Refusal::Full(_) => return Problem::new(Kind::TooManyRequests).detail(refusal.to_string()).retry_after(60),
        Refusal::Busy => return Problem::new(Kind::Unavailable).detail(refusal.to_string()).retry_after(1),
    };
    Problem::new(kind).detail(refusal.to_string())
}
