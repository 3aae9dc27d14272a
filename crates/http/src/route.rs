//! Routes: the resource that a raw request path names, and its methods (RFC 9110 §9, §10.2.1).
//!
//! The path is the one of the request line, still encoded: a router that decodes or normalises on the way would change
//! topics. Empty levels are levels, a trailing slash is an empty last level, and `/topics/` is followed by exactly one
//! topic, decoded once.

use std::borrow::Cow;

use crate::api::Resource;
use crate::percent::{self, Malformed};
use crate::problem::{Kind, Problem};

/// Longest topic in bytes, the length of an MQTT string ([MQTT-1.5.4]).
pub const TOPIC_BYTES_MAX: usize = 65_535;

/// RFC 8555 §8.3.
const ACME_CHALLENGE: &str = "/.well-known/acme-challenge/";

/// The resource that a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route<'a> {
    /// `/topics/<topic>`: one topic, decoded and checked.
    Topic(Cow<'a, str>),
    /// `/subscribe`: streams of events.
    Subscribe,
    /// `/publish`: a batch of messages.
    Publish,
    /// `/mqtt`: MQTT over WebSocket.
    Mqtt,
    /// `/.well-known/coap`: CoAP over WebSocket (RFC 8323 §8.1).
    Coap,
    /// `/.well-known/acme-challenge/<token>` (RFC 8555 §8.3): the token, which may be any.
    AcmeChallenge(&'a str),
    /// `/openapi.json`.
    OpenApi,
    /// `/healthz`: the process responds.
    Health,
    /// `/readyz`: the process takes traffic.
    Ready,
    /// `/metrics`.
    Metrics,
    /// `/`: the page for people.
    Index,
    /// `/login`: a session for a person.
    Login,
    /// `/logout`: its end.
    Logout,
    /// `/api/v1/…`: administration.
    Api(Resource),
    /// `/dashboard/…`: a file of the page at `/`.
    Asset(Asset),
    /// `*` of `OPTIONS *` (RFC 9110 §9.3.7).
    Server,
}

/// A file that the page at `/` loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asset {
    /// Its style sheet.
    Style,
    /// Its program.
    App,
    /// A module of it: building elements and drawing.
    Elements,
    /// A module of it: requests to the API.
    Api,
    /// A module of it: the topics.
    Topics,
    /// A module of it: users and rules.
    Access,
    /// A module of it: MQTT sessions.
    Sessions,
    /// A module of it: measurements.
    Bench,
    /// A module of it: the results of measurements.
    Results,
    /// A module of it: the other views.
    Views,
    /// A module of it: certificates.
    Certificates,
    /// A module of it: commands for each door.
    Commands,
    /// A module of it: messages that are followed.
    Follow,
    /// A module of it: links to other brokers.
    Links,
    /// A module of it: the last values of topics.
    Past,
    /// A module of it: QR codes.
    Qr,
    /// A module of it: deliveries by pair of doors.
    Rates,
    /// A module of it: refused logins and actions.
    Refusals,
    /// A module of it: the machine.
    System,
    /// A module of it: a place to try it.
    Try,
    /// Its icon.
    Icon,
}

impl Asset {
    fn parse(name: &str) -> Option<Self> {
        match name {
            "style.css" => Some(Self::Style),
            "app.js" => Some(Self::App),
            "elements.js" => Some(Self::Elements),
            "api.js" => Some(Self::Api),
            "topics.js" => Some(Self::Topics),
            "access.js" => Some(Self::Access),
            "sessions.js" => Some(Self::Sessions),
            "bench.js" => Some(Self::Bench),
            "results.js" => Some(Self::Results),
            "views.js" => Some(Self::Views),
            "certificates.js" => Some(Self::Certificates),
            "commands.js" => Some(Self::Commands),
            "follow.js" => Some(Self::Follow),
            "links.js" => Some(Self::Links),
            "past.js" => Some(Self::Past),
            "qr.js" => Some(Self::Qr),
            "rates.js" => Some(Self::Rates),
            "refusals.js" => Some(Self::Refusals),
            "system.js" => Some(Self::System),
            "try.js" => Some(Self::Try),
            "icon.svg" => Some(Self::Icon),
            _ => None,
        }
    }
}

/// Why a path names no resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unroutable {
    /// No resource has this path.
    #[error("there is no resource of this path")]
    Unknown,
    /// The topic is empty.
    #[error("a topic has at least one character")]
    Empty,
    /// The topic exceeds [`TOPIC_BYTES_MAX`].
    #[error("a topic has at most 65535 bytes")]
    TooLong,
    /// A percent sign is not followed by two hexadecimal digits.
    #[error("a percent sign is not followed by two hexadecimal digits")]
    Percent,
    /// The decoded topic is not UTF-8.
    #[error("a topic is UTF-8")]
    Utf8,
    /// The topic contains U+0000.
    #[error("a topic has no NUL")]
    Nul,
    /// The topic contains `+` or `#`.
    #[error("a topic has no wildcard; wildcards go to /subscribe?filter=")]
    Wildcard,
}

impl Unroutable {
    /// The response to it.
    #[must_use]
    pub fn problem(self) -> Problem<'static> {
        let kind = match self {
            Self::Unknown => Kind::NotFound,
            Self::Empty | Self::TooLong | Self::Percent | Self::Utf8 | Self::Nul | Self::Wildcard => Kind::InvalidTopic,
        };
        Problem::new(kind).detail(self.to_string())
    }
}

impl<'a> Route<'a> {
    /// Parses the path of a request target, without its query.
    pub fn parse(path: &'a str) -> Result<Self, Unroutable> {
        if let Some(topic) = path.strip_prefix("/topics/") {
            return topic_of(topic).map(Self::Topic);
        }
        if let Some(rest) = path.strip_prefix("/api/v1/") {
            return Resource::parse(rest).map(Self::Api).ok_or(Unroutable::Unknown);
        }
        if let Some(name) = path.strip_prefix("/dashboard/") {
            return Asset::parse(name).map(Self::Asset).ok_or(Unroutable::Unknown);
        }
        match path {
            "/subscribe" => Ok(Self::Subscribe),
            "/publish" => Ok(Self::Publish),
            // Some clients use this base path.
            "/mqtt" | "/mqtt/" => Ok(Self::Mqtt),
            "/.well-known/coap" => Ok(Self::Coap),
            "/openapi.json" => Ok(Self::OpenApi),
            "/healthz" => Ok(Self::Health),
            "/readyz" => Ok(Self::Ready),
            "/metrics" => Ok(Self::Metrics),
            "/" => Ok(Self::Index),
            "/login" => Ok(Self::Login),
            "/logout" => Ok(Self::Logout),
            "*" => Ok(Self::Server),
            _ => path.strip_prefix(ACME_CHALLENGE).map(Self::AcmeChallenge).ok_or(Unroutable::Unknown),
        }
    }

    /// The value of `Allow`.
    #[must_use]
    pub fn allow(&self) -> &'static str {
        match self {
            Self::Topic(_) => "GET, HEAD, PUT, POST, DELETE, OPTIONS",
            Self::Publish | Self::Logout => "POST, OPTIONS",
            Self::Login => "GET, HEAD, POST, OPTIONS",
            Self::Subscribe
            | Self::Mqtt
            | Self::Coap
            | Self::AcmeChallenge(_)
            | Self::OpenApi
            | Self::Health
            | Self::Ready
            | Self::Metrics
            | Self::Asset(_)
            | Self::Index => "GET, HEAD, OPTIONS",
            Self::Api(resource) => resource.allow(),
            Self::Server => "GET, HEAD, PUT, POST, DELETE, OPTIONS",
        }
    }

    /// Whether the route needs no credentials, as liveness probes have none.
    #[must_use]
    pub fn is_open(&self) -> bool {
        match self {
            Self::Health | Self::Ready | Self::OpenApi | Self::Index | Self::Server | Self::Login | Self::Logout => {
                true
            }
            // The page itself has no secret; what it asks for needs the right to it.
            Self::Asset(_) => true,
            // The MQTT session inside authenticates with CONNECT, CoAP by its messages or the handshake below.
            Self::Mqtt | Self::Coap => true,
            // An ACME server has no credentials. There is nothing but challenges under way.
            Self::AcmeChallenge(_) => true,
            Self::Topic(_) | Self::Subscribe | Self::Publish | Self::Metrics | Self::Api(_) => false,
        }
    }
}

fn topic_of(encoded: &str) -> Result<Cow<'_, str>, Unroutable> {
    // Three encoded bytes per byte at most: longer cannot decode to a topic, so do not try.
    if encoded.len() > TOPIC_BYTES_MAX * 3 {
        return Err(Unroutable::TooLong);
    }
    let topic = percent::decode(encoded).map_err(|malformed| match malformed {
        Malformed::Percent => Unroutable::Percent,
        Malformed::Utf8 => Unroutable::Utf8,
    })?;
    if topic.is_empty() {
        return Err(Unroutable::Empty);
    }
    if topic.len() > TOPIC_BYTES_MAX {
        return Err(Unroutable::TooLong);
    }
    match topic.bytes().find(|byte| matches!(byte, 0 | b'+' | b'#')) {
        None => Ok(topic),
        Some(0) => Err(Unroutable::Nul),
        Some(_) => Err(Unroutable::Wildcard),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn topic(path: &str) -> Result<String, Unroutable> {
        let route = Route::parse(path)?;
        let Route::Topic(topic) = route else { panic!("{route:?}") };
        Ok(topic.into_owned())
    }

    #[test]
    fn empty_levels_are_kept_and_nothing_is_normalised() {
        assert_eq!(topic("/topics//a//b/").unwrap(), "/a//b/");
        assert_eq!(topic("/topics/a/../b").unwrap(), "a/../b");
        assert_eq!(topic("/topics/%2Fa%252F").unwrap(), "/a%2F");
        assert_eq!(topic("/topics/$SYS/x;y=1").unwrap(), "$SYS/x;y=1");
    }

    #[test]
    fn what_is_no_topic_is_refused() {
        assert_eq!(topic("/topics/"), Err(Unroutable::Empty));
        assert_eq!(topic("/topics/a%00"), Err(Unroutable::Nul));
        assert_eq!(topic("/topics/a/%23"), Err(Unroutable::Wildcard));
        assert_eq!(topic("/topics/a/+"), Err(Unroutable::Wildcard));
        assert_eq!(topic("/topics/%c0%80"), Err(Unroutable::Utf8));
        assert_eq!(Route::parse("/topics"), Err(Unroutable::Unknown));
        assert_eq!(topic(&format!("/topics/{}", "a".repeat(65_536))), Err(Unroutable::TooLong));
    }

    proptest! {
        #[test]
        fn every_topic_has_a_path(name in "[^\u{0}+#]{1,60}") {
            let mut path = String::from("/topics/");
            percent::encode_path(&name, &mut path);
            prop_assert!(path.is_ascii());
            prop_assert_eq!(topic(&path), Ok(name));
        }

        #[test]
        fn any_path_is_answered(path in ".*") {
            let _ = Route::parse(&path);
            let _ = Route::parse(&format!("/topics/{path}"));
        }
    }
}
