//! `fogmux check`: everything that is wrong with a configuration, at once.

use std::path::Path;

use crate::cli::Check;
use crate::config::{Config, Problems, REFERENCE, load, sources};
use crate::exit::{Failure, Status};

/// Validates a file, or prints the reference.
pub(crate) fn run(arguments: &Check) -> Result<(), Failure> {
    let Some(file) = &arguments.file else {
        print!("{REFERENCE}");
        return Ok(());
    };
    match read(Some(file), &[]) {
        Ok(_) if arguments.json => println!("{}", serde_json::json!({"valid": true, "problems": []})),
        Ok(_) => println!("{}: valid", file.display()),
        Err(ReadError::Problems(problems)) if arguments.json => {
            let list: Vec<_> = problems.0.iter().map(|problem| problem.to_json()).collect();
            println!("{}", serde_json::json!({"valid": false, "problems": list}));
            return Err(invalid(&problems));
        }
        Err(ReadError::Problems(problems)) => {
            println!("{problems}");
            return Err(invalid(&problems));
        }
        Err(ReadError::Unreadable(failure)) => return Err(failure),
    }
    Ok(())
}

/// Why there is no configuration.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// It says what it must not.
    Problems(Problems),
    /// There is nothing to read.
    Unreadable(Failure),
}

/// Files and command line to one configuration.
pub(crate) fn read(file: Option<&Path>, settings: &[String]) -> Result<Config, ReadError> {
    let sources = sources(file, settings).map_err(|(file, error)| {
        ReadError::Unreadable(Failure::new(Status::Config, format!("{}: {error}", file.display())))
    })?;
    load(&sources).map_err(ReadError::Problems)
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Problems(problems) => {
                Self::new(Status::Config, format!("the configuration is invalid\n{problems}"))
            }
            ReadError::Unreadable(failure) => failure,
        }
    }
}

fn invalid(problems: &Problems) -> Failure {
    let count = problems.0.len();
    Failure::new(Status::Config, if count == 1 { "1 problem".to_owned() } else { format!("{count} problems") })
}
