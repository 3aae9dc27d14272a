//! Cross-origin resource sharing (WHATWG Fetch §3.3) for the configured origins and no others.
//!
//! A response names the origin, never `*`, because its pages may send credentials. The service decides which origins
//! may write and open WebSockets; these headers tell a browser what its page may read.

use http::{
    HeaderMap, HeaderValue, Response,
    header::{
        ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
        ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
        ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
    },
};

use super::payload::Payload;

/// Request headers beyond those that are always allowed.
const REQUEST_HEADERS: HeaderValue = HeaderValue::from_static(
    "authorization, content-type, if-match, if-none-match, if-modified-since, if-unmodified-since, idempotency-key, \
     last-event-id, cache-control, traceparent, tracestate",
);
/// Response headers beyond those that are always exposed.
const RESPONSE_HEADERS: HeaderValue =
    HeaderValue::from_static("etag, retry-after, allow, www-authenticate, date, traceparent, tracestate");
const TRUE: HeaderValue = HeaderValue::from_static("true");
/// Seconds for which a browser may cache a preflight.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// The CORS headers of a response.
pub(super) enum Cors {
    /// None: no origin is configured.
    Off,
    /// `Vary` only.
    Varies,
    /// Pages of this origin may read the response.
    Allows(HeaderValue),
}

impl Cors {
    /// Compares a request's `Origin` with the configured ones.
    pub(super) fn of(named: &[String], headers: &HeaderMap) -> Self {
        if named.is_empty() {
            return Self::Off;
        }
        match headers.get(ORIGIN) {
            Some(origin) if named.iter().any(|named| named.as_bytes() == origin.as_bytes()) => {
                Self::Allows(origin.clone())
            }
            Some(_) | None => Self::Varies,
        }
    }

    /// Adds the answer to a preflight, if the OPTIONS request is one.
    pub(super) fn preflight(
        &self,
        request: &HeaderMap,
        mut response: Response<Payload>,
        methods: &'static str,
    ) -> Response<Payload> {
        if matches!(self, Self::Allows(_)) && request.contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
            let headers = response.headers_mut();
            headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(methods));
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, REQUEST_HEADERS);
            headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        }
        response
    }

    /// Adds the headers of every response.
    pub(super) fn apply(self, headers: &mut HeaderMap) {
        if matches!(self, Self::Off) {
            return;
        }
        headers.append(VARY, HeaderValue::from_static("origin"));
        if let Self::Allows(origin) = self {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, TRUE);
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, RESPONSE_HEADERS);
        }
    }
}
