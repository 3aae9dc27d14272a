//! The parts that cargo does by itself: formatting, lints, unit and property tests, documentation.

use std::process::Command;

use anyhow::Result;

use crate::command::{cargo, cargo_benches, cargo_tree, run};
use crate::graph;
use crate::links;
use crate::prose;
use crate::setup;
use crate::size;
use crate::tree::Tree;

/// Formatting is rustfmt's.
pub(crate) fn fmt(tree: &Tree) -> Result<()> {
    run(cargo(&["fmt", "--all", "--check"]).current_dir(tree.root()))
}

/// Every warning is an error; and the fuzz targets, which are a workspace of their own, compile.
pub(crate) fn clippy(tree: &Tree) -> Result<()> {
    let arguments = ["--all-targets", "--", "-D", "warnings"];
    run(cargo_tree("clippy", &arguments).current_dir(tree.root()))?;
    run(cargo_benches("clippy", &arguments).current_dir(tree.root()))?;
    let mut targets = cargo(&["check", "--manifest-path", "fuzz/Cargo.toml", "--locked", "--target-dir"]);
    run(targets.arg(tree.target()).current_dir(tree.root()))
}

/// The program with one door only, for each of them; with all doors and the generator but without OpenSSL; and with all
/// doors only, whose unit tests see what such a build refuses.
pub(crate) fn doors(tree: &Tree) -> Result<()> {
    let lean = size::LEAN;
    let with_generator = format!("{lean},bench");
    for features in graph::DOORS.into_iter().chain([with_generator.as_str()]) {
        run(with_features("check", features).current_dir(tree.root()))?;
    }
    run(with_features("clippy", lean).args(["--", "-D", "warnings"]).current_dir(tree.root()))?;
    run(with_features("test", lean).args(["--lib", "--", "cli::", "config::"]).current_dir(tree.root()))
}

/// `cargo SUBCOMMAND` for the program with these features only.
fn with_features(subcommand: &str, features: &str) -> Command {
    cargo(&[subcommand, "--package", "fogmux", "--no-default-features", "--features", features, "--locked"])
}

/// Unit, property and documentation tests of every crate, and of the runner of the black-box suites, which are parts of
/// their own.
pub(crate) fn unit(tree: &Tree) -> Result<()> {
    run(cargo_tree("test", &["--exclude", "fogmux-tests"]).current_dir(tree.root()))?;
    run(cargo_tree("test", &["--lib", "suite::"]).current_dir(tree.root()))?;
    links_of_root(tree)?;
    run(cargo_benches("test", &[]).current_dir(tree.root()))
}

/// The tests that lay links of network namespaces, which only root can do; cargo names them as ignored otherwise.
fn links_of_root(tree: &Tree) -> Result<()> {
    if !setup::is_root()? {
        println!("unit: the tests of links need root and are left out");
        return Ok(());
    }
    setup::links()?;
    let arguments = ["--exclude", "fogmux-tests", "--test", "link", "--", "--ignored"];
    run(cargo_tree("test", &arguments).current_dir(tree.root()))
}

/// rustdoc without a warning, no link of a page that leads nowhere, prose of one form, and no circle among the
/// gateway's modules.
pub(crate) fn docs(tree: &Tree) -> Result<()> {
    let mut doc = cargo(&["doc", "--workspace", "--no-deps", "--document-private-items", "--locked"]);
    run(doc.current_dir(tree.root()).env("RUSTDOCFLAGS", "-D warnings"))?;
    links::check(tree)?;
    prose::check(tree)?;
    graph::check(tree.root())
}
