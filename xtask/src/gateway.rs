//! The gateway that the black-box suites run: always the one of this tree, built now.

use std::path::PathBuf;

use anyhow::Result;

use crate::command::{cargo_tree, run};
use crate::tree::Tree;

/// The optimisation of the tree's own crates, which dependencies have anyway. The hostile suite bounds what an attack
/// may do to others by what they had before, and a gateway that is slow by itself hides that. More takes twice as long
/// to build.
const OPT_LEVEL: &str = "1";

/// Builds it in the dev profile with its own crates optimised, and says where it is.
///
/// A profile of its own would compile every dependency a second time; those are optimised in the dev profile already,
/// so only the crates of the tree are built anew.
pub(crate) fn build(tree: &Tree) -> Result<PathBuf> {
    let mut build = cargo_tree("build", &["--bin", "fogmux"]);
    build.env("CARGO_PROFILE_DEV_OPT_LEVEL", OPT_LEVEL).env("CARGO_PROFILE_DEV_DEBUG", "false");
    run(build.current_dir(tree.root()))?;
    Ok(tree.gateway())
}
