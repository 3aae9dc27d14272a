//! Errors between a client and a door, by whose fault they are.

use crate::message::printable;

/// The reason why a request of a client failed. The text of a peer is shown as one line without control characters.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server is unreachable, or the connection was lost.
    #[error("{}", printable(.0))]
    Unavailable(String),
    /// The door denies access.
    #[error("refused: {}", printable(.0))]
    Refused(String),
    /// The door rejected the message.
    #[error("not accepted: {}", printable(.0))]
    NotAccepted(String),
    /// No response or message arrived in time.
    #[error("no answer within {0} s")]
    Timeout(f64),
    /// The other side violated the protocol.
    #[error("the other side broke the protocol: {}", printable(.0))]
    Protocol(String),
    /// The door does not support the request.
    #[error("{0}")]
    Usage(String),
    /// A local file or stream failed.
    #[error("{0}")]
    Io(String),
    /// The topic has no retained message.
    #[error("the topic keeps no message")]
    Nothing,
}

impl ClientError {
    /// The connection broke, or could not be made.
    pub fn unavailable(what: impl std::fmt::Display) -> Self {
        Self::Unavailable(what.to_string())
    }

    /// The other side says what its protocol does not know.
    pub fn protocol(what: impl std::fmt::Display) -> Self {
        Self::Protocol(what.to_string())
    }
}
