//! Experiments as data: one experiment is one row of a table.
//!
//! An experiment contains everything that a result depends on. A report prints it, a paper's file sets it key by key,
//! and two runs are the same if it is equal. Keys are flat: `door = "mqtt"`, `qos = 1`.

mod arrivals;
mod bounds;
mod clock;
mod coap;
mod error;
mod follow;
mod offers;
mod qos;
mod server;
mod suite;

use std::fmt;
use std::str::FromStr;

use fogmux_coap::transmission::Transmission;
use fogmux_net::profile::{self, Profile};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use self::arrivals::Arrivals;
pub use self::clock::Clock;
pub use self::coap::{CoapAnswer, CoapServer, CoapToken};
pub use self::error::ExperimentError;
pub use self::follow::Follow;
pub use self::qos::Qos;
pub use self::server::{Durability, Rules, ServerKey};
pub use self::suite::{Group, Proof, Suite};

/// A protocol over a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Door {
    /// MQTT 3.1.1 over TCP.
    Mqtt,
    /// MQTT 5 over TCP.
    Mqtt5,
    /// MQTT 3.1.1 over WebSocket.
    MqttWs,
    /// CoAP over UDP (RFC 7252).
    Coap,
    /// CoAP over TCP (RFC 8323).
    CoapTcp,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2; without TLS with prior knowledge.
    Http2,
    /// HTTP/3; always TLS 1.3.
    Http3,
    /// XMPP publish-subscribe (XEP-0060); TLS by STARTTLS.
    Xmpp,
    /// The same with TLS from the first byte.
    Xmpps,
}

impl Door {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 10] = [
        Self::Mqtt,
        Self::Mqtt5,
        Self::MqttWs,
        Self::Coap,
        Self::CoapTcp,
        Self::Http1,
        Self::Http2,
        Self::Http3,
        Self::Xmpp,
        Self::Xmpps,
    ];

    /// As files and the command line write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mqtt => "mqtt",
            Self::Mqtt5 => "mqtt5",
            Self::MqttWs => "mqtt-ws",
            Self::Coap => "coap",
            Self::CoapTcp => "coap-tcp",
            Self::Http1 => "http1",
            Self::Http2 => "http2",
            Self::Http3 => "http3",
            Self::Xmpp => "xmpp",
            Self::Xmpps => "xmpps",
        }
    }
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Door {
    type Err = ExperimentError;

    fn from_str(text: &str) -> Result<Self, ExperimentError> {
        Self::ALL
            .into_iter()
            .find(|door| door.name() == text)
            .ok_or_else(|| ExperimentError::Unknown("door", text.to_owned()))
    }
}

/// How a connection is protected: `none`, the name of a profile, `oscore`, or `oscore+` and a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Security {
    /// TLS or DTLS below the protocol.
    pub profile: &'static Profile,
    /// RFC 8613 on top of it; with CoAP only.
    pub oscore: bool,
}

impl Security {
    /// Nothing at all.
    pub const NONE: Self = Self { profile: &profile::NONE, oscore: false };

    /// Whether there is TLS or DTLS.
    #[must_use]
    pub fn is_secure(self) -> bool {
        self.profile.is_encrypted()
    }
}

impl fmt::Display for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.oscore, self.is_secure()) {
            (true, true) => write!(f, "oscore+{}", self.profile.name),
            (true, false) => f.write_str("oscore"),
            (false, _) => f.write_str(self.profile.name),
        }
    }
}

impl FromStr for Security {
    type Err = ExperimentError;

    fn from_str(text: &str) -> Result<Self, ExperimentError> {
        let (oscore, name) = match text.strip_prefix("oscore") {
            Some("") => return Ok(Self { oscore: true, ..Self::NONE }),
            Some(rest) => (true, rest.strip_prefix('+').unwrap_or(text)),
            None => (false, text),
        };
        let unknown = || ExperimentError::Unknown("security profile", text.to_owned());
        Ok(Self { profile: Profile::named(name).ok_or_else(unknown)?, oscore })
    }
}

impl Serialize for Security {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Security {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The credential of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Credential {
    /// The credential of the profile: a certificate with `high` and `pki`, a key with `psk`, a context with OSCORE,
    /// otherwise a password if the door supports one.
    #[default]
    OfProfile,
    /// No credential.
    Anonymous,
    /// User and password.
    Password,
    /// A client certificate.
    Certificate,
    /// A bearer token.
    Token,
}

/// The operation that clients repeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Publishers send, subscribers receive: SUBSCRIBE, Observe, an event stream, a pubsub subscription.
    #[default]
    Deliver,
    /// The retained message is asked for; every client asks alone.
    Get,
    /// The retained message is replaced, and nobody listens.
    Put,
    /// A message is published that is not kept, and nobody listens.
    Post,
    /// Connections are made, used for `messages` retained messages each, and closed again; `count` of them.
    Connect,
    /// Connections are made and held.
    Hold,
}

/// The purpose of a connection of [`Operation::Connect`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Visit {
    /// Its messages are published.
    #[default]
    Publish,
    /// A retained message is asked for.
    Get,
}

/// One experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Experiment {
    /// The door of publishers and of clients that send requests.
    pub door: Door,
    /// The door of subscribers, if different.
    pub reader_door: Option<Door>,
    /// The protection of both.
    pub security: Security,
    /// The credential of clients.
    pub credential: Credential,
    /// The operation of clients.
    pub operation: Operation,
    /// The QoS of publications and of subscriptions.
    pub qos: Qos,
    /// The way in which a CoAP server answers.
    pub coap_answer: CoapAnswer,
    /// The server of requests over CoAP.
    pub coap_server: CoapServer,
    /// The time that a CoAP origin takes for the answer to a GET, as of a sensor that has to be read, in seconds.
    pub coap_delay_seconds: f64,
    /// The shortest wait of CoAP's clients for an acknowledgement (RFC 7252 §4.8, ACK_TIMEOUT), in seconds.
    pub coap_ack_timeout_seconds: f64,
    /// The tokens of requests over CoAP.
    pub coap_token: CoapToken,
    /// The key of the gateway's certificate.
    pub server_key: ServerKey,
    /// The one cipher suite that clients offer; none: those of the profile.
    pub suite: Option<Suite>,
    /// The one group that clients offer; none: all.
    pub named_group: Option<Group>,
    /// The access rules of the gateway.
    pub rules: Rules,
    /// The durability of the gateway.
    pub durability: Durability,
    /// Bytes of a payload.
    pub payload_bytes: usize,
    /// Publishers, or clients that ask; with `Connect` and `Hold` how many connections at once and in all.
    pub publishers: u32,
    /// Subscribers.
    pub subscribers: u32,
    /// Threads of the generator, among which topics are divided, with their publishers and subscribers.
    pub threads: u32,
    /// Topics: publisher i sends to topic i mod topics, subscriber j follows j mod topics.
    pub topics: u32,
    /// Their names; `{}` stands for the number.
    pub topic: String,
    /// The topics that each subscriber follows.
    pub follow: Follow,
    /// The time over which publishers begin to connect, one after the other, in seconds; 0: as fast as they can.
    pub start_spread_seconds: f64,
    /// Unanswered operations of one publisher at most; 0: without bound.
    pub window: u32,
    /// Deliveries that are under way over all, at most; 0: without bound.
    pub in_flight: u32,
    /// Operations a second of all publishers together, at intended times; none: as fast as the windows let.
    pub rate: Option<f64>,
    /// The rate at the end, if it rises or falls from `rate` in a straight line through the measured time; none: it
    /// stays.
    pub rate_to: Option<f64>,
    /// How operations that come at a rate are spread over time.
    pub arrivals: Arrivals,
    /// The pause of each client from an answer to its next operation, in seconds; one operation is under way then.
    pub gap_seconds: Option<f64>,
    /// From when operations are due that come at a rate, and from when the measurement counts.
    pub clock: Clock,
    /// Operations of all publishers together; none: until the time is over.
    pub count: Option<u64>,
    /// Messages of one connection, with `Connect`.
    pub messages: u32,
    /// The longest time in which operations begin, in seconds.
    pub seconds: f64,
    /// The time before the measurement begins, in seconds; ignored with a `count`.
    pub warm_up_seconds: f64,
    /// The time to wait for missing messages after the last delivery, in seconds.
    pub drain_seconds: f64,
    /// Whether publications are retained (retain, PUT, persisted items) or transient.
    pub retain: bool,
    /// The network between the two ends: `loopback`, `lossless`, a preset, or conditions as `loss=5%,delay=20ms`.
    pub link: String,
    /// The share of subscribers (of `Hold`: of connections) that leave in good order a second, and come back at once.
    pub churn: Option<f64>,
    /// When all of them break off at once and come back as fast as they can, in seconds since the measurement began.
    pub storm_seconds: Option<f64>,
    /// The seed of all random choices.
    pub seed: u64,
    /// The use of the messages of `Connect`.
    pub visit: Visit,
    /// The number of additional subscribers that connect before `Connect` begins and receive its publications.
    pub followers: u32,
}

impl Default for Experiment {
    fn default() -> Self {
        Self {
            door: Door::Mqtt,
            reader_door: None,
            security: Security::NONE,
            credential: Credential::OfProfile,
            operation: Operation::Deliver,
            qos: Qos::AtMostOnce,
            coap_answer: CoapAnswer::Piggybacked,
            coap_server: CoapServer::Gateway,
            coap_delay_seconds: 0.0,
            coap_ack_timeout_seconds: Transmission::default().ack_timeout.as_secs_f64(),
            coap_token: CoapToken::MessageId,
            server_key: ServerKey::OfProfile,
            suite: None,
            named_group: None,
            rules: Rules::Open,
            durability: Durability::Default,
            payload_bytes: 64,
            publishers: 1,
            subscribers: 1,
            threads: 1,
            topics: 1,
            topic: "bench/{}".to_owned(),
            follow: Follow::Topic,
            start_spread_seconds: 0.0,
            window: 100,
            in_flight: 0,
            rate: None,
            rate_to: None,
            arrivals: Arrivals::Even,
            gap_seconds: None,
            clock: Clock::Connected,
            count: None,
            messages: 0,
            seconds: 5.0,
            warm_up_seconds: 0.5,
            drain_seconds: 3.0,
            retain: false,
            link: "loopback".to_owned(),
            churn: None,
            storm_seconds: None,
            seed: 1,
            visit: Visit::Publish,
            followers: 0,
        }
    }
}

impl Experiment {
    /// The door of the subscribers.
    #[must_use]
    pub fn reader_door(&self) -> Door {
        self.reader_door.unwrap_or(self.door)
    }

    /// With what follows of the operation: PUT and what is asked for are kept, POST is not.
    #[must_use]
    pub fn normalized(mut self) -> Self {
        match self.operation {
            Operation::Get | Operation::Put => self.retain = true,
            Operation::Post => self.retain = false,
            Operation::Deliver | Operation::Connect | Operation::Hold => {}
        }
        self
    }

    /// Whether there is time before the measurement: none with a count, nor where making connections is the operation.
    #[must_use]
    pub fn has_warm_up(&self) -> bool {
        let connects = matches!(self.operation, Operation::Connect | Operation::Hold);
        self.count.is_none() && !connects && self.warm_up_seconds > 0.0
    }

    /// Whether its messages are deliveries at subscribers. Else they are answered operations, whatever came of either.
    #[must_use]
    pub fn delivers(&self) -> bool {
        match self.operation {
            Operation::Deliver => self.subscribers > 0,
            Operation::Connect => self.followers > 0 && self.messages > 0 && self.visit == Visit::Publish,
            Operation::Get | Operation::Put | Operation::Post | Operation::Hold => false,
        }
    }

    /// The mean rate of the measured time, where there is one.
    #[must_use]
    pub fn mean_rate(&self) -> Option<f64> {
        self.rate.map(|rate| self.rate_to.map_or(rate, |to| f64::midpoint(rate, to)))
    }

    /// In a few words, for a line of a table.
    #[must_use]
    pub fn title(&self) -> String {
        let doors = match self.reader_door.filter(|reader| *reader != self.door) {
            Some(reader) => format!("{}→{reader}", self.door),
            None => self.door.to_string(),
        };
        format!("{doors} {} q{} {} B", self.security, self.qos.level(), self.payload_bytes)
    }
}
