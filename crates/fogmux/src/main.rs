//! The fogmux daemon and its command line: the one place where the parts are put together.

mod check;
mod cli;
mod config;
mod exit;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::exit::{Failure, Status};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are errors to clap, and no errors to anybody else.
            let status = if error.use_stderr() { ExitCode::from(Status::Usage as u8) } else { ExitCode::SUCCESS };
            let _ = error.print();
            return status;
        }
    };
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("fogmux: {:#}", failure.error);
            failure.code()
        }
    }
}

fn run(cli: Cli) -> Result<(), Failure> {
    match cli.command.unwrap_or(Command::Serve(cli.serve)) {
        Command::Check(arguments) => check::run(&arguments),
        Command::Serve(_)
        | Command::Passwd(_)
        | Command::Acl(_)
        | Command::Demo(_)
        | Command::Pub(_)
        | Command::Sub(_)
        | Command::Get(_) => Ok(()),
    }
}
