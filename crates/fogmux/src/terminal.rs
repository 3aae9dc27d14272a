//! The terminal: its width, and its echo, switched off while a password is typed.

#[cfg(feature = "bench")]
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

/// Returns the number of columns; `None` if it is not a terminal or does not report them.
#[cfg(feature = "bench")]
pub(crate) fn columns(stream: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Suppresses the echo until dropped.
pub(crate) struct Quiet {
    silenced: bool,
}

/// Switches the echo off. `stty` is part of every POSIX system with a terminal; without it the password is visible.
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
