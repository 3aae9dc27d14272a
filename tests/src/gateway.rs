//! One `fogmux serve` on ports that the system chooses, with a data directory of its own.

mod oracles;
mod readings;

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
            if let Some((directory, _)) = name.rsplit_once('/') {
                fs::DirBuilder::new().recursive(true).mode(0o700).create(data.join(directory))?;
            }
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

    /// Writes another configuration file, for a gateway that was started with one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn configure(&self, text: &str) -> Result<()> {
        Ok(fs::write(self.home.path().join(CONFIGURATION), text)?)
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
