//! `fogmux serve`, started for one repetition and ended after it.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::settings::{listener, settings};
use super::{Access, Home, TargetError};
use crate::experiment::{Credential, Door, Experiment};

/// In which it has to become ready.
const START_MAX: Duration = Duration::from_secs(60);
/// In which it closes what is still connected when it is ended.
const DRAIN: Duration = Duration::from_millis(500);
/// In which it has to end when it is asked to.
const END_MAX: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(5);

/// A running gateway. Dropped, it is ended.
#[derive(Debug)]
pub struct Gateway {
    child: Child,
    addresses: HashMap<String, SocketAddr>,
    log: PathBuf,
    store: PathBuf,
    settings: Vec<String>,
}

impl Gateway {
    /// Starts a gateway that these experiments can be done with at the same time. `wrapper` is the command that it is
    /// started by, such as `ip netns exec NAME`, and `address` the one that it listens on.
    ///
    /// # Errors
    /// One of them is not possible, or two want different things of one listener, or the gateway does not become ready.
    pub fn start(
        home: &mut Home,
        experiments: &[&Experiment],
        wrapper: &[String],
        address: &str,
    ) -> Result<Self, TargetError> {
        let set = settings(experiments, address)?;
        experiments.iter().try_for_each(|experiment| home.furnish(experiment))?;
        let log = home.directory().join("gateway.log");
        let store = home.directory().join("store");
        // Messages retained by an earlier repetition must not reach this one.
        let _ = fs::remove_dir_all(&store);
        let io = |error| TargetError::Io(log.display().to_string(), error);
        let mut words = wrapper.iter().map(Into::into).chain([home.binary().as_os_str().to_owned()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).args(["serve", "--json", "--free-ports", "--end-with"]).arg(std::process::id().to_string());
        command.arg("--data").arg(home.data());
        command.arg("--set").arg(format!("store.path={}", store.display()));
        // When it is ended, nobody is served any more.
        command.arg("--set").arg(format!("workers.drain={}ms", DRAIN.as_millis()));
        if experiments.iter().any(|experiment| experiment.credential == Credential::Token) {
            command.arg("--set").arg(format!("auth.token.key_file={}", home.token_key().display()));
        }
        if let Some(kind) = experiments.iter().find_map(|experiment| experiment.server_key.kind()) {
            let (certificate, key) = home.server_certificate(Some(kind))?;
            command.arg("--set").arg(format!("tls.certificate_file={}", certificate.display()));
            command.arg("--set").arg(format!("tls.key_file={}", key.display()));
        }
        for setting in &set {
            command.args(["--set", setting]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(fs::File::create(&log).map_err(io)?);
        let mut child = command.spawn().map_err(|error| TargetError::Io("fogmux serve".to_owned(), error))?;
        let stdout = child.stdout.take();
        let mut gateway = Self { child, addresses: HashMap::new(), log, store, settings: set };
        gateway.addresses = stdout.and_then(addresses).ok_or_else(|| TargetError::Start(gateway.said()))?;
        gateway.wait_ready()?;
        Ok(gateway)
    }

    /// Its process, as a list of one.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        vec![self.child.id()]
    }

    /// How its process ended, with the last lines of its log; nothing while it runs.
    pub fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        let said = self.said();
        let said = if said.is_empty() { said } else { format!(" and said: {said}") };
        Some(format!("the gateway ended ({status}){said}"))
    }

    /// The settings of the gateway as `KEY=VALUE`, without addresses and file paths, which differ between machines.
    #[must_use]
    pub fn settings(&self) -> Vec<String> {
        let is_place = |setting: &str| setting.split_once('=').is_some_and(|(key, _)| key.ends_with(".address"));
        self.settings.iter().filter(|setting| !is_place(setting)).cloned().collect()
    }

    /// How clients of the experiment reach a door, and with what.
    ///
    /// # Errors
    /// It has no such listener.
    pub fn access(&self, home: &Home, experiment: &Experiment, door: Door) -> Result<Access, TargetError> {
        let name = listener(door, experiment)?;
        let address = self.addresses.get(name);
        let address = address.ok_or_else(|| TargetError::Start(format!("it has no listener {name}")))?;
        Ok(home.access(experiment, door, address.ip().to_string(), address.port()))
    }

    fn wait_ready(&mut self) -> Result<(), TargetError> {
        let address = self.addresses.get("http").copied();
        let address = address.ok_or_else(|| TargetError::Start("it has no listener http".to_owned()))?;
        let until = Instant::now() + START_MAX;
        while Instant::now() < until {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return Err(TargetError::Start(self.said()));
            }
            if is_ready(address) {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        Err(TargetError::Start(format!("it is not ready after {START_MAX:?}: {}", self.said())))
    }

    /// The end of what it logged.
    fn said(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.trim().lines().collect();
        lines.get(lines.len().saturating_sub(5)..).unwrap_or_default().join(" | ")
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let until = Instant::now() + END_MAX;
        while Instant::now() < until && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(LOOK);
        }
        // It has ended, or has had its time.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.store);
    }
}

/// The listeners of the banner; what follows is read away by a thread.
fn addresses(stdout: ChildStdout) -> Option<HashMap<String, SocketAddr>> {
    let mut lines = BufReader::new(stdout);
    let mut line = String::new();
    loop {
        line.clear();
        if lines.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let Ok(banner) = serde_json::from_str::<Value>(&line) else { continue };
        let Some(listeners) = banner.get("listeners").and_then(Value::as_object) else { continue };
        let found = listeners.iter().map(|(name, address)| Some((name.clone(), address.as_str()?.parse().ok()?)));
        let found = found.collect();
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        return found;
    }
}

fn is_ready(address: SocketAddr) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer)?;
        Ok(&answer == b"HTTP/1.1 200")
    };
    ask().unwrap_or(false)
}
