//! The document of `GET /api/v1/refusals`.

use serde::Serialize;

use super::Moment;

/// `GET /api/v1/refusals`.
#[derive(Debug, Serialize)]
pub struct Refusals {
    /// Those that are kept, the last first.
    pub refusals: Vec<RefusalEntry>,
}

/// A refused login or action, as the log names it.
#[derive(Debug, Serialize)]
pub struct RefusalEntry {
    /// `login` or `action`.
    pub kind: &'static str,
    /// When it came first.
    pub first: Moment,
    /// When it came last.
    pub last: Moment,
    /// How often it came.
    pub count: u64,
    /// Other refusals of the same client that came too fast to be kept.
    pub others: u64,
    /// The door.
    pub door: &'static str,
    /// The address of the peer when it came first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The client identifier.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub client: Box<str>,
    /// The reason in words.
    pub reason: String,
    /// The rest of a login.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub login: Option<RefusedLogin>,
    /// The rest of an action, as `POST /api/v1/rules/test` takes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<RefusedAction>,
}

/// The credential of a refused login.
#[derive(Debug, Serialize)]
pub struct RefusedLogin {
    /// Its kind: `password`, `token`, `certificate`, `psk` …
    pub by: Box<str>,
    /// The name that was claimed.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub claimed: Box<str>,
}

/// A refused action.
#[derive(Debug, Serialize)]
pub struct RefusedAction {
    /// The principal.
    pub identity: Box<str>,
    /// The groups that its credential gave.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// `read` or `write`.
    pub action: &'static str,
    /// The topic or filter.
    pub topic: Box<str>,
    /// Whether only the beginning of the topic is kept.
    pub topic_cut: bool,
    /// The file of the rule that refused it; absent if no rule allows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line of the rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
}

impl Refusals {
    /// Writes it as JSON.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}
