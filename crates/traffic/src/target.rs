//! Targets of measurements: a fogmux gateway that is started for an experiment, or a broker that already runs.

mod apart;
mod directory;
mod gateway;
mod home;
mod settings;
mod token;

use std::path::PathBuf;

use fogmux_net::channel::Zeroizing;

pub use apart::{Apart, serve as serve_origin};
pub(crate) use directory::PrivateDirectory;
pub use gateway::Gateway;
pub use home::Home;
pub(crate) use settings::settings;

/// Why there is no target.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// A file, or a process that could not be started.
    #[error("{0}: {1}")]
    Io(String, #[source] std::io::Error),
    /// A command of ours failed.
    #[error("`fogmux {0}` failed: {1}")]
    Command(String, String),
    /// The gateway did not start.
    #[error("the gateway did not start: {0}")]
    Start(String),
    /// This door cannot be opened so.
    #[error("{0}")]
    Unsupported(String),
}

/// How to reach one door of a target, and with what.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// A name or an address, without brackets.
    pub host: String,
    /// The port of the door.
    pub port: u16,
    /// The name that a certificate must carry, and with XMPP the domain.
    pub name: String,
    /// The authority to trust, as PEM; none: whoever answers is believed, which is all that a measurement needs.
    pub authority: Option<PathBuf>,
    /// User and password.
    pub password: Option<(String, Zeroizing<String>)>,
    /// A certificate and its key, as PEM.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Identity and key.
    pub psk: Option<(String, Zeroizing<Vec<u8>>)>,
    /// A directory with one OSCORE context for each client: `publisher-0.toml`, `subscriber-0.toml`, …
    pub oscore: Option<PathBuf>,
    /// A bearer token.
    pub token: Option<Zeroizing<String>>,
    /// The path before a topic: `ps` on fogmux's CoAP door; `None` for a peer's single resource.
    pub prefix: Option<String>,
    /// The file for TLS secrets in the format of `SSLKEYLOGFILE`, with which a capture can be decrypted.
    pub key_log: Option<PathBuf>,
    /// The group of a fleet that its clients are of, which is in their identifiers: two groups have different ones.
    pub group: Option<String>,
}
