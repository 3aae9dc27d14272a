//! `/api/v1`: what the gateway does, and the few things that an administrator changes while it runs.
//!
//! Every request does a bounded amount of work: lists come in pages, and each lock that a door or the bus uses is held
//! for one page at most; a worker makes one answer at a time, and others have a turn in between. A foreign page cannot
//! send what changes something: browsers ask first (a preflight) for DELETE and for JSON, the service refuses foreign
//! origins, and the gate is [`state::check_admin`].

mod backup;
mod bench;
mod certificates;
mod changes;
mod clients;
mod files;
mod links;
mod log;
mod refusals;
mod rules;
mod sessions;
mod status;
mod system;
mod topics;
mod users;

use std::rc::Rc;

use bytes::Bytes;
use fogmux_auth::Action;
use fogmux_http::{
    Problem,
    api::{CONTENT_TYPE, Page, Resource},
};
use http::{HeaderValue, Method, Response, header::X_CONTENT_TYPE_OPTIONS, request::Parts};
use http_body::Body;
use tokio::sync::SemaphorePermit;

use super::{conn::Conn, context::HttpContext, identity::Identity, payload::Payload, respond, state};
use crate::administration::bench::BenchCommand;

/// Answers a request to the API.
pub(super) async fn respond<B>(
    conn: &Rc<Conn>,
    identity: &Identity,
    resource: Resource,
    parts: &Parts,
    body: B,
) -> Result<Response<Payload>, Problem<'static>>
where
    B: Body<Data = Bytes> + Unpin,
{
    let is_safe = matches!(parts.method, Method::GET | Method::HEAD);
    let action = if resource.changes() && !is_safe { Action::Write } else { Action::Read };
    state::check_admin(conn, identity, action)?;
    let page = || Page::parse(parts.uri.query());
    let in_turn = async |make: &dyn Fn() -> Result<Vec<u8>, Problem<'static>>| {
        let _turn = turn(&conn.ctx).await;
        make().map(json)
    };
    match resource {
        Resource::Status => in_turn(&|| Ok(status::status(conn))).await,
        Resource::Listeners => in_turn(&|| Ok(status::listeners(conn, identity))).await,
        Resource::Certificates => in_turn(&|| Ok(certificates::document(conn))).await,
        Resource::Refusals => in_turn(&|| Ok(refusals::document(conn))).await,
        Resource::Links => in_turn(&|| Ok(links::document(conn))).await,
        Resource::System => in_turn(&|| Ok(system::document(conn))).await,
        Resource::Topics => in_turn(&|| topics::page(conn, identity, &page()?)).await,
        Resource::Clients => in_turn(&|| clients::page(conn, &page()?)).await,
        Resource::Client(id) => clients::kick(conn, identity, id),
        Resource::Sessions => in_turn(&|| sessions::page(conn, &page()?)).await,
        Resource::Session(id) => sessions::end(conn, identity, id).await,
        Resource::SessionSubscriptions(id) => in_turn(&|| sessions::subscriptions(conn, id, &page()?)).await,
        Resource::Users => in_turn(&|| Ok(users::page(conn, &page()?))).await,
        Resource::Groups => in_turn(&|| Ok(users::groups(conn, &page()?))).await,
        Resource::User if parts.method == Method::PUT => users::put(conn, identity, parts, body).await,
        Resource::User => users::delete(conn, identity, parts).await,
        Resource::Rules if is_safe => files::read(conn, &parts.headers).await,
        Resource::Rules => files::write(conn, identity, parts, body).await,
        Resource::LogLevel if is_safe => log::read(conn).await.map(json),
        Resource::LogLevel => log::write(conn, identity, parts, body).await.map(json),
        Resource::Backup => backup::download(conn, identity).await,
        Resource::Bench if is_safe => bench::document(conn, BenchCommand::List).await.map(json),
        Resource::Bench => bench::submit(conn, identity, parts, body).await,
        Resource::BenchChoices => bench::document(conn, BenchCommand::Choices).await.map(json),
        Resource::BenchJob(id) if is_safe => {
            bench::document(conn, |answer| BenchCommand::Show(id, answer)).await.map(json)
        }
        Resource::BenchJob(id) => bench::end(conn, identity, id).await,
        Resource::BenchReport(id, format) => bench::report(conn, id, format).await,
        Resource::BenchComparison(id, other) => {
            bench::document(conn, |answer| BenchCommand::Compare(other, id, answer)).await.map(json)
        }
        Resource::RuleTest => rules::test(conn, identity, parts, body).await.map(json),
    }
}

/// Waits until a worker has answered the request before, and has looked at its sockets since: two hundred lists that
/// are asked for at once are two hundred turns for everybody else.
async fn turn(ctx: &HttpContext) -> Option<SemaphorePermit<'_>> {
    // It is never closed.
    let permit = ctx.administration.acquire().await.ok();
    tokio::task::yield_now().await;
    permit
}

fn json(document: Vec<u8>) -> Response<Payload> {
    let mut response = respond::own(CONTENT_TYPE, document);
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
