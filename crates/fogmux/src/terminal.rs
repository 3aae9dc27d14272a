//! The terminal: its width, whether it gets colours, and its echo, switched off while a password is typed.

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

/// Returns the number of columns; `None` if it is not a terminal or does not report them.
pub(crate) fn columns(stream: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Returns whether text for `stream` may have colours: on a terminal only, and not if `NO_COLOR` is set to anything
/// (<https://no-color.org>) or `TERM` is `dumb`.
pub(crate) fn has_colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal()
        && !forbids_colours(std::env::var_os("NO_COLOR").as_deref(), std::env::var_os("TERM").as_deref())
}

fn forbids_colours(no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    no_color.is_some_and(|value| !value.is_empty()) || is_dumb(term)
}

/// Returns whether this `TERM` understands no escape sequences.
pub(crate) fn is_dumb(term: Option<&OsStr>) -> bool {
    term.is_some_and(|term| term == "dumb")
}

/// Whether a character is not seen, or changes how others are seen: control characters of ASCII and of ISO 6429 (C1),
/// separators of lines, and the marks, embeddings, overrides and isolates of the bidirectional algorithm (UAX #9).
pub(crate) fn is_hidden(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(char, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_color_counts_if_it_is_not_empty() {
        let forbids =
            |no_color: Option<&str>, term: &str| forbids_colours(no_color.map(OsStr::new), Some(OsStr::new(term)));
        assert!(forbids(Some("1"), "xterm"));
        assert!(forbids(Some("0"), "xterm"));
        assert!(!forbids(Some(""), "xterm"));
        assert!(!forbids(None, "xterm"));
        assert!(forbids(None, "dumb"));
    }
}
