//! An interface that gets its address after the start, as Wi-Fi does, and loses it again.

use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::suite::Case;
use fogmux_tests::tcp::PATIENCE;
use rustix::process::{Pid, Signal, kill_process};

use super::{discovery, listeners};

pub(crate) const LATER: Case =
    Case { name: "operation: a listener at an address that no interface has opens when one has it", run: later };

/// The addresses that come later.
const ADDRESSES: [&str; 2] = ["192.0.2.9/24", "fd00::9/64"];

/// Commands in the network of the gateway.
struct Inside {
    pid: String,
    flags: &'static [&'static str],
}

impl Inside {
    fn run(&self, words: &[&str]) -> Result<Output> {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.pid]).args(self.flags).args(words);
        command.output().with_context(|| words.join(" "))
    }

    fn is_success(&self, words: &[&str]) -> Result<bool> {
        Ok(self.run(words)?.status.success())
    }

    fn ready(&self) -> Result<String> {
        let output = self.run(&["curl", "-sS", "http://127.0.0.1:8080/readyz"])?;
        Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    }

    fn publish(&self, host: &str) -> Result<bool> {
        self.is_success(&["mosquitto_pub", "-V", "5", "-q", "1", "-h", host, "-t", "a", "-m", "x"])
    }

    fn get(&self, uri: &str) -> Result<bool> {
        let output = self.run(&["coap-client-openssl", "-B", "5", "-m", "get", uri])?;
        Ok(String::from_utf8_lossy(&output.stdout).contains("</ps>"))
    }
}

fn later() -> Result<String> {
    let Some(flags) = discovery::alone()? else { return Ok("(skipped: no network namespaces here)".to_owned()) };
    let home = tempfile::tempdir()?;
    let listener = |name: &str, kind: &str, port: u16| {
        format!(
            "[listeners.{name}]\nkind = \"{kind}\"\nenabled = true\nallow_plaintext = true\n\
             allow_remote_anonymous = true\naddress = [\"192.0.2.9:{port}\", \"[fd00::9]:{port}\"]\n"
        )
    };
    let text = "[listeners.defaults]\nenabled = false\n[listeners.http]\nenabled = true\naddress = \"127.0.0.1:8080\"\n"
        .to_owned()
        + &listener("lan", "mqtt", 1883) + &listener("lan_coap", "coap", 5683);
    std::fs::create_dir(home.path().join("data"))?;
    let everybody = "[[allow]]\nanonymous = true\nread = [\"#\"]\nwrite = [\"#\"]\n";
    std::fs::write(home.path().join("data/acl.toml"), everybody)?;
    let mut launcher = Command::new("unshare");
    launcher.args(flags).args(["sh", "-c", discovery::NETWORK, "sh"]);
    launcher.arg(std::env::var("FOGMUX_BIN").context("FOGMUX_BIN")?);
    let (mut gateway, _) = listeners::serve_by(launcher, home.path(), &text)?;
    let inside: &[&str] = if flags == ["-n"] { &["-n"] } else { &["-U", "--preserve-credentials", "-n"] };
    let outcome = comes_and_goes(&Inside { pid: gateway.id().to_string(), flags: inside }, home.path());
    kill_process(Pid::from_child(&gateway), Signal::TERM)?;
    let status = gateway.wait()?;
    let log = std::fs::read_to_string(home.path().join("log"))?;
    outcome.with_context(|| log.clone())?;
    ensure!(status.success(), "{status}\n{log}");
    Ok("MQTT and CoAP, 192.0.2.9 and fd00::9".to_owned())
}

fn comes_and_goes(inside: &Inside, home: &Path) -> Result<()> {
    let said = inside.ready()?;
    for shut in ["lan: 192.0.2.9:1883", "lan: [fd00::9]:1883", "lan_coap: 192.0.2.9:5683", "lan_coap: [fd00::9]:5683"] {
        ensure!(said.contains(&format!("listeners.{shut} is not open")), "{shut}: {said}");
    }
    let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN")?;
    let (file, data) = (home.join("fogmux.toml").display().to_string(), home.join("data").display().to_string());
    let doctor = inside.run(&[&binary, "doctor", "--config", &file, "--data", &data])?;
    let found = String::from_utf8_lossy(&doctor.stdout).into_owned();
    ensure!(found.contains("listener-not-open") && found.contains("no interface"), "{found}");
    for address in ADDRESSES {
        let family = if address.contains(':') { &["nodad"][..] } else { &[] };
        let added = inside.is_success(&[&["ip", "address", "add", address, "dev", "lan"], family].concat())?;
        ensure!(added, "{address} was not added");
    }
    let began = Instant::now();
    while inside.ready()? != "ready\n" {
        ensure!(began.elapsed() < PATIENCE, "{}", inside.ready()?);
        thread::sleep(Duration::from_millis(100));
    }
    let is_served = || -> Result<()> {
        ensure!(inside.publish("192.0.2.9")? && inside.publish("fd00::9")?, "mosquitto was refused");
        for uri in ["coap://192.0.2.9/.well-known/core", "coap://[fd00::9]/.well-known/core"] {
            ensure!(inside.get(uri)?, "{uri} was not answered");
        }
        Ok(())
    };
    is_served()?;
    // An open socket keeps its address, whatever the interface does: when that has it again, clients are back.
    for address in ADDRESSES {
        ensure!(inside.is_success(&["ip", "address", "del", address, "dev", "lan"])?, "{address} was not removed");
    }
    ensure!(!inside.publish("192.0.2.9")?, "mosquitto reached an address that nobody has");
    for address in ADDRESSES {
        let family = if address.contains(':') { &["nodad"][..] } else { &[] };
        inside.run(&[&["ip", "address", "add", address, "dev", "lan"], family].concat())?;
    }
    is_served().context("after the address had gone and come")
}
