//! Sessions of people: `/login` gives a cookie for a name and a password, `/logout` takes it back.

use std::{rc::Rc, time::Duration};

use bytes::Bytes;
use fogmux_auth::Verified;
use fogmux_fair::Owner;
use fogmux_http::{
    Kind, Problem, cookie,
    login::{self, PAGE, PAGE_POLICY},
};
use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, COOKIE, LOCATION, RETRY_AFTER, SET_COOKIE},
    request::Parts,
};
use http_body::Body;

use super::{
    body::{self, Bounds},
    conn::Conn,
    identity::digest,
    payload::Payload,
    respond,
    sessions::Session,
    topics,
};
use crate::credential;

/// Digits of base 16 in a cookie: 256 bits.
const COOKIE_BYTES: usize = 32;

/// `GET /login`: the page that asks.
pub(super) fn page() -> Response<Payload> {
    let mut response = respond::own("text/html; charset=utf-8", PAGE);
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_POLICY));
    response
}

/// The same after a login that was refused. 403 takes the place of 401: to a challenge (RFC 9110 §15.5.2) the browser
/// would ask for user and password in a window of its own.
pub(super) fn refused(problem: &Problem<'_>) -> Response<Payload> {
    let mut response = respond::own("text/html; charset=utf-8", login::refused(problem));
    let status = if problem.kind == Kind::Unauthorized { Kind::Forbidden.status() } else { problem.status() };
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Some(seconds) = problem.retry_after_seconds {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_POLICY));
    response
}

/// `POST /login`: 204 with the cookie, or 303 to `/` for a page.
pub(super) async fn log_in<B>(conn: &Rc<Conn>, parts: &Parts, body: B) -> Result<Response<Payload>, Problem<'static>>
where
    B: Body<Data = Bytes> + Unpin,
{
    let config = &conn.ctx.door.config;
    let bounds = Bounds::of(config, login::BYTES_MAX);
    let owner = Owner::nameless(conn.peer.address.ip());
    let collected = body::collect(&conn.ctx, &parts.headers, body, bounds, owner).await?;
    let credentials = login::parse(topics::content_type(&parts.headers)?, collected.bytes())?;
    // From before the login: if the password is changed meanwhile, the session has none that holds.
    let rules = conn.ctx.authority().rules();
    let who = conn.identities.log_in(&credentials).await?;
    let value = value()?;
    let unix_s = credential::unix_s();
    let held = who.expires_unix_s.map(|end| Duration::from_secs(end.saturating_sub(unix_s)));
    let lasts = held.map_or(config.session_lifetime, |held| held.min(config.session_lifetime));
    let begun = Duration::from_millis(conn.ctx.now().as_millis());
    let user = std::sync::Arc::clone(&who.principal.name);
    let who = Verified { expires_unix_s: Some(unix_s.saturating_add(lasts.as_secs())), ..who };
    let session = Session::new(who, &rules);
    conn.ctx.door.sessions().begin(begun, digest(value.as_bytes()), &user, begun + lasts, session);
    Ok(done(&parts.headers, &cookie::set(&value, lasts.as_secs())))
}

/// `POST /logout`: whatever the cookie was, it is gone.
pub(super) fn log_out(conn: &Conn, headers: &HeaderMap) -> Response<Payload> {
    if let Some(value) = cookie::find(headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes)) {
        conn.ctx.door.end_session(&digest(value));
    }
    done(headers, &cookie::clear())
}

/// Whether a browser shows the answer to a person.
pub(super) fn is_page(headers: &HeaderMap) -> bool {
    headers.get(ACCEPT).and_then(|value| value.to_str().ok()).is_some_and(|accept| accept.contains("text/html"))
}

fn done(headers: &HeaderMap, cookie: &str) -> Response<Payload> {
    let mut response = if is_page(headers) {
        // Without a fragment, so that the browser keeps the one that it has: the view that was asked for
        // (RFC 9110 §10.2.2).
        let mut response = respond::status(StatusCode::SEE_OTHER);
        response.headers_mut().insert(LOCATION, HeaderValue::from_static("/"));
        response
    } else {
        respond::status(StatusCode::NO_CONTENT)
    };
    respond::set(&mut response, SET_COOKIE, cookie);
    response.headers_mut().insert(CACHE_CONTROL, respond::NO_STORE);
    response
}

fn value() -> Result<String, Problem<'static>> {
    let mut random = [0; COOKIE_BYTES];
    getrandom::fill(&mut random)
        .map_err(|_| Problem::new(fogmux_http::Kind::Unavailable).detail("there are no random numbers"))?;
    let digits = random.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    Ok(digits.map(|digit| char::from_digit(u32::from(digit), 16).unwrap_or('0')).collect())
}
