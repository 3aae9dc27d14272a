//! The arguments of `fogmux import`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Files;

/// The brokers to import from.
#[derive(Debug, Subcommand)]
pub(crate) enum Import {
    /// Import Mosquitto's users, keys and rules, with a report of what could not be translated
    Mosquitto(ImportMosquitto),
}

/// The files of a Mosquitto.
#[derive(Debug, Args)]
pub(crate) struct ImportMosquitto {
    /// mosquitto.conf, which contains the names of the files
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Mosquitto's acl_file
    #[arg(long, alias = "acl-file", value_name = "FILE")]
    pub(crate) acl: Option<PathBuf>,
    /// The file of Mosquitto's dynamic security plugin
    #[arg(long, value_name = "FILE")]
    pub(crate) dynamic_security: Option<PathBuf>,
    /// Mosquitto's password_file
    #[arg(long, alias = "password-file", value_name = "FILE")]
    pub(crate) passwords: Option<PathBuf>,
    /// Mosquitto's psk_file
    #[arg(long, alias = "psk-file", value_name = "FILE")]
    pub(crate) psk: Option<PathBuf>,
    /// Write the bridges of mosquitto.conf as links to this file, such as conf.d/links.toml beside the configuration
    #[arg(long, value_name = "FILE")]
    pub(crate) links: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) files: Files,
    /// Print the report without writing anything
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Overwrite existing rules, passwords and keys
    #[arg(long)]
    pub(crate) replace: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
