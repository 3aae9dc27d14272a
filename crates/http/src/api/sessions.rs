//! The documents about MQTT sessions.

use serde::Serialize;

/// `GET /api/v1/sessions`.
#[derive(Debug, Serialize)]
pub struct Sessions<'a> {
    /// Sessions in the order in which they began.
    pub sessions: Vec<SessionEntry<'a>>,
    /// The cursor of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A session, with or without a connection.
#[derive(Debug, Serialize)]
pub struct SessionEntry<'a> {
    /// Its number, unique since the start.
    pub id: u64,
    /// The client identifier.
    pub client: &'a str,
    /// The principal that owns it.
    pub principal: &'a str,
    /// Whether it has a connection.
    pub connected: bool,
    /// Whether it ends with its connection.
    pub transient: bool,
    /// Seconds until it ends if no connection comes; absent with a connection, or if it never does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_seconds: Option<u64>,
    /// Its subscriptions.
    pub subscriptions: usize,
    /// Messages that wait to be sent.
    pub queued: usize,
    /// Bytes that they hold.
    pub queued_bytes: usize,
    /// Messages that were sent and not acknowledged.
    pub inflight: usize,
    /// Bytes that they hold.
    pub inflight_bytes: usize,
    /// Where it is.
    pub stored: SessionPlace,
}

/// The place where a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionPlace {
    /// In memory: it ends with the process.
    Memory,
    /// In the store on disk as well.
    Disk,
}

/// `GET /api/v1/sessions/<id>/subscriptions`.
#[derive(Debug, Serialize)]
pub struct Subscriptions<'a> {
    /// The filters, shared ones as `$share/<name>/<filter>`, in their order.
    pub subscriptions: Vec<&'a str>,
    /// The cursor of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl Sessions<'_> {
    /// Writes it as JSON.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        // Nothing in it can fail.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

impl Subscriptions<'_> {
    /// Writes it as JSON.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        // Nothing in it can fail.
        serde_json::to_vec(self).unwrap_or_default()
    }
}
