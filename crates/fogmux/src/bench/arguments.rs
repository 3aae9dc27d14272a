//! The flags of `fogmux bench`.

mod compare;
mod curve;
mod fleet;
mod given;
mod handshakes;
mod output;
mod shape;
mod thresholds;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Subcommand};
use fogmux_traffic::experiment::{ExperimentError, Qos};
use fogmux_traffic::{Door, Security};

pub(crate) use self::compare::{Compare, Pair, Until};
pub(crate) use self::curve::Curve;
pub(crate) use self::fleet::Fleet;
pub(crate) use self::given::Given;
pub(crate) use self::handshakes::Handshakes;
pub(crate) use self::output::{Columns, Host, Output};
pub(crate) use self::shape::Shape;
pub(crate) use self::thresholds::Thresholds;

/// The traffic generator.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Run one experiment with a gateway started for it
    Run(Run),
    /// Run every door under each of its security profiles
    Matrix(Matrix),
    /// Find the highest rate that a gateway keeps up with, and measure its latency below that
    Curve(Box<Curve>),
    /// Run a fleet of devices from one script, all of its groups at the same time
    Fleet(Box<Fleet>),
    /// Measure the handshakes of each cipher suite with each group and each key of the gateway
    Handshakes(Box<Handshakes>),
    /// Repeat the experiments of published documents
    #[command(subcommand)]
    Paper(Paper),
    /// Run one experiment with a running broker: mqtt(s)://, ws(s)://, coap(s)://, http(s):// or xmpp(s)://
    Peer(Box<Peer>),
    /// Start gateways on this host for `bench run`, `matrix` or `paper run` with --agent on another
    Agent(Agent),
    /// Serve as the origin of an experiment; started by the others
    #[command(hide = true)]
    Origin,
    /// Do one repetition, apart from all others; started by the others
    #[command(hide = true)]
    Repetition,
    /// Measure two binaries or brokers in turn and compare them; exit code 1 on a regression
    Pair(Box<Pair>),
    /// Compare two JSON files of `bench`, or the one of `bench pair`; exit code 1 on a regression
    Compare(Compare),
    /// Render the JSON files of a directory
    Report(Report),
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
    #[command(flatten)]
    pub(crate) thresholds: Thresholds,
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
    #[command(flatten)]
    pub(crate) thresholds: Thresholds,
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
    Run(Box<PaperRun>),
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
    #[command(flatten)]
    pub(crate) thresholds: Thresholds,
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
