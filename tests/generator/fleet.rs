//! Fleets from one script.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use fogmux_tests::suite::Case;
use serde_json::Value;

use crate::{bench, check, number, parse};

pub(crate) const CASES: &[Case] = &[
    Case { name: "a fleet counts each message of each group, and the whole is their sum", run: counted },
    Case { name: "a group that cannot connect is named", run: unconnected },
    Case { name: "the fleet of the page runs, with fewer devices", run: example },
    Case { name: "a fleet that was interrupted twice goes on with whole repetitions", run: resumed },
    Case { name: "fleets with OSCORE, and over links that delay and lose", run: elsewhere },
];

/// Rates that divide the time: what is due is known to the message. Two groups of one door have the same client numbers
/// and different clients.
const SCRIPT: &str = r#"
seconds = 2
[[group]]
name = "meters"
count = 20
door = "coap"
topic = "f/meters/{}"
payload_bytes = 32
qos = 1
period_seconds = 0.5
[[group]]
name = "switches"
count = 10
door = "mqtt"
topic = "f/switches/{}"
payload_bytes = 16
qos = 1
period_seconds = 1
start_spread_seconds = 0.5
[[group]]
name = "valves"
count = 8
door = "mqtt"
topic = "f/valves"
payload_bytes = 8
qos = 2
consumers = 3
threads = 1
period_seconds = 0.25
[[group]]
name = "cameras"
count = 4
door = "http1"
topic = "f/cameras/{}"
payload_bytes = 4096
period_seconds = 0.2
consumers = 0
"#;

/// Messages due in two seconds, and deliveries of each.
const DUE: [(&str, f64, f64); 4] =
    [("meters", 80.0, 1.0), ("switches", 20.0, 1.0), ("valves", 64.0, 3.0), ("cameras", 40.0, 0.0)];

fn run_of(report: &Value, name: &str) -> Result<Value> {
    let runs = report.get("runs").and_then(Value::as_array).context("no runs")?;
    let found = runs.iter().find(|run| run.get("name").and_then(Value::as_str) == Some(name));
    found.and_then(|run| run.pointer("/outcomes/0")).cloned().with_context(|| format!("no outcome of {name}: {report}"))
}

fn written(place: &Path, text: &str) -> Result<String> {
    let path = place.join("fleet.toml");
    fs::write(&path, text)?;
    Ok(path.display().to_string())
}

fn counted() -> Result<String> {
    let place = tempfile::tempdir()?;
    let (file, out) = (written(place.path(), SCRIPT)?, place.path().join("out"));
    let done = bench(&["fleet", &file, "--json", "--out", &out.display().to_string()])?.output()?;
    let report = parse(&done)?;
    let whole = run_of(&report, "fleet")?;
    let (mut sent, mut expected, mut acknowledged) = (0.0, 0.0, 0.0);
    for (name, due, fan_out) in DUE {
        let outcome = run_of(&report, name)?;
        check(&outcome).with_context(|| name.to_owned())?;
        ensure!(number(&outcome, "offered")? == due, "{name}: {} offered", number(&outcome, "offered")?);
        ensure!(number(&outcome, "sent")? == due, "{name}: {} sent", number(&outcome, "sent")?);
        ensure!(number(&outcome, "delivered")? == due * fan_out, "{name}: {}", number(&outcome, "delivered")?);
        ensure!(number(&outcome, "acknowledged")? == due, "{name}: {}", number(&outcome, "acknowledged")?);
        ensure!(outcome.get("gateway").is_none(), "the gateway's processor time is none of a group's");
        // Where nobody listens the answer is the delivery.
        (sent, expected, acknowledged) = (sent + due, expected + due * fan_out.max(1.0), acknowledged + due);
    }
    for (key, sum) in [("sent", sent), ("delivered", expected), ("acknowledged", acknowledged), ("unsent", 0.0)] {
        ensure!(number(&whole, key)? == sum, "{key} of the whole: {} and not {sum}", number(&whole, key)?);
    }
    let connects = whole.get("connect").and_then(Value::as_array).context("no connections")?;
    let connects: f64 = connects.iter().filter_map(|bucket| bucket.get(1)?.as_f64()).sum();
    // 42 devices, and one, one and three consumers.
    ensure!(connects == 47.0, "{connects} connections");
    ensure!(number(whole.get("gateway").context("no gateway")?, "cpu_us")? > 0.0, "no processor time");
    let page = fs::read_to_string(out.join("report.md"))?;
    ensure!(["fleet", "meters: ", "cameras: "].iter().all(|name| page.contains(name)), "{page}");
    Ok(format!("({sent} sent, {expected} delivered)"))
}

fn unconnected() -> Result<String> {
    let place = tempfile::tempdir()?;
    let group = |name: &str, more: &str| {
        format!("[[group]]\nname = \"{name}\"\ncount = 2\ntopic = \"f/{name}\"\nperiod_seconds = 0.5\n{more}\n")
    };
    // Without TLS no certificate proves anybody to XMPP: such clients are refused when they log in.
    let (good, bad) = (group("good", "door = \"mqtt\""), group("bad", "door = \"xmpp\"\ncredential = \"certificate\""));
    for groups in [[&good, &bad], [&bad, &good]] {
        let file = written(place.path(), &format!("seconds = 1\n{}{}", groups[0], groups[1]))?;
        let done = bench(&["fleet", &file])?.output()?;
        let said = String::from_utf8_lossy(&done.stdout);
        ensure!(done.status.code() == Some(69), "{}: {said}", done.status);
        ensure!(said.contains("group \"bad\": ") && !said.contains("group \"good\""), "{said}");
    }
    let twice = written(place.path(), &format!("seconds = 1\n{good}{good}"))?;
    for (file, code, why) in
        [(twice.as_str(), 65, "group \"good\": there are two"), ("/nowhere.toml", 66, "/nowhere.toml")]
    {
        let done = bench(&["fleet", file])?.output()?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.code() == Some(code) && said.contains(why), "{file}: {}: {said}", done.status);
    }
    Ok(String::new())
}

/// The example with a hundredth of its devices, twenty times as fast.
fn example() -> Result<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = fs::read_to_string(root.join("docs/fleet.toml"))?;
    let smaller = |line: &str| {
        let (key, value) = line.split_once(" = ")?;
        let divisor = match key {
            "count" => 100.0,
            "seconds" | "period_seconds" | "start_spread_seconds" => 20.0,
            _ => return None,
        };
        let value = value.split_whitespace().next()?.parse::<f64>().ok()? / divisor;
        Some(format!("{key} = {value}"))
    };
    let lines: Vec<String> = text.lines().map(|line| smaller(line).unwrap_or_else(|| line.to_owned())).collect();
    ensure!(lines.contains(&"count = 80".to_owned()) && lines.contains(&"seconds = 3".to_owned()), "{lines:?}");
    let place = tempfile::tempdir()?;
    let file = written(place.path(), &lines.join("\n"))?;
    let report = parse(&bench(&["fleet", &file, "--json"])?.output()?)?;
    for name in ["meters", "switches", "cameras"] {
        check(&run_of(&report, name)?).with_context(|| name.to_owned())?;
    }
    // 80 devices send every 1.5 s and five every second, for three seconds; when the others send is chance.
    for (name, due) in [("meters", 160.0), ("cameras", 15.0)] {
        let sent = number(&run_of(&report, name)?, "sent")?;
        ensure!(sent == due, "{name}: {sent} sent");
    }
    Ok(String::new())
}

/// When the repetitions of all runs began, name by name.
fn begun(report: &Value) -> Result<Vec<(String, Vec<u64>)>> {
    let runs = report.get("runs").and_then(Value::as_array).context("no runs")?;
    let of_run = |run: &Value| {
        let name = run.get("name").and_then(Value::as_str).context("no name")?;
        let outcomes = run.get("outcomes").and_then(Value::as_array).context("no outcomes")?;
        let times = outcomes.iter().map(|outcome| outcome.get("began_unix_ms").and_then(Value::as_u64));
        Ok((name.to_owned(), times.collect::<Option<Vec<u64>>>().context("no time")?))
    };
    runs.iter().map(of_run).collect()
}

fn resumed() -> Result<String> {
    let place = tempfile::tempdir()?;
    let file = written(place.path(), &SCRIPT.replacen("seconds = 2", "seconds = 0.3", 1))?;
    let out = place.path().join("out");
    let words = ["fleet", &file, "--repeat", "6", "--out", &out.display().to_string()].map(str::to_owned);
    let journal = out.join("unfinished.jsonl");
    for (until, more) in [("#3", None), ("#5", Some("--resume"))] {
        let all: Vec<&str> = words.iter().map(String::as_str).chain(more).collect();
        let mut generator = bench(&all)?.env("TMPDIR", place.path()).spawn()?;
        let mut lines = BufReader::new(generator.stderr.take().context("no standard error")?).lines();
        let begins = |line: &str| line.starts_with(until);
        ensure!(lines.any(|line| line.is_ok_and(|line| begins(&line))), "it ended before {until}");
        generator.kill()?;
        generator.wait()?;
        // As if it had been killed while it wrote the last repetition: the group that comes last lacks it.
        let text = fs::read_to_string(&journal)?;
        let whole: Vec<&str> = text.lines().collect();
        let (_, kept) = whole.split_last().context("an empty journal")?;
        fs::write(&journal, kept.join("\n") + "\n")?;
    }
    let all: Vec<&str> = words.iter().map(String::as_str).chain(["--resume"]).collect();
    let done = bench(&all)?.output()?;
    ensure!(done.status.success(), "{}: {}", done.status, String::from_utf8_lossy(&done.stderr));
    let report: Value = serde_json::from_slice(&fs::read(out.join("report.json"))?)?;
    let begun = begun(&report)?;
    let (_, first) = begun.first().context("no runs")?;
    ensure!(first.len() == 6 && first.is_sorted(), "{begun:?}");
    // The repetitions that stand beside each other are those of one time.
    ensure!(begun.iter().all(|(_, times)| times == first), "{begun:?}");
    Ok(String::new())
}

fn elsewhere() -> Result<String> {
    let place = tempfile::tempdir()?;
    let lamps = "[[group]]\nname = \"lamps\"\ncount = 6\ndoor = \"coap\"\nsecurity = \"oscore\"\ntopic = \"f/lamps/{}\"\n\
                 qos = 1\nperiod_seconds = 0.5\nconsumer_door = \"coap\"\nconsumers = 6\n";
    let valves = "[[group]]\nname = \"valves\"\ncount = 4\ndoor = \"mqtt\"\ntopic = \"f/valves\"\nqos = 1\n\
                  period_seconds = 0.5\n";
    // Nothing is lost for good, since what is confirmed is sent again: after 2 s, 4 s, … (RFC 7252 §4.2).
    for link in ["loopback", "lossless", "delay=10ms", "seeded,loss=3%"] {
        let file =
            written(place.path(), &format!("seconds = 1\ndrain_seconds = 30\nlink = \"{link}\"\n{lamps}{valves}"))?;
        let report = parse(&bench(&["fleet", &file, "--json"])?.output()?).with_context(|| link.to_owned())?;
        for (name, due) in [("lamps", 12.0), ("valves", 8.0)] {
            let outcome = run_of(&report, name)?;
            check(&outcome).with_context(|| format!("{link}: {name}"))?;
            ensure!(number(&outcome, "sent")? == due, "{link}: {name}: {} sent", number(&outcome, "sent")?);
        }
        let whole = run_of(&report, "fleet")?;
        let frames = whole.pointer("/bytes/wire/packets_up").and_then(Value::as_f64);
        ensure!(frames.is_some_and(|frames| frames >= 20.0) == (link != "loopback"), "{link}: {frames:?} frames");
    }
    let others = lamps.replace("lamps", "lights");
    let plain = valves.replacen("door = \"mqtt\"", "door = \"xmpp\"", 1);
    for (text, code, why) in [
        (format!("seconds = 1\n{lamps}{others}"), 65, "one group with OSCORE"),
        (format!("seconds = 1\n{}", lamps.replace("consumer_door = \"coap\"\n", "")), 65, "consumer_door = \"coap\""),
        (format!("seconds = 1\nlink = \"lossless\"\n{lamps}{plain}"), 69, "group \"valves\""),
    ] {
        let done = bench(&["fleet", &written(place.path(), &text)?])?.output()?;
        let said = [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        ensure!(done.status.code() == Some(code) && said.contains(why), "{why}: {}: {said}", done.status);
    }
    Ok(String::new())
}
