//! The flags of `fogmux bench`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use fogmux_traffic::experiment::{CoapAnswer, Credential, ExperimentError, Operation, Qos, Visit};
use fogmux_traffic::{Door, Experiment, Security};

/// The traffic generator.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Do one experiment with a gateway of its own
    Run(Run),
    /// Every door under every security profile that it has
    Matrix(Matrix),
    /// Experiments of published documents, done again
    #[command(subcommand)]
    Paper(Paper),
    /// Do one experiment with a broker that runs already: mqtt(s)://, ws(s)://, coap(s)://, http(s):// or xmpp(s)://
    Peer(Box<Peer>),
    /// Start gateways on this host for a `bench run`, `matrix` or `paper run` with --agent on another
    Agent(Agent),
    /// Tell a regression from noise: two JSON files of `bench`; ends with 1 on a regression
    Compare(Compare),
    /// Render the JSON files of a directory again
    Report(Report),
}

/// The operation, and its rate.
#[derive(Clone, Debug, Args)]
pub(crate) struct Shape {
    /// The door of publishers: mqtt, mqtt5, mqtt-ws, coap, coap-tcp, http1, http2, http3, xmpp, xmpps
    #[arg(long, default_value = "mqtt")]
    pub(crate) door: Door,
    /// The door of subscribers, if another
    #[arg(long, value_name = "DOOR")]
    pub(crate) to: Option<Door>,
    /// none, modern, high, low, psk, pki, oscore, or oscore+psk
    #[arg(long, default_value = "none")]
    pub(crate) security: Security,
    /// of-profile, anonymous, password, certificate or token
    #[arg(long, default_value = "of-profile", value_parser = word::<Credential>)]
    pub(crate) credential: Credential,
    /// deliver (to subscribers), get, put, post, connect or hold
    #[arg(long, default_value = "deliver", value_parser = word::<Operation>)]
    pub(crate) operation: Operation,
    /// 0, 1 or 2; on doors without QoS 1 is an awaited answer
    #[arg(long, default_value = "0", value_parser = qos)]
    pub(crate) qos: Qos,
    /// How a CoAP server is to answer: piggybacked, separate or non-confirmable
    #[arg(long, default_value = "piggybacked", value_parser = word::<CoapAnswer>)]
    pub(crate) coap_answer: CoapAnswer,
    /// Bytes of a payload
    #[arg(long, default_value_t = 64)]
    pub(crate) size: usize,
    /// Publishers, or clients that ask; connections with `connect` and `hold`
    #[arg(long, default_value_t = 1)]
    pub(crate) pubs: u32,
    /// Subscribers
    #[arg(long, default_value_t = 1)]
    pub(crate) subs: u32,
    /// Topics
    #[arg(long, default_value_t = 1)]
    pub(crate) topics: u32,
    /// Their names; {} stands for the number
    #[arg(long, default_value = "bench/{}")]
    pub(crate) topic: String,
    /// Unanswered operations of one publisher at most; 0: no bound
    #[arg(long, default_value_t = 100)]
    pub(crate) window: u32,
    /// Deliveries under way over all at most; 0: no bound
    #[arg(long, default_value_t = 0)]
    pub(crate) in_flight: u32,
    /// Operations a second, at intended times; without it, as fast as the windows let
    #[arg(long)]
    pub(crate) rate: Option<f64>,
    /// Operations of all publishers together
    #[arg(long)]
    pub(crate) count: Option<u64>,
    /// Messages of one connection, with `connect`
    #[arg(long, default_value_t = 0)]
    pub(crate) messages: u32,
    /// The operation on them: publish, or what the experiment's file format names
    #[arg(long, default_value = "publish", value_parser = word::<Visit>)]
    pub(crate) visit: Visit,
    /// Subscribers that hear what is published, with `connect`
    #[arg(long, default_value_t = 0)]
    pub(crate) followers: u32,
    /// How long operations begin
    #[arg(long, default_value_t = 5.0)]
    pub(crate) seconds: f64,
    /// Warm-up before the measurement, in seconds
    #[arg(long, default_value_t = 0.5)]
    pub(crate) warm_up: f64,
    /// How long is waited for what is missing, in seconds
    #[arg(long, default_value_t = 3.0)]
    pub(crate) drain: f64,
    /// Publish messages that are kept
    #[arg(long)]
    pub(crate) retain: bool,
    /// loopback, lossless, lan, wifi …, or conditions as loss=5%,delay=20ms,rate=250kbit
    #[arg(long, default_value = "loopback")]
    pub(crate) link: String,
    /// Of everything random
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

/// Where results go.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Output {
    /// Write JSON, CSV, Markdown and HTML there
    #[arg(short, long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print the results as JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    /// Where secrets of TLS and DTLS go, for a capture to be read with
    #[arg(long, value_name = "FILE")]
    pub(crate) key_log: Option<PathBuf>,
}

/// On which host the gateway is.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Host {
    /// Have `fogmux bench agent` start it on another host
    #[arg(long, value_name = "HOST:PORT", requires = "agent_key")]
    pub(crate) agent: Option<String>,
    /// The agent.pem that it has made there
    #[arg(long, value_name = "FILE", requires = "agent")]
    pub(crate) agent_key: Option<PathBuf>,
}

/// Starts gateways for others.
#[derive(Debug, Args)]
pub(crate) struct Agent {
    /// Where it listens, and gateways do: an address of this host that the other one reaches
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:18840")]
    pub(crate) listen: SocketAddr,
    /// Its authority and agent.pem, made at the first start [default: agent in the data directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) keys: Option<PathBuf>,
    /// Say where it listens as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Does one experiment.
#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) shape: Shape,
    #[command(flatten)]
    pub(crate) host: Host,
    /// Write the frames of the first repetition there, for Wireshark, and secrets of TLS and DTLS beside them (.keys); needs a --link
    #[arg(long, value_name = "FILE.pcap", conflicts_with = "agent")]
    pub(crate) capture: Option<PathBuf>,
    /// Repetitions
    #[arg(long, default_value_t = 5)]
    pub(crate) repeat: u32,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Does many.
#[derive(Debug, Args)]
pub(crate) struct Matrix {
    /// Small and short: one payload, QoS 1, three repetitions of half a second
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only these doors
    #[arg(long, value_name = "DOOR", value_delimiter = ',')]
    pub(crate) doors: Vec<Door>,
    /// Only these profiles
    #[arg(long, value_name = "PROFILE", value_delimiter = ',')]
    pub(crate) securities: Vec<Security>,
    /// Payloads in bytes [default: 16,256,1024,16384,65536; quick: 64]
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    pub(crate) sizes: Vec<usize>,
    /// Levels of QoS [default: 0,1,2; quick: 1]
    #[arg(long, value_name = "QOS", value_delimiter = ',', value_parser = qos)]
    pub(crate) qos: Vec<Qos>,
    /// How long each runs [default: 3; quick: 0.5]
    #[arg(long)]
    pub(crate) seconds: Option<f64>,
    /// Repetitions [default: 5; quick: 3]
    #[arg(long)]
    pub(crate) repeat: Option<u32>,
    /// The network between
    #[arg(long, default_value = "loopback")]
    pub(crate) link: String,
    #[command(flatten)]
    pub(crate) host: Host,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Published documents.
#[derive(Debug, Subcommand)]
pub(crate) enum Paper {
    /// The documents and their tables
    List,
    /// One document: its set-up, tables as printed, and claims
    Show {
        /// As `list` names it
        name: String,
    },
    /// Do a document's experiments again: paper, measured, ratio, and which claims hold
    Run(PaperRun),
}

/// Does a document's experiments again.
#[derive(Debug, Args)]
pub(crate) struct PaperRun {
    /// As `list` names it
    pub(crate) name: String,
    /// Only these tables
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub(crate) table: Vec<String>,
    /// Fewer messages, shorter, once
    #[arg(long)]
    pub(crate) quick: bool,
    /// Repetitions [default: as the file says; quick: 1]
    #[arg(long)]
    pub(crate) repeat: Option<u32>,
    /// Over this network, whatever the file says
    #[arg(long)]
    pub(crate) link: Option<String>,
    #[command(flatten)]
    pub(crate) host: Host,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Does one experiment with somebody else's broker.
#[derive(Debug, Args)]
pub(crate) struct Peer {
    /// As SCHEME://USER:PASSWORD@HOST:PORT/PREFIX, of which scheme and host must be there
    pub(crate) url: String,
    #[command(flatten)]
    pub(crate) shape: Shape,
    /// Its processes on this machine, for processor time and memory
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pub(crate) pid: Vec<u32>,
    /// The authority of its certificate; without one whoever answers is believed
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// The name in its certificate, and the XMPP domain, if not the host
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// A certificate of ours
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// The identity of a pre-shared key
    #[arg(long, requires = "psk")]
    pub(crate) psk_id: Option<String>,
    /// The key in hexadecimal digits
    #[arg(long, value_name = "HEX", requires = "psk_id")]
    pub(crate) psk: Option<String>,
    /// A directory with OSCORE contexts: publisher-0.toml and so on
    #[arg(long, value_name = "DIR")]
    pub(crate) oscore: Option<PathBuf>,
    /// Repetitions
    #[arg(long, default_value_t = 5)]
    pub(crate) repeat: u32,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Compares two reports.
#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// Before
    pub(crate) before: PathBuf,
    /// After
    pub(crate) after: PathBuf,
    /// Show what is noise, too
    #[arg(long)]
    pub(crate) all: bool,
    /// Print as Markdown
    #[arg(long)]
    pub(crate) markdown: bool,
}

/// Renders reports again.
#[derive(Debug, Args)]
pub(crate) struct Report {
    /// With JSON files of `bench`
    pub(crate) directory: PathBuf,
}

fn qos(text: &str) -> Result<Qos, ExperimentError> {
    let level = text.parse().map_err(|_| ExperimentError::Unknown("qos", text.to_owned()))?;
    Qos::of_level(level)
}

/// A word of an experiment's files.
fn word<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    serde_json::from_value(serde_json::Value::String(text.to_owned()))
}
