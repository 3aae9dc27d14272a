//! The flags that all measurements share: where results go, and on which host the gateway runs.

use std::path::PathBuf;

use clap::Args;
use fogmux_traffic::report::figure::Figure;

use super::word;

/// The output of results.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Output {
    /// Write JSON, CSV, Markdown and HTML files into DIR
    #[arg(short, long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Go on with an interrupted measurement of the same program and flags, whose repetitions are in --out DIR
    #[arg(long, requires = "out")]
    pub(crate) resume: bool,
    /// Append a line of JSON to FILE each second, with rate and latency so far, and one for each repetition that ends
    #[arg(long, value_name = "FILE")]
    pub(crate) live: Option<PathBuf>,
    /// Compute the energy of messages by a model: a name such as pi4-wifi or pi3-802.15.4, or a file of constants
    #[arg(long, value_name = "NAME|FILE.toml")]
    pub(crate) energy: Option<String>,
    /// Integrate what an external meter appends to FILE, lines of unix_ms,watts, over each repetition
    #[arg(long, value_name = "FILE.csv")]
    pub(crate) meter: Option<PathBuf>,
    /// Print the results as JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    /// Write secrets of TLS and DTLS to FILE, to decrypt a capture
    #[arg(long, value_name = "FILE")]
    pub(crate) key_log: Option<PathBuf>,
    /// End when the process that has started this one does, by its identifier, and leave processor and memory to it
    #[arg(long, value_name = "PID", hide = true)]
    pub(crate) end_with: Option<i32>,
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
