//! The `fogmux` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    fogmux::run_command_line()
}
