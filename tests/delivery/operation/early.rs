//! Signals in the moment in which the first door answers, before the gateway says that it is ready; and first starts
//! that are killed.

use std::net::{TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fogmux_tests::suite::Case;
use fogmux_tests::tcp::PATIENCE;
use rustix::process::{Pid, Signal, kill_process};

pub(crate) const SIGNALS: Case =
    Case { name: "operation: a gateway whose doors answer handles signals", run: || signals(&[0, 5, 20, 50, 100]) };

pub(crate) const KILLED: Case =
    Case { name: "operation: a first start that is killed at any file is followed by another", run: killed };

/// Files of the data directory, in the order in which the first start makes them.
const FILES: [&str; 6] =
    ["pki/ca.pem.new", "pki/ca.key", "pki/ca.pem", "pki/server.key", "pki/server.pem", "users.toml"];
/// The listeners that are not asked: their default ports may be taken.
const OTHERS: [&str; 9] = ["mqtts", "coap", "coaps", "coap_tcp", "coaps_tcp", "http", "https", "xmpp", "xmpps"];

/// Sends SIGHUP, which is to be survived, and SIGTERM, which is to be obeyed, so many milliseconds after the door
/// opens.
fn signals(delays: &[u64]) -> Result<String> {
    let mut wrong = Vec::new();
    for delay in delays.iter().copied() {
        for first in [Signal::TERM, Signal::HUP] {
            let home = tempfile::tempdir()?;
            let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
            let mut gateway = serve(&home.path().join("data"), port)?;
            wait_for(&mut gateway, port)?;
            std::thread::sleep(Duration::from_millis(delay));
            let pid = Pid::from_child(&gateway);
            kill_process(pid, first)?;
            if first == Signal::HUP {
                std::thread::sleep(Duration::from_millis(100));
                // It may have ended, which its status says.
                let _ = kill_process(pid, Signal::TERM);
            }
            let status = gateway.wait()?;
            if !status.success() {
                wrong.push(format!(
                    "{first:?} after {delay} ms: signal {:?}, code {:?}",
                    status.signal(),
                    status.code()
                ));
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    Ok(format!("{delays:?} ms"))
}

/// Kills first starts, each as soon as a file is there, and starts again in what they leave.
fn killed() -> Result<String> {
    for file in FILES {
        let home = tempfile::tempdir()?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let data = home.path().join("data");
        let mut gateway = serve(&data, port)?;
        let (file, began) = (data.join(file), Instant::now());
        while !file.exists() && gateway.try_wait()?.is_none() && TcpStream::connect(("127.0.0.1", port)).is_err() {
            ensure!(began.elapsed() < PATIENCE, "no {} is made", file.display());
        }
        gateway.kill()?;
        gateway.wait()?;
        let mut gateway = serve(&data, port)?;
        wait_for(&mut gateway, port).with_context(|| format!("killed when there was {}", file.display()))?;
        kill_process(Pid::from_child(&gateway), Signal::TERM)?;
        let status = gateway.wait()?;
        ensure!(status.success(), "{status}");
    }
    Ok(FILES.join(", "))
}

fn serve(data: &Path, port: u16) -> Result<Child> {
    let gateway = Command::new(std::env::var("FOGMUX_BIN").context("FOGMUX_BIN names no gateway")?)
        .args(["serve", "--set", &format!("listeners.mqtt.address=127.0.0.1:{port}"), "--data"])
        .arg(data)
        .args(OTHERS.iter().flat_map(|name| ["--set".to_owned(), format!("listeners.{name}.enabled=false")]))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    Ok(gateway)
}

fn wait_for(gateway: &mut Child, port: u16) -> Result<()> {
    let began = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        ensure!(began.elapsed() < PATIENCE, "no door answers");
        if let Some(status) = gateway.try_wait()? {
            bail!("{status}");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
