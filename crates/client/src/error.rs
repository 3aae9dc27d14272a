//! What can go wrong between a client and a door, by whose fault it is.

/// Why a client did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody there, or the connection was lost.
    #[error("{0}")]
    Unavailable(String),
    /// The door does not let us.
    #[error("refused: {0}")]
    Refused(String),
    /// The door would not take what was sent.
    #[error("not accepted: {0}")]
    NotAccepted(String),
    /// Neither answer nor message in time.
    #[error("no answer within {0} s")]
    Timeout(f64),
    /// What came back is not the protocol.
    #[error("the other side broke the protocol: {0}")]
    Protocol(String),
    /// What was asked cannot be asked at this door.
    #[error("{0}")]
    Usage(String),
    /// A local file or stream.
    #[error("{0}")]
    Io(String),
    /// There is no kept message.
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
