//! Calls to `ip`, `nft`, `tc` and `ethtool`: how Linux wants its network to be set up.

use std::ffi::OsStr;
use std::io;
use std::process::Command;

use super::LinkError;

/// A program and the Debian package that it comes in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tool {
    pub(super) name: &'static str,
    pub(super) package: &'static str,
}

pub(super) const IP: Tool = Tool { name: "ip", package: "iproute2" };
pub(super) const TC: Tool = Tool { name: "tc", package: "iproute2" };
pub(super) const NFT: Tool = Tool { name: "nft", package: "nftables" };
pub(super) const ETHTOOL: Tool = Tool { name: "ethtool", package: "ethtool" };

impl Tool {
    /// Whether it can be called at all.
    pub(super) fn is_there(self) -> bool {
        Command::new(self.name).arg("--version").output().is_ok()
    }

    /// An error if it cannot be called; a program that calls it for us would only say so in its own words.
    pub(super) fn require(self) -> Result<(), LinkError> {
        if self.is_there() { Ok(()) } else { Err(LinkError::Missing { tool: self.name, package: self.package }) }
    }

    /// Runs it with these words.
    pub(super) fn run(self, arguments: &str) -> Result<(), LinkError> {
        self.output(arguments).map(drop)
    }

    /// The same, and what it prints.
    pub(super) fn output(self, arguments: &str) -> Result<String, LinkError> {
        self.output_of(Command::new(self.name).args(arguments.split_ascii_whitespace()))
    }

    /// Runs a command of which this is the program that may be missing.
    pub(super) fn run_command(self, command: &mut Command) -> Result<(), LinkError> {
        self.output_of(command).map(drop)
    }

    fn output_of(self, command: &mut Command) -> Result<String, LinkError> {
        let missing = |error: io::Error| {
            if error.kind() == io::ErrorKind::NotFound {
                return LinkError::Missing { tool: self.name, package: self.package };
            }
            LinkError::Kernel { what: self.name.to_owned(), error }
        };
        let output = command.output().map_err(missing)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let words = std::iter::once(command.get_program()).chain(command.get_args()).map(OsStr::to_string_lossy);
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(LinkError::Failed { command: words.collect::<Vec<_>>().join(" "), said })
    }
}
