//! The command line as data.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use fogmux_net::KeyKind;

use crate::{bench::arguments::Bench, later::Later};

/// A gateway for a fog node: MQTT, CoAP, HTTP and XMPP meet on one topic bus.
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
    /// Validate a configuration: everything that is wrong, at once
    Check(Later<Check>),
    /// Add a user or change a password, read from standard input when that is no terminal
    Passwd(Later<Passwd>),
    /// Look at the access rules
    #[command(subcommand)]
    Acl(Later<Acl>),
    /// Take over users, keys and rules of another broker
    #[command(subcommand)]
    Import(Later<Import>),
    /// Manage the authority, certificates and pre-shared keys
    #[command(subcommand)]
    Pki(Later<Pki>),
    /// Start a gateway on free ports and show each message arriving at every other door
    Demo(Later<Demo>),
    /// Publish one message to mqtt(s)://, ws(s)://, coap(s)://, coap(s)+tcp://, coap(s)+ws://, http(s):// or xmpp(s)://HOST/TOPIC
    Pub(Later<Publish>),
    /// Follow a topic or filter at any door and print what arrives
    Sub(Later<Subscribe>),
    /// Print the message a topic keeps, and end
    Get(Later<Get>),
    /// Generate traffic and measure: this gateway or any broker, single experiments or published ones
    #[command(subcommand)]
    Bench(Later<Bench>),
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
    /// Shut the user out, by whatever credential it comes, and keep the password
    #[arg(long, conflicts_with_all = ["groups", "delete"])]
    pub(crate) disable: bool,
    /// Let the user in again
    #[arg(long, conflicts_with_all = ["groups", "delete", "disable"])]
    pub(crate) enable: bool,
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
    /// A user, "anonymous", cert:FILE, psk:IDENTITY, oscore:USER, token:FILE or callback:USER
    #[arg(value_name = "WHO")]
    pub(crate) user: String,
    /// The action to test
    pub(crate) action: AclAction,
    /// The topic, or for reading a filter
    pub(crate) topic: String,
    /// The door it comes by
    #[arg(long, default_value = "mqtt")]
    pub(crate) door: AclDoor,
    /// Client identifier, for %c [default: the user]
    #[arg(long)]
    pub(crate) client: Option<String>,
    /// Groups that the callback would name
    #[arg(long = "group", value_name = "GROUP")]
    pub(crate) groups: Vec<String>,
    #[command(flatten)]
    pub(crate) data: Data,
    /// Configuration that names the files
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print the decision as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The use of a topic.
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

/// Other brokers to come from.
#[derive(Debug, Subcommand)]
pub(crate) enum Import {
    /// From mosquitto: acl_file, password_file and psk_file, with a report of what could not be translated
    Mosquitto(ImportMosquitto),
}

/// The files of a mosquitto.
#[derive(Debug, Args)]
pub(crate) struct ImportMosquitto {
    /// mosquitto.conf, which names the files
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Its acl_file
    #[arg(long, alias = "acl-file", value_name = "FILE")]
    pub(crate) acl: Option<PathBuf>,
    /// Its password_file
    #[arg(long, alias = "password-file", value_name = "FILE")]
    pub(crate) passwords: Option<PathBuf>,
    /// Its psk_file
    #[arg(long, alias = "psk-file", value_name = "FILE")]
    pub(crate) psk: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) data: Data,
    /// Configuration that names our files
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Only say what would come of it
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Put the rules, passwords and keys in place of those that are there
    #[arg(long)]
    pub(crate) replace: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The authority, certificates and pre-shared keys, all in the data directory.
#[derive(Debug, Subcommand)]
pub(crate) enum Pki {
    /// Make an authority, before the first start makes one of its own
    Init(PkiInit),
    /// Make the gateway's certificate for more names, or with --out one for another server
    Server(PkiServer),
    /// Make a certificate for a client
    Client(PkiClient),
    /// Make a pre-shared key and print it, as IDENTITY:KEY
    Psk(PkiPsk),
    /// Make an OSCORE context for a device and print the device's side
    Oscore(PkiOscore),
    /// Revoke a certificate: running gateways refuse it from the next handshake on
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
    /// As the authority knows it.
    pub(crate) const fn kind(self) -> KeyKind {
        match self {
            Self::Ecdsa => KeyKind::EcdsaP256,
            Self::Rsa2048 => KeyKind::Rsa2048,
            Self::Rsa4096 => KeyKind::Rsa4096,
        }
    }
}

/// Makes an authority.
#[derive(Debug, Args)]
pub(crate) struct PkiInit {
    /// Its key
    #[arg(long, default_value = "ecdsa")]
    pub(crate) key: KeyChoice,
    #[command(flatten)]
    pub(crate) data: Data,
}

/// Makes a server's certificate.
#[derive(Debug, Args)]
pub(crate) struct PkiServer {
    /// DNS names and addresses, beside this host's
    pub(crate) names: Vec<String>,
    /// Its key
    #[arg(long, default_value = "ecdsa")]
    pub(crate) key: KeyChoice,
    /// Write BASE.pem and BASE.key, for a server that is not this gateway
    #[arg(long, value_name = "BASE")]
    pub(crate) out: Option<PathBuf>,
    /// How long it is good, with --out
    #[arg(long, default_value_t = 820)]
    pub(crate) days: u32,
    #[command(flatten)]
    pub(crate) data: Data,
}

/// Makes a client's certificate.
#[derive(Debug, Args)]
pub(crate) struct PkiClient {
    /// The user: the common name
    pub(crate) name: String,
    /// Its key
    #[arg(long, default_value = "ecdsa")]
    pub(crate) key: KeyChoice,
    /// A DNS name or address in it
    #[arg(long, value_name = "NAME")]
    pub(crate) dns: Vec<String>,
    /// A mail address in it
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) email: Vec<String>,
    /// A URI in it
    #[arg(long, value_name = "URI")]
    pub(crate) uri: Vec<String>,
    /// An XMPP address in it
    #[arg(long, value_name = "JID")]
    pub(crate) xmpp: Vec<String>,
    /// How long it is good
    #[arg(long, default_value_t = 730)]
    pub(crate) days: u32,
    /// Replace the one that is there
    #[arg(long)]
    pub(crate) renew: bool,
    /// Write BASE.pem and BASE.key [default: pki/clients/NAME in the data directory]
    #[arg(long, value_name = "BASE")]
    pub(crate) out: Option<PathBuf>,
    /// Write certificate, key and authority into one file as well (PKCS #12)
    #[arg(long, value_name = "FILE")]
    pub(crate) pkcs12: Option<PathBuf>,
    /// File whose first line is the password of the PKCS #12 file; - for standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) data: Data,
}

/// Makes or removes a pre-shared key.
#[derive(Debug, Args)]
pub(crate) struct PkiPsk {
    /// The identity that the device sends
    pub(crate) identity: String,
    /// The user it stands for [default: the identity]
    #[arg(long)]
    pub(crate) user: Option<String>,
    /// The key in hexadecimal digits; everybody on this machine can see it [default: a random one]
    #[arg(long, value_name = "HEX")]
    pub(crate) key: Option<String>,
    /// Remove the key
    #[arg(long, conflicts_with_all = ["user", "key"])]
    pub(crate) delete: bool,
    /// Configuration that names the file of keys
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) data: Data,
}

/// Formats of OSCORE contexts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OscoreFormat {
    /// Our own TOML
    #[default]
    Fogmux,
    /// A directory for aiocoap
    Aiocoap,
    /// A configuration for libcoap
    Libcoap,
}

/// Makes or takes an OSCORE context.
#[derive(Debug, Args)]
pub(crate) struct PkiOscore {
    /// The user whom the device stands for; each of its devices needs a context of its own
    pub(crate) user: String,
    /// Take the gateway's side from a file of ours or libcoap's, or a directory of aiocoap's, instead of making a new one
    #[arg(long, value_name = "PATH", conflicts_with_all = ["out", "format", "algorithm"])]
    pub(crate) import: Option<PathBuf>,
    /// Write the device's side there [default: standard output]
    #[arg(long, value_name = "PATH")]
    pub(crate) out: Option<PathBuf>,
    /// The form of the device's side
    #[arg(long, default_value = "fogmux")]
    pub(crate) format: OscoreFormat,
    /// AES-CCM-16-64-128, A128GCM or another AEAD of COSE [default: AES-CCM-16-64-128]
    #[arg(long, value_name = "NAME")]
    pub(crate) algorithm: Option<String>,
    /// Configuration that names the directory of contexts
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) data: Data,
}

/// Revokes a certificate.
#[derive(Debug, Args)]
pub(crate) struct PkiRevoke {
    /// The name of a client, a certificate's file, or a serial number in hexadecimal digits
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

/// The arguments of every client command.
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
    /// Token (JWT) that says who you are; everybody on this machine can see it, prefer --token-file
    #[arg(long, value_name = "JWT", conflicts_with_all = ["user", "password", "password_file", "token_file"])]
    pub(crate) token: Option<String>,
    /// File whose first line is the token; - for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["user", "password", "password_file"])]
    pub(crate) token_file: Option<PathBuf>,
    /// PEM file of the authorities to trust, instead of the system's
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub(crate) ca: Option<PathBuf>,
    /// Do not verify the server's certificate
    #[arg(long)]
    pub(crate) insecure: bool,
    /// PEM file of a certificate of yours, for servers that ask who you are
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// Identity of a pre-shared key
    #[arg(long, value_name = "IDENTITY")]
    pub(crate) psk_id: Option<String>,
    /// The key in hexadecimal digits; everybody on this machine can see it, prefer --psk-file
    #[arg(long, value_name = "HEX", requires = "psk_id", conflicts_with = "psk_file")]
    pub(crate) psk: Option<String>,
    /// File whose first line is the key in hexadecimal digits; - for standard input
    #[arg(long, value_name = "FILE", requires = "psk_id")]
    pub(crate) psk_file: Option<PathBuf>,
    /// OSCORE context for coap://: a file of ours or libcoap's, or a directory of aiocoap's
    #[arg(long, value_name = "PATH")]
    pub(crate) oscore: Option<PathBuf>,
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
    /// The payload; - for standard input
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
    /// The address with a topic filter: mqtt://127.0.0.1/room/+ – `+` and `#` work on every door
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
