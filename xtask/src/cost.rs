//! Instructions of the gateway for each message of fixed traces, counted by callgrind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::command::{cargo, cargo_tree, run};
use crate::tree::Tree;
use crate::{gateway, setup};

/// Figures of the release program.
const RELEASE: &str = "tests/cost/release.txt";
/// Figures of the gateway that the black-box suites run.
const DEBUG: &str = "tests/cost/debug.txt";

/// Compares with the figures on record, or writes them anew: `[debug] [record] [TRACE]…`; or, with `growth`, plots a
/// message beside ever more of everything. The profiles stay under the target directory.
pub(crate) fn cost(tree: &Tree, words: &[&str]) -> Result<()> {
    setup::valgrind()?;
    match words {
        ["growth"] => {
            let mut suite = suite(tree, &release(tree)?, &profiles(tree)?);
            run(suite.env("FOGMUX_COST_GROWTH", tree.root().join("docs/growth.svg")))
        }
        ["debug", words @ ..] => traces(tree, &gateway::build(tree)?, DEBUG, words),
        words => traces(tree, &release(tree)?, RELEASE, words),
    }
}

/// No trace takes more instructions in the gateway of the black-box suites than is on record. The release program would
/// take minutes more to build; a loss of speed shows in both.
pub(crate) fn check(tree: &Tree) -> Result<()> {
    cost(tree, &["debug"])
}

fn traces(tree: &Tree, program: &Path, record: &str, words: &[&str]) -> Result<()> {
    let (records, names) = match words {
        ["record", names @ ..] => (true, names),
        names => (false, names),
    };
    let profiles = profiles(tree)?;
    let mut suite = suite(tree, program, &profiles);
    suite.args(names).env("FOGMUX_COST", tree.root().join(record));
    if records {
        suite.env("FOGMUX_COST_RECORD", "1");
    }
    run(&mut suite)?;
    println!("profiles for callgrind_annotate: {}", profiles.display());
    Ok(())
}

fn release(tree: &Tree) -> Result<PathBuf> {
    let mut build = cargo(&["build", "--release", "--package", "fogmux", "--locked"]);
    // Only the names in a profile need symbols; the instructions are the same without.
    run(build.env("CARGO_PROFILE_RELEASE_STRIP", "none").current_dir(tree.root()))?;
    Ok(tree.target().join("release/fogmux"))
}

fn profiles(tree: &Tree) -> Result<PathBuf> {
    let profiles = tree.target().join("cost");
    fs::create_dir_all(&profiles)?;
    Ok(profiles)
}

fn suite(tree: &Tree, program: &Path, profiles: &Path) -> Command {
    let mut suite = cargo_tree("test", &["--test", "cost", "--"]);
    suite.env("FOGMUX_BIN", program).env("FOGMUX_COST_PROFILES", profiles).current_dir(tree.root());
    suite
}
