//! Responses, with the headers that belong to every one of their kind.

use std::sync::Arc;

use bytes::Bytes;
use fogmux_bus::Message;
use fogmux_http::{Kind, Problem, condition, problem, time, websocket};
use http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode,
    header::{
        ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, LAST_MODIFIED,
        RETRY_AFTER, SEC_WEBSOCKET_VERSION, UPGRADE, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
    },
};

use super::{identity::Identities, payload::Payload};

/// Asked again each time, but `If-None-Match` saves the body: a topic changes when it likes.
const REVALIDATE: HeaderValue = HeaderValue::from_static("no-cache");
/// For what is never the same twice.
pub(super) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");
/// Publishers choose body and type: a page of theirs must not run as a page of the gateway.
const SANDBOX: HeaderValue = HeaderValue::from_static("sandbox");
const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");
const PROBLEM: HeaderValue = HeaderValue::from_static(problem::CONTENT_TYPE);

/// A status alone.
pub(super) fn status(status: StatusCode) -> Response<Payload> {
    let mut response = Response::new(Payload::empty());
    *response.status_mut() = status;
    response
}

/// 200 with a body that the gateway made.
pub(super) fn own(content_type: &'static str, bytes: impl Into<Bytes>) -> Response<Payload> {
    let mut response = Response::new(Payload::full(bytes.into()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    response
}

/// A refusal.
pub(super) fn problem(problem: &Problem<'_>) -> Response<Payload> {
    let mut response = Response::new(Payload::full(problem.to_json().into()));
    *response.status_mut() = StatusCode::from_u16(problem.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, PROBLEM);
    headers.insert(CACHE_CONTROL, NO_STORE);
    if let Some(seconds) = problem.retry_after_seconds {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    extra(problem.kind, headers);
    response
}

/// A refusal; 401 with the challenges of the listener (RFC 9110 §15.5.2).
pub(super) fn refused(problem: &Problem<'_>, identities: &Identities) -> Response<Payload> {
    let mut response = self::problem(problem);
    if response.status() == StatusCode::UNAUTHORIZED {
        for challenge in identities.challenges(problem.kind) {
            response.headers_mut().append(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
    }
    response
}

/// Adds the header fields that some kinds of problems require.
fn extra(kind: Kind, headers: &mut HeaderMap) {
    match kind {
        // RFC 9110 §15.5.22, RFC 6455 §4.4.
        Kind::UpgradeRequired => {
            headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static(websocket::handshake::VERSION));
        }
        // RFC 9110 §15.5.9.
        Kind::RequestTimeout => {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Kind::Unauthorized
        | Kind::InvalidToken
        | Kind::BadRequest
        | Kind::InvalidTopic
        | Kind::InvalidFilter
        | Kind::InvalidParameter
        | Kind::InvalidBody
        | Kind::Forbidden
        | Kind::ChangesOff
        | Kind::ForeignOrigin
        | Kind::NotFound
        | Kind::NoMessage
        | Kind::MethodNotAllowed
        | Kind::NotAcceptable
        | Kind::IdempotencyConflict
        | Kind::Unchangeable
        | Kind::LosesAdministration
        | Kind::PreconditionFailed
        | Kind::ContentTooLarge
        | Kind::UnsupportedMediaType
        | Kind::ExpectationFailed
        | Kind::Misdirected
        | Kind::IdempotencyMismatch
        | Kind::InvalidRules
        | Kind::Unusable
        | Kind::PreconditionRequired
        | Kind::TooManyRequests
        | Kind::HeadersTooLarge
        | Kind::Internal
        | Kind::Unavailable
        | Kind::Loaded
        | Kind::InsufficientStorage => {}
    }
}

/// 405, or the answer to OPTIONS.
pub(super) fn allow(status: StatusCode, methods: &'static str) -> Response<Payload> {
    let mut response = match status {
        StatusCode::METHOD_NOT_ALLOWED => problem(&Problem::new(Kind::MethodNotAllowed)),
        other => self::status(other),
    };
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    response
}

/// 200 with a message, byte for byte.
pub(super) fn message(message: &Arc<Message>) -> Response<Payload> {
    let mut response = Response::new(Payload::full(message.payload.clone()));
    let headers = response.headers_mut();
    headers.reserve(8);
    headers.insert(CONTENT_TYPE, content_type(message));
    headers.insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    headers.insert(CONTENT_SECURITY_POLICY, SANDBOX);
    validators(message, headers);
    response
}

/// 304 with what a 200 would have said of the same message (RFC 9110 §15.4.5).
pub(super) fn not_modified(message: &Arc<Message>) -> Response<Payload> {
    let mut response = status(StatusCode::NOT_MODIFIED);
    validators(message, response.headers_mut());
    response
}

fn validators(message: &Arc<Message>, headers: &mut HeaderMap) {
    if let Some(tag) = etag(message.etag()) {
        headers.insert(ETAG, tag);
    }
    if let Ok(date) = HeaderValue::try_from(time::http_date(message.ingest_unix_ms)) {
        headers.insert(LAST_MODIFIED, date);
    }
    headers.insert(CACHE_CONTROL, REVALIDATE);
}

/// An entity tag as a field value.
pub(super) fn etag(tag: u64) -> Option<HeaderValue> {
    HeaderValue::from_bytes(&condition::format_etag(tag)).ok()
}

/// A type that other doors took but that cannot be a field value is no type here.
fn content_type(message: &Message) -> HeaderValue {
    message.content_type.as_deref().and_then(|text| HeaderValue::from_bytes(text.as_bytes()).ok()).unwrap_or(OCTETS)
}

/// The answer to HEAD: the headers of the answer to GET, with the length of the body that is not sent.
pub(super) fn without_body(response: Response<Payload>) -> Response<Payload> {
    let (mut parts, payload) = response.into_parts();
    let Some(bytes) = payload.known() else { return Response::from_parts(parts, Payload::unsized_empty()) };
    // 204 and 304 have no length (RFC 9110 §8.6).
    if !matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    }
    Response::from_parts(parts, Payload::empty())
}

/// Sets a header that is no constant, if it can be one.
pub(super) fn set(response: &mut Response<Payload>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
