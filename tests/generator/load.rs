//! Load as it is offered: lines for those who watch, and the highest rate that is kept.

use std::fs;
use std::io::Write as _;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use fogmux_tests::suite::Case;
use serde_json::Value;

use crate::{bench, number};

pub(crate) const CASES: &[Case] = &[
    Case { name: "a watcher is told of each second and of each end", run: told },
    Case { name: "a curve is measured up to the highest rate that is kept", run: curve },
    Case { name: "energy by a model and by a meter, or none", run: metered },
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

/// Figures of a model and of a meter that is made while it is measured: 2 W, ten times as often as there are tenths.
fn metered() -> Result<String> {
    let place = tempfile::tempdir()?;
    let file = |name: &str| place.path().join(name);
    let [meter, broken, model] = ["meter.csv", "broken.csv", "model.toml"].map(file);
    fs::write(&meter, "unix_ms,watts\n")?;
    let [meter_name, broken_name, model_name] = [&meter, &broken, &model].map(|path| path.display().to_string());
    let short = ["run", "--qos", "1", "--rate", "200", "--seconds", "1", "--warm-up", "0", "--repeat", "1", "--json"];
    let generator = bench(&[&short[..], &["--energy", "pi4-wifi", "--meter", &meter_name]].concat())?.spawn()?;
    let done = {
        let (mut generator, mut out) = (generator, fs::File::options().append(true).open(&meter)?);
        while generator.try_wait()?.is_none() {
            let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros();
            writeln!(out, "{}.{:03},2.0", now / 1_000, now % 1_000)?;
            sleep(Duration::from_millis(10));
        }
        generator.wait_with_output()?
    };
    let report = crate::parse(&done)?;
    let outcome = report.pointer("/runs/0/outcomes/0").context("no outcome")?;
    let energy = outcome.get("energy").context("no energy")?;
    let (joules, seconds) = (number(energy, "meter_j"), number(outcome, "seconds")?);
    // On a machine that does much else the meter sleeps for long, and says so.
    let said = match joules {
        Ok(joules) => {
            ensure!((joules / seconds - 2.0).abs() < 1e-3, "{joules} J in {seconds} s are not 2 W");
            format!("{joules:.2} J")
        }
        Err(_) => {
            let why = energy.get("unmetered").and_then(Value::as_str).context("neither joules nor a reason")?;
            ensure!(why.contains("gap") || why.contains("ends before"), "{why}");
            why.to_owned()
        }
    };
    let cpu_us = number(outcome.get("gateway").context("no gateway")?, "cpu_us")?;
    let modelled = number(energy, "gateway_j")?;
    ensure!((modelled - cpu_us / 1e6 * 0.925).abs() < 1e-9, "{modelled} J of {cpu_us} µs");
    ensure!(energy.get("radio_j").is_none(), "loopback has no frames: {energy}");

    let plain = bench(&short)?.output()?;
    let report = crate::parse(&plain)?;
    ensure!(report.pointer("/runs/0/outcomes/0/energy").is_none(), "nobody asked for energy");
    fs::write(&broken, "unix_ms,watts\n5,much\n")?;
    fs::write(&model, "based_on = \"pi4-wifi\"\nsent_nj_per_bit = -1.0\n")?;
    for (flag, value, code, why) in [
        ("--meter", broken_name.as_str(), 65, "line 2"),
        ("--meter", "/nowhere.csv", 65, "/nowhere.csv"),
        ("--energy", "pi9", 64, "pi4-wifi"),
        ("--energy", model_name.as_str(), 64, "sent_nj_per_bit is -1"),
    ] {
        let refused = bench(&[&short[..], &[flag, value]].concat())?.output()?;
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        ensure!(
            refused.status.code() == Some(code) && text.contains(why),
            "{flag} {value}: {}: {text}",
            refused.status
        );
    }
    Ok(format!("({said})"))
}
