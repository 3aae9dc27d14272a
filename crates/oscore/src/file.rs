//! Security contexts as text: fogmux's TOML and the formats of aiocoap and libcoap, parsed and written. Only
//! [`directory`] opens files.

pub mod aiocoap;
pub mod directory;
pub mod libcoap;
pub mod toml;

use crate::algorithm::UnknownAlgorithm;
use crate::id::TooLong;
use crate::parameters::ParametersError;

/// An error in the text of a security context.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The text is not TOML, or has other keys than these.
    #[error("{0}")]
    Toml(String),
    /// The text is not JSON, or not an object.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// A line that cannot be read.
    #[error("line {line}: {problem}")]
    Line {
        /// The number of the line, from 1.
        line: usize,
        /// The problem, as shown to the operator.
        problem: String,
    },
    /// A required key is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A value that cannot be used.
    #[error("{key}: {problem}")]
    Value {
        /// The name of the key.
        key: String,
        /// The problem, as shown to the operator.
        problem: String,
    },
    /// The parameters do not make a valid context.
    #[error(transparent)]
    Parameters(#[from] ParametersError),
}

impl FileError {
    fn value(key: &str, problem: impl ToString) -> Self {
        Self::Value { key: key.to_owned(), problem: problem.to_string() }
    }
}

impl From<TooLong> for FileError {
    fn from(error: TooLong) -> Self {
        Self::Parameters(error.into())
    }
}

impl From<UnknownAlgorithm> for FileError {
    fn from(error: UnknownAlgorithm) -> Self {
        Self::value("algorithm", error)
    }
}
