//! The command line as data: a module for each command with arguments of its own, the small ones here.

mod acl;
mod client;
#[cfg(all(test, feature = "bench"))]
mod documents;
mod import;
mod pki;

use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Error, Parser, Subcommand};

pub(crate) use self::acl::{Acl, AclAction, AclDoor, AclTest};
pub(crate) use self::client::{Access, Format, Get, HttpVersion, MqttVersion, Publish, Subscribe};
pub(crate) use self::import::{Import, ImportMosquitto};
pub(crate) use self::pki::{
    KeyChoice, OscoreFormat, Pki, PkiClient, PkiInit, PkiList, PkiOscore, PkiPsk, PkiRevoke, PkiRollover,
    PkiRolloverFinish, PkiRolloverStep, PkiServer,
};
#[cfg(feature = "bench")]
use crate::bench::arguments::Bench;
use crate::later::Later;

/// A gateway for MQTT, CoAP, HTTP and XMPP on one topic bus.
#[derive(Debug, Parser)]
#[command(name = "fogmux", version, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) serve: Serve,
}

/// The subcommand; `serve` by default.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the gateway
    Serve(Serve),
    /// Validate a configuration and report all errors
    Check(Later<Check>),
    /// Find out why something does not work; exit code 69 if there is a problem
    Doctor(Later<Doctor>),
    /// Write everything that a gateway keeps to one file, while it runs
    Backup(Later<Backup>),
    /// Make a data directory of a backup
    Restore(Later<Restore>),
    /// Add a user or change a password; reads it from standard input if that is not a terminal
    Passwd(Later<Passwd>),
    /// Query the access rules
    #[command(subcommand)]
    Acl(Later<Acl>),
    /// Import users, keys and rules of another broker
    #[command(subcommand)]
    Import(Later<Import>),
    /// Manage the certificate authority, certificates, pre-shared keys and OSCORE contexts
    #[command(subcommand)]
    Pki(Later<Pki>),
    /// Start a gateway on free ports and send a message from each door to every other
    Demo(Later<Demo>),
    /// Publish one message to a URL SCHEME://HOST/TOPIC
    Pub(Later<Publish>),
    /// Subscribe to a topic or filter and print the messages
    Sub(Later<Subscribe>),
    /// Print the retained message of a topic
    Get(Later<Get>),
    /// Generate traffic and measure a gateway or broker
    #[cfg(feature = "bench")]
    #[command(subcommand)]
    Bench(Later<Bench>),
}

/// Commands that only builds with a feature have, and the feature.
const OPTIONAL: [(&str, &str, bool); 1] = [("bench", "bench", cfg!(feature = "bench"))];

/// Adds to the error about an unknown command that this build lacks it, if another build has it.
pub(crate) fn explain(mut error: Error) -> Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    let lacking = |(command, _, is_there): &&(&str, &str, bool)| command == word && !is_there;
    if let (ErrorKind::InvalidSubcommand, Some((command, feature, _))) = (error.kind(), OPTIONAL.iter().find(lacking)) {
        let tip = format!("this build lacks `{command}`; it is in builds with the feature `{feature}`");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// Runs the gateway.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Serve {
    /// Configuration file [default: built-in defaults, loopback only]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) data: Data,
    /// Set one key, overriding all files: listeners.mqtt.address=127.0.0.1:0
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Listen on free ports chosen by the system
    #[arg(long)]
    pub(crate) free_ports: bool,
    /// Print the banner as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// End when the process that has started this one does, by its identifier
    #[arg(long, value_name = "PID", hide = true)]
    pub(crate) end_with: Option<i32>,
}

/// The gateway's data directory.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Data {
    /// Data directory [default: $STATE_DIRECTORY, else fogmux in $XDG_STATE_HOME or ~/.local/state]
    #[arg(long = "data", value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
}

/// The gateway whose files a command reads or changes.
#[derive(Clone, Debug, Args)]
pub(crate) struct Files {
    /// Data directory [default: the installed service's, else your own as of serve]
    #[arg(long = "data", value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// Configuration file of the gateway [default: /etc/fogmux/fogmux.toml if it exists]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The root of the system in which an installed service is looked for
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    pub(crate) root: PathBuf,
}

/// Validates a configuration.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The configuration file; conf.d/*.toml beside it are included
    #[arg(value_name = "FILE", required_unless_present = "defaults")]
    pub(crate) file: Option<PathBuf>,
    /// Print every key with its default instead
    #[arg(long, conflicts_with = "file")]
    pub(crate) defaults: bool,
    /// Data directory, for what depends on files in it [default: the installed service's, else your own as of serve]
    #[arg(long = "data", value_name = "DIR", conflicts_with = "defaults")]
    pub(crate) directory: Option<PathBuf>,
    /// Refuse only what a running gateway would: what has expired is a warning
    #[arg(long, conflicts_with = "defaults")]
    pub(crate) reload: bool,
    /// Print the errors as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Examines configuration, data and machine.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) files: Files,
    /// Exit with 69 for warnings as well
    #[arg(long)]
    pub(crate) strict: bool,
    /// Print the findings as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Writes a backup.
#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// File to create; `-`: standard output
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) files: Files,
    /// Print the summary as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Restores a backup.
#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The backup; `-`: standard input
    pub(crate) file: PathBuf,
    /// Data directory to create [default: the installed service's, else your own as of serve]
    #[arg(long = "data", value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// Directory to create for the configuration and the files that it names outside the data directory
    #[arg(long, value_name = "DIR")]
    pub(crate) config_to: Option<PathBuf>,
    /// Only verify the backup
    #[arg(long, conflicts_with = "config_to")]
    pub(crate) check: bool,
    /// Print the summary as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Adds a user or changes a password.
#[derive(Debug, Args)]
pub(crate) struct Passwd {
    /// The user
    pub(crate) user: String,
    #[command(flatten)]
    pub(crate) files: Files,
    /// Groups of the user, replacing the present ones
    #[arg(long = "group", value_name = "GROUP")]
    pub(crate) groups: Vec<String>,
    /// Remove the user
    #[arg(long, conflicts_with = "groups")]
    pub(crate) delete: bool,
    /// Disable the user for every kind of credential, and keep the password
    #[arg(long, conflicts_with_all = ["groups", "delete"])]
    pub(crate) disable: bool,
    /// Enable the user again
    #[arg(long, conflicts_with_all = ["groups", "delete", "disable"])]
    pub(crate) enable: bool,
}

/// Sends a message from each door to every other.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Print the matrix as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Time limit for a message
    #[arg(long, value_name = "SECONDS", default_value = "10")]
    pub(crate) timeout: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(words: &[&str]) -> String {
        explain(Cli::try_parse_from(words).unwrap_err()).to_string()
    }

    #[test]
    #[cfg(not(feature = "bench"))]
    fn a_command_that_this_build_lacks_names_its_feature() {
        for words in [["fogmux", "bench", "run"], ["fogmux", "help", "bench"], ["fogmux", "bench", "compare"]] {
            let said = said(&words);
            assert!(said.contains("this build lacks `bench`") && said.contains("feature `bench`"), "{said}");
        }
    }

    #[test]
    fn a_command_that_no_build_has_names_no_feature() {
        let said = said(&["fogmux", "nonsense"]);
        assert!(said.contains("nonsense") && !said.contains("this build"), "{said}");
    }

    #[test]
    #[cfg(feature = "bench")]
    fn a_command_that_this_build_has_is_not_said_to_be_missing() {
        let said = said(&["fogmux", "bench", "nonsense"]);
        assert!(said.contains("nonsense") && !said.contains("this build"), "{said}");
    }
}
