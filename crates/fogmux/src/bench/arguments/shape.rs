//! The flags of an experiment: the operation, its rate, and the network.

use clap::Args;
use fogmux_traffic::experiment::{
    Arrivals, Clock, CoapAnswer, CoapServer, CoapToken, Credential, Operation, Qos, Rules, ServerKey, Visit,
};
use fogmux_traffic::{Door, Experiment, Security};

use super::{qos, word};

/// The operation, and its rate.
#[derive(Clone, Debug, Args)]
pub(crate) struct Shape {
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
    /// Tokens of requests over CoAP: message-id (two bytes), or empty, with --window 1
    #[arg(long, default_value = "message-id", value_parser = word::<CoapToken>)]
    pub(crate) coap_token: CoapToken,
    /// Key of the gateway's certificate: of-profile, rsa2048 or rsa4096
    #[arg(long, default_value = "of-profile", value_parser = word::<ServerKey>)]
    pub(crate) server_key: ServerKey,
    /// Access rules of the gateway: open, or by-identity, a rule of the clients' user for each topic
    #[arg(long, default_value = "open", value_parser = word::<Rules>)]
    pub(crate) rules: Rules,
    /// Payload size in bytes
    #[arg(long, default_value_t = 64)]
    pub(crate) size: usize,
    /// Number of publishers or requesting clients; with `connect` and `hold`, connections
    #[arg(long, default_value_t = 1)]
    pub(crate) pubs: u32,
    /// Number of subscribers
    #[arg(long, default_value_t = 1)]
    pub(crate) subs: u32,
    /// Number of topics
    #[arg(long, default_value_t = 1)]
    pub(crate) topics: u32,
    /// Topic names; {} is replaced by the number
    #[arg(long, default_value = "bench/{}")]
    pub(crate) topic: String,
    /// Limit of unanswered operations per publisher; 0: no limit
    #[arg(long, default_value_t = 100)]
    pub(crate) window: u32,
    /// Limit of deliveries under way in total; 0: no limit
    #[arg(long, default_value_t = 0)]
    pub(crate) in_flight: u32,
    /// Operations per second, at scheduled times [default: as fast as the windows allow]
    #[arg(long)]
    pub(crate) rate: Option<f64>,
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
            coap_token: self.coap_token,
            server_key: self.server_key,
            rules: self.rules,
            payload_bytes: self.size,
            publishers: self.pubs,
            subscribers: self.subs,
            topics: self.topics,
            topic: self.topic.clone(),
            window: self.window,
            in_flight: self.in_flight,
            rate: self.rate,
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
            seed: self.seed,
            visit: self.visit,
            followers: self.followers,
        }
    }
}
