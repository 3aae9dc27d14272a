//! The traffic generator from outside: what it says of a gateway, and of brokers that others wrote.

mod agent;
mod comings;
mod doors;
mod faults;
mod fleet;
mod handshakes;
mod links;
mod load;
mod outputs;
mod peers;
mod readme;
mod reports;
mod resume;
mod secrets;
mod stall;

use std::process::{Command, ExitCode, Output, Stdio};

use anyhow::{Context, Result, ensure};
use fogmux_tests::suite;
use serde_json::Value;

fn main() -> ExitCode {
    let cases = [
        doors::CASES,
        stall::CASES,
        faults::CASES,
        resume::CASES,
        load::CASES,
        comings::CASES,
        fleet::CASES,
        handshakes::CASES,
        secrets::CASES,
        reports::CASES,
        outputs::CASES,
        readme::CASES,
        links::CASES,
        agent::CASES,
        peers::CASES,
    ]
    .concat();
    suite::run("generator", &cases)
}

/// `fogmux bench` with these words.
fn bench(words: &[&str]) -> Result<Command> {
    let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN names no gateway; use `cargo xtask test`")?;
    let mut command = Command::new(binary);
    command.arg("bench").args(words).stdin(Stdio::null()).stderr(Stdio::piped()).stdout(Stdio::piped());
    Ok(command)
}

/// Its report, as JSON.
fn report(words: &[&str]) -> Result<Value> {
    parse(&bench(words)?.arg("--json").output()?)
}

fn parse(output: &Output) -> Result<Value> {
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "it ended with {}: {}", output.status, said.trim());
    serde_json::from_slice(&output.stdout).with_context(|| said.into_owned())
}

/// All outcomes of a report; an experiment that has none is an error.
fn outcomes(report: &Value) -> Result<Vec<&Value>> {
    let runs = report.get("runs").and_then(Value::as_array).context("a report without runs")?;
    let mut all = Vec::new();
    for run in runs {
        let done = run.get("outcomes").and_then(Value::as_array).context("a run without outcomes")?;
        let experiment = run.get("experiment").unwrap_or(&Value::Null);
        ensure!(!done.is_empty(), "{experiment}: {}", run.get("problem").unwrap_or(&Value::Null));
        all.extend(done);
    }
    Ok(all)
}

/// The words for twenty messages, one at a time, so that an observer misses no value.
const COUNTED: [&str; 10] = ["--qos", "1", "--count", "20", "--window", "1", "--in-flight", "1", "--repeat", "1"];

/// The report of experiments that are short, but long enough that each sends something: a machine that does much else
/// may get nothing done in half a second.
fn lasting(words: &[&str]) -> Result<Value> {
    let mut made = Value::Null;
    for seconds in ["0.4", "4", "20"] {
        made = report(&[words, &["--seconds", seconds]].concat())?;
        if outcomes(&made)?.into_iter().all(|outcome| number(outcome, "sent").is_ok_and(|sent| sent > 0.0)) {
            break;
        }
    }
    Ok(made)
}

/// A number of an outcome.
fn number(outcome: &Value, key: &str) -> Result<f64> {
    outcome.get(key).and_then(Value::as_f64).with_context(|| format!("no {key} in {outcome}"))
}

/// Checks that an outcome is sound: messages were sent, all arrived once, and there were no errors.
fn check(outcome: &Value) -> Result<()> {
    let all = |key| number(outcome, key);
    let error = outcome.get("first_error").unwrap_or(&Value::Null);
    ensure!(all("errors")? == 0.0 && all("disconnects")? == 0.0, "errors: {error}");
    ensure!(all("sent")? > 0.0, "nothing was sent");
    let arrived = all("delivered")? + all("conflated")?;
    ensure!(arrived == all("expected")?, "{arrived} of {} arrived", all("expected")?);
    ensure!(all("duplicates")? == 0.0, "{} came twice", all("duplicates")?);
    Ok(())
}
