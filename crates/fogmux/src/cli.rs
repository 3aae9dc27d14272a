//! The command line as data.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use fogmux_net::KeyKind;

use crate::{bench::arguments::Bench, later::Later};

/// A gateway for MQTT, CoAP, HTTP and XMPP on one topic bus.
#[derive(Debug, Parser)]
#[command(name = "fogmux", version, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) serve: Serve,
}

/// The subcommand; `serve` by default.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the gateway
    Serve(Serve),
    /// Validate a configuration and report all errors
    Check(Later<Check>),
    /// Add a user or change a password; reads it from standard input if that is not a terminal
    Passwd(Later<Passwd>),
    /// Query the access rules
    #[command(subcommand)]
    Acl(Later<Acl>),
    /// Import users, keys and rules of another broker
    #[command(subcommand)]
    Import(Later<Import>),
    /// Manage the certificate authority, certificates, pre-shared keys and OSCORE contexts
    #[command(subcommand)]
    Pki(Later<Pki>),
    /// Start a gateway on free ports and send a message from each door to every other
    Demo(Later<Demo>),
    /// Publish one message to a URL SCHEME://HOST/TOPIC
    Pub(Later<Publish>),
    /// Subscribe to a topic or filter and print the messages
    Sub(Later<Subscribe>),
    /// Print the retained message of a topic
    Get(Later<Get>),
    /// Generate traffic and measure a gateway or broker
    #[command(subcommand)]
    Bench(Later<Bench>),
}

/// Runs the gateway.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Serve {
    /// Configuration file [default: built-in defaults, loopback only]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) data: Data,
    /// Set one key, overriding all files: listeners.mqtt.address=127.0.0.1:0
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Listen on free ports chosen by the system
    #[arg(long)]
    pub(crate) free_ports: bool,
    /// Print the banner as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The gateway's data directory.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Data {
    /// Data directory [default: $STATE_DIRECTORY, else fogmux in $XDG_STATE_HOME or ~/.local/state]
    #[arg(long = "data", value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
}

/// Validates a configuration.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The configuration file; conf.d/*.toml beside it are included
    #[arg(value_name = "FILE", required_unless_present = "defaults")]
    pub(crate) file: Option<PathBuf>,
    /// Print every key with its default instead
    #[arg(long, conflicts_with = "file")]
    pub(crate) defaults: bool,
    /// Print the errors as JSON
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
    /// Configuration file that sets the users file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Groups of the user, replacing the present ones
    #[arg(long = "group", value_name = "GROUP")]
    pub(crate) groups: Vec<String>,
    /// Remove the user
    #[arg(long, conflicts_with = "groups")]
    pub(crate) delete: bool,
    /// Disable the user for every kind of credential, and keep the password
    #[arg(long, conflicts_with_all = ["groups", "delete"])]
    pub(crate) disable: bool,
    /// Enable the user again
    #[arg(long, conflicts_with_all = ["groups", "delete", "disable"])]
    pub(crate) enable: bool,
}

/// The access rules.
#[derive(Debug, Subcommand)]
pub(crate) enum Acl {
    /// Print the rule that allows or refuses an action; exit code 77 when refused
    Test(AclTest),
}

/// Tests one action against the rules.
#[derive(Debug, Args)]
pub(crate) struct AclTest {
    /// A user, "anonymous", cert:FILE, psk:IDENTITY, oscore:USER, token:FILE or callback:USER
    #[arg(value_name = "WHO")]
    pub(crate) user: String,
    /// The action to test
    pub(crate) action: AclAction,
    /// The topic; for reading also a filter
    pub(crate) topic: String,
    /// The door through which the client connects
    #[arg(long, default_value = "mqtt")]
    pub(crate) door: AclDoor,
    /// Client identifier, for %c [default: the user]
    #[arg(long)]
    pub(crate) client: Option<String>,
    /// Groups that the callback would return
    #[arg(long = "group", value_name = "GROUP")]
    pub(crate) groups: Vec<String>,
    #[command(flatten)]
    pub(crate) data: Data,
    /// Configuration file that sets the other files
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print the decision as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The action on a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AclAction {
    Read,
    Write,
}

/// The doors, by their names in the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AclDoor {
    Mqtt,
    Coap,
    Http,
    Xmpp,
}

/// The brokers to import from.
#[derive(Debug, Subcommand)]
pub(crate) enum Import {
    /// Import Mosquitto's acl_file, password_file and psk_file, with a report of what could not be translated
    Mosquitto(ImportMosquitto),
}

/// The files of a Mosquitto.
#[derive(Debug, Args)]
pub(crate) struct ImportMosquitto {
    /// mosquitto.conf, which contains the names of the files
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Mosquitto's acl_file
    #[arg(long, alias = "acl-file", value_name = "FILE")]
    pub(crate) acl: Option<PathBuf>,
    /// Mosquitto's password_file
    #[arg(long, alias = "password-file", value_name = "FILE")]
    pub(crate) passwords: Option<PathBuf>,
    /// Mosquitto's psk_file
    #[arg(long, alias = "psk-file", value_name = "FILE")]
    pub(crate) psk: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) data: Data,
    /// Configuration file that sets fogmux's own files
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print the report without writing anything
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Overwrite existing rules, passwords and keys
    #[arg(long)]
    pub(crate) replace: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Certificates, keys and OSCORE contexts in the data directory.
#[derive(Debug, Subcommand)]
pub(crate) enum Pki {
    /// Create an authority; the first start creates one otherwise
    Init(PkiInit),
    /// Create the gateway's certificate with more names, or with --out one for another server
    Server(PkiServer),
    /// Create a client certificate
    Client(PkiClient),
    /// Create a pre-shared key and print it as IDENTITY:KEY
    Psk(PkiPsk),
    /// Create an OSCORE context for a device and print the device's side
    Oscore(PkiOscore),
    /// Revoke a certificate; a running gateway refuses it from the next handshake on
    Revoke(PkiRevoke),
    /// List certificates
    List(PkiList),
}

/// Kinds of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeyChoice {
    /// ECDSA on P-256
    #[default]
    Ecdsa,
    /// RSA, 2048 bits
    Rsa2048,
    /// RSA, 4096 bits
    Rsa4096,
}

impl KeyChoice {
    /// Returns the key kind of `fogmux-net`.
    pub(crate) const fn kind(self) -> KeyKind {
        match self {
            Self::Ecdsa => KeyKind::EcdsaP256,
            Self::Rsa2048 => KeyKind::Rsa2048,
            Self::Rsa4096 => KeyKind::Rsa4096,
        }
    }
}

/// Creates an authority.
#[derive(Debug, Args)]
pub(crate) struct PkiInit {
    /// Key type
    #[arg(long, default_value = "ecdsa")]
    pub(crate) key: KeyChoice,
    #[command(flatten)]
    pub(crate) data: Data,
}

/// Creates a server certificate.
#[derive(Debug, Args)]
pub(crate) struct PkiServer {
    /// DNS names and addresses, in addition to this host's
    pub(crate) names: Vec<String>,
    /// Key type
    #[arg(long, default_value = "ecdsa")]
    pub(crate) key: KeyChoice,
    /// Write BASE.pem and BASE.key, for another server
    #[arg(long, value_name = "BASE")]
    pub(crate) out: Option<PathBuf>,
    /// Validity in days, with --out
    #[arg(long, default_value_t = 820)]
    pub(crate) days: u32,
    #[command(flatten)]
    pub(crate) data: Data,
}

/// Creates a client certificate.
#[derive(Debug, Args)]
pub(crate) struct PkiClient {
    /// The user, as the common name
    pub(crate) name: String,
    /// Key type
    #[arg(long, default_value = "ecdsa")]
    pub(crate) key: KeyChoice,
    /// DNS name or address to include
    #[arg(long, value_name = "NAME")]
    pub(crate) dns: Vec<String>,
    /// Mail address to include
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) email: Vec<String>,
    /// URI to include
    #[arg(long, value_name = "URI")]
    pub(crate) uri: Vec<String>,
    /// XMPP address to include
    #[arg(long, value_name = "JID")]
    pub(crate) xmpp: Vec<String>,
    /// Validity in days
    #[arg(long, default_value_t = 730)]
    pub(crate) days: u32,
    /// Replace the existing certificate
    #[arg(long)]
    pub(crate) renew: bool,
    /// Write BASE.pem and BASE.key [default: pki/clients/NAME in the data directory]
    #[arg(long, value_name = "BASE")]
    pub(crate) out: Option<PathBuf>,
    /// Also write certificate, key and authority into one PKCS #12 file
    #[arg(long, value_name = "FILE")]
    pub(crate) pkcs12: Option<PathBuf>,
    /// File whose first line is the password of the PKCS #12 file; - for standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) data: Data,
}

/// Creates or removes a pre-shared key.
#[derive(Debug, Args)]
pub(crate) struct PkiPsk {
    /// The identity that the device sends
    pub(crate) identity: String,
    /// The user of the key [default: the identity]
    #[arg(long)]
    pub(crate) user: Option<String>,
    /// The key in hexadecimal; visible to other users in the process list [default: random]
    #[arg(long, value_name = "HEX")]
    pub(crate) key: Option<String>,
    /// Remove the key
    #[arg(long, conflicts_with_all = ["user", "key"])]
    pub(crate) delete: bool,
    /// Configuration file that sets the file of keys
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) data: Data,
}

/// Formats of OSCORE contexts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OscoreFormat {
    /// TOML of fogmux
    #[default]
    Fogmux,
    /// A directory for aiocoap
    Aiocoap,
    /// A configuration for libcoap
    Libcoap,
}

/// Creates or imports an OSCORE context.
#[derive(Debug, Args)]
pub(crate) struct PkiOscore {
    /// The user of the device; each device of a user needs its own context
    pub(crate) user: String,
    /// Import the gateway's side from a file of fogmux or libcoap, or a directory of aiocoap
    #[arg(long, value_name = "PATH", conflicts_with_all = ["out", "format", "algorithm"])]
    pub(crate) import: Option<PathBuf>,
    /// Write the device's side to PATH [default: standard output]
    #[arg(long, value_name = "PATH")]
    pub(crate) out: Option<PathBuf>,
    /// Format of the device's side
    #[arg(long, default_value = "fogmux")]
    pub(crate) format: OscoreFormat,
    /// AEAD algorithm by its COSE name, such as A128GCM [default: AES-CCM-16-64-128]
    #[arg(long, value_name = "NAME")]
    pub(crate) algorithm: Option<String>,
    /// Configuration file that sets the directory of contexts
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) data: Data,
}

/// Revokes a certificate.
#[derive(Debug, Args)]
pub(crate) struct PkiRevoke {
    /// Client name, certificate file, or serial number in hexadecimal
    pub(crate) certificate: String,
    #[command(flatten)]
    pub(crate) data: Data,
}

/// Lists certificates.
#[derive(Debug, Args)]
pub(crate) struct PkiList {
    /// Print the list as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) data: Data,
}

/// Sends a message from each door to every other.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Print the matrix as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Time limit for a message
    #[arg(long, value_name = "SECONDS", default_value = "10")]
    pub(crate) timeout: f64,
}

/// The arguments of every client command.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Access {
    /// User name [default: anonymous]
    #[arg(short, long)]
    pub(crate) user: Option<String>,
    /// Password; visible to other users in the process list, prefer --password-file
    #[arg(short = 'P', long, conflicts_with = "password_file")]
    pub(crate) password: Option<String>,
    /// File whose first line is the password; - for standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// Token (JWT); visible to other users in the process list, prefer --token-file
    #[arg(long, value_name = "JWT", conflicts_with_all = ["user", "password", "password_file", "token_file"])]
    pub(crate) token: Option<String>,
    /// File whose first line is the token; - for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["user", "password", "password_file"])]
    pub(crate) token_file: Option<PathBuf>,
    /// PEM file of trusted authorities, instead of the system's
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub(crate) ca: Option<PathBuf>,
    /// Do not verify the server's certificate
    #[arg(long)]
    pub(crate) insecure: bool,
    /// PEM file of the client certificate
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// PEM file of its private key
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// Identity of a pre-shared key
    #[arg(long, value_name = "IDENTITY")]
    pub(crate) psk_id: Option<String>,
    /// Pre-shared key in hexadecimal; visible to other users in the process list, prefer --psk-file
    #[arg(long, value_name = "HEX", requires = "psk_id", conflicts_with = "psk_file")]
    pub(crate) psk: Option<String>,
    /// File whose first line is the pre-shared key in hexadecimal; - for standard input
    #[arg(long, value_name = "FILE", requires = "psk_id")]
    pub(crate) psk_file: Option<PathBuf>,
    /// OSCORE context for coap://: a file of fogmux or libcoap, or a directory of aiocoap
    #[arg(long, value_name = "PATH")]
    pub(crate) oscore: Option<PathBuf>,
    /// HTTP version
    #[arg(long, value_name = "VERSION", default_value = "1.1")]
    pub(crate) http: HttpVersion,
    /// MQTT version
    #[arg(long, value_name = "VERSION", default_value = "5")]
    pub(crate) mqtt: MqttVersion,
    /// MQTT client identifier [default: assigned by the server]
    #[arg(long, value_name = "ID")]
    pub(crate) client_id: Option<String>,
    /// XMPP domain [default: the host of the URL]
    #[arg(long, value_name = "NAME")]
    pub(crate) domain: Option<String>,
    /// Quality of service; on CoAP 0 sends NON, 1 and 2 send CON
    #[arg(short, long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=2))]
    pub(crate) qos: u8,
    /// Time limit for an answer; for sub: for a message
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
    /// URL of the topic, such as mqtt://127.0.0.1/room/temperature; schemes: mqtt(s), ws(s), coap(s), coap(s)+tcp,
    /// coap(s)+ws, http(s), xmpp(s)
    pub(crate) url: String,
    /// Payload; - for standard input
    pub(crate) payload: String,
    /// Retain the message as the topic's latest value
    #[arg(short, long)]
    pub(crate) retain: bool,
    /// MIME type of the payload
    #[arg(short = 't', long, value_name = "TYPE")]
    pub(crate) content_type: Option<String>,
    #[command(flatten)]
    pub(crate) access: Access,
}

/// Subscribes to a topic or filter.
#[derive(Clone, Debug, Args)]
pub(crate) struct Subscribe {
    /// URL with a topic filter, such as mqtt://127.0.0.1/room/+; `+` and `#` work at every door; schemes as for pub
    pub(crate) url: String,
    /// Exit after this many messages
    #[arg(short = 'n', long)]
    pub(crate) count: Option<u64>,
    /// Output format
    #[arg(short, long, default_value = "text")]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) access: Access,
}

/// Fetches the retained message of a topic.
#[derive(Clone, Debug, Args)]
pub(crate) struct Get {
    /// URL of the topic, such as coap://127.0.0.1/room/temperature; schemes as for pub
    pub(crate) url: String,
    /// Output format
    #[arg(short, long, default_value = "raw")]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) access: Access,
}

/// Output formats of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// The bytes of the payload only
    Raw,
    /// One JSON object per line
    Json,
    /// One line per message with topic and payload
    #[default]
    Text,
}
