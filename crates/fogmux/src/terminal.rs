//! The terminal's echo, switched off while a password is typed.

use std::process::{Command, Stdio};

/// Until dropped, what is typed is not shown.
pub(crate) struct Quiet {
    silenced: bool,
}

/// Switches the echo off. `stty` is part of every system that has a terminal (POSIX); without it the password shows.
pub(crate) fn silence() -> Quiet {
    Quiet { silenced: stty("-echo") }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if self.silenced {
            stty("echo");
        }
    }
}

fn stty(argument: &str) -> bool {
    let mut command = Command::new("stty");
    command.arg(argument).stdin(Stdio::inherit()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
