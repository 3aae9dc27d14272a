//! `/api/v1`: what the gateway does, and the few things that an administrator changes while it runs.
//!
//! Every request does a bounded amount of work: lists come in pages, and each lock that a door or the bus uses is held
//! for one page at most. A foreign page cannot send what changes something: browsers ask first (a preflight) for
//! DELETE and for JSON, the service refuses foreign origins, and the gate is [`state::check_admin`].

mod changes;
mod clients;
mod files;
mod log;
mod rules;
mod sessions;
mod status;
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

use super::{conn::Conn, identity::Identity, payload::Payload, respond, state};

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
    match resource {
        Resource::Status => Ok(json(status::status(conn))),
        Resource::Listeners => Ok(json(status::listeners(conn))),
        Resource::Topics => Ok(json(topics::page(conn, identity, &page()?))),
        Resource::Clients => Ok(json(clients::page(conn, &page()?)?)),
        Resource::Client(id) => clients::kick(conn, identity, id),
        Resource::Sessions => Ok(json(sessions::page(conn, &page()?)?)),
        Resource::Session(id) => sessions::end(conn, identity, id).await,
        Resource::SessionSubscriptions(id) => Ok(json(sessions::subscriptions(conn, id, &page()?)?)),
        Resource::Users => Ok(json(users::page(conn, &page()?))),
        Resource::Groups => Ok(json(users::groups(conn, &page()?))),
        Resource::User if parts.method == Method::PUT => users::put(conn, identity, parts, body).await,
        Resource::User => users::delete(conn, identity, parts).await,
        Resource::Rules if is_safe => files::read(conn, &parts.headers).await,
        Resource::Rules => files::write(conn, identity, parts, body).await,
        Resource::LogLevel if is_safe => log::read(conn).await.map(json),
        Resource::LogLevel => log::write(conn, identity, parts, body).await.map(json),
        Resource::RuleTest => rules::test(conn, identity, parts, body).await.map(json),
    }
}

fn json(document: Vec<u8>) -> Response<Payload> {
    let mut response = respond::own(CONTENT_TYPE, document);
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
