//! The JSON documents that the API answers with.

use serde::{Serialize, Serializer};

use crate::time::push_rfc3339;

/// A moment in milliseconds since 1970, written as RFC 3339.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment(pub u64);

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = Vec::with_capacity(24);
        push_rfc3339(self.0, &mut text);
        serializer.serialize_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

macro_rules! json {
    ($($document:ident)*) => {
        $(impl $document<'_> {
            /// Writes it as JSON.
            #[must_use]
            pub fn to_json(&self) -> Vec<u8> {
                // Nothing in it can fail: no map with other keys than text, no number that JSON lacks.
                serde_json::to_vec(self).unwrap_or_default()
            }
        })*
    };
}

json!(Status Topics Listeners Clients RuleAnswer);

/// `GET /api/v1/status`.
#[derive(Debug, Serialize)]
pub struct Status<'a> {
    /// The version of the gateway.
    pub version: &'a str,
    /// The domain of its users.
    pub realm: &'a str,
    /// Whether it takes publications, as `/readyz` says.
    pub ready: bool,
    /// When it started.
    pub started: Moment,
    /// Seconds since then, by the monotonic clock.
    pub uptime_seconds: u64,
    /// Its memory.
    pub memory: Memory,
    /// Messages since the start.
    pub messages: Messages,
    /// Retained messages, with the bytes that they take up.
    pub retained: Table,
    /// Subscriptions, with the bytes that they take up.
    pub subscriptions: Table,
    /// MQTT sessions.
    pub sessions: usize,
    /// Those without a connection.
    pub sessions_away: usize,
    /// The store; absent when everything is in memory only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreStatus<'a>>,
    /// The doors.
    pub doors: Vec<DoorStatus<'a>>,
    /// Deliveries by the doors of publisher and subscriber, without pairs that have had none.
    pub deliveries: Vec<PairStatus<'a>>,
}

/// The memory of the process.
#[derive(Debug, Serialize)]
pub struct Memory {
    /// The resident set; absent where the system does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<u64>,
    /// Its peak.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident_bytes_max: Option<u64>,
    /// Bytes that wait in mailboxes of subscribers.
    pub mailbox_bytes: usize,
    /// Whether these are above the mark at which publishers wait.
    pub pressure: bool,
}

/// Messages of all doors, since the start.
#[derive(Debug, Serialize)]
pub struct Messages {
    /// Publications that came in.
    pub published: u64,
    /// Deliveries handed to mailboxes.
    pub delivered: u64,
    /// Messages that mailboxes handed to connections.
    pub sent: u64,
    /// Deliveries dropped, for whatever reason.
    pub dropped: u64,
    /// Publications refused.
    pub refused: u64,
}

/// The size of a table.
#[derive(Debug, Serialize)]
pub struct Table {
    /// Its entries.
    pub count: usize,
    /// Their bytes.
    pub bytes: usize,
}

/// The state of the store.
#[derive(Debug, Serialize)]
pub struct StoreStatus<'a> {
    /// `writable`, `full`, `read-only` or `failed`.
    pub state: &'a str,
    /// Bytes of its files.
    pub disk_bytes: u64,
    /// Commits since the start.
    pub commits: u64,
    /// Writes refused since the start.
    pub refused: u64,
    /// Whether it was damaged at the start and has lost something.
    pub lost: bool,
}

/// The counters of a door.
#[derive(Debug, Serialize)]
pub struct DoorStatus<'a> {
    /// Its name.
    pub door: &'a str,
    /// Open connections.
    pub connections: i64,
    /// Connections accepted since the start.
    pub accepted: u64,
    /// Connections turned away by a limit.
    pub rejected: u64,
    /// Logins refused.
    pub unauthenticated: u64,
    /// Actions refused by a rule.
    pub unauthorized: u64,
    /// Peers that broke the protocol.
    pub misbehaved: u64,
    /// Peers cut because they were too slow.
    pub timed_out: u64,
    /// Publications that came in.
    pub published: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

/// The deliveries of a pair of doors.
#[derive(Debug, Serialize)]
pub struct PairStatus<'a> {
    /// The publisher's door.
    pub from: &'a str,
    /// The subscriber's door.
    pub to: &'a str,
    /// Deliveries that were written, since the start: of many an estimate by a sample, in which each stands for 128.
    pub delivered: u64,
    /// The mean time from when a publication was taken until it was written, in milliseconds.
    pub mean_ms: f64,
}

/// `GET /api/v1/topics`.
#[derive(Debug, Serialize)]
pub struct Topics<'a> {
    /// The retained messages that the requester may read, in order of topic.
    pub topics: Vec<TopicEntry<'a>>,
    /// The cursor of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A retained message without its payload.
#[derive(Debug, Serialize)]
pub struct TopicEntry<'a> {
    /// The topic.
    pub topic: &'a str,
    /// Bytes of the payload.
    pub bytes: usize,
    /// MIME type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<&'a str>,
    /// The QoS it was published with.
    pub qos: u8,
    /// When it came in.
    pub time: Moment,
    /// The door it came in by; absent for the gateway's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub door: Option<&'a str>,
    /// The publisher's principal.
    pub publisher: &'a str,
    /// Seconds until it expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_seconds: Option<u32>,
}

/// `GET /api/v1/listeners`.
#[derive(Debug, Serialize)]
pub struct Listeners<'a> {
    /// All of them.
    pub listeners: Vec<ListenerEntry<'a>>,
    /// The requester, who may not reach all of them.
    pub visitor: Visitor<'a>,
}

/// The requester of the list of listeners.
#[derive(Debug, Serialize)]
pub struct Visitor<'a> {
    /// Whether it is on this machine.
    pub local: bool,
    /// Its name; absent for an anonymous one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<&'a str>,
}

/// A listener at one of its addresses.
#[derive(Debug, Serialize)]
pub struct ListenerEntry<'a> {
    /// Its name in the configuration.
    pub listener: &'a str,
    /// Its protocol: the name that a listener of this kind has by default.
    pub kind: &'a str,
    /// Its door.
    pub door: &'a str,
    /// Its address with the port that it was given.
    pub address: String,
    /// Its port.
    pub port: u16,
    /// Whether it is open.
    pub open: bool,
    /// Why it is not open; it is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Its security profile.
    pub profile: &'a str,
    /// Whether it is encrypted.
    pub encrypted: bool,
    /// Whether it admits anonymous clients on this machine now.
    pub anonymous: bool,
    /// Whether it admits those beyond this machine now.
    pub remote_anonymous: bool,
}

/// `GET /api/v1/clients`.
#[derive(Debug, Serialize)]
pub struct Clients<'a> {
    /// Connections in the order in which they came.
    pub clients: Vec<Client<'a>>,
    /// The cursor of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A connection.
#[derive(Debug, Serialize)]
pub struct Client<'a> {
    /// Its number, unique since the start.
    pub id: u64,
    /// Its door.
    pub door: &'a str,
    /// Its listener in the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listener: Option<&'a str>,
    /// The address of the client.
    pub address: String,
    /// Its principal.
    pub principal: &'a str,
    /// Its client identifier, or resource.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub client: &'a str,
    /// When it logged in.
    pub since: Moment,
}

/// The answer of `POST /api/v1/rules/test`.
#[derive(Debug, Default, Serialize)]
pub struct RuleAnswer<'a> {
    /// Whether the action is allowed, in part at least.
    pub allowed: bool,
    /// The decision in words.
    pub text: &'a str,
    /// The name of the principal, if it is let in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<&'a str>,
    /// Its groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<&'a str>,
    /// The assumption of the answer about a principal that is in no file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<&'a str>,
    /// The rule that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The file that it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Its line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
}
