//! Load as it is offered: lines for those who watch, and the highest rate that is kept.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use fogmux_tests::suite::Case;
use serde_json::Value;

use crate::{bench, number};

pub(crate) const CASES: &[Case] = &[
    Case { name: "a watcher is told of each second and of each end", run: told },
    Case { name: "a curve is measured up to the highest rate that is kept", run: curve },
];

fn told() -> Result<String> {
    let place = tempfile::tempdir()?;
    let lines = place.path().join("lines").display().to_string();
    let words = ["run", "--qos", "1", "--rate", "200", "--seconds", "3.5", "--warm-up", "0", "--repeat", "2"];
    let done = bench(&[&words[..], &["--live", &lines]].concat())?.output()?;
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let text = fs::read_to_string(&lines)?;
    let lines = text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect::<Result<Vec<Value>>>()?;
    for repetition in [1, 2] {
        let is_of = |line: &&Value| line.get("repetition").and_then(Value::as_u64) == Some(repetition);
        let states: Vec<&str> = lines.iter().filter(is_of).filter_map(|line| line.get("state")?.as_str()).collect();
        let (last, running) = states.split_last().context("no line of a repetition")?;
        ensure!(*last == "done" && running.iter().all(|state| *state == "running"), "{states:?}");
        // On a machine that does much else a second may be skipped, but not all three.
        ensure!((2..=3).contains(&running.len()), "{} lines of three and a half seconds", running.len());
        let samples: Vec<&Value> = lines.iter().filter(is_of).take(running.len()).collect();
        let mut before = 0.0;
        for sample in &samples {
            ensure!(number(sample, "seconds")? > before, "time stands still: {text}");
            ensure!(number(sample, "per_s")? > 0.0 && number(sample, "latency_p99_us")? > 0.0, "{sample}");
            before = number(sample, "seconds")?;
        }
        let delivered = number(samples.last().context("no sample")?, "delivered")?;
        ensure!(delivered >= 200.0, "{delivered} of 200 a second were delivered in two seconds or more");
    }
    Ok(format!("({} lines)", lines.len()))
}

fn curve() -> Result<String> {
    // A client that waits for each answer keeps some thousand a second at most, whatever the machine.
    let shape = ["curve", "--qos", "1", "--window", "1", "--from", "50", "--step-seconds", "0.5"];
    let short = ["--seconds", "0.5", "--warm-up", "0", "--drain", "1", "--repeat", "1", "--json"];
    let done = bench(&[&shape[..], &short].concat())?.output()?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{}: {said}", done.status);
    ensure!(said.contains("50/s: ") && said.contains("is the highest rate that"), "{said}");
    let report: Value = serde_json::from_slice(&done.stdout)?;
    let runs = report.get("runs").and_then(Value::as_array).context("no runs")?;
    let rate = |run: &Value| run.pointer("/experiment/rate").and_then(Value::as_f64).context("no rate");
    let rates = runs.iter().map(rate).collect::<Result<Vec<f64>>>()?;
    ensure!(rates.len() == 7 && rates.is_sorted(), "{rates:?}");
    let given = bench(&["curve", "--rates", "20,40", "--count", "10", "--repeat", "1", "--json"])?.output()?;
    let report: Value = serde_json::from_slice(&given.stdout)?;
    ensure!(report.pointer("/runs/1/experiment/rate").and_then(Value::as_f64) == Some(40.0), "{report}");
    let both = bench(&["curve", "--rate", "20"])?.output()?;
    ensure!(both.status.code() == Some(64), "{}", both.status);
    Ok(format!("({} to {}/s)", rates.first().unwrap_or(&0.0), rates.last().unwrap_or(&0.0)))
}
