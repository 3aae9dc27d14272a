//! The simulation of the gateway's workers, for as many seeds as one has patience for.

use anyhow::{Context, Result};

use crate::command::{cargo, run};
use crate::tree::Tree;

/// Seeds when none are named.
const SEEDS: u64 = 10_000;

/// Runs seeds from 0 on. The tree's own crates are optimised: a seed takes milliseconds then.
pub(crate) fn simulate(tree: &Tree, seeds: Option<&str>) -> Result<()> {
    let seeds = seeds.map_or(Ok(SEEDS), str::parse).context("the number of seeds")?;
    let mut test = cargo(&["test", "-p", "fogmux-gateway", "--locked", "--lib", "--", "simulation", "--nocapture"]);
    test.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1").env("FOGMUX_SEEDS", seeds.to_string());
    run(test.current_dir(tree.root()))
}
