//! Why a repetition has no outcome.

use std::time::Duration;

use crate::agent::AgentError;
use crate::driver::DriverError;
use crate::experiment::ExperimentError;
use crate::link::LinkError;
use crate::pattern::{PatternError, moment};
use crate::repetition::Void;
use crate::target::TargetError;
use crate::text::plain;

/// Why a repetition has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum ConductorError {
    /// The experiment cannot be done.
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    /// The target.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The network between.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The clients.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// The other host.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The gateway, or a process of a peer, ended while it was measured.
    #[error("{how}, {}", moment(*after))]
    Ended {
        /// Which, and how.
        how: String,
        /// How long after the beginning of the measurement; nothing before it.
        after: Option<Duration>,
    },
    /// A process that was named is not there.
    #[error("the processes to be measured: {0}")]
    Processes(#[source] std::io::Error),
    /// The process of its own that a repetition had.
    #[error("the generator's process of this repetition: {0}")]
    Alone(String),
    /// It was ended from outside.
    #[error("ended by {0}")]
    Stopped(&'static str),
    /// There was nothing to be done.
    #[error("there is no experiment")]
    Nothing,
    /// It did not end.
    #[error("it did not end within {0:?}")]
    Hanging(Duration),
}

impl From<DriverError> for ConductorError {
    fn from(error: DriverError) -> Self {
        Self::Pattern(error.into())
    }
}

impl From<ConductorError> for Void {
    fn from(error: ConductorError) -> Self {
        let why = plain(&error.to_string());
        if matches!(error, ConductorError::Stopped(_)) { Self::Stopped(why) } else { Self::Failed(why) }
    }
}
