//! One `fogmux serve` on ports that the system chooses, with a data directory of its own.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::tcp;

const START: Duration = Duration::from_secs(60);

/// A running gateway; dropped, it is killed.
#[derive(Debug)]
pub struct Gateway {
    child: Child,
    home: TempDir,
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
        let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN names no gateway; use `cargo xtask test`")?;
        let home = tempfile::tempdir()?;
        let data = home.path().join("data");
        fs::DirBuilder::new().mode(0o700).create(&data)?;
        for (name, text) in files {
            fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(data.join(name))?
                .write_all(text.as_bytes())?;
        }
        let log = fs::File::create(home.path().join("log"))?;
        let mut command = Command::new(binary);
        command.args(["serve", "--json", "--free-ports", "--data"]).arg(data);
        for setting in settings {
            command.args(["--set", setting]);
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn()?;
        let stdout = child.stdout.take().context("no standard output")?;
        let mut gateway = Self { child, home, addresses: HashMap::new(), ca: PathBuf::new() };
        let banner = banner(stdout).with_context(|| gateway.log())?;
        gateway.addresses = addresses(&banner)?;
        gateway.ca = banner.get("ca").and_then(Value::as_str).context("the banner names no ca")?.into();
        gateway.wait_ready().with_context(|| gateway.log())?;
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

    fn status_bytes(&self, name: &str) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
        Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
    }

    /// The end of the log.
    #[must_use]
    pub fn log(&self) -> String {
        let text = fs::read(self.home.path().join("log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines.iter().skip(lines.len().saturating_sub(15)).fold(String::new(), |all, line| all + line + "\n")
    }

    fn wait_ready(&mut self) -> Result<()> {
        let address = self.address("http")?;
        let deadline = Instant::now() + START;
        while Instant::now() < deadline {
            self.check_alive()?;
            if is_ready(address) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("not ready within {START:?}")
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Whatever went wrong, it went wrong before: there is nobody left to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_ready(address: SocketAddr) -> bool {
    let ask = || -> Result<bool> {
        let answer = tcp::ask(address, b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        Ok(answer.starts_with(b"HTTP/1.1 200"))
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
