//! The document of `GET /api/v1/links`.

use serde::Serialize;

use super::Moment;

/// `GET /api/v1/links`.
#[derive(Debug, Serialize)]
pub struct Links<'a> {
    /// By name.
    pub links: Vec<LinkEntry<'a>>,
}

/// A link to another broker.
#[derive(Debug, Serialize)]
pub struct LinkEntry<'a> {
    /// The name in the configuration.
    pub name: &'a str,
    /// The other broker, without credentials.
    pub url: &'a str,
    /// Whether it passes messages on.
    pub connected: bool,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Moment>,
    /// The last failure, however long ago.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LinkFailure>,
    /// Messages for the other broker.
    pub out: LinkWay,
    /// Messages from the other broker.
    #[serde(rename = "in")]
    pub inward: LinkWay,
    /// The messages that wait for the other broker.
    pub queue: LinkQueue,
}

/// The failure of a link.
#[derive(Debug, Serialize)]
pub struct LinkFailure {
    /// In words.
    pub text: String,
    /// When it was.
    pub at: Moment,
}

/// One direction of a link.
#[derive(Debug, Serialize)]
pub struct LinkWay {
    /// Messages passed on; those sent again count again.
    pub messages: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// Messages dropped.
    pub dropped: Vec<LinkDrop>,
}

/// Messages dropped for one reason.
#[derive(Debug, Serialize)]
pub struct LinkDrop {
    /// `refused`, `too_large`, `unmapped` or `slow`.
    pub reason: &'static str,
    /// Their number.
    pub count: u64,
}

/// The messages that wait for a link.
#[derive(Debug, Serialize)]
pub struct LinkQueue {
    /// Messages, in flight or not sent yet.
    pub messages: usize,
    /// Bytes that they hold.
    pub bytes: usize,
}

impl Links<'_> {
    /// Writes it as JSON.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}
