//! Faults while something is measured: a gateway that dies, a generator that is ended, numbers that are none.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fogmux_tests::suite::Case;
use serde_json::Value;

use crate::bench;
use crate::stall::{child_of, signal, wait_for_clients, wait_for_sockets};

pub(crate) const CASES: &[Case] = &[
    Case { name: "a gateway that is killed voids the repetition, and it is said when", run: killed },
    Case { name: "a signal ends everything and writes the results until then", run: ended },
    Case {
        name: "a generator that is killed takes its gateway with it, and the next removes its files",
        run: orphaned,
    },
    Case { name: "a repetition in a process of its own ends with its standard input, or a signal", run: apart },
    Case { name: "numbers and places that cannot be are refused before anything is measured", run: refused },
];

/// In which processes end on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

fn killed() -> Result<String> {
    let shapes: [&[&str]; 3] = [
        &["--qos", "1", "--rate", "200"],
        &["--door", "coap", "--operation", "get", "--window", "1", "--rate", "200"],
        &["--operation", "hold", "--pubs", "20"],
    ];
    let mut said = Vec::new();
    for shape in shapes {
        let words = [&["run", "--seconds", "4", "--warm-up", "0", "--repeat", "1", "--json"], shape].concat();
        let generator = bench(&words)?.spawn()?;
        let gateway = child_of(generator.id())?;
        match shape.contains(&"coap") {
            true => wait_for_sockets(generator.id(), "udp", 1)?,
            false => wait_for_clients(gateway)?,
        }
        sleep(Duration::from_millis(2_280));
        signal(gateway, "KILL")?;
        let output = generator.wait_with_output()?;
        let problem = failure(&output).with_context(|| shape.join(" "))?;
        ensure!(output.status.code() == Some(69), "{}: {problem}", output.status);
        ensure!(problem.contains("the gateway ended (signal: 9"), "{problem}");
        let (before, _) = problem.split_once(" s after the measurement began").context(problem.clone())?;
        let seconds: f64 = before.rsplit(' ').next().unwrap_or_default().parse()?;
        ensure!((1.0..4.0).contains(&seconds), "{problem}");
        said.push(format!("{seconds} s"));
    }
    Ok(format!("({})", said.join(", ")))
}

/// Why the first repetition of a report's only run failed. Its only outcome is the one of the repetition that replaced
/// it.
fn failure(output: &Output) -> Result<String> {
    let said = || String::from_utf8_lossy(&output.stderr).into_owned();
    let report: Value = serde_json::from_slice(&output.stdout).with_context(said)?;
    let run = report.pointer("/runs/0").context("no run")?;
    let outcomes = run.get("outcomes").and_then(Value::as_array).context("no outcomes")?;
    ensure!(outcomes.len() == 1, "it counts as measured, or was not replaced: {run}");
    let failed = run.get("failed").and_then(Value::as_array).context("no failures")?;
    ensure!(failed.len() == 1, "{failed:?}");
    Ok(failed.first().and_then(Value::as_str).context("no reason")?.to_owned())
}

/// The words for a measurement of more repetitions than are waited for.
const LONG: [&str; 3] = ["run", "--repeat", "1000"];

/// A generator of many short repetitions, with temporary files of its own, that has begun this one.
pub(crate) fn at_work(place: &Path, words: &[&str], number: u32) -> Result<Child> {
    let out = place.join("out").display().to_string();
    let short = ["--qos", "1", "--seconds", "0.3", "--warm-up", "0", "--out", &out];
    fs::create_dir_all(place.join("tmp"))?;
    let mut generator = bench(&[words, &short].concat())?.env("TMPDIR", place.join("tmp")).spawn()?;
    let mut lines = BufReader::new(generator.stderr.take().context("no standard error")?);
    let mut line = String::new();
    while !line.contains(&format!("#{number}")) {
        line.clear();
        ensure!(lines.read_line(&mut line)? > 0, "it ended before repetition {number}");
    }
    std::thread::spawn(move || lines.read_to_end(&mut Vec::new()));
    child_of(generator.id())?;
    Ok(generator)
}

fn ended() -> Result<String> {
    let binary = std::env::var("FOGMUX_BIN")?;
    let pair = ["pair", &binary, &binary, "--rounds", "200"];
    // A round of a pair has four repetitions.
    let table: [(&str, i32, &[&str], u32); 3] =
        [("TERM", 143, &LONG, 3), ("INT", 130, &LONG, 3), ("TERM", 143, &pair, 6)];
    for (name, code, words, number) in table {
        let place = tempfile::tempdir()?;
        let mut generator = at_work(place.path(), words, number)?;
        signal(generator.id(), name)?;
        let status = generator.wait()?;
        ensure!(status.code() == Some(code), "SIG{name}: {status}");
        ensure!(!serves(place.path())?, "the gateway of a generator that SIG{name} ended still runs");
        let report: Value = serde_json::from_slice(&fs::read(place.path().join("out/report.json"))?)?;
        let done = report.pointer("/runs/0/outcomes").and_then(Value::as_array).map_or(0, Vec::len);
        ensure!(done >= 2, "{done} of at least 2 repetitions were written");
        let problem = report.pointer("/runs/0/problem").and_then(Value::as_str).unwrap_or_default();
        ensure!(problem.contains(&format!("ended by SIG{name}")), "{problem}");
        ensure!(left(place.path())?.is_empty(), "it left {:?}", left(place.path())?);
    }
    Ok(String::new())
}

fn orphaned() -> Result<String> {
    let place = tempfile::tempdir()?;
    let mut generator = at_work(place.path(), &LONG, 3)?;
    signal(generator.id(), "KILL")?;
    generator.wait()?;
    let until = Instant::now() + PATIENCE;
    while serves(place.path())? {
        ensure!(Instant::now() < until, "the gateway of a killed generator still runs");
        sleep(Duration::from_millis(10));
    }
    ensure!(left(place.path())?.len() == 1, "a killed generator cannot remove its files: {:?}", left(place.path())?);
    let next = bench(&["run", "--count", "10", "--repeat", "1"])?.env("TMPDIR", place.path().join("tmp")).output()?;
    ensure!(next.status.success(), "{}", String::from_utf8_lossy(&next.stderr));
    ensure!(left(place.path())?.is_empty(), "the next one left {:?}", left(place.path())?);
    Ok(String::new())
}

/// An experiment's order to the process of its own that figures of memory have.
fn apart() -> Result<String> {
    let repetition = |place: &Path, order: &str| -> Result<Child> {
        fs::create_dir_all(place.join("tmp"))?;
        let mut command = bench(&["repetition"])?;
        let mut child = command.env("TMPDIR", place.join("tmp")).stdin(Stdio::piped()).spawn()?;
        writeln!(child.stdin.as_mut().context("no standard input")?, "{order}")?;
        Ok(child)
    };
    let place = tempfile::tempdir()?;
    let mut short = repetition(place.path(), r#"{"experiment":{"qos":1,"count":20},"number":0}"#)?;
    // Held open until the outcome is there.
    let stdin = short.stdin.take();
    let done = short.wait_with_output()?;
    drop(stdin);
    let answer: Value = serde_json::from_slice(&done.stdout)?;
    ensure!(answer.pointer("/done/delivered") == Some(&Value::from(20)), "{answer}");
    for by_signal in [false, true] {
        let mut long = repetition(place.path(), r#"{"experiment":{"qos":1,"seconds":600.0},"number":0}"#)?;
        wait_for_clients(child_of(long.id())?)?;
        let stdin = long.stdin.take().filter(|_| by_signal);
        if by_signal {
            signal(long.id(), "INT")?;
        }
        let ended = long.wait_with_output()?;
        drop(stdin);
        let answer: Value = serde_json::from_slice(&ended.stdout)?;
        let why = answer.get("failed").and_then(Value::as_str).unwrap_or_default();
        ensure!(why.contains("ended by"), "{answer}");
        ensure!(!serves(place.path())?, "its gateway still runs");
    }
    ensure!(left(place.path())?.is_empty(), "it left {:?}", left(place.path())?);
    Ok(String::new())
}

/// Whether a gateway runs whose files are below this directory.
fn serves(place: &Path) -> Result<bool> {
    let place = place.display().to_string();
    let mut words = fs::read_dir("/proc")?.flatten().map(|process| fs::read(process.path().join("cmdline")));
    // A process that has ended has no words, also if nobody has waited for it.
    Ok(words.any(|words| {
        let words = String::from_utf8_lossy(&words.unwrap_or_default()).into_owned();
        words.contains(&place) && words.split('\0').any(|word| word == "serve")
    }))
}

/// The entries of the temporary directory.
fn left(place: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(place.join("tmp"))?;
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

fn refused() -> Result<String> {
    let place = tempfile::tempdir()?;
    let file = place.path().join("file");
    fs::write(&file, "")?;
    let below = file.join("out").display().to_string();
    let table: [(&[&str], i32, &str); 13] = [
        (&["--rate", "1e18"], 64, "rate is 1e18"),
        (&["--rate", "nan"], 64, "rate is NaN"),
        (&["--rate", "0"], 64, "rate is 0"),
        (&["--seconds", "nan"], 64, "seconds is NaN"),
        (&["--seconds", "1e300"], 64, "seconds is 1e300"),
        (&["--seconds", "0"], 64, "seconds is 0"),
        (&["--drain", "inf"], 64, "drain_seconds is inf"),
        (&["--warm-up", "1e300"], 64, "warm_up_seconds is 1e300"),
        (&["--topics", "4", "--topic", "same"], 64, "4 topics are one"),
        (&["--pubs", "0"], 64, "publishers is 0"),
        (&["--repeat", "0"], 64, "--repeat"),
        (&["--pubs", "1000000", "--subs", "1000000"], 64, "2000000 clients need"),
        (&["--out", &below], 74, &below),
    ];
    for (words, code, why) in table {
        // Long enough that a measurement would show.
        let words = [&["run", "--count", "1000000000"], words].concat();
        let began = Instant::now();
        let done = bench(&words)?.output()?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.code() == Some(code), "{}: {}: {said}", words.join(" "), done.status);
        ensure!(said.contains(why) && !said.contains("panicked"), "{}: {said}", words.join(" "));
        ensure!(began.elapsed() < PATIENCE, "{} took {:?}", words.join(" "), began.elapsed());
    }
    Ok(format!("({} of them)", table.len()))
}
