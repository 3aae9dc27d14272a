//! Why an experiment is invalid.

/// The reason why an experiment is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExperimentError {
    /// There is no such thing.
    #[error("there is no {0} {1:?}")]
    Unknown(&'static str, String),
    /// A number is out of its bounds.
    #[error("{key} is {value}; accepted: {accepted}")]
    Bounds {
        /// The key.
        key: &'static str,
        /// The number.
        value: String,
        /// The numbers that would be accepted.
        accepted: String,
    },
    /// It contradicts itself.
    #[error("{0}")]
    Contradiction(String),
}
