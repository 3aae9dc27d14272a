//! `cargo xtask size`: builds the release program with the doors only and with all features, and prints their sizes.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::command::{cargo, run};
use crate::tree::Tree;

/// The features of the small program: all doors, neither the traffic generator nor OpenSSL.
pub(crate) const LEAN: &str = "mqtt,coap,http,xmpp";

/// Builds both and prints their sizes. The second build leaves the program with all features in the target directory.
pub(crate) fn size(tree: &Tree) -> Result<()> {
    let lean = ["--no-default-features", "--features", LEAN];
    let mut lines = Vec::new();
    for (name, features) in [(LEAN, &lean[..]), ("all features", &[][..])] {
        let mut build = cargo(&["build", "--release", "--package", "fogmux", "--locked"]);
        run(build.args(features).current_dir(tree.root()))?;
        lines.push(format!("{name}: {}", megabytes(&tree.target().join("release/fogmux"))?));
    }
    lines.iter().for_each(|line| println!("{line}"));
    Ok(())
}

fn megabytes(file: &Path) -> Result<String> {
    let bytes = fs::metadata(file).with_context(|| file.display().to_string())?.len();
    Ok(format!("{:.1} MB ({bytes} bytes)", bytes as f64 / 1e6))
}
