//! The command line as data.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// A gateway for a fog node: MQTT, CoAP, HTTP and XMPP meet on one topic bus.
#[derive(Debug, Parser)]
#[command(name = "fogmux", version, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) serve: Serve,
}

/// What to do; `serve` when nothing is said.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the gateway
    Serve(Serve),
    /// Validate a configuration: everything that is wrong, at once
    Check(Check),
    /// Add a user or change a password, read from standard input when that is no terminal
    Passwd(Passwd),
    /// Look at the access rules
    #[command(subcommand)]
    Acl(Acl),
    /// Start a gateway on free ports and show each message arriving at every other door
    Demo(Demo),
    /// Publish one message to mqtt(s)://, ws(s)://, coap://, http(s):// or xmpp(s)://HOST/TOPIC
    Pub(Publish),
    /// Follow a topic or filter at any door and print what arrives
    Sub(Subscribe),
    /// Print the message a topic keeps, and end
    Get(Get),
}

/// Runs the gateway.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Serve {
    /// Configuration; built-in defaults (loopback only) without one
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) data: Data,
    /// Set one key, over all files: listeners.mqtt.address=127.0.0.1:0
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Let the system choose every port
    #[arg(long)]
    pub(crate) free_ports: bool,
    /// Print the banner as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where the gateway keeps what it must not lose.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Data {
    /// Data directory [default: $STATE_DIRECTORY, else fogmux in $XDG_STATE_HOME or ~/.local/state]
    #[arg(long = "data", value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
}

/// Validates a configuration.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The configuration to validate, with conf.d/*.toml beside it
    #[arg(value_name = "FILE", required_unless_present = "defaults")]
    pub(crate) file: Option<PathBuf>,
    /// Print every key with its default instead
    #[arg(long, conflicts_with = "file")]
    pub(crate) defaults: bool,
    /// Print the problems as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Adds a user or changes a password.
#[derive(Debug, Args)]
pub(crate) struct Passwd {
    /// The user
    pub(crate) user: String,
    #[command(flatten)]
    pub(crate) data: Data,
    /// Configuration that names the users file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Groups of the user, instead of those it has
    #[arg(long = "group", value_name = "GROUP")]
    pub(crate) groups: Vec<String>,
    /// Remove the user
    #[arg(long, conflicts_with = "groups")]
    pub(crate) delete: bool,
}

/// The access rules.
#[derive(Debug, Subcommand)]
pub(crate) enum Acl {
    /// Say which rule allows or refuses; ends with 77 when refused
    Test(AclTest),
}

/// Asks the rules one question.
#[derive(Debug, Args)]
pub(crate) struct AclTest {
    /// The user, or "anonymous"
    pub(crate) user: String,
    /// What is to be done
    pub(crate) action: AclAction,
    /// The topic, or for reading a filter
    pub(crate) topic: String,
    /// The door it comes by
    #[arg(long, default_value = "mqtt")]
    pub(crate) door: AclDoor,
    /// Client identifier, for %c [default: the user]
    #[arg(long)]
    pub(crate) client: Option<String>,
    #[command(flatten)]
    pub(crate) data: Data,
    /// Configuration that names the files
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print the decision as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is to be done with a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AclAction {
    Read,
    Write,
}

/// The doors as the rules name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AclDoor {
    Mqtt,
    Coap,
    Http,
    Xmpp,
}

/// Shows the doors at work.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Print the matrix as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// How long a message may take
    #[arg(long, value_name = "SECONDS", default_value = "10")]
    pub(crate) timeout: f64,
}

/// What every client command takes.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Access {
    /// User; without one, anonymous
    #[arg(short, long)]
    pub(crate) user: Option<String>,
    /// Password; everybody on this machine can see it, prefer --password-file
    #[arg(short = 'P', long, conflicts_with = "password_file")]
    pub(crate) password: Option<String>,
    /// File whose first line is the password; - for standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// PEM file of the authorities to trust, instead of the system's
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub(crate) ca: Option<PathBuf>,
    /// Do not verify the server's certificate
    #[arg(long)]
    pub(crate) insecure: bool,
    /// HTTP version
    #[arg(long, value_name = "VERSION", default_value = "1.1")]
    pub(crate) http: HttpVersion,
    /// MQTT version
    #[arg(long, value_name = "VERSION", default_value = "5")]
    pub(crate) mqtt: MqttVersion,
    /// MQTT client identifier [default: one that the server chooses]
    #[arg(long, value_name = "ID")]
    pub(crate) client_id: Option<String>,
    /// XMPP domain [default: the host of the URL]
    #[arg(long, value_name = "NAME")]
    pub(crate) domain: Option<String>,
    /// Quality of service; on CoAP 0 sends NON, else CON
    #[arg(short, long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=2))]
    pub(crate) qos: u8,
    /// How long to wait for an answer; sub: for a message
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout: Option<f64>,
    /// Print results as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The versions of HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum HttpVersion {
    #[default]
    #[value(name = "1.1", alias = "1")]
    One,
    #[value(name = "2")]
    Two,
    #[value(name = "3")]
    Three,
}

/// The versions of MQTT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum MqttVersion {
    #[value(name = "3.1.1", alias = "4")]
    V311,
    #[default]
    #[value(name = "5")]
    V5,
}

/// Publishes one message.
#[derive(Clone, Debug, Args)]
pub(crate) struct Publish {
    /// Where to: mqtt://127.0.0.1/room/temperature
    pub(crate) url: String,
    /// What; - for standard input
    pub(crate) payload: String,
    /// The topic keeps the message as its latest
    #[arg(short, long)]
    pub(crate) retain: bool,
    /// MIME type of the payload
    #[arg(short = 't', long, value_name = "TYPE")]
    pub(crate) content_type: Option<String>,
    #[command(flatten)]
    pub(crate) access: Access,
}

/// Follows a topic or filter.
#[derive(Clone, Debug, Args)]
pub(crate) struct Subscribe {
    /// What: mqtt://127.0.0.1/room/+ – on every door `+` and `#` work
    pub(crate) url: String,
    /// End after so many messages
    #[arg(short = 'n', long)]
    pub(crate) count: Option<u64>,
    /// How to print a message
    #[arg(short, long, default_value = "text")]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) access: Access,
}

/// Fetches the message a topic keeps.
#[derive(Clone, Debug, Args)]
pub(crate) struct Get {
    /// Which: coap://127.0.0.1/room/temperature
    pub(crate) url: String,
    /// How to print it
    #[arg(short, long, default_value = "raw")]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) access: Access,
}

/// How a message is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// The payload's bytes and nothing else
    Raw,
    /// One JSON object a line
    Json,
    /// Topic and payload, a line each message
    #[default]
    Text,
}
