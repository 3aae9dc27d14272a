//! h2spec over TLS and over cleartext: no worse than hyper, which we serve with, does alone.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::suite::Case;

/// The number of the 145 tests of h2spec 2.2.1 that a bare service on hyper 1 passes.
const HYPER_TLS: u32 = 143;
/// The same with prior knowledge.
const HYPER_CLEARTEXT: u32 = 141;

pub(crate) const CASES: &[Case] = &[
    Case { name: "h2spec over TLS", run: || h2spec("https", &["--tls", "--insecure"], HYPER_TLS) },
    Case { name: "h2spec over cleartext", run: || h2spec("http", &[], HYPER_CLEARTEXT) },
];

fn h2spec(listener: &str, flags: &[&str], least: u32) -> Result<String> {
    let program = std::env::var("H2SPEC").context("H2SPEC names no h2spec; use `cargo xtask test conformance`")?;
    let mut gateway = Gateway::start(&[])?;
    let port = gateway.address(listener)?.port().to_string();
    let output = Command::new(program).args(["--port", &port]).args(flags).output().context("h2spec")?;
    gateway.check_alive()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let (tests, passed) = summary(&text).with_context(|| format!("no summary in {text}"))?;
    ensure!(passed >= least, "{passed} of {tests}, hyper alone passes {least}:\n{}", failures(&text));
    Ok(format!("({passed} of {tests})"))
}

/// `145 tests, 143 passed, 1 skipped, 1 failed`
fn summary(text: &str) -> Option<(u32, u32)> {
    let line = text.lines().rev().find(|line| line.contains(" tests, "))?;
    let mut numbers = line.split(", ").map(|part| part.trim().split(' ').next().and_then(|word| word.parse().ok()));
    Some((numbers.next()??, numbers.next()??))
}

/// The part of the output that repeats what failed.
fn failures(text: &str) -> &str {
    text.split_once("Failures:").map_or("", |(_, failures)| failures)
}
