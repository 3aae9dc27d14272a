//! `/api/v1`: what the gateway does, and the few things that an administrator changes while it runs.
//!
//! Every request does a bounded amount of work: lists come in pages, and each lock that a door or the bus uses is held
//! for one page at most. A foreign page cannot send what changes something: browsers ask first (a preflight) for
//! DELETE and for JSON, the service refuses foreign origins, and the gate is [`state::check_admin`].

mod clients;
mod rules;
mod sessions;
mod status;
mod topics;

use std::rc::Rc;

use bytes::Bytes;
use fogmux_auth::Action;
use fogmux_http::{
    Problem,
    api::{CONTENT_TYPE, Page, Resource},
};
use http::{HeaderValue, Response, header::X_CONTENT_TYPE_OPTIONS, request::Parts};
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
    let action = if resource.changes() { Action::Write } else { Action::Read };
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
        Resource::RuleTest => rules::test(conn, identity, parts, body).await.map(json),
    }
}

fn json(document: Vec<u8>) -> Response<Payload> {
    let mut response = respond::own(CONTENT_TYPE, document);
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
