//! The arguments of `fogmux pki`.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use fogmux_net::KeyKind;

use super::Files;

/// The days for which a certificate may be valid: up to a hundred years.
const DAYS: RangeInclusive<i64> = 1..=36_500;

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
    /// Have another authority take the place of the present one, while both are trusted
    #[command(subcommand)]
    Rollover(PkiRollover),
}

/// The steps of a rollover of the authority. Each says what to do next, and may be repeated.
#[derive(Debug, Subcommand)]
pub(crate) enum PkiRollover {
    /// Make another authority and trust both; client certificates are by the new one from now on
    Begin(PkiInit),
    /// Have the gateway's own certificate by the new authority as well
    Switch(PkiRolloverStep),
    /// End the trust in the old authority
    Finish(PkiRolloverFinish),
    /// Say how far a rollover is, and which clients have certificates by the old authority
    Status(PkiRolloverStep),
}

/// A step without arguments of its own.
#[derive(Debug, Args)]
pub(crate) struct PkiRolloverStep {
    #[command(flatten)]
    pub(crate) files: Files,
}

/// Ends a rollover.
#[derive(Debug, Args)]
pub(crate) struct PkiRolloverFinish {
    /// Go on though clients that have a certificate by the new authority may still show the old one
    #[arg(long)]
    pub(crate) replaced: bool,
    /// Go on though clients have no certificate but one by the old authority
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) files: Files,
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
    pub(crate) files: Files,
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
    #[arg(long, default_value_t = 820, value_parser = clap::value_parser!(u32).range(DAYS))]
    pub(crate) days: u32,
    #[command(flatten)]
    pub(crate) files: Files,
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
    #[arg(long, default_value_t = 730, value_parser = clap::value_parser!(u32).range(DAYS))]
    pub(crate) days: u32,
    /// Replace the existing certificate
    #[arg(long)]
    pub(crate) renew: bool,
    /// Write BASE.pem and BASE.key [default: pki/clients/NAME in the data directory]
    #[arg(long, value_name = "BASE")]
    pub(crate) out: Option<PathBuf>,
    /// Groups of the user, replacing the present ones
    #[arg(long = "group", value_name = "GROUP")]
    pub(crate) groups: Vec<String>,
    /// Also write certificate, key and authority into one PKCS #12 file
    #[arg(long, value_name = "FILE")]
    pub(crate) pkcs12: Option<PathBuf>,
    /// File whose first line is the password of the PKCS #12 file; - for standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) files: Files,
}

/// Creates or removes a pre-shared key.
#[derive(Debug, Args)]
pub(crate) struct PkiPsk {
    /// The identity that the device sends
    pub(crate) identity: String,
    /// The user of the key [default: the identity]
    #[arg(long)]
    pub(crate) user: Option<String>,
    /// The key in hexadecimal, 16 bytes or more; visible to other users in the process list [default: random]
    #[arg(long, value_name = "HEX")]
    pub(crate) key: Option<String>,
    /// Groups of the user, replacing the present ones
    #[arg(long = "group", value_name = "GROUP")]
    pub(crate) groups: Vec<String>,
    /// Remove the key
    #[arg(long, conflicts_with_all = ["user", "key", "groups"])]
    pub(crate) delete: bool,
    #[command(flatten)]
    pub(crate) files: Files,
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
    /// Groups of the user, replacing the present ones
    #[arg(long = "group", value_name = "GROUP")]
    pub(crate) groups: Vec<String>,
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
    #[command(flatten)]
    pub(crate) files: Files,
}

/// Revokes a certificate.
#[derive(Debug, Args)]
pub(crate) struct PkiRevoke {
    /// Client name, certificate file, or serial number in hexadecimal
    pub(crate) certificate: String,
    #[command(flatten)]
    pub(crate) files: Files,
}

/// Lists certificates.
#[derive(Debug, Args)]
pub(crate) struct PkiList {
    /// Print the list as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) files: Files,
}
