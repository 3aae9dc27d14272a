//! The fogmux daemon and its command line: the one place where the parts are put together.

mod acl;
mod bench;
mod callback;
mod check;
mod cli;
mod client;
mod compose;
mod config;
mod data;
mod demo;
mod exit;
mod home;
mod import;
mod open_files;
mod oscore;
mod passwd;
mod pki;
mod serve;
mod terminal;

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
            if let Some(message) = failure.message() {
                eprintln!("fogmux: {message}");
            }
            failure.code()
        }
    }
}

fn run(cli: Cli) -> Result<(), Failure> {
    match cli.command.unwrap_or(Command::Serve(cli.serve)) {
        Command::Check(arguments) => check::run(&arguments),
        Command::Pub(arguments) => client::run_publish(&arguments),
        Command::Sub(arguments) => client::run_subscribe(&arguments),
        Command::Get(arguments) => client::run_get(&arguments),
        Command::Passwd(arguments) => passwd::run(&arguments),
        Command::Acl(command) => acl::run(&command),
        Command::Pki(command) => pki::run(&command),
        Command::Import(command) => import::run(&command),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Bench(command) => bench::run(&command),
    }
}
