//! The flags of `fogmux bench`.

mod compare;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Subcommand};
use fogmux_traffic::experiment::{CoapAnswer, Credential, ExperimentError, Operation, Qos, Visit};
use fogmux_traffic::report::figure::Figure;
use fogmux_traffic::{Door, Experiment, Security};

pub(crate) use self::compare::{Compare, Pair, Until};

/// The traffic generator.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Run one experiment with a gateway started for it
    Run(Run),
    /// Run every door under each of its security profiles
    Matrix(Matrix),
    /// Repeat the experiments of published documents
    #[command(subcommand)]
    Paper(Paper),
    /// Run one experiment with a running broker: mqtt(s)://, ws(s)://, coap(s)://, http(s):// or xmpp(s)://
    Peer(Box<Peer>),
    /// Start gateways on this host for `bench run`, `matrix` or `paper run` with --agent on another
    Agent(Agent),
    /// Measure two binaries or brokers in turn and compare them; exit code 1 on a regression
    Pair(Box<Pair>),
    /// Compare two JSON files of `bench`, or the one of `bench pair`; exit code 1 on a regression
    Compare(Compare),
    /// Render the JSON files of a directory
    Report(Report),
}

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
            payload_bytes: self.size,
            publishers: self.pubs,
            subscribers: self.subs,
            topics: self.topics,
            topic: self.topic.clone(),
            window: self.window,
            in_flight: self.in_flight,
            rate: self.rate,
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

/// The output of results.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Output {
    /// Write JSON, CSV, Markdown and HTML files into DIR
    #[arg(short, long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print the results as JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    /// Write secrets of TLS and DTLS to FILE, to decrypt a capture
    #[arg(long, value_name = "FILE")]
    pub(crate) key_log: Option<PathBuf>,
}

/// The columns of results on the terminal.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Columns {
    /// Print these figures, such as rate,latency_p99,peak_memory [default: as many as fit, the important ones first]
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = word::<Figure>, conflicts_with = "json")]
    pub(crate) columns: Vec<Figure>,
}

/// The host of the gateway.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Host {
    /// Start the gateway on another host, by its `fogmux bench agent`
    #[arg(long, value_name = "HOST:PORT", requires = "agent_key")]
    pub(crate) agent: Option<String>,
    /// The agent.pem created there
    #[arg(long, value_name = "FILE", requires = "agent")]
    pub(crate) agent_key: Option<PathBuf>,
}

/// Starts gateways for others.
#[derive(Debug, Args)]
pub(crate) struct Agent {
    /// Address of this host, reachable from the other one, for the agent and its gateways
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:18840")]
    pub(crate) listen: SocketAddr,
    /// Directory of its authority and agent.pem, created at the first start [default: agent in the data directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) keys: Option<PathBuf>,
    /// Print the address as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Runs one experiment.
#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) shape: Shape,
    #[command(flatten)]
    pub(crate) host: Host,
    /// Write the frames of the first repetition for Wireshark, and TLS and DTLS secrets to FILE.keys; needs --link
    #[arg(long, value_name = "FILE.pcap", conflicts_with = "agent")]
    pub(crate) capture: Option<PathBuf>,
    /// Repetitions
    #[arg(long, default_value_t = 5, value_parser = repetitions())]
    pub(crate) repeat: u32,
    #[command(flatten)]
    pub(crate) until: Until,
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) columns: Columns,
}

/// Runs many experiments.
#[derive(Debug, Args)]
pub(crate) struct Matrix {
    /// Short: one payload size, QoS 1, three repetitions of half a second
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only these doors
    #[arg(long, value_name = "DOOR", value_delimiter = ',')]
    pub(crate) doors: Vec<Door>,
    /// Only these profiles
    #[arg(long, value_name = "PROFILE", value_delimiter = ',')]
    pub(crate) securities: Vec<Security>,
    /// Payload sizes in bytes [default: 16,256,1024,16384,65536; quick: 64]
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    pub(crate) sizes: Vec<usize>,
    /// QoS levels [default: 0,1,2; quick: 1]
    #[arg(long, value_name = "QOS", value_delimiter = ',', value_parser = qos)]
    pub(crate) qos: Vec<Qos>,
    /// Seconds of each run [default: 3; quick: 0.5]
    #[arg(long)]
    pub(crate) seconds: Option<f64>,
    /// Repetitions [default: 5; quick: 3]
    #[arg(long, value_parser = repetitions())]
    pub(crate) repeat: Option<u32>,
    #[command(flatten)]
    pub(crate) until: Until,
    /// Link between gateway and generator
    #[arg(long, default_value = "loopback")]
    pub(crate) link: String,
    #[command(flatten)]
    pub(crate) host: Host,
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) columns: Columns,
}

/// Published documents.
#[derive(Debug, Subcommand)]
pub(crate) enum Paper {
    /// List the documents and their tables
    List,
    /// Show a document's set-up, tables and claims
    Show {
        /// Name of the document, from `list`
        name: String,
    },
    /// Repeat a document's experiments: paper, measured, ratio, and which claims hold
    Run(PaperRun),
}

/// Repeats a document's experiments.
#[derive(Debug, Args)]
pub(crate) struct PaperRun {
    /// Name of the document, from `list`
    pub(crate) name: String,
    /// Only these tables
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub(crate) table: Vec<String>,
    /// Short: fewer messages, one repetition
    #[arg(long)]
    pub(crate) quick: bool,
    /// Repetitions [default: from the file; quick: 1]
    #[arg(long, value_parser = repetitions())]
    pub(crate) repeat: Option<u32>,
    /// Link, overriding the file's
    #[arg(long)]
    pub(crate) link: Option<String>,
    #[command(flatten)]
    pub(crate) host: Host,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Runs one experiment with a running broker.
#[derive(Debug, Args)]
pub(crate) struct Peer {
    /// SCHEME://USER:PASSWORD@HOST:PORT/PREFIX; scheme and host are required
    pub(crate) url: String,
    #[command(flatten)]
    pub(crate) shape: Shape,
    /// Processes of the broker on this machine, for processor time and memory
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pub(crate) pid: Vec<u32>,
    /// PEM file of the broker's authority; without it the certificate is not verified
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Name in the broker's certificate, and XMPP domain [default: the host]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// PEM file of a client certificate
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// PEM file of its private key
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// Identity of a pre-shared key
    #[arg(long, requires = "psk")]
    pub(crate) psk_id: Option<String>,
    /// Pre-shared key in hexadecimal
    #[arg(long, value_name = "HEX", requires = "psk_id")]
    pub(crate) psk: Option<String>,
    /// Directory of OSCORE contexts: publisher-0.toml and so on
    #[arg(long, value_name = "DIR")]
    pub(crate) oscore: Option<PathBuf>,
    /// Repetitions
    #[arg(long, default_value_t = 5, value_parser = repetitions())]
    pub(crate) repeat: u32,
    #[command(flatten)]
    pub(crate) until: Until,
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) columns: Columns,
}

/// Renders the reports of a directory.
#[derive(Debug, Args)]
pub(crate) struct Report {
    /// Directory with JSON files of `bench`
    pub(crate) directory: PathBuf,
}

/// Repetitions: at least one, and no more than a report has room for.
fn repetitions() -> RangedU64ValueParser<u32> {
    RangedU64ValueParser::new().range(1..=100_000)
}

fn qos(text: &str) -> Result<Qos, ExperimentError> {
    let level = text.parse().map_err(|_| ExperimentError::Unknown("qos", text.to_owned()))?;
    Qos::of_level(level)
}

/// Parses a value as an experiment's file has it.
fn word<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    serde_json::from_value(serde_json::Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests;
