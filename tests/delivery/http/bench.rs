//! Measurements over the administration API: who may, one at a time, and nothing that stays behind.

use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::mqtt;
use fogmux_tests::users::file;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::access::{ADMIN, Answer, send};

const PATIENCE: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(20);

/// Submits a measurement as an administrator on this machine.
fn submit(gateway: &Gateway, body: &Value) -> Result<Answer> {
    submit_as(gateway, "", body)
}

fn submit_as(gateway: &Gateway, who: &str, body: &Value) -> Result<Answer> {
    send(gateway, "POST /api/v1/bench", who, "Content-Type: application/json\r\n", &body.to_string())
}

/// A measurement of so many seconds, on a gateway at work as well.
fn run(seconds: u32) -> Value {
    json!({ "run": { "door": "mqtt", "rate": 50, "seconds": seconds, "repeat": 1 }, "anyway": true })
}

/// Submits a measurement that is taken, and returns its number.
fn submitted(gateway: &Gateway, body: &Value) -> Result<u64> {
    let answer = submit(gateway, body)?;
    ensure!(answer.status == 202, "{answer:?}");
    let id = answer.json()?.get("id").and_then(Value::as_u64).context("no number")?;
    ensure!(answer.head.contains(&format!("location: /api/v1/bench/{id}\r\n")), "{answer:?}");
    Ok(id)
}

fn get(gateway: &Gateway, path: &str) -> Result<Value> {
    let answer = send(gateway, &format!("GET /api/v1/bench{path}"), "", "", "")?;
    ensure!(answer.status == 200, "{path}: {answer:?}");
    answer.json()
}

fn remove(gateway: &Gateway, id: u64) -> Result<u16> {
    Ok(send(gateway, &format!("DELETE /api/v1/bench/{id}"), "", "", "")?.status)
}

fn text<'a>(job: &'a Value, name: &str) -> &'a str {
    job.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Waits for a job to be as it is wanted.
fn wait(gateway: &Gateway, id: u64, holds: impl Fn(&Value) -> bool) -> Result<Value> {
    let until = Instant::now() + PATIENCE;
    loop {
        let job = get(gateway, &format!("/{id}"))?;
        if holds(&job) {
            return Ok(job);
        }
        ensure!(Instant::now() < until, "it stays {job}");
        thread::sleep(LOOK);
    }
}

fn wait_state(gateway: &Gateway, id: u64, state: &str) -> Result<Value> {
    let job = wait(gateway, id, |job| [state, "failed", "done"].contains(&text(job, "state")))?;
    ensure!(text(&job, "state") == state, "{job}\n{}", gateway.log());
    Ok(job)
}

/// A measurement that has written its first second, with its processes.
fn measuring(gateway: &Gateway, id: u64) -> Result<Vec<u32>> {
    let samples =
        |job: &Value| job.pointer("/progress/samples").and_then(Value::as_array).is_some_and(|all| !all.is_empty());
    wait(gateway, id, samples)?;
    let processes = descendants(gateway.pid())?;
    // The generator and its gateway.
    ensure!(processes.len() >= 2, "{processes:?}");
    Ok(processes)
}

/// The processes below one.
fn descendants(pid: u32) -> Result<Vec<u32>> {
    let mut parents: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        // Behind the name, which may hold anything: the state, and the parent.
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
        parents.entry(parent.unwrap_or_default()).or_default().push(pid);
    }
    let (mut found, mut next) = (Vec::new(), vec![pid]);
    while let Some(pid) = next.pop() {
        let children = parents.remove(&pid).unwrap_or_default();
        next.extend(&children);
        found.extend(children);
    }
    Ok(found)
}

fn all_gone(processes: &[u32]) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    // A process that nobody has waited for yet has ended.
    let lives = |pid: &&u32| fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
    while let Some(pid) = processes.iter().find(lives) {
        ensure!(Instant::now() < until, "process {pid} stays");
        thread::sleep(LOOK);
    }
    Ok(())
}

/// Two jobs follow each other, and each has its report.
pub(super) fn one_at_a_time() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    ensure!(!gateway.data().join("bench").exists(), "a gateway that nobody measures with has made something");
    let ids = [submitted(&gateway, &run(1))?, submitted(&gateway, &run(2))?];
    ensure!(ids == [1, 2], "{ids:?}");
    let until = Instant::now() + PATIENCE;
    loop {
        let list = get(&gateway, "")?;
        let jobs = list.get("jobs").and_then(Value::as_array).context("no list")?;
        let count = |state| jobs.iter().filter(|job| text(job, "state") == state).count();
        ensure!(count("running") <= 1 && count("failed") == 0, "{list}");
        if count("done") == 2 {
            break;
        }
        ensure!(Instant::now() < until, "{list}");
        thread::sleep(LOOK);
    }
    let [first, second] = [wait_state(&gateway, 1, "done")?, wait_state(&gateway, 2, "done")?];
    ensure!(text(&first, "ended") <= text(&second, "started"), "{first} {second}");
    ensure!(first.pointer("/progress/ended") == Some(&1.into()), "{first}");
    for (file, beginning, content_type) in [
        ("report.json", "{\"version\"", "application/json"),
        ("report.md", "`fogmux bench run", "text/markdown"),
        ("report.html", "<!DOCTYPE html>", "text/html"),
    ] {
        let answer = send(&gateway, &format!("GET /api/v1/bench/2/{file}"), "", "", "")?;
        ensure!(answer.status == 200 && answer.body.starts_with(beginning), "{answer:?}");
        ensure!(answer.head.contains(&format!("content-type: {content_type}")), "{answer:?}");
        ensure!(answer.head.contains("content-security-policy: default-src 'none'"), "{answer:?}");
        ensure!(!answer.body.contains("--end-with"), "the report has the gateway's own words");
    }
    let compared = get(&gateway, "/2/compare/1")?;
    ensure!(compared.get("changes").is_some_and(Value::is_array), "{compared}");
    ensure!(send(&gateway, "GET /api/v1/bench/2/compare/7", "", "", "")?.status == 404);
    gateway.wait_log("measurement submitted", PATIENCE)?;
    not_in_a_backup(&gateway)?;
    ensure!(descendants(gateway.pid())?.is_empty());
    gateway.check_alive()?;
    Ok(String::new())
}

/// Results are of this machine, and files of a measurement change while they are copied.
fn not_in_a_backup(gateway: &Gateway) -> Result<()> {
    let place = tempfile::tempdir()?;
    let file = place.path().join("backup");
    let mut command = Command::new(std::env::var("FOGMUX_BIN")?);
    let done = command.arg("backup").arg(&file).arg("--data").arg(gateway.data()).output()?;
    ensure!(done.status.success(), "{done:?}");
    let backup = fs::read(file)?;
    let has = |name: &[u8]| backup.windows(name.len()).any(|bytes| bytes == name);
    ensure!(has(b"data/pki/ca.pem") && !has(b"data/bench/"), "measurements are in a backup");
    Ok(())
}

/// Neither strangers, nor those who may only look, nor foreign pages start anything.
pub(super) fn only_administrators() -> Result<String> {
    let rules = "[[allow]]\nuser = \"admin\"\nboth = \"$fogmux/admin\"\n\
                 [[allow]]\nuser = \"bob\"\nread = \"$fogmux/admin\"\n";
    let users = file(&["admin", "bob", "eve"]);
    let files = [("users.toml", users.as_str()), ("acl.toml", rules)];
    let settings = ["listeners.http.anonymous=false"];
    let mut gateway = Gateway::start_as(Plan { settings: &settings, files: &files, ..Plan::default() })?;
    for (who, reads, writes) in [("", 401, 401), ("eve:secret", 403, 403), ("bob:secret", 200, 403)] {
        for path in ["", "/choices"] {
            let answer = send(&gateway, &format!("GET /api/v1/bench{path}"), who, "", "")?;
            ensure!(answer.status == reads, "{who}: {answer:?}");
        }
        ensure!(submit_as(&gateway, who, &run(1))?.status == writes, "{who}");
        ensure!(send(&gateway, "DELETE /api/v1/bench/1", who, "", "")?.status == writes, "{who}");
    }
    let body = run(1).to_string();
    let foreign = "Content-Type: application/json\r\nOrigin: http://evil.example\r\n";
    send(&gateway, "POST /api/v1/bench", ADMIN, foreign, &body)?.is(403, "foreign-origin")?;
    // A form can send this without a preflight.
    send(&gateway, "POST /api/v1/bench", ADMIN, "Content-Type: text/plain\r\n", &body)?
        .is(415, "unsupported-media-type")?;
    ensure!(!gateway.data().join("bench").exists() || fs::read_dir(gateway.data().join("bench"))?.next().is_none());
    let answer = submit_as(&gateway, ADMIN, &run(1))?;
    ensure!(answer.status == 202 && text(&answer.json()?, "by") == "admin", "{answer:?}");
    gateway.check_alive()?;
    Ok(String::new())
}

/// Nothing but the choices becomes a command line.
pub(super) fn choices() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    for (status, kind, body) in [
        (400, "invalid-body", json!({})),
        (400, "invalid-body", json!({ "run": {}, "matrix": {} })),
        (400, "invalid-body", json!({ "run": { "out": "/etc" } })),
        (400, "invalid-body", json!({ "run": { "capture": "/tmp/x" } })),
        (400, "invalid-body", json!({ "peer": "mqtt://broker.example" })),
        (400, "invalid-body", json!({ "run": { "size": "64 --out /etc" } })),
        (422, "unusable", json!({ "run": { "door": "--out=/etc" } })),
        (422, "unusable", json!({ "run": { "door": "mqtt", "link": "loss=1%" } })),
        (422, "unusable", json!({ "run": { "security": "none\u{0}" } })),
        (422, "unusable", json!({ "run": { "seconds": 300, "repeat": 50 } })),
        (422, "unusable", json!({ "matrix": { "repeat": 50 } })),
        (422, "unusable", json!({ "paper": { "name": "../../users", "table": "1" } })),
        (422, "unusable", json!({ "paper": { "name": "wiss2016", "table": "fig2,fig3" } })),
    ] {
        submit(&gateway, &body)?.is(status, kind).with_context(|| body.to_string())?;
    }
    for path in ["", "/log", "/job.json", "/..", "/report.csv"] {
        let answer = send(&gateway, &format!("GET /api/v1/bench/1{path}"), "", "", "")?;
        ensure!(answer.status == 404, "{path}: {answer:?}");
    }
    ensure!(!gateway.data().join("bench").exists(), "a refused request has left something");
    let choices = get(&gateway, "/choices")?;
    ensure!(choices.pointer("/doors/9/door").is_some() && choices.pointer("/papers/0/tables/0/table").is_some());
    gateway.check_alive()?;
    Ok(String::new())
}

/// The queue holds as many as it says, and each that is taken away makes room for one.
pub(super) fn bounded_queue() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let first = submitted(&gateway, &run(300))?;
    wait_state(&gateway, first, "running")?;
    let waiting_max = get(&gateway, "")?.get("waiting_max").and_then(Value::as_u64).context("no bound")?;
    let mut last = first;
    for _ in 0..waiting_max {
        last = submitted(&gateway, &run(300))?;
    }
    let full = submit(&gateway, &run(300))?;
    full.is(429, "too-many-requests")?;
    ensure!(full.head.contains("retry-after: "), "{full:?}");
    ensure!(remove(&gateway, last)? == 204);
    ensure!(text(&get(&gateway, &format!("/{last}"))?, "reason").starts_with("cancelled by "));
    ensure!(submitted(&gateway, &run(300))? == last + 1);
    submit(&gateway, &run(300))?.is(429, "too-many-requests")?;
    // However often it is done, no more than so many are kept.
    for id in (first + 1..last).chain([last + 1]) {
        ensure!(remove(&gateway, id)? == 204);
    }
    let kept_max = get(&gateway, "")?.get("kept_max").and_then(Value::as_u64).context("no bound")?;
    for _ in 0..kept_max {
        let id = submitted(&gateway, &run(300))?;
        ensure!(remove(&gateway, id)? == 204);
    }
    let kept = u64::try_from(fs::read_dir(gateway.data().join("bench"))?.count())?;
    ensure!(kept == kept_max + 1, "{kept} directories");
    gateway.check_alive()?;
    Ok(format!("{waiting_max} wait, {kept_max} are kept"))
}

/// A cancelled job leaves no process, and its results can be removed.
pub(super) fn cancelled() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let id = submitted(&gateway, &run(300))?;
    let processes = measuring(&gateway, id)?;
    ensure!(remove(&gateway, id)? == 204);
    // As soon as it is answered.
    let job = get(&gateway, &format!("/{id}"))?;
    ensure!(text(&job, "state") == "failed" && text(&job, "reason").starts_with("cancelled by "), "{job}");
    all_gone(&processes)?;
    ensure!(descendants(gateway.pid())?.is_empty());
    ensure!(remove(&gateway, id)? == 204);
    ensure!(remove(&gateway, id)? == 404 && !gateway.data().join(format!("bench/{id}")).exists());
    let next = submitted(&gateway, &run(1))?;
    ensure!(next == id + 1);
    wait_state(&gateway, next, "done")?;
    gateway.check_alive()?;
    Ok(format!("{} processes", processes.len()))
}

/// A generator that is killed is a failed job, and the next one follows.
pub(super) fn crashed() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let (id, next) = (submitted(&gateway, &run(300))?, submitted(&gateway, &run(1))?);
    let processes = measuring(&gateway, id)?;
    let generator = processes.first().and_then(|pid| rustix::process::Pid::from_raw(i32::try_from(*pid).ok()?));
    rustix::process::kill_process(generator.context("no process")?, Signal::KILL)?;
    let job = wait(&gateway, id, |job| text(job, "state") != "running")?;
    ensure!(text(&job, "state") == "failed" && text(&job, "reason").ends_with("signal 9"), "{job}");
    all_gone(&processes)?;
    wait_state(&gateway, next, "done")?;
    gateway.check_alive()?;
    Ok(String::new())
}

/// However a gateway ends, no process of a measurement stays, and the next gateway says what has become of it.
pub(super) fn restarted() -> Result<String> {
    let home = tempfile::tempdir()?;
    let plan = Plan { data: Some(home.path()), ..Plan::default() };
    for (round, signal) in [(0, Signal::KILL), (1, Signal::TERM)] {
        let mut gateway = Gateway::start_as(plan)?;
        let running = submitted(&gateway, &run(300))?;
        let waiting = submitted(&gateway, &run(300))?;
        ensure!(running == round * 2 + 1 && waiting == running + 1, "{running} {waiting}");
        let processes = measuring(&gateway, running)?;
        gateway.signal(signal)?;
        let status = gateway.wait_exit(PATIENCE)?;
        ensure!(signal == Signal::KILL || status.success(), "{status}");
        all_gone(&processes)?;
        let gateway = Gateway::start_as(plan)?;
        for id in [running, waiting] {
            let job = get(&gateway, &format!("/{id}"))?;
            ensure!(text(&job, "state") == "failed" && text(&job, "reason") == "the gateway ended", "{job}");
        }
    }
    Ok(String::new())
}

/// The oldest results leave when there are too many.
pub(super) fn oldest_leave() -> Result<String> {
    let kept: Vec<(String, String)> = (1..=40)
        .map(|id| {
            let job = json!({
                "id": id, "state": "done", "arguments": ["bench", "run"], "repetitions": 1, "anyway": false,
                "by": "admin", "submitted_unix_ms": id, "started_unix_ms": id, "ended_unix_ms": id, "reason": null,
            });
            (format!("bench/{id}/job.json"), job.to_string())
        })
        .collect();
    let files: Vec<(&str, &str)> = kept.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let mut gateway = Gateway::start_furnished(&[], &files)?;
    let id = submitted(&gateway, &run(1))?;
    ensure!(id == 41);
    wait_state(&gateway, id, "done")?;
    let list = get(&gateway, "")?;
    let ids: Vec<u64> = list
        .get("jobs")
        .and_then(Value::as_array)
        .map(|jobs| jobs.iter().filter_map(|job| job.get("id")?.as_u64()).collect())
        .unwrap_or_default();
    let kept_max = list.get("kept_max").and_then(Value::as_u64).context("no bound")?;
    ensure!(ids == (42 - kept_max..=41).rev().collect::<Vec<_>>(), "{ids:?}");
    ensure!(u64::try_from(fs::read_dir(gateway.data().join("bench"))?.count())? == kept_max);
    gateway.check_alive()?;
    Ok(String::new())
}

/// Publishes as fast as the gateway takes it, until it is told to stop.
fn load(port: SocketAddr, stop: &Arc<AtomicBool>) -> thread::JoinHandle<Result<()>> {
    let stop = Arc::clone(stop);
    thread::spawn(move || {
        let mut client = mqtt::Connection::open(port, 4, "load")?;
        while !stop.load(Relaxed) {
            for _ in 0..200 {
                client.publish("load", b"x")?;
            }
            // Some ten thousand a second, without filling a core.
            thread::sleep(LOOK);
        }
        Ok(())
    })
}

/// A gateway at work refuses a measurement, and one that waits goes on waiting; `anyway` is another matter.
pub(super) fn loaded() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let port = gateway.address("mqtt")?;
    let polite = |seconds: u32| {
        let mut body = run(seconds);
        let _ = body.as_object_mut().map(|body| body.remove("anyway"));
        body
    };
    let first = submitted(&gateway, &run(300))?;
    measuring(&gateway, first)?;
    // The work of the measurement is not the gateway's.
    let second = submitted(&gateway, &polite(1))?;
    let stop = Arc::new(AtomicBool::new(false));
    let work = load(port, &stop);
    gateway.wait_metric("fogmux_bus_published_total", PATIENCE, |count| count > 1000.0)?;
    let refused = submit(&gateway, &polite(1))?;
    refused.is(503, "loaded")?;
    ensure!(refused.head.contains("retry-after: ") && refused.body.contains("publications a second"), "{refused:?}");
    ensure!(remove(&gateway, first)? == 204);
    let waits = |job: &Value| text(job, "reason").starts_with("it waits for the gateway");
    let job = wait(&gateway, second, waits)?;
    ensure!(text(&job, "state") == "submitted", "{job}");
    let anyway = submitted(&gateway, &run(1))?;
    wait_state(&gateway, anyway, "done")?;
    let job = get(&gateway, &format!("/{second}"))?;
    ensure!(text(&job, "state") == "submitted", "what goes on anyway waits for what waits: {job}");
    stop.store(true, Relaxed);
    match work.join() {
        Ok(done) => done?,
        Err(_) => bail!("the load has failed"),
    }
    wait_state(&gateway, second, "done")?;
    gateway.check_alive()?;
    Ok(refused.body)
}

/// A gateway whose program cannot be started again says so, and goes on.
pub(super) fn no_program() -> Result<String> {
    let home = tempfile::tempdir()?;
    let copy = home.path().join("fogmux");
    let copy = copy.to_str().context("no text")?;
    let script = format!("cp \"$0\" {copy} && exec {copy} \"$@\"");
    let mut gateway = Gateway::start_as(Plan { launcher: &["sh", "-c", &script], ..Plan::default() })?;
    fs::remove_file(copy)?;
    let id = submitted(&gateway, &run(1))?;
    let job = wait(&gateway, id, |job| text(job, "state") == "failed")?;
    let reason = text(&job, "reason");
    ensure!(reason.starts_with("the measuring program cannot be started: "), "{job}");
    gateway.check_alive()?;
    Ok(reason.to_owned())
}
