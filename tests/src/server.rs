//! A process of a server that others wrote, on a port of its own.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

/// How long a server may take to start.
pub const START_MAX: Duration = Duration::from_secs(60);
const ATTEMPTS: usize = 3;

/// A server of others; dropped, it is killed.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// Its standard error.
    said: File,
}

impl Server {
    /// Starts it.
    ///
    /// # Errors
    /// When the program cannot be run.
    pub fn start(command: &mut Command) -> Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        let said = tempfile::tempfile()?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said.try_clone()?).spawn();
        let child = child.with_context(|| format!("{program} is missing; use `cargo xtask test`"))?;
        Ok(Self { child, said })
    }

    /// Starts what `command` makes of a free port, and waits until it serves there. Between the choice and the server's
    /// own bind(2) somebody else may take the port: then another one is tried.
    ///
    /// # Errors
    /// When it does not serve after three attempts, with the reason of each.
    pub fn start_at(free: impl Fn() -> Result<u16>, command: impl Fn(u16) -> Result<Command>) -> Result<(Self, u16)> {
        let mut attempts = Vec::new();
        while attempts.len() < ATTEMPTS {
            let port = free()?;
            let mut server = Self::start(&mut command(port)?)?;
            match server.wait(port) {
                Ok(()) => return Ok((server, port)),
                Err(error) => attempts.push(format!("port {port}: {error:#}")),
            }
        }
        bail!("{}", attempts.join("; "))
    }

    /// Waits until the port is its own, whether of TCP or UDP.
    ///
    /// # Errors
    /// When the process ends, or does not serve in [`START_MAX`].
    pub fn wait(&mut self, port: u16) -> Result<()> {
        let until = Instant::now() + START_MAX;
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended with {status}: {}", self.said());
            }
            if has_udp_socket(port)? || TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Ok(());
            }
            ensure!(Instant::now() < until, "it does not serve: {}", self.said());
            sleep(Duration::from_millis(20));
        }
    }

    fn said(&mut self) -> String {
        let mut said = String::new();
        // Only the report of a failure misses it.
        let _ = self.said.rewind();
        let _ = self.said.read_to_string(&mut said);
        said
    }

    /// The process identifier.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Errors were reported before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether somebody has the port for UDP, by what the kernel lists. To try bind(2) would take it from the server.
fn has_udp_socket(port: u16) -> Result<bool> {
    let end = format!(":{port:04X}");
    let is_there = |line: &str| line.split_whitespace().nth(1).is_some_and(|local| local.ends_with(&end));
    let listed = fs::read_to_string("/proc/net/udp")? + &fs::read_to_string("/proc/net/udp6").unwrap_or_default();
    Ok(listed.lines().any(is_there))
}

/// A TCP port of loopback that is free now.
///
/// # Errors
/// When there is none.
pub fn free_tcp_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A UDP port of loopback that is free now.
///
/// # Errors
/// When there is none.
pub fn free_udp_port() -> Result<u16> {
    Ok(UdpSocket::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// The path of a program: Debian has servers in a directory that is not on everybody's path.
#[must_use]
pub fn program(name: &str) -> String {
    let there = Path::new("/usr/sbin").join(name);
    if there.exists() { there.display().to_string() } else { name.to_owned() }
}
