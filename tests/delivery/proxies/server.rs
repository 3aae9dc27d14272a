//! A real proxy in a directory of its own.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::tcp;

/// A running proxy; dropped, it is killed.
pub(super) struct Server {
    child: Child,
    addresses: Vec<SocketAddr>,
    home: tempfile::TempDir,
}

impl Server {
    /// Starts a program, unless it is not installed, with the file `config` in its working directory, which is to have
    /// it listen on so many addresses.
    pub(super) fn start(
        program: &str,
        arguments: &[&str],
        listeners: usize,
        config: impl Fn(&[SocketAddr]) -> String,
    ) -> Result<Option<Self>> {
        // Debian keeps servers where not everybody looks for programs.
        let places = std::env::var_os("PATH").unwrap_or_default();
        let mut places = std::env::split_paths(&places).chain([Path::new("/usr/sbin").to_owned()]);
        let Some(program) = places.find_map(|place| Some(place.join(program)).filter(|file| file.is_file())) else {
            return Ok(None);
        };
        let home = tempfile::tempdir()?;
        // Free until somebody takes them: the proxy opens them a moment later.
        let free: Vec<TcpListener> =
            (0..listeners).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
        let addresses: Vec<SocketAddr> = free.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?;
        std::fs::write(home.path().join("config"), config(&addresses))?;
        let log = std::fs::File::create(home.path().join("log"))?;
        drop(free);
        let mut command = Command::new(&program);
        command.args(arguments).current_dir(home.path()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().with_context(|| program.display().to_string())?;
        let mut server = Self { child, addresses, home };
        let deadline = Instant::now() + tcp::PATIENCE;
        while !server.addresses.iter().all(|address| TcpStream::connect(address).is_ok()) {
            let log = || std::fs::read_to_string(server.home.path().join("log")).unwrap_or_default();
            ensure!(server.child.try_wait()?.is_none() && Instant::now() < deadline, "it does not listen: {}", log());
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Some(server))
    }

    /// The address of one of its listeners.
    pub(super) fn address(&self, number: usize) -> Result<SocketAddr> {
        self.addresses.get(number).copied().with_context(|| format!("no listener {number}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}
