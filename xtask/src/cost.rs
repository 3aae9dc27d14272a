//! Instructions of the release program for each message of fixed traces, counted by callgrind.

use std::fs;

use anyhow::Result;

use crate::command::{cargo, cargo_tree, run};
use crate::setup;
use crate::tree::Tree;

/// Compares with the figures on record, or writes them anew: `[record] [TRACE]…`; or, with `growth`, plots a message
/// beside ever more of everything. The profiles stay under the target directory.
pub(crate) fn cost(tree: &Tree, words: &[&str]) -> Result<()> {
    setup::valgrind()?;
    let (records, grows, traces) = match words {
        ["record", traces @ ..] => (true, false, traces),
        ["growth"] => (false, true, &[][..]),
        traces => (false, false, traces),
    };
    let mut build = cargo(&["build", "--release", "--package", "fogmux", "--locked"]);
    // Only the names in a profile need symbols; the instructions are the same without.
    run(build.env("CARGO_PROFILE_RELEASE_STRIP", "none").current_dir(tree.root()))?;
    let profiles = tree.target().join("cost");
    fs::create_dir_all(&profiles)?;
    let mut suite = cargo_tree("test", &["--test", "cost", "--"]);
    suite.args(traces).env("FOGMUX_BIN", tree.target().join("release/fogmux"));
    suite.env("FOGMUX_COST", tree.root().join("tests/cost/record.txt")).env("FOGMUX_COST_PROFILES", &profiles);
    if records {
        suite.env("FOGMUX_COST_RECORD", "1");
    }
    if grows {
        suite.env("FOGMUX_COST_GROWTH", tree.root().join("docs/growth.svg"));
        return run(suite.current_dir(tree.root()));
    }
    run(suite.current_dir(tree.root()))?;
    println!("profiles for callgrind_annotate: {}", profiles.display());
    Ok(())
}
