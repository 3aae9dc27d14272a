//! The release program beside servers that others wrote.

use anyhow::Result;

use crate::command::{cargo, cargo_tree, run};
use crate::tree::Tree;

/// Measures with those that the machine has; nothing is installed.
pub(crate) fn peers(tree: &Tree, words: &[&str]) -> Result<()> {
    run(cargo(&["build", "--release", "--package", "fogmux", "--locked"]).current_dir(tree.root()))?;
    let mut suite = cargo_tree("test", &["--test", "peers", "--"]);
    run(suite.args(words).env("FOGMUX_BIN", tree.target().join("release/fogmux")).current_dir(tree.root()))
}

/// One load of each door on the gateway of the tests, so that the command works when somebody needs it.
pub(crate) fn shortened(tree: &Tree) -> Result<()> {
    let mut suite = cargo_tree("test", &["--test", "peers", "--"]);
    suite.args(["--rounds", "1", "--seconds", "0.2", "W2", "W8", "C2-get", "C3", "h1-get", "X1"]);
    run(suite.env("FOGMUX_BIN", tree.gateway()).current_dir(tree.root()))
}
