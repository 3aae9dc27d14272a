//! A gateway under callgrind, and the moments at which it is stopped and counted.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use fogmux_tests::{
    gateway::{Gateway, Plan},
    users,
};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::oscore;

/// The device that has a pre-shared key.
pub(crate) const IDENTITY: &str = "dev1";
/// Its key.
pub(crate) const KEY: &[u8] = b"0123456789abcdef";

/// It is some fifty times slower than by itself.
const PATIENCE: Duration = Duration::from_secs(60);

/// A gateway under callgrind.
pub(crate) struct Meter {
    pub(crate) gateway: Gateway,
    /// Where callgrind writes.
    output: TempDir,
}

impl Meter {
    /// Starts a gateway with one worker. Nothing is counted yet.
    pub(crate) fn start(settings: &[&str]) -> Result<Self> {
        let output = tempfile::tempdir()?;
        let file = format!("--callgrind-out-file={}", output.path().join("callgrind.out").display());
        let launcher = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "-q", &file];
        let settings: Vec<&str> = ["workers.count=1", "log.filter=error"].iter().chain(settings).copied().collect();
        let files = [("psk.toml", &*users::key_file(IDENTITY, KEY)), ("oscore/dev1.toml", oscore::CONTEXT)];
        let plan = Plan { settings: &settings, files: &files, launcher: &launcher, ..Plan::default() };
        Ok(Self { gateway: Gateway::start_as(plan)?, output })
    }

    /// Has the gateway find everything that `send` sends when it goes on, and nothing before.
    pub(crate) fn at_once(&self, send: impl FnOnce() -> Result<()>) -> Result<()> {
        self.gateway.signal(Signal::STOP)?;
        let sent = send();
        self.gateway.signal(Signal::CONT)?;
        sent
    }

    /// Counts from now on.
    pub(crate) fn begin(&self) -> Result<()> {
        self.control("on")
    }

    /// Stops counting.
    pub(crate) fn end(&self) -> Result<()> {
        self.control("off")
    }

    fn control(&self, state: &str) -> Result<()> {
        let pid = self.gateway.pid().to_string();
        let output = Command::new("callgrind_control").args(["-i", state, &pid]).stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success() && said.contains("OK"), "callgrind_control: {said}");
        Ok(())
    }

    /// Ends the gateway. Returns the instructions between `begin` and `end`, and copies what callgrind wrote to `kept`.
    pub(crate) fn finish(mut self, kept: Option<&Path>) -> Result<u64> {
        self.gateway.signal(Signal::TERM)?;
        self.gateway.wait_exit(PATIENCE)?;
        let mut total = 0;
        for entry in fs::read_dir(self.output.path())? {
            let file = entry?.path();
            total += instructions(&file)?;
            if let Some(kept) = kept {
                fs::copy(&file, kept).with_context(|| kept.display().to_string())?;
            }
        }
        if total == 0 {
            bail!("nothing was counted");
        }
        Ok(total)
    }
}

/// The sum in a file of callgrind.
fn instructions(file: &Path) -> Result<u64> {
    let text = fs::read_to_string(file)?;
    let line = text.lines().find_map(|line| line.strip_prefix("totals: "));
    line.with_context(|| format!("no total in {}", file.display()))?.trim().parse().context("a total")
}
