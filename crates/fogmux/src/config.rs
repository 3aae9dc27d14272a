//! The configuration: defaults, one TOML file, the files of `conf.d` beside it and `--set` on the command line, read in
//! this order. A later source overrides an earlier one key by key.
//!
//! Invariant: a configuration is either complete and consistent or a list of [`Problems`]. No access is ever opened
//! because something could not be read.

pub(crate) mod acme;
pub(crate) mod auth;
mod clashes;
mod discovery;
mod doors;
pub(crate) mod links;
mod listener;
mod listeners;
mod load;
mod model;
mod problem;
mod reader;
mod store;
pub(crate) mod telemetry;
mod units;

#[cfg(test)]
mod tests;

pub(crate) use listener::{Listener, Protection, Tls, is_on_udp};
pub(crate) use load::{load, sources};
pub(crate) use model::{Config, Log, LogFormat};
pub(crate) use problem::{Location, Problem, Problems, Source};

/// The reference configuration: every key with its default and unit.
pub(crate) const REFERENCE: &str = include_str!("../../../config/fogmux.toml");
