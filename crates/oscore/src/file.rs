//! Contexts as text: our own TOML, and the formats of aiocoap and libcoap, read and written. No file is opened here, but
//! in [`directory`].

pub mod aiocoap;
pub mod directory;
pub mod libcoap;
pub mod toml;

use crate::algorithm::UnknownAlgorithm;
use crate::id::TooLong;
use crate::parameters::ParametersError;

/// Why a text is no context.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Not TOML, or not with these keys.
    #[error("{0}")]
    Toml(String),
    /// Not JSON, or not an object.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// A line that cannot be read.
    #[error("line {line}: {problem}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        problem: String,
    },
    /// A key that must be there.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A value that cannot be used.
    #[error("{key}: {problem}")]
    Value {
        /// Which.
        key: String,
        /// What is wrong.
        problem: String,
    },
    /// Parameters that make no context.
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
