//! Two hosts: an agent on one starts gateways for a generator on the other.
//!
//! They speak length-prefixed JSON over TLS 1.3 in which both show certificates of an authority that belongs to the
//! agent alone. Requests are a fixed few ([`Request`]): a gateway for an experiment, what its process uses, an end.
//! There is none that names a command or a path. One generator at a time has one gateway at a time, and it ends with
//! the connection. Why it is so: ADR 0017.

mod channel;
mod keys;
mod message;
mod remote;
mod serve;
mod session;

pub use keys::Keys;
pub use message::{Reply, Request, Started, Way};
pub use remote::{Remote, RemoteGateway, RemoteProbe};
pub use serve::Agent;

use crate::target::TargetError;

/// Why an agent cannot be had, or does not do what it is asked to.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// A file or a socket.
    #[error("{what}: {error}")]
    Io {
        /// The file or the socket.
        what: String,
        /// The error of the system.
        error: std::io::Error,
    },
    /// Certificates cannot be created or used.
    #[error("{what}: {why}")]
    Keys {
        /// The certificate.
        what: String,
        /// The reason.
        why: String,
    },
    /// The agent refuses a request.
    #[error("the agent refuses: {0}")]
    Refused(String),
    /// The agent answered something else.
    #[error("the agent speaks another language; is it the same version?")]
    Unexpected,
    /// The connection failed earlier.
    #[error("the connection to the agent is over")]
    Over,
    /// A file that the agent sent cannot be stored here.
    #[error(transparent)]
    Target(#[from] TargetError),
}

impl AgentError {
    fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |error| Self::Io { what, error }
    }

    fn keys(what: impl Into<String>, why: impl std::fmt::Display) -> Self {
        Self::Keys { what: what.into(), why: why.to_string() }
    }
}
