//! Problem details (RFC 9457): what every refusal carries as `application/problem+json`.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::event::push_json_string;

/// The media type (RFC 9457 §6.1).
pub const CONTENT_TYPE: &str = "application/problem+json";

/// The kind of a problem. Each has one status, one `type` URI and one title (RFC 9457 §3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The request is malformed.
    BadRequest,
    /// The path is not a valid topic.
    InvalidTopic,
    /// A filter is missing or invalid.
    InvalidFilter,
    /// A query parameter has a wrong value.
    InvalidParameter,
    /// A body does not parse.
    InvalidBody,
    /// Credentials are missing or wrong.
    Unauthorized,
    /// A token is not believed, or no longer (RFC 6750 §3.1).
    InvalidToken,
    /// The access-control list refuses.
    Forbidden,
    /// Changes over the API are switched off.
    ChangesOff,
    /// A web page of another origin asked.
    ForeignOrigin,
    /// No such resource.
    NotFound,
    /// The topic keeps no message.
    NoMessage,
    /// The resource does not know the method.
    MethodNotAllowed,
    /// No representation that the client accepts.
    NotAcceptable,
    /// The request did not arrive in time.
    RequestTimeout,
    /// A request with the same `Idempotency-Key` is under way.
    IdempotencyConflict,
    /// A file cannot be changed.
    Unchangeable,
    /// The requester would lose the right to take a change back.
    LosesAdministration,
    /// A condition does not hold.
    PreconditionFailed,
    /// The body is larger than the limit.
    ContentTooLarge,
    /// The body has a type that the resource does not take.
    UnsupportedMediaType,
    /// An expectation other than `100-continue`.
    ExpectationFailed,
    /// `Host` names nothing that this listener serves.
    Misdirected,
    /// An `Idempotency-Key` was used before for another request.
    IdempotencyMismatch,
    /// Rules are not valid.
    InvalidRules,
    /// A value is well-formed and cannot be used.
    Unusable,
    /// A change needs the condition that nobody has changed the same meanwhile (RFC 6585 §3).
    PreconditionRequired,
    /// A WebSocket handshake of another version.
    UpgradeRequired,
    /// Too many at once.
    TooManyRequests,
    /// The header section is too large.
    HeadersTooLarge,
    /// A fault of the gateway.
    Internal,
    /// Memory is short or the gateway is shutting down.
    Unavailable,
    /// A measurement would compete with the work of the gateway.
    Loaded,
    /// The store cannot keep what is to be kept (RFC 4918 §11.5).
    InsufficientStorage,
}

impl Kind {
    /// The status code.
    #[must_use]
    pub const fn status(self) -> u16 {
        self.facts().0
    }

    /// The `type` member (RFC 9457 §3.1.1).
    #[must_use]
    pub const fn uri(self) -> &'static str {
        self.facts().1
    }

    /// The `title` member (RFC 9457 §3.1.3).
    #[must_use]
    pub const fn title(self) -> &'static str {
        self.facts().2
    }

    const fn facts(self) -> (u16, &'static str, &'static str) {
        match self {
            Self::BadRequest => (400, "urn:fogmux:problem:bad-request", "The request is malformed"),
            Self::InvalidTopic => (400, "urn:fogmux:problem:invalid-topic", "The path is no valid topic"),
            Self::InvalidFilter => (400, "urn:fogmux:problem:invalid-filter", "The filter is missing or invalid"),
            Self::InvalidParameter => (400, "urn:fogmux:problem:invalid-parameter", "A query parameter is invalid"),
            Self::InvalidBody => (400, "urn:fogmux:problem:invalid-body", "The body is malformed"),
            Self::Unauthorized => (401, "urn:fogmux:problem:unauthorized", "Credentials are needed"),
            Self::InvalidToken => (401, "urn:fogmux:problem:invalid-token", "The token is not believed"),
            Self::Forbidden => (403, "urn:fogmux:problem:forbidden", "Access is refused"),
            Self::ChangesOff => (403, "urn:fogmux:problem:changes-off", "Changes over the API are switched off"),
            Self::ForeignOrigin => (403, "urn:fogmux:problem:foreign-origin", "The origin is not allowed"),
            Self::NotFound => (404, "urn:fogmux:problem:not-found", "There is no such resource"),
            Self::NoMessage => (404, "urn:fogmux:problem:no-message", "The topic keeps no message"),
            Self::MethodNotAllowed => {
                (405, "urn:fogmux:problem:method-not-allowed", "The resource does not know the method")
            }
            Self::NotAcceptable => (406, "urn:fogmux:problem:not-acceptable", "No acceptable representation"),
            Self::RequestTimeout => (408, "urn:fogmux:problem:request-timeout", "The request took too long"),
            Self::IdempotencyConflict => {
                (409, "urn:fogmux:problem:idempotency-conflict", "The first request with this key is under way")
            }
            Self::Unchangeable => (409, "urn:fogmux:problem:unchangeable", "The file cannot be changed"),
            Self::LosesAdministration => {
                (409, "urn:fogmux:problem:loses-administration", "You could not take the change back")
            }
            Self::PreconditionFailed => (412, "urn:fogmux:problem:precondition-failed", "A condition does not hold"),
            Self::ContentTooLarge => (413, "urn:fogmux:problem:content-too-large", "The body is too large"),
            Self::UnsupportedMediaType => {
                (415, "urn:fogmux:problem:unsupported-media-type", "The media type is not supported")
            }
            Self::ExpectationFailed => (417, "urn:fogmux:problem:expectation-failed", "The expectation is unknown"),
            Self::Misdirected => (421, "urn:fogmux:problem:misdirected", "The host is not served here"),
            Self::IdempotencyMismatch => {
                (422, "urn:fogmux:problem:idempotency-mismatch", "The key belongs to another request")
            }
            Self::InvalidRules => (422, "urn:fogmux:problem:invalid-rules", "The rules are not valid"),
            Self::Unusable => (422, "urn:fogmux:problem:unusable", "A value cannot be used"),
            Self::PreconditionRequired => {
                (428, "urn:fogmux:problem:precondition-required", "The change needs If-Match")
            }
            Self::UpgradeRequired => (426, "urn:fogmux:problem:upgrade-required", "A WebSocket handshake is needed"),
            Self::TooManyRequests => (429, "urn:fogmux:problem:too-many-requests", "Too much at once"),
            Self::HeadersTooLarge => (431, "urn:fogmux:problem:headers-too-large", "The header section is too large"),
            Self::Internal => (500, "urn:fogmux:problem:internal", "The gateway failed"),
            Self::Unavailable => (503, "urn:fogmux:problem:unavailable", "The gateway cannot take this now"),
            Self::Loaded => (503, "urn:fogmux:problem:loaded", "The gateway is at work"),
            Self::InsufficientStorage => (507, "urn:fogmux:problem:insufficient-storage", "The store cannot keep it"),
        }
    }
}

/// A problem: the reason why a request is refused (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem<'a> {
    /// The kind of the problem.
    pub kind: Kind,
    /// A human-readable explanation of this occurrence. Never contains a payload or a secret.
    pub detail: Option<Cow<'a, str>>,
    /// The value of `Retry-After` in seconds (RFC 9110 §10.2.3).
    pub retry_after_seconds: Option<u32>,
}

impl<'a> Problem<'a> {
    /// A problem without details.
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        Self { kind, detail: None, retry_after_seconds: None }
    }

    /// Adds what happened this time.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<Cow<'a, str>>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Adds when to try again.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after_seconds = Some(seconds);
        self
    }

    /// The status code.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.kind.status()
    }

    /// Appends the members, without braces, so that a caller may put its own before them.
    pub fn write_members(&self, out: &mut Vec<u8>) {
        let mut text = String::with_capacity(160);
        // Writing to a `String` cannot fail.
        let _ = write!(
            text,
            "\"type\":\"{}\",\"title\":\"{}\",\"status\":{}",
            self.kind.uri(),
            self.kind.title(),
            self.status()
        );
        out.extend_from_slice(text.as_bytes());
        if let Some(detail) = &self.detail {
            out.extend_from_slice(b",\"detail\":");
            push_json_string(detail, out);
        }
    }

    /// The body.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(224);
        out.push(b'{');
        self.write_members(&mut out);
        out.push(b'}');
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_json_with_the_members_of_the_standard() {
        let problem = Problem::new(Kind::InvalidTopic).detail("a \"quoted\" detail\n");
        let value: serde_json::Value = serde_json::from_slice(&problem.to_json()).unwrap();
        assert_eq!(value["status"], 400);
        assert_eq!(value["type"], "urn:fogmux:problem:invalid-topic");
        assert_eq!(value["detail"], "a \"quoted\" detail\n");
    }
}
