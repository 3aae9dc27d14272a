//! Runs every fuzz target for a while; a finding is a failure.

use anyhow::{Context, Result, bail};

use crate::command::{command, output, run, succeeds};
use crate::tree::Tree;

const SECONDS: u32 = 60;

/// Each target of `fuzz/` for `seconds`.
pub(crate) fn fuzz(tree: &Tree, seconds: Option<&str>) -> Result<()> {
    let seconds = match seconds {
        Some(text) => text.parse().with_context(|| format!("`{text}` is no number of seconds"))?,
        None => SECONDS,
    };
    if !succeeds(&mut command("cargo", &["+nightly", "fuzz", "--version"])) {
        bail!(
            "fuzzing needs a nightly toolchain and cargo-fuzz: `rustup toolchain install nightly && cargo install cargo-fuzz`"
        );
    }
    let targets = output(command("cargo", &["+nightly", "fuzz", "list"]).current_dir(tree.root()))?;
    for target in targets.lines() {
        let time = format!("-max_total_time={seconds}");
        run(command("cargo", &["+nightly", "fuzz", "run", target, "--", &time, "-rss_limit_mb=1024"])
            .current_dir(tree.root()))?;
    }
    println!("{} fuzz targets, {seconds} s each, no finding", targets.lines().count());
    Ok(())
}
