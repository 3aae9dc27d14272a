//! The gateway that the black-box suites run: always the one of this tree, built now.

use std::path::PathBuf;

use anyhow::Result;

use crate::command::{cargo, run};
use crate::tree::Tree;

/// Builds it in the dev profile and says where it is.
pub(crate) fn build(tree: &Tree) -> Result<PathBuf> {
    run(cargo(&["build", "--package", "fogmux", "--locked"]).current_dir(tree.root()))?;
    Ok(tree.gateway())
}
