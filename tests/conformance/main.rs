//! Foreign and own conformance: h2spec, and tables of what the standards say about malformed packets, end to end.

mod coap;
mod h2;
mod mqtt;

use std::process::ExitCode;

use fogmux_tests::suite;

fn main() -> ExitCode {
    suite::run("conformance", &[h2::CASES, mqtt::CASES, coap::CASES].concat())
}

/// Runs all rows of a table and reports every one that failed, not only the first.
fn all<R>(rows: &[R], check: impl Fn(&R) -> anyhow::Result<()>) -> anyhow::Result<String> {
    let failures: Vec<String> =
        rows.iter().filter_map(|row| check(row).err()).map(|error| format!("{error:#}")).collect();
    anyhow::ensure!(failures.is_empty(), "{} of {} rows:\n  {}", failures.len(), rows.len(), failures.join("\n  "));
    Ok(format!("({} rows)", rows.len()))
}
