//! Oracles: claims that hold of a gateway once the clients of a case have gone.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::Gateway;

/// Samples that are 0 when no client is connected and no session is kept. HTTP's connections include the scrape.
const SETTLED: [&str; 6] = [
    "fogmux_bus_mailbox_bytes",
    "fogmux_bus_subscriptions",
    "fogmux_door_connections",
    "fogmux_door_queue_bytes",
    "fogmux_door_queue_messages",
    "fogmux_missed_wakes_total",
];

impl Gateway {
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
