//! The flags of an experiment: the operation, its rate, and the network.

use std::str::FromStr;

use clap::Args;
use fogmux_traffic::experiment::{
    Arrivals, Clock, CoapAnswer, CoapServer, CoapToken, Credential, Durability, Follow, Group, Operation, Qos, Rules,
    ServerKey, Suite, Visit,
};
use fogmux_traffic::{Door, Experiment, Security};

use super::{Given, qos, word};

/// A rate that stays, or one that rises or falls to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rate {
    first: f64,
    last: Option<f64>,
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            let parsed = text.parse::<f64>();
            parsed.map_err(|_| format!("{text:?} is no number of operations a second, such as 100 or 100..5000"))
        };
        match text.split_once("..") {
            Some((first, last)) => Ok(Self { first: number(first)?, last: Some(number(last)?) }),
            None => Ok(Self { first: number(text)?, last: None }),
        }
    }
}

/// The operation, and its rate.
#[derive(Clone, Debug, Args)]
pub(crate) struct Shape {
    #[command(flatten)]
    pub(crate) given: Given,
    /// Door of publishers: mqtt, mqtt5, mqtt-ws, coap, coap-tcp, http1, http2, http3, xmpp, xmpps
    #[arg(long, default_value = "mqtt")]
    pub(crate) door: Door,
    /// Door of subscribers [default: as --door]
    #[arg(long, value_name = "DOOR")]
    pub(crate) to: Option<Door>,
    /// Security profile: none, modern, high, low, psk, pki, oscore, or oscore+psk
    #[arg(long, default_value = "none")]
    pub(crate) security: Security,
    /// Credential: of-profile, anonymous, password, certificate or token
    #[arg(long, default_value = "of-profile", value_parser = word::<Credential>)]
    pub(crate) credential: Credential,
    /// Operation: deliver (to subscribers), get, put, post, connect or hold
    #[arg(long, default_value = "deliver", value_parser = word::<Operation>)]
    pub(crate) operation: Operation,
    /// QoS: 0, 1 or 2; at doors without QoS 1 awaits the answer
    #[arg(long, default_value = "0", value_parser = qos)]
    pub(crate) qos: Qos,
    /// Kind of response of a CoAP server: piggybacked, separate or non-confirmable
    #[arg(long, default_value = "piggybacked", value_parser = word::<CoapAnswer>)]
    pub(crate) coap_answer: CoapAnswer,
    /// Server of requests over CoAP: gateway, or an origin of the generator, which answers in every way
    #[arg(long, default_value = "gateway", value_parser = word::<CoapServer>)]
    pub(crate) coap_server: CoapServer,
    /// Time that an origin takes for the answer to a GET, as of a sensor, in seconds
    #[arg(long, default_value_t = 0.0)]
    pub(crate) coap_delay: f64,
    /// Wait of CoAP clients for an acknowledgement before they send again (ACK_TIMEOUT), in seconds
    #[arg(long, default_value_t = Experiment::default().coap_ack_timeout_seconds)]
    pub(crate) coap_ack_timeout: f64,
    /// Tokens of requests over CoAP: message-id (two bytes), or empty, with --window 1
    #[arg(long, default_value = "message-id", value_parser = word::<CoapToken>)]
    pub(crate) coap_token: CoapToken,
    /// The one cipher suite that clients offer, by its IANA name [default: those of the profile]
    #[arg(long, value_name = "NAME")]
    pub(crate) suite: Option<Suite>,
    /// The one group that clients offer for the exchange of keys: x25519, secp256r1 or secp384r1 [default: all]
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<Group>,
    /// Key of the gateway's certificate: of-profile, ecdsa-p256, ecdsa-p384, rsa2048, rsa3072 or rsa4096
    #[arg(long, default_value = "of-profile", value_parser = word::<ServerKey>)]
    pub(crate) server_key: ServerKey,
    /// Access rules of the gateway: open, or by-identity, a rule of the clients' user for each topic
    #[arg(long, default_value = "open", value_parser = word::<Rules>)]
    pub(crate) rules: Rules,
    /// Durability of the gateway: default, acknowledgements wait for the disk, or none
    #[arg(long, default_value = "default", value_parser = word::<Durability>)]
    pub(crate) durability: Durability,
    /// Payload size in bytes
    #[arg(long, default_value_t = 64)]
    pub(crate) size: usize,
    /// Number of publishers or requesting clients; with `connect` and `hold`, connections
    #[arg(long, default_value_t = 1)]
    pub(crate) pubs: u32,
    /// Number of subscribers
    #[arg(long, default_value_t = 1)]
    pub(crate) subs: u32,
    /// Threads of the generator, among which topics are divided
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: u32,
    /// Number of topics
    #[arg(long, default_value_t = 1)]
    pub(crate) topics: u32,
    /// Topic names; {} is replaced by the number
    #[arg(long, default_value = "bench/{}")]
    pub(crate) topic: String,
    /// Topics that each subscriber follows: topic, one by its number, or all, by a wildcard of MQTT
    #[arg(long, default_value = "topic", value_parser = word::<Follow>)]
    pub(crate) follow: Follow,
    /// Time over which publishers begin to connect, one after the other, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    pub(crate) start_spread: f64,
    /// Limit of unanswered operations per publisher; 0: no limit
    #[arg(long, default_value_t = 100)]
    pub(crate) window: u32,
    /// Limit of deliveries under way in total; 0: no limit
    #[arg(long, default_value_t = 0)]
    pub(crate) in_flight: u32,
    /// Operations per second, at scheduled times, or A..B from A to B in the measured time [default: as windows allow]
    #[arg(long, value_name = "RATE|A..B")]
    pub(crate) rate: Option<Rate>,
    /// Spread of the operations of --rate over time: even, poisson, or burst=N, N at once of each publisher
    #[arg(long, default_value = "even")]
    pub(crate) arrivals: Arrivals,
    /// Pause of each client between an answer (at QoS 0: a message sent) and its next operation, in seconds
    #[arg(long, conflicts_with = "rate")]
    pub(crate) gap: Option<f64>,
    /// From when operations are due: connected, or connecting, if making connections is part of the time
    #[arg(long, default_value = "connected", value_parser = word::<Clock>)]
    pub(crate) clock: Clock,
    /// Number of operations of all publishers together
    #[arg(long)]
    pub(crate) count: Option<u64>,
    /// Messages per connection, with `connect`
    #[arg(long, default_value_t = 0)]
    pub(crate) messages: u32,
    /// Operation for these messages: publish or get
    #[arg(long, default_value = "publish", value_parser = word::<Visit>)]
    pub(crate) visit: Visit,
    /// Number of subscribers, with `connect`
    #[arg(long, default_value_t = 0)]
    pub(crate) followers: u32,
    /// Time during which operations start, in seconds
    #[arg(long, default_value_t = 5.0)]
    pub(crate) seconds: f64,
    /// Warm-up before the measurement, in seconds
    #[arg(long, default_value_t = 0.5)]
    pub(crate) warm_up: f64,
    /// Seconds without a delivery after which missing messages count as lost
    #[arg(long, default_value_t = 3.0)]
    pub(crate) drain: f64,
    /// Publish retained messages
    #[arg(long)]
    pub(crate) retain: bool,
    /// Link: loopback, lossless, lan, wifi …, or conditions such as loss=5%,delay=20ms,rate=250kbit
    #[arg(long, default_value = "loopback")]
    pub(crate) link: String,
    /// Share of subscribers (`hold`: of connections) that leave a second and come back, such as 10%
    #[arg(long, value_name = "PERCENT", value_parser = super::compare::share_a_second)]
    pub(crate) churn: Option<f64>,
    /// When all of them break off at once and come back, in seconds since the measurement began
    #[arg(long, value_name = "SECONDS")]
    pub(crate) storm: Option<f64>,
    /// Seed of the random numbers
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

impl Shape {
    pub(crate) fn experiment(&self) -> Experiment {
        Experiment {
            door: self.door,
            reader_door: self.to.filter(|to| *to != self.door),
            security: self.security,
            credential: self.credential,
            operation: self.operation,
            qos: self.qos,
            coap_answer: self.coap_answer,
            coap_server: self.coap_server,
            coap_delay_seconds: self.coap_delay,
            coap_ack_timeout_seconds: self.coap_ack_timeout,
            coap_token: self.coap_token,
            suite: self.suite,
            named_group: self.group,
            server_key: self.server_key,
            rules: self.rules,
            durability: self.durability,
            payload_bytes: self.size,
            publishers: self.pubs,
            subscribers: self.subs,
            threads: self.threads,
            topics: self.topics,
            topic: self.topic.clone(),
            follow: self.follow,
            start_spread_seconds: self.start_spread,
            window: self.window,
            in_flight: self.in_flight,
            rate: self.rate.map(|rate| rate.first),
            rate_to: self.rate.and_then(|rate| rate.last),
            arrivals: self.arrivals,
            gap_seconds: self.gap,
            clock: self.clock,
            count: self.count,
            messages: self.messages,
            seconds: self.seconds,
            warm_up_seconds: self.warm_up,
            drain_seconds: self.drain,
            retain: self.retain,
            link: self.link.clone(),
            churn: self.churn,
            storm_seconds: self.storm,
            seed: self.seed,
            visit: self.visit,
            followers: self.followers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_one_number_or_two() {
        assert_eq!("1e3".parse(), Ok(Rate { first: 1_000.0, last: None }));
        assert_eq!("100..5000".parse(), Ok(Rate { first: 100.0, last: Some(5_000.0) }));
        assert_eq!("0.5..0.25".parse(), Ok(Rate { first: 0.5, last: Some(0.25) }));
        for wrong in ["", "..", "100..", "..5", "a..b", "1..2..3", "100-200"] {
            assert!(wrong.parse::<Rate>().unwrap_err().contains("100..5000"), "{wrong}");
        }
    }
}
