//! One `fogmux serve` on ports that the system chooses, with a data directory of its own.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::tcp;

const START: Duration = Duration::from_secs(60);
/// Samples that are 0 when no client is connected and no session is kept. HTTP's connections include the scrape.
const SETTLED: [&str; 4] =
    ["fogmux_bus_mailbox_bytes", "fogmux_bus_subscriptions", "fogmux_door_connections", "fogmux_missed_wakes_total"];

/// The configuration file, beside the data directory.
const CONFIGURATION: &str = "fogmux.toml";
/// How a gateway is started.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan<'a> {
    /// Settings, each `KEY=VALUE`.
    pub settings: &'a [&'a str],
    /// Files of the data directory, name and text.
    pub files: &'a [(&'a str, &'a str)],
    /// A command that runs the command behind it, such as `prlimit`.
    pub launcher: &'a [&'a str],
    /// The data directory, where it is not one of the gateway's own that goes with it.
    pub data: Option<&'a Path>,
    /// Whether `/readyz` may say that the gateway is not ready: then it is enough that it answers.
    pub unready: bool,
    /// The text of a configuration file, which [`Gateway::configure`] replaces.
    pub configuration: Option<&'a str>,
}

/// A running gateway; dropped, it is killed.
#[derive(Debug)]
pub struct Gateway {
    child: Child,
    home: TempDir,
    data: PathBuf,
    addresses: HashMap<String, SocketAddr>,
    ca: PathBuf,
}

impl Gateway {
    /// Starts the binary named by `FOGMUX_BIN` and waits until it is ready; each setting is a `--set KEY=VALUE`.
    ///
    /// # Errors
    /// When it does not start or does not become ready in a minute.
    pub fn start(settings: &[&str]) -> Result<Self> {
        Self::start_furnished(settings, &[])
    }

    /// The same with files, name and text, that are in the data directory before it starts.
    ///
    /// # Errors
    /// When it does not start or does not become ready in a minute.
    pub fn start_furnished(settings: &[&str], files: &[(&str, &str)]) -> Result<Self> {
        Self::start_as(Plan { settings, files, ..Plan::default() })
    }

    /// Starts it with a configuration file, which [`Gateway::configure`] replaces.
    ///
    /// # Errors
    /// When it does not start or does not become ready in a minute.
    pub fn start_configured(text: &str) -> Result<Self> {
        Self::start_as(Plan { configuration: Some(text), ..Plan::default() })
    }

    /// Starts a gateway as the plan says.
    ///
    /// # Errors
    /// When it does not start or does not become ready in a minute.
    pub fn start_as(plan: Plan<'_>) -> Result<Self> {
        let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN names no gateway; use `cargo xtask test`")?;
        let home = tempfile::tempdir()?;
        let data = plan.data.map_or_else(|| home.path().join("data"), Path::to_owned);
        if plan.data.is_none() {
            fs::DirBuilder::new().mode(0o700).create(&data)?;
        }
        for (name, text) in plan.files {
            fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(data.join(name))?
                .write_all(text.as_bytes())?;
        }
        let log = fs::File::options().create(true).append(true).open(home.path().join("log"))?;
        let mut words = plan.launcher.iter().copied().chain([binary.as_str()]);
        let mut command = Command::new(words.next().context("no command")?);
        command.args(words).args(["serve", "--json", "--free-ports", "--data"]).arg(&data);
        for setting in plan.settings {
            command.args(["--set", setting]);
        }
        if let Some(text) = plan.configuration {
            let file = home.path().join(CONFIGURATION);
            fs::write(&file, text)?;
            command.arg("-c").arg(file);
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn()?;
        let stdout = child.stdout.take().context("no standard output")?;
        let mut gateway = Self { child, home, data, addresses: HashMap::new(), ca: PathBuf::new() };
        let banner = banner(stdout).with_context(|| gateway.log())?;
        gateway.addresses = addresses(&banner)?;
        gateway.ca = banner.get("ca").and_then(Value::as_str).unwrap_or_default().into();
        gateway.wait_ready(plan.unready).with_context(|| gateway.log())?;
        Ok(gateway)
    }

    /// The address of a listener by its configuration name: `mqtt`, `https` …
    ///
    /// # Errors
    /// When the banner did not list it.
    pub fn address(&self, listener: &str) -> Result<SocketAddr> {
        self.addresses.get(listener).copied().with_context(|| format!("no listener {listener}"))
    }

    /// The certificate of the gateway's own authority, PEM.
    #[must_use]
    pub fn ca(&self) -> &Path {
        &self.ca
    }

    /// Whether the process still runs.
    ///
    /// # Errors
    /// When it ended; the error shows the end of its log.
    pub fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the gateway ended with {status}\n{}", self.log()),
        }
    }

    /// The largest resident set so far, in bytes.
    ///
    /// # Errors
    /// When `/proc` does not say.
    pub fn peak_resident_bytes(&self) -> Result<u64> {
        self.status_bytes("VmHWM:")
    }

    /// The resident set now, in bytes.
    ///
    /// # Errors
    /// When `/proc` does not say.
    pub fn resident_bytes(&self) -> Result<u64> {
        self.status_bytes("VmRSS:")
    }

    /// The anonymous part of the resident set, in bytes: heaps, stacks and buffers, without pages of files.
    ///
    /// # Errors
    /// When `/proc` does not say.
    pub fn anonymous_bytes(&self) -> Result<u64> {
        self.status_bytes("RssAnon:")
    }

    /// The part of the resident set that is pages of files, in bytes: code, which the kernel drops when it is short of
    /// memory, and maps of files.
    ///
    /// # Errors
    /// When `/proc` does not say.
    pub fn file_bytes(&self) -> Result<u64> {
        self.status_bytes("RssFile:")
    }

    fn status_bytes(&self, name: &str) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
        Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
    }

    /// The process identifier.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The data directory.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.data.clone()
    }

    /// Sends a signal, such as [`Signal::TERM`].
    ///
    /// # Errors
    /// When the process is gone.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.child.id())?).context("no process")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Waits for the process to end and returns its exit status.
    ///
    /// # Errors
    /// When it still runs after `patience`.
    pub fn wait_exit(&mut self, patience: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            ensure!(Instant::now() < deadline, "still running after {patience:?}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Every sample of `/metrics`, by its name with labels as they are printed.
    ///
    /// # Errors
    /// When the page cannot be had.
    pub fn metrics(&self) -> Result<HashMap<String, f64>> {
        let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let answer = tcp::ask(self.address("http")?, request)?;
        let text = String::from_utf8_lossy(&answer);
        let lines = text.lines().filter(|line| line.starts_with("fogmux_") || line.starts_with("process_"));
        let sample = |line: &str| -> Option<(String, f64)> {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        Ok(lines.filter_map(sample).collect())
    }

    /// The sum of samples of `/metrics`, which are whole numbers; those that are not there are 0.
    ///
    /// # Errors
    /// When the page cannot be had.
    pub fn sum(&self, names: &[&str]) -> Result<u64> {
        let metrics = self.metrics()?;
        let values = names.iter().filter_map(|name| metrics.get(*name));
        Ok(format!("{:.0}", values.sum::<f64>()).parse()?)
    }

    /// Waits until a sample of `/metrics` satisfies `holds`, and returns it.
    ///
    /// # Errors
    /// When it does not within `patience`.
    pub fn wait_metric(&self, name: &str, patience: Duration, holds: impl Fn(f64) -> bool) -> Result<f64> {
        let deadline = Instant::now() + patience;
        loop {
            let value = self.metrics()?.get(name).copied();
            match value {
                Some(value) if holds(value) => return Ok(value),
                _ => ensure!(Instant::now() < deadline, "{name} is {value:?} after {patience:?}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The oracles that hold once every client of a case has gone: all gauges of queues, connections and subscriptions
    /// are back at 0, and so is the counter of missed wakes, where the build has one. No delivery is unaccounted for
    /// ([`Gateway::check_conservation`]).
    ///
    /// # Errors
    /// Lists every gauge that is not at 0 after ten seconds, or both sides of the balance.
    pub fn settle(&mut self) -> Result<()> {
        self.check_alive()?;
        self.check_lines()?;
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let metrics = self.metrics()?;
            let gauge = |name: &str| SETTLED.iter().any(|settled| name.split('{').next() == Some(settled));
            let mut left: Vec<String> = metrics
                .iter()
                .filter(|(name, value)| gauge(name) && **value != 0.0 && !name.contains("door=\"http\""))
                .map(|(name, value)| format!("{name} {value}"))
                .collect();
            if left.is_empty() {
                return self.check_conservation();
            }
            left.sort();
            ensure!(Instant::now() < deadline, "after the last client has gone: {}", left.join(", "));
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Every line of the log is one of the gateway's: no peer has written one.
    ///
    /// # Errors
    /// Shows a line that does not begin with a time.
    pub fn check_lines(&self) -> Result<()> {
        let log = self.whole_log();
        let is_ours = |line: &str| {
            let time = line.split_once("Z ").map_or("", |(time, _)| time);
            time.len() >= 20 && time.bytes().all(|byte| byte.is_ascii_digit() || b"-T:.".contains(&byte))
        };
        // The last one may be under way.
        let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
        match whole.lines().find(|line| !is_ours(line)) {
            Some(line) => bail!("a line of the log that the gateway did not write: {line:?}"),
            None => Ok(()),
        }
    }

    /// Conservation: when nothing moves any more, every delivery that routing asked for was handed to a connection, was
    /// dropped for a reason that is counted, or waits (docs/metrics.md). Gateways that do not count are let off.
    ///
    /// # Errors
    /// Shows both sides when they differ for ten seconds.
    pub fn check_conservation(&self) -> Result<()> {
        const IN: [&str; 3] = ["matched_total", "pulled_total", "restored_total"];
        const OUT: [&str; 8] = [
            "sent_total",
            "dropped_full_total",
            "dropped_expired_total",
            "dropped_too_large_total",
            "dropped_gone_total",
            "conflated_total",
            "handed_on_total",
            "mailbox_messages",
        ];
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let metrics = self.metrics()?;
            let read = |names: &[&str]| -> Vec<(String, f64)> {
                let name = names.iter().map(|name| format!("fogmux_bus_{name}"));
                name.map(|name| (name.clone(), metrics.get(&name).copied().unwrap_or_default())).collect()
            };
            let (came, went) = (read(&IN), read(&OUT));
            let sum = |all: &[(String, f64)]| all.iter().map(|(_, value)| value).sum::<f64>();
            if !metrics.contains_key("fogmux_bus_matched_total") || sum(&came) == sum(&went) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{came:?} came, {went:?} went");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Writes another configuration file, for a gateway that was started with one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn configure(&self, text: &str) -> Result<()> {
        Ok(fs::write(self.home.path().join(CONFIGURATION), text)?)
    }

    /// Waits until the log says something since [`Gateway::forget_log`].
    ///
    /// # Errors
    /// When it does not within `patience`.
    pub fn wait_log(&self, what: &str, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        while !fs::read_to_string(self.home.path().join("log"))?.contains(what) {
            ensure!(Instant::now() < deadline, "no {what:?} in the log after {patience:?}:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Empties the log.
    ///
    /// # Errors
    /// When the file is gone.
    pub fn forget_log(&self) -> Result<()> {
        Ok(fs::File::options().write(true).open(self.home.path().join("log"))?.set_len(0)?)
    }

    /// The memory oracle: ten seconds after the last client has gone, the resident set is at most 8 MB above what it
    /// was before the first came, and all gauges are back at 0. Returns what it came down to.
    ///
    /// # Errors
    /// When it stays higher.
    pub fn returns_to_idle(&mut self, idle_bytes: u64) -> Result<u64> {
        let began = Instant::now();
        self.settle()?;
        self.comes_down(idle_bytes, began + Duration::from_secs(10))
    }

    /// [`Gateway::returns_to_idle`] by anonymous memory, for a load that uses code of every door for the first time
    /// (ADR 0050).
    ///
    /// # Errors
    /// When it stays higher.
    pub fn gives_back(&mut self, idle_bytes: u64) -> Result<u64> {
        let began = Instant::now();
        self.settle()?;
        comes_down(|| self.anonymous_bytes(), idle_bytes, began + Duration::from_secs(10))
    }

    /// The half of [`Gateway::returns_to_idle`] that holds where the gateway remembers clients that have gone, which is
    /// then part of `idle_bytes`: the resident set is at most 8 MB above it by `deadline`.
    ///
    /// # Errors
    /// When it stays higher.
    pub fn comes_down(&self, idle_bytes: u64, deadline: Instant) -> Result<u64> {
        comes_down(|| self.resident_bytes(), idle_bytes, deadline)
    }

    /// The time that the worker threads have run, and that they could have run but waited for a processor
    /// (`schedstat` of proc(5)).
    ///
    /// # Errors
    /// When the gateway has ended.
    pub fn worker_times(&self) -> Result<(Duration, Duration)> {
        let mut times = (Duration::ZERO, Duration::ZERO);
        for task in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let task = task?.path();
            // A thread may end meanwhile.
            let read = |file| fs::read_to_string(task.join(file)).unwrap_or_default();
            if read("comm").starts_with("worker-") {
                let stat = read("schedstat");
                let mut fields =
                    stat.split_whitespace().map(|field| field.parse().map_or(Duration::ZERO, Duration::from_nanos));
                times.0 += fields.next().unwrap_or_default();
                times.1 += fields.next().unwrap_or_default();
            }
        }
        Ok(times)
    }

    /// The whole log.
    #[must_use]
    pub fn whole_log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.home.path().join("log")).unwrap_or_default()).into_owned()
    }

    /// The end of the log.
    #[must_use]
    pub fn log(&self) -> String {
        let text = self.whole_log();
        let lines: Vec<&str> = text.lines().collect();
        lines.iter().skip(lines.len().saturating_sub(15)).fold(String::new(), |all, line| all + line + "\n")
    }

    fn wait_ready(&mut self, or_not: bool) -> Result<()> {
        let address = self.address("http")?;
        let deadline = Instant::now() + START;
        while Instant::now() < deadline {
            self.check_alive()?;
            if is_ready(address, or_not) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("not ready within {START:?}")
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // A failure here has another cause, which was reported before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn comes_down(read: impl Fn() -> Result<u64>, idle_bytes: u64, deadline: Instant) -> Result<u64> {
    const MORE_BYTES: u64 = 8_000_000;
    loop {
        let resident = read()?;
        if resident <= idle_bytes + MORE_BYTES {
            return Ok(resident);
        }
        let (now, idle) = (resident / 1_000_000, idle_bytes / 1_000_000);
        ensure!(Instant::now() < deadline, "{now} MB are resident after the last client has gone, {idle} before");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn is_ready(address: SocketAddr, or_not: bool) -> bool {
    let ask = || -> Result<bool> {
        let answer = tcp::ask(address, b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        Ok(answer.starts_with(b"HTTP/1.1 200") || (or_not && answer.starts_with(b"HTTP/1.1 503")))
    };
    ask().unwrap_or(false)
}

/// The first line of JSON that lists listeners; the rest of the output is read away by a thread.
fn banner(stdout: impl Read + Send + 'static) -> Result<Value> {
    let mut lines = BufReader::new(stdout);
    let mut line = String::new();
    loop {
        line.clear();
        ensure!(lines.read_line(&mut line)? > 0, "no banner was printed");
        if let Ok(banner) = serde_json::from_str::<Value>(&line)
            && banner.get("listeners").is_some()
        {
            std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
            return Ok(banner);
        }
    }
}

fn addresses(banner: &Value) -> Result<HashMap<String, SocketAddr>> {
    let listeners =
        banner.get("listeners").and_then(Value::as_object).context("the banner's listeners are no object")?;
    let entry = |(name, address): (&String, &Value)| -> Result<(String, SocketAddr)> {
        Ok((name.clone(), address.as_str().context("an address that is no text")?.parse()?))
    };
    listeners.iter().map(entry).collect()
}
