//! The fogmux daemon and its command line: the composition of all parts. `main.rs` only calls [`run_command_line`]; the
//! library lets the fuzzer call the configuration parser.

#![cfg_attr(
    not(all(
        feature = "acme",
        feature = "coap",
        feature = "http",
        feature = "mqtt",
        feature = "otlp",
        feature = "xmpp"
    )),
    allow(unused, reason = "the doors of this build need only a part of what all need together")
)]

mod acl;
mod acme;
mod admin_password;
mod backup;
#[cfg(feature = "bench")]
mod bench;
#[cfg(feature = "http")]
mod benches;
mod callback;
mod check;
mod cli;
mod client;
mod clock;
mod compose;
mod config;
mod data;
mod demo;
mod disk;
mod doctor;
mod exit;
mod home;
mod import;
mod installed;
mod interrupted;
mod kept;
mod later;
#[cfg(feature = "mqtt")]
mod link;
mod memory_limit;
mod modes;
mod open_files;
mod oscore;
#[cfg(feature = "otlp")]
mod otlp;
mod output;
mod parent;
mod passwd;
mod pki;
mod rollover;
mod serve;
mod terminal;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser};

use crate::cli::{Cli, Command};
use crate::exit::{Failure, Status};

/// Runs the command line and returns the exit code.
#[must_use]
pub fn run_command_line() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let error = cli::explain(error);
            // clap reports help and version as errors.
            let status = if error.use_stderr() { ExitCode::from(Status::Usage as u8) } else { ExitCode::SUCCESS };
            return match output::written(error.print()) {
                Ok(()) => status,
                Err(failure) => failure.code(),
            };
        }
    };
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(message) = failure.message() {
                eprintln!("fogmux: {message}");
            }
            failure.code()
        }
    }
}

/// Returns the definition of the command line, from which manual pages and shell completions are made.
#[must_use]
pub fn commands() -> clap::Command {
    Cli::command()
}

/// Returns the errors of a configuration's text, one per line as `fogmux check` prints them; none if it is valid.
#[must_use]
pub fn configuration_problems(text: &str) -> Vec<String> {
    match config::load(&[config::Source::new("fogmux.toml", text)]) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.0.iter().map(ToString::to_string).collect(),
    }
}

fn run(cli: Cli) -> Result<(), Failure> {
    match cli.command.unwrap_or(Command::Serve(cli.serve)) {
        Command::Check(arguments) => check::run(&arguments),
        Command::Backup(arguments) => backup::run(&arguments),
        Command::Restore(arguments) => backup::restore::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Pub(arguments) => client::run_publish(&arguments),
        Command::Sub(arguments) => client::run_subscribe(&arguments),
        Command::Get(arguments) => client::run_get(&arguments),
        Command::Passwd(arguments) => {
            modes::restrict();
            passwd::run(&arguments)
        }
        Command::Acl(command) => acl::run(&command),
        Command::Pki(command) => pki::run(&command),
        Command::Import(command) => import::run(&command),
        Command::Serve(arguments) => {
            modes::restrict();
            serve::run(&arguments)
        }
        Command::Demo(arguments) => {
            modes::restrict();
            demo::run(&arguments)
        }
        #[cfg(feature = "bench")]
        Command::Bench(command) => {
            modes::restrict();
            bench::run(&command)
        }
    }
}
