//! The flags of `fogmux bench handshakes`.

use clap::Args;
use fogmux_traffic::Door;
use fogmux_traffic::experiment::{Group, Suite};
use fogmux_traffic::handshakes::Key;

use super::{Columns, Host, Output, Thresholds, repetitions};

/// Measures handshakes.
#[derive(Debug, Args)]
pub(crate) struct Handshakes {
    /// Short: the suites with AES-128-GCM, those of small devices, and RSA key exchange; three repetitions of 0.3 s
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only these doors [default: mqtt,coap,http3, for TLS, DTLS and QUIC]
    #[arg(long, value_name = "DOOR", value_delimiter = ',')]
    pub(crate) doors: Vec<Door>,
    /// Only these cipher suites, by their IANA names
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) suites: Vec<Suite>,
    /// Only these groups: x25519, secp256r1, secp384r1
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) groups: Vec<Group>,
    /// Only these keys: ecdsa-p256, ecdsa-p384, rsa2048, rsa3072, rsa4096, psk
    #[arg(long, value_name = "KEY", value_delimiter = ',', value_parser = Key::named)]
    pub(crate) keys: Vec<Key>,
    /// List what no gateway does, each with its reason, and measure nothing
    #[arg(long)]
    pub(crate) impossible: bool,
    /// Seconds of each run [default: 1; quick: 0.3]
    #[arg(long)]
    pub(crate) seconds: Option<f64>,
    /// Repetitions [default: 5; quick: 3]
    #[arg(long, value_parser = repetitions())]
    pub(crate) repeat: Option<u32>,
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
