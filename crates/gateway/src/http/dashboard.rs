//! The page at `/` and its files, compiled in. They are the same for everybody and hold nothing secret; what they show,
//! they ask the API for.

use bytes::Bytes;
use fogmux_bus::etag;
use fogmux_http::{
    condition::{Access, Conditions, Validators, Verdict},
    route::Asset,
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode,
    header::{ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, ETAG, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS},
};

use super::{payload::Payload, respond};

const PAGE: &str = include_str!("dashboard/index.html");
const STYLE: &str = include_str!("dashboard/style.css");
const APP: &str = include_str!("dashboard/app.js");
const ELEMENTS: &str = include_str!("dashboard/elements.js");
const API: &str = include_str!("dashboard/api.js");
const TOPICS: &str = include_str!("dashboard/topics.js");
const ACCESS: &str = include_str!("dashboard/access.js");
const SESSIONS: &str = include_str!("dashboard/sessions.js");
const BENCH: &str = include_str!("dashboard/bench.js");
const RESULTS: &str = include_str!("dashboard/results.js");
const VIEWS: &str = include_str!("dashboard/views.js");
const CERTIFICATES: &str = include_str!("dashboard/certificates.js");
const COMMANDS: &str = include_str!("dashboard/commands.js");
const FOLLOW: &str = include_str!("dashboard/follow.js");
const LINKS: &str = include_str!("dashboard/links.js");
const PAST: &str = include_str!("dashboard/past.js");
const QR: &str = include_str!("dashboard/qr.js");
const RATES: &str = include_str!("dashboard/rates.js");
const REFUSALS: &str = include_str!("dashboard/refusals.js");
const SYSTEM: &str = include_str!("dashboard/system.js");
const TRY: &str = include_str!("dashboard/try.js");
const ICON: &str = include_str!("dashboard/icon.svg");

/// Nothing from elsewhere, nothing inline, in nobody's frame.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);
/// A new version of the gateway has new files under the same names.
const REVALIDATE: HeaderValue = HeaderValue::from_static("no-cache");
const CROSS_ORIGIN_OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

/// The text for a client that asks for no page.
const INDEX: &str = "fogmux

/topics/<topic>          GET the latest message, PUT to keep one, POST to publish one, DELETE to clear
/subscribe?filter=<f>    server-sent events, NDJSON or WebSocket
/publish                 POST a batch of NDJSON
/mqtt                    MQTT over WebSocket
/.well-known/coap        CoAP over WebSocket
/api/v1/status           administration, for those who may; a browser gets a page here
/login /logout           a session for people
/openapi.json            all of this for machines
/healthz /readyz /metrics
";

/// `/`: the page for a browser, a list of the resources for others.
pub(super) fn index(headers: &HeaderMap) -> Response<Payload> {
    let mut accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut response = if accepted.any(|value| value.contains("text/html")) {
        file("text/html; charset=utf-8", PAGE, headers)
    } else {
        respond::own("text/plain; charset=utf-8", INDEX)
    };
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
    response
}

/// A file that the page loads.
pub(super) fn asset(asset: Asset, headers: &HeaderMap) -> Response<Payload> {
    const SCRIPT: &str = "text/javascript; charset=utf-8";
    let (content_type, text) = match asset {
        Asset::Style => ("text/css; charset=utf-8", STYLE),
        Asset::App => (SCRIPT, APP),
        Asset::Elements => (SCRIPT, ELEMENTS),
        Asset::Api => (SCRIPT, API),
        Asset::Topics => (SCRIPT, TOPICS),
        Asset::Access => (SCRIPT, ACCESS),
        Asset::Sessions => (SCRIPT, SESSIONS),
        Asset::Bench => (SCRIPT, BENCH),
        Asset::Results => (SCRIPT, RESULTS),
        Asset::Views => (SCRIPT, VIEWS),
        Asset::Certificates => (SCRIPT, CERTIFICATES),
        Asset::Commands => (SCRIPT, COMMANDS),
        Asset::Follow => (SCRIPT, FOLLOW),
        Asset::Links => (SCRIPT, LINKS),
        Asset::Past => (SCRIPT, PAST),
        Asset::Qr => (SCRIPT, QR),
        Asset::Rates => (SCRIPT, RATES),
        Asset::Refusals => (SCRIPT, REFUSALS),
        Asset::System => (SCRIPT, SYSTEM),
        Asset::Try => (SCRIPT, TRY),
        Asset::Icon => ("image/svg+xml", ICON),
    };
    file(content_type, text, headers)
}

fn file(content_type: &'static str, text: &'static str, asked: &HeaderMap) -> Response<Payload> {
    let tag = etag(text.as_bytes(), Some(content_type));
    let validators = Validators { etag: tag, modified_unix_ms: 0 };
    let mut response = match Conditions::of(asked).evaluate(Access::Read, Some(validators)) {
        Verdict::NotModified => respond::status(StatusCode::NOT_MODIFIED),
        Verdict::Proceed | Verdict::Failed => respond::own(content_type, Bytes::from_static(text.as_bytes())),
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, REVALIDATE);
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(CROSS_ORIGIN_OPENER_POLICY, HeaderValue::from_static("same-origin"));
    if let Some(tag) = respond::etag(tag) {
        headers.insert(ETAG, tag);
    }
    response
}
