//! The answer to a command: its effect, or the reason why there is none.

use std::fmt;

use fogmux_auth::Problems;
use tokio::sync::oneshot;

/// Where the answer to a command goes. An error of the channel: nobody waits for it any more.
pub type Answer<T> = oneshot::Sender<Result<T, Refusal>>;

/// Why a command is refused. Nothing has changed then.
#[derive(Debug)]
pub enum Refusal {
    /// The file cannot be changed.
    Unchangeable(String),
    /// The file is not what it was taken for.
    Changed,
    /// The rules or the users would not be valid.
    Invalid(Problems),
    /// A value cannot be used.
    Unusable(String),
    /// The requester could not take it back.
    LosesAdministration,
    /// The requester may not change anything any more.
    Forbidden,
    /// There is no such user.
    Unknown,
    /// Too much is under way.
    Busy,
    /// There is no such thing.
    Missing(&'static str),
    /// A measurement would compete with the work of the gateway.
    Loaded(String),
    /// As many wait as may.
    Full(String),
    /// It could not be done.
    Failed(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unchangeable(reason)
            | Self::Unusable(reason)
            | Self::Loaded(reason)
            | Self::Full(reason)
            | Self::Failed(reason) => f.write_str(reason),
            Self::Missing(reason) => f.write_str(reason),
            Self::Changed => f.write_str("the file was changed meanwhile"),
            Self::Invalid(problems) => problems.fmt(f),
            Self::Forbidden => f.write_str("the right to change users, rules and the log was taken back"),
            Self::LosesAdministration => f.write_str("you could not take it back; force=true makes it nevertheless"),
            Self::Unknown => f.write_str("there is no such user"),
            Self::Busy => f.write_str("other changes are under way"),
        }
    }
}
