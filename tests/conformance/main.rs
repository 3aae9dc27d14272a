//! Foreign and own conformance: h2spec, and tables of what the standards say about malformed packets, end to end.

mod coap;
mod h2;
mod mqtt;

use std::process::ExitCode;

use fogmux_tests::suite;

fn main() -> ExitCode {
    let outcome = suite::run_cases("conformance", &[h2::CASES, &mqtt::cases(), coap::CASES].concat());
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    // Cases that were not asked for prove nothing.
    let mut good = outcome.is_good();
    if words.iter().all(|word| word == "mqtt")
        && let Err(error) = mqtt::check(&outcome.passed, std::env::var_os("FOGMUX_STATEMENTS").is_some())
    {
        println!("failed: conformance statements of MQTT: {error:#}");
        good = false;
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs all rows of a table and reports every one that failed, not only the first.
fn all<R>(rows: &[R], check: impl Fn(&R) -> anyhow::Result<()>) -> anyhow::Result<String> {
    let failures: Vec<String> =
        rows.iter().filter_map(|row| check(row).err()).map(|error| format!("{error:#}")).collect();
    anyhow::ensure!(failures.is_empty(), "{} of {} rows:\n  {}", failures.len(), rows.len(), failures.join("\n  "));
    Ok(format!("({} rows)", rows.len()))
}
