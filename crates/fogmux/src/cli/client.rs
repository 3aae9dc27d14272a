//! The arguments of `fogmux pub`, `sub` and `get`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

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
