//! Multicast DNS, with python-zeroconf as the client and as another host that has a name already.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::suite::Case;
use fogmux_tests::tcp::PATIENCE;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::discovery::{NETWORK, alone};
use super::listeners::serve_by;

pub(super) const FOUND: Case =
    Case { name: "operation: zeroconf finds the gateway by multicast DNS until it shuts down", run: found };
pub(super) const TAKEN: Case =
    Case { name: "operation: a name that another host has in multicast DNS is left to it", run: taken };
pub(super) const LATER: Case = Case {
    name: "operation: an interface that comes later is told by multicast DNS, and each tells what it has",
    run: later,
};

const LISTENERS: &str = "[discovery]\nmdns = true\nname = \"Küche\"\n\
    [listeners.mqtt]\naddress = \"0.0.0.0:1883\"\nallow_plaintext = true\n\
    [listeners.mqtt_two]\nkind = \"mqtt\"\naddress = \"192.0.2.1:1884\"\nallow_plaintext = true\n\
    [listeners.mqtts]\naddress = \"192.0.2.1:8883\"\n\
    [listeners.coap]\naddress = \"192.0.2.1:5683\"\nallow_plaintext = true\n\
    [listeners.coaps]\naddress = \"192.0.2.1:5684\"\n\
    [listeners.http]\naddress = \"192.0.2.1:8080\"\nallow_plaintext = true\n\
    [listeners.https]\naddress = \"[fd00::1]:8443\"\n\
    [listeners.xmpp]\naddress = \"192.0.2.1:5222\"\n[xmpp]\ndomain = \"fog.example\"\n";

/// Services that zeroconf finds of them.
const SERVICES: usize = 8;

/// Told when the names are the gateway's.
const TOLD: &str = "this gateway is found by multicast DNS";

/// A network namespace that lasts as long as this.
struct Network {
    holder: Child,
    flags: &'static [&'static str],
}

impl Network {
    fn new(flags: &'static [&'static str]) -> Result<Self> {
        let mut command = Command::new("unshare");
        command.args(flags).args(["sh", "-c", NETWORK, "sh", "sh", "-c", "echo up; exec cat"]);
        let mut holder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(holder.stdout.take().context("no output")?).read_line(&mut line)?;
        ensure!(line == "up\n", "the network is not up: {line:?}");
        Ok(Self { holder, flags })
    }

    /// A command that runs inside.
    fn command(&self, program: &str) -> Command {
        let inside: &[&str] = if self.flags == ["-n"] { &["-n"] } else { &["-U", "--preserve-credentials", "-n"] };
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.holder.id().to_string()]).args(inside).arg(program);
        command
    }

    fn gateway(&self, home: &Path) -> Result<Gateway> {
        let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN")?;
        let (process, _) = serve_by(self.command(&binary), home, LISTENERS)?;
        let gateway = Gateway { process, log: home.join("log").display().to_string() };
        gateway.wait_log(TOLD)?;
        Ok(gateway)
    }

    fn client(&self, arguments: &[&str]) -> Result<Client> {
        let clients =
            std::env::var("FOGMUX_CLIENTS").context("FOGMUX_CLIENTS names no place; use `cargo xtask test`")?;
        let python = Path::new(&clients).join("venv/bin/python");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("delivery/operation/mdns_client.py");
        let mut command = self.command(&python.display().to_string());
        let mut process = command.arg(script).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = process.stdin.take().context("no input")?;
        let steps = BufReader::new(process.stdout.take().context("no output")?).lines();
        Ok(Client { process, input: Some(input), steps })
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // It ends with its input.
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

struct Gateway {
    process: Child,
    log: String,
}

impl Gateway {
    fn wait_log(&self, what: &str) -> Result<String> {
        let began = Instant::now();
        loop {
            let log = std::fs::read_to_string(&self.log)?;
            if let Some(line) = log.lines().find(|line| line.contains(what)) {
                return Ok(line.to_owned());
            }
            ensure!(began.elapsed() < PATIENCE, "no {what:?} in\n{log}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn stop(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.process), Signal::TERM)?;
        let status = self.process.wait()?;
        ensure!(status.success(), "{status}\n{}", std::fs::read_to_string(&self.log)?);
        Ok(())
    }
}

/// The client, whose steps are lines of JSON. It ends by itself after a while, and then there is no next step.
struct Client {
    process: Child,
    input: Option<ChildStdin>,
    steps: Lines<BufReader<ChildStdout>>,
}

impl Client {
    fn next(&mut self) -> Result<Value> {
        let line = self.steps.next().context("zeroconf has ended")??;
        Ok(serde_json::from_str(&line)?)
    }

    /// The next steps, by the names of their services.
    fn services(&mut self, what: &str, count: usize) -> Result<Vec<Value>> {
        let mut steps: Vec<Value> = (0..count).map(|_| self.next()).collect::<Result<_>>()?;
        ensure!(steps.iter().all(|step| step.get(what).is_some()), "{steps:?}");
        steps.sort_by_key(|step| step.get(what).map(Value::to_string));
        Ok(steps)
    }

    fn stop(mut self) -> Result<()> {
        if let Some(mut input) = self.input.take() {
            input.flush()?;
        }
        ensure!(self.process.wait()?.success(), "zeroconf failed");
        Ok(())
    }
}

fn found() -> Result<String> {
    let Some(flags) = alone()? else { return Ok("(skipped: no network namespaces here)".to_owned()) };
    let (network, home) = (Network::new(flags)?, tempfile::tempdir()?);
    let gateway = network.gateway(home.path())?;
    // Those over TCP with CoAP, and XMPP over TLS, are open on loopback only.
    let types = [
        "_coap._udp.local.",
        "_coaps._udp.local.",
        "_http._tcp.local.",
        "_https._tcp.local.",
        "_mqtt._tcp.local.",
        "_secure-mqtt._tcp.local.",
        "_xmpp-client._tcp.local.",
    ];
    let sought = [&types[..], &["_coap._tcp.local.", "_coaps._tcp.local.", "_xmpps-client._tcp.local."]].concat();
    let mut browsers = Vec::new();
    for (version, interface) in [("4", "192.0.2.1"), ("6", "fd00::1")] {
        let mut browser = network.client(&[&["browse", version, interface], &sought[..]].concat())?;
        let all = browser.next()?;
        ensure!(all == json!({"types": types}), "{all}");
        let services = browser.services("added", SERVICES)?;
        let server = services.first().and_then(|one| one.get("server")?.as_str()).context("no server")?.to_owned();
        ensure!(server.ends_with("-fogmux.local."), "{server}");
        let service = |name: &str, port: u16, txt: Value| json!({"added": name, "port": port, "server": server, "addresses": ["192.0.2.1", "fd00::1"], "txt": txt});
        let http = json!({"path": "/", "mqtt": "/mqtt", "coap": "/.well-known/coap"});
        let expected = [
            service("Küche 1884._mqtt._tcp.local.", 1884, json!({"": null})),
            service("Küche._coap._udp.local.", 5683, json!({"": null})),
            service("Küche._coaps._udp.local.", 5684, json!({"": null})),
            service("Küche._http._tcp.local.", 8080, http.clone()),
            service("Küche._https._tcp.local.", 8443, http),
            service("Küche._mqtt._tcp.local.", 1883, json!({"": null})),
            service("Küche._secure-mqtt._tcp.local.", 8883, json!({"": null})),
            service("Küche._xmpp-client._tcp.local.", 5222, json!({"domain": "fog.example"})),
        ];
        ensure!(services == expected, "by IPv{version}: {services:#?}");
        browsers.push(browser);
    }
    // The name is defended.
    let mut other = network.client(&["claim", "192.0.2.1", "_mqtt._tcp.local.", "Küche"])?;
    ensure!(other.next()? == json!({"claimed": false}), "another host took the name");
    other.stop()?;
    gateway.stop()?;
    for mut browser in browsers {
        browser.services("removed", SERVICES).context("after the shutdown")?;
        browser.stop()?;
    }
    Ok(format!("{SERVICES} services by IPv4 and IPv6, and none after the shutdown"))
}

fn later() -> Result<String> {
    let Some(flags) = alone()? else { return Ok("(skipped: no network namespaces here)".to_owned()) };
    let (network, home) = (Network::new(flags)?, tempfile::tempdir()?);
    let gateway = network.gateway(home.path())?;
    let made = "ip link add late type veth peer name beyond && ip link set beyond up && \
                ip address add 198.51.100.1/24 dev late && ip link set late up";
    ensure!(network.command("sh").args(["-c", made]).status()?.success(), "no second interface");
    let types = ["_mqtt._tcp.local.", "_https._tcp.local.", "_xmpp-client._tcp.local."];
    let mut browser = network.client(&[&["browse", "4", "198.51.100.1"], &types[..]].concat())?;
    browser.next()?;
    // The others are at addresses of the first interface.
    let service = browser.next()?;
    let is_it = service.get("added") == Some(&json!("Küche._mqtt._tcp.local."));
    ensure!(is_it && service.get("addresses") == Some(&json!(["198.51.100.1"])), "{service}");
    gateway.stop()?;
    browser.services("removed", 1).context("after the shutdown")?;
    browser.stop()?;
    Ok("the listener of all addresses, at the one of that interface".to_owned())
}

fn taken() -> Result<String> {
    let Some(flags) = alone()? else { return Ok("(skipped: no network namespaces here)".to_owned()) };
    let (network, home) = (Network::new(flags)?, tempfile::tempdir()?);
    let mut other = network.client(&["claim", "192.0.2.1", "_mqtt._tcp.local.", "Küche"])?;
    ensure!(other.next()? == json!({"claimed": true}), "zeroconf did not get the name");
    let gateway = network.gateway(home.path())?;
    let line = gateway.wait_log(TOLD)?;
    ensure!(line.contains("Küche (2)"), "{line}");
    let mut browser = network.client(&["browse", "4", "192.0.2.1", "_mqtt._tcp.local."])?;
    browser.next()?;
    let services = browser.services("added", 3)?;
    let told = |service: &Value| Some((service.get("added")?.as_str()?.to_owned(), service.get("port")?.as_u64()?));
    let told: Vec<_> = services.iter().filter_map(told).collect();
    let name = |label: &str| format!("{label}._mqtt._tcp.local.");
    ensure!(told == [(name("Küche (2)"), 1883), (name("Küche 1884 (2)"), 1884), (name("Küche"), 1)], "{told:?}");
    gateway.stop()?;
    browser.services("removed", 2).context("after the shutdown")?;
    browser.stop()?;
    other.stop()?;
    Ok("\"Küche (2)\" beside the other host's \"Küche\"".to_owned())
}
