//! The configuration: defaults, one TOML file, the files of `conf.d` beside it and `--set` on the command line, read in
//! this order, a later one winning key by key.
//!
//! The invariant: a configuration is either whole and consistent or it is a list of [`Problems`]; there is nothing in
//! between, and no access is ever opened because something could not be read.

pub(crate) mod auth;
mod clashes;
mod doors;
mod listeners;
mod load;
mod model;
mod problem;
mod reader;
mod units;

#[cfg(test)]
mod tests;

pub(crate) use listeners::Tls;
pub(crate) use load::{load, sources};
pub(crate) use model::Config;
pub(crate) use problem::{Location, Problem, Problems, Source};

/// The reference: every key with its default and unit.
pub(crate) const REFERENCE: &str = include_str!("../../../config/fogmux.toml");
