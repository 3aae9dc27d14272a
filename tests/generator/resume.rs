//! Measurements that were interrupted and go on: with the repetitions that they have, or not at all.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::suite::Case;
use serde_json::Value;

use crate::bench;
use crate::faults::at_work;
use crate::stall::signal;

pub(crate) const CASES: &[Case] = &[
    Case { name: "an interrupted measurement goes on where it was", run: resumed },
    Case { name: "another program, other flags and nothing to go on with are refused", run: refused },
    Case { name: "what a killed measurement left is rendered", run: rendered },
    Case { name: "a measurement that ends leaves no record, though that could not be written", run: full },
];

/// The name of the journal in the directory of a report.
const JOURNAL: &str = "unfinished.jsonl";

/// The words after those of the subcommand, as `at_work` has them.
fn words(place: &Path, words: &[&str]) -> Vec<String> {
    let out = place.join("out").display().to_string();
    let short = ["--qos", "1", "--seconds", "0.3", "--warm-up", "0", "--out", &out];
    words.iter().chain(&short).map(|word| (*word).to_owned()).collect()
}

fn run(words: &[String]) -> Result<Output> {
    Ok(bench(&words.iter().map(String::as_str).collect::<Vec<_>>())?.output()?)
}

fn read(path: &Path) -> Result<Value> {
    serde_json::from_slice(&fs::read(path)?).with_context(|| path.display().to_string())
}

/// When the repetitions of a report began, run by run.
fn begun(report: &Value) -> Result<Vec<Vec<u64>>> {
    let runs = report.get("runs").and_then(Value::as_array).context("no runs")?;
    let of_run = |run: &Value| {
        let outcomes = run.get("outcomes").and_then(Value::as_array).context("no outcomes")?;
        let began = |outcome: &Value| outcome.get("began_unix_ms").and_then(Value::as_u64).context("no time");
        outcomes.iter().map(began).collect()
    };
    runs.iter().map(of_run).collect()
}

/// The same of a journal.
fn journalled(place: &Path) -> Result<Vec<Vec<u64>>> {
    let text = fs::read_to_string(place.join("out").join(JOURNAL))?;
    let mut lines = text.lines().map(serde_json::from_str::<Value>);
    let mut report = lines.next().context("an empty journal")??;
    for line in lines {
        let line = line?;
        let run = line.get("run").and_then(Value::as_u64).context("no run")?;
        let outcomes = report.pointer_mut(&format!("/runs/{run}/outcomes")).and_then(Value::as_array_mut);
        outcomes.context("no such run")?.extend(line.get("outcome").cloned());
    }
    begun(&report)
}

fn resumed() -> Result<String> {
    let binary = std::env::var("FOGMUX_BIN")?;
    let pair = ["pair", &binary, &binary, "--rounds", "6"];
    // The repetitions of each run in the end, and before which one the measurement is interrupted.
    let table: [(&str, &[&str], u32, &[usize]); 3] = [
        ("TERM", &["run", "--repeat", "5"], 3, &[5]),
        ("KILL", &["run", "--repeat", "5"], 3, &[5]),
        ("KILL", &pair, 6, &[12, 12]),
    ];
    for (name, shape, number, wanted) in table {
        let place = tempfile::tempdir()?;
        let mut generator = at_work(place.path(), shape, number)?;
        signal(generator.id(), name)?;
        generator.wait()?;
        let before = journalled(place.path())?;
        ensure!(before.iter().map(Vec::len).sum::<usize>() >= 2, "SIG{name}: the journal has {before:?}");
        let done = run(&[words(place.path(), shape), vec!["--resume".to_owned()]].concat())?;
        let said = String::from_utf8_lossy(&done.stderr);
        // Six rounds may find a program different from itself, or nothing.
        let is_told = shape.contains(&"pair") && matches!(done.status.code(), Some(1 | 75));
        ensure!(done.status.success() || is_told, "SIG{name}: {}: {said}", done.status);
        let report = read(&place.path().join("out/report.json"))?;
        let after = begun(&report)?;
        ensure!(after.iter().map(Vec::len).eq(wanted.iter().copied()), "SIG{name}: {after:?}, not {wanted:?}");
        for (before, after) in before.iter().zip(&after) {
            let kept = if shape.contains(&"pair") { before.len() / 2 * 2 } else { before.len() };
            ensure!(after.get(..kept) == before.get(..kept), "SIG{name}: {before:?} were done, then {after:?}");
        }
        let times = report.get("resumed_unix_s").and_then(Value::as_array).map_or(0, Vec::len);
        ensure!(times == 1, "it went on once, and the report says {times}");
        ensure!(!place.path().join("out").join(JOURNAL).exists(), "a finished measurement has left its journal");
        ensure!(report.pointer("/runs/0/problem").is_none(), "{report}");
    }
    Ok(format!("({} of them)", table.len()))
}

fn refused() -> Result<String> {
    let place = tempfile::tempdir()?;
    let shape = ["run", "--repeat", "5"];
    let mut generator = at_work(place.path(), &shape, 3)?;
    signal(generator.id(), "KILL")?;
    generator.wait()?;
    let journal = place.path().join("out").join(JOURNAL);
    let before = fs::read(&journal)?;
    let same = [words(place.path(), &shape), vec!["--resume".to_owned()]].concat();
    let refused = |done: &Output, code: i32, why: &str| {
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        ensure!(done.status.code() == Some(code) && said.contains(why), "{} instead of {code}: {said}", done.status);
        ensure!(fs::read(&journal)? == before, "the journal was changed: {said}");
        Ok(())
    };
    let other = [same.clone(), vec!["--size".to_owned(), "65".to_owned()]].concat();
    refused(&run(&other)?, 78, "other flags")?;
    // The same program but for one byte behind its end, which the loader does not read.
    let program = place.path().join("fogmux");
    fs::copy(std::env::var("FOGMUX_BIN")?, &program)?;
    File::options().append(true).open(&program)?.write_all(&[0])?;
    refused(&Command::new(&program).arg("bench").args(&same).output()?, 78, "another program")?;
    let nothing = ["run", "--resume", "--out", &place.path().join("empty").display().to_string()].map(str::to_owned);
    refused(&run(&nothing)?, 66, "no interrupted measurement")?;
    refused(&run(&["run", "--resume"].map(str::to_owned))?, 64, "--out")?;
    Ok(String::new())
}

fn rendered() -> Result<String> {
    let place = tempfile::tempdir()?;
    let mut generator = at_work(place.path(), &["run", "--repeat", "5"], 3)?;
    signal(generator.id(), "KILL")?;
    generator.wait()?;
    let out = place.path().join("out");
    let done = run(&["report".to_owned(), out.display().to_string()])?;
    ensure!(done.status.success(), "{}: {}", done.status, String::from_utf8_lossy(&done.stderr));
    let lines = fs::read_to_string(out.join("unfinished.csv"))?.lines().count();
    ensure!(lines >= 3, "a head and at least two repetitions, not {lines} lines");
    Ok(String::new())
}

/// The disk is full for a moment: no file may grow beyond what the first repetitions take, and then any may again.
fn full() -> Result<String> {
    const FILE_BYTES: u32 = 12_000;
    let gateway = Gateway::start(&[])?;
    let place = tempfile::tempdir()?;
    let url = format!("mqtt://{}", gateway.address("mqtt")?);
    let shape = ["bench", "peer", &url, "--repeat", "12"];
    // Writes fail, and the signal for that is ignored.
    let script = format!("trap '' XFSZ; exec prlimit --fsize={FILE_BYTES}:unlimited \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg(std::env::var("FOGMUX_BIN")?).args(words(place.path(), &shape));
    let mut generator = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let mut said = String::new();
    let mut lines = BufReader::new(generator.stderr.take().context("no standard error")?);
    while !said.contains("would do the repetitions from here on again") {
        ensure!(lines.read_line(&mut said)? > 0, "it has ended, and every record was written: {said}");
    }
    let pid = generator.id().to_string();
    let done = Command::new("prlimit").args(["--pid", &pid, "--fsize=unlimited"]).status()?;
    ensure!(done.success(), "prlimit: {done}");
    std::io::copy(&mut lines, &mut std::io::sink())?;
    let done = generator.wait()?;
    ensure!(done.success(), "{done}: {said}");
    let out = place.path().join("out");
    ensure!(!out.join(JOURNAL).exists(), "a finished measurement has left its journal");
    let report = fs::read(out.join("report.json"))?;
    let again = run(&[words(place.path(), &shape[1..]), vec!["--resume".to_owned()]].concat())?;
    ensure!(again.status.code() == Some(66), "{} instead of 66", again.status);
    ensure!(fs::read(out.join("report.json"))? == report, "the report was changed");
    Ok(String::new())
}
