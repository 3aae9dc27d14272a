//! Readings of a running gateway: its memory and times in `/proc`, its metrics and its log.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::Gateway;
use crate::tcp;

impl Gateway {
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
}
