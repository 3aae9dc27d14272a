//! The terminal: how wide it is, and its echo, switched off while a password is typed.

use std::os::fd::AsFd;
use std::process::{Command, Stdio};

/// How many columns it has; nothing where this is no terminal, or one that does not say.
pub(crate) fn columns(stream: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

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
