//! The memory of the release program under a steady load.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::command::{cargo, cargo_tree, run};
use crate::tree::Tree;

/// Measures for so many seconds, or for ten minutes.
pub(crate) fn footprint(tree: &Tree, words: &[&str]) -> Result<()> {
    run(cargo(&["build", "--release", "--package", "fogmux", "--locked"]).current_dir(tree.root()))?;
    measure(tree, &tree.target().join("release/fogmux"), words)
}

/// Some seconds of it with the gateway of the tests, so that the command works when somebody needs it.
pub(crate) fn shortened(tree: &Tree) -> Result<()> {
    measure(tree, &tree.gateway(), &["3"])
}

fn measure(tree: &Tree, program: &Path, words: &[&str]) -> Result<()> {
    // Nothing else runs this copy, or its pages would count by their share.
    let alone = tree.target().join("footprint");
    fs::create_dir_all(&alone)?;
    let alone = alone.join("fogmux");
    fs::copy(program, &alone).with_context(|| program.display().to_string())?;
    let mut suite = cargo_tree("test", &["--test", "footprint", "--"]);
    suite.args(words).env("FOGMUX_BIN", alone).env("FOGMUX_PRESET", tree.root().join("config/pi-zero-2w.toml"));
    run(suite.current_dir(tree.root()))
}
