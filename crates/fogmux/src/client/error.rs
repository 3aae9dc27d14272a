//! What can go wrong between a client command and a door, by whose fault it is.

use crate::exit::{Failure, Status};

/// Why a client command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
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
    pub(crate) fn unavailable(what: impl std::fmt::Display) -> Self {
        Self::Unavailable(what.to_string())
    }

    /// The other side says what its protocol does not know.
    pub(crate) fn protocol(what: impl std::fmt::Display) -> Self {
        Self::Protocol(what.to_string())
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let status = match &error {
            ClientError::Unavailable(_) | ClientError::Timeout(_) | ClientError::Nothing => Status::Unavailable,
            ClientError::Refused(_) => Status::NoPerm,
            ClientError::NotAccepted(_) => Status::DataErr,
            ClientError::Protocol(_) => Status::Protocol,
            ClientError::Usage(_) => Status::Usage,
            ClientError::Io(_) => Status::IoErr,
        };
        Self::new(status, error)
    }
}
