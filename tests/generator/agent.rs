//! Two hosts that are two processes: an agent that starts gateways, and a generator that drives them.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fogmux_tests::suite::Case;
use openssl::ssl::{SslConnector, SslFiletype, SslMethod, SslVerifyMode};
use serde_json::Value;
use tempfile::TempDir;

use crate::{bench, check, lasting, number, outcomes, parse};

pub(crate) const CASES: &[Case] = &[
    Case { name: "an agent's gateway is driven, and its processor time comes with it", run: driven },
    Case { name: "an agent lets no stranger in, and one generator at a time", run: strangers },
    Case { name: "an agent's gateway ends with the generator, and with the agent", run: ends },
];

const PATIENCE: Duration = Duration::from_secs(30);
const SHORT: [&str; 6] = ["--seconds", "0.4", "--warm-up", "0.1", "--repeat", "1"];
const LONG: [&str; 4] = ["--seconds", "60", "--repeat", "1"];

/// A running agent, with a directory for its keys and one for what its gateways leave.
struct Agent {
    process: Child,
    place: TempDir,
    address: String,
    key: PathBuf,
}

impl Agent {
    fn start() -> Result<Self> {
        let place = tempfile::tempdir()?;
        let temporary = place.path().join("tmp");
        fs::create_dir(&temporary)?;
        let keys = place.path().join("keys").display().to_string();
        let mut agent = bench(&["agent", "--listen", "127.0.0.1:0", "--keys", &keys, "--json"])?;
        let mut process = agent.env("TMPDIR", temporary).spawn()?;
        let mut line = String::new();
        BufReader::new(process.stdout.take().context("no standard output")?).read_line(&mut line)?;
        let said: Value = serde_json::from_str(&line).with_context(|| format!("it said {line:?}"))?;
        let word = |name: &str| said.get(name).and_then(Value::as_str).map(str::to_owned).context(line.clone());
        Ok(Self { process, place, address: word("address")?, key: word("agent_key")?.into() })
    }

    /// The words of a run with it.
    fn words(&self, words: &[&str]) -> Vec<String> {
        let key = self.key.display().to_string();
        [&["run", "--agent", &self.address, "--agent-key", &key], words]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .collect()
    }

    /// `fogmux bench run` with it and these words.
    fn run(&self, key: &Path, words: &[&str]) -> Result<Command> {
        let key = key.display().to_string();
        let common = ["run", "--json", "--agent", &self.address, "--agent-key", &key];
        bench(&[&common[..], words].concat())
    }

    /// A generator at work with a gateway of it. The one before may not have been seen off yet, and then this one is
    /// told to come again.
    fn drive(&self) -> Result<Child> {
        let until = Instant::now() + PATIENCE;
        let mut driver = self.run(&self.key, &LONG)?.spawn()?;
        while !serving_children(self.process.id()) {
            ensure!(Instant::now() < until, "no gateway runs after {PATIENCE:?}");
            if driver.try_wait()?.is_some() {
                driver = self.run(&self.key, &LONG)?.spawn()?;
            }
            sleep(Duration::from_millis(10));
        }
        Ok(driver)
    }

    /// Whether there is a gateway of it, now or soon.
    fn serves(&self, wanted: bool) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        while serving_children(self.process.id()) != wanted {
            ensure!(Instant::now() < until, "a gateway runs: {}, and after {PATIENCE:?} still", !wanted);
            sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Its gateways leave nothing behind: their files go after their processes.
    fn leaves_nothing(&self) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        while fs::read_dir(self.place.path().join("tmp"))?.next().is_some() {
            ensure!(Instant::now() < until, "something is left of the gateways after {PATIENCE:?}");
            sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Errors were reported before. A process that has ended may have passed its id on to another one.
        if matches!(self.process.try_wait(), Ok(None)) {
            let _ = terminate(self.process.id());
        }
        let until = Instant::now() + PATIENCE;
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < until {
            sleep(Duration::from_millis(20));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn driven() -> Result<String> {
    let agent = Agent::start()?;
    let table: &[&[&str]] = &[
        &["--door", "mqtt", "--qos", "1"],
        &["--door", "mqtt5", "--to", "http1", "--qos", "1", "--security", "high", "--rate", "200"],
        &["--door", "coap", "--security", "psk", "--operation", "put", "--qos", "1"],
        &["--door", "coap", "--security", "oscore", "--operation", "get", "--window", "1"],
        &["--door", "coap", "--coap-answer", "separate", "--operation", "get", "--window", "1"],
        &["--door", "http2", "--security", "modern", "--credential", "token", "--operation", "get"],
        &["--door", "mqtt", "--operation", "connect", "--security", "modern", "--messages", "1", "--qos", "1"],
    ];
    for row in table {
        let words = agent.words(&[*row, &["--warm-up", "0.1", "--repeat", "1"]].concat());
        let report = lasting(&words.iter().map(String::as_str).collect::<Vec<_>>()).with_context(|| row.join(" "))?;
        ensure!(report.pointer("/gateway_environment/cores").is_some(), "the gateway's machine is not described");
        for outcome in outcomes(&report).with_context(|| row.join(" "))? {
            check(outcome).with_context(|| row.join(" "))?;
            // The origin that answers separately has no process of its own.
            if row.contains(&"separate") {
                continue;
            }
            let used = outcome.get("gateway").with_context(|| format!("{}: no processor time", row.join(" ")))?;
            ensure!(number(used, "cpu_us")? > 0.0 && number(used, "resident_bytes")? > 0.0, "{used}");
            ensure!(used.get("elsewhere") == Some(&Value::Bool(true)), "{used}");
            let settings = outcome.get("settings").and_then(Value::as_array).context("no settings")?;
            let is_place = |setting: &Value| setting.as_str().is_none_or(|setting| setting.contains(".address="));
            ensure!(!settings.is_empty() && !settings.iter().any(is_place), "{settings:?}");
        }
    }
    agent.serves(false)?;
    agent.leaves_nothing()?;
    let link = agent.run(&agent.key, &["--link", "lossless"])?.output()?;
    ensure!(!link.status.success(), "a link of ours does not reach another host");
    Ok(format!("({} experiments)", table.len()))
}

fn strangers() -> Result<String> {
    let (agent, other) = (Agent::start()?, Agent::start()?);
    let refused = |output: Output, why: &str| {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(!output.status.success() && said.contains(why), "{}: {said}", output.status);
        Ok(())
    };
    // Each knows its own authority only, so that neither end believes the other.
    refused(agent.run(&other.key, &SHORT)?.output()?, "the agent at")?;
    let without = unbelieved(&agent.address, None)?;
    let foreign = unbelieved(&agent.address, Some(&other.key))?;
    let mut first = agent.run(&agent.key, &LONG)?.spawn()?;
    agent.serves(true)?;
    // It waits for some seconds, as the first may be about to leave.
    let second = agent.run(&agent.key, &SHORT)?.output()?;
    first.kill()?;
    first.wait()?;
    refused(second, "another generator is at work")?;
    agent.serves(false)?;
    parse(&agent.run(&agent.key, &SHORT)?.output()?)?;
    Ok(format!("(without a certificate: {without}; with another agent's: {foreign})"))
}

/// Believes whoever answers, and shows nothing, or what another agent has made; says how that ended.
fn unbelieved(address: &str, key: Option<&Path>) -> Result<String> {
    let mut connector = SslConnector::builder(SslMethod::tls())?;
    connector.set_verify(SslVerifyMode::NONE);
    if let Some(key) = key {
        connector.set_certificate_chain_file(key)?;
        connector.set_private_key_file(key, SslFiletype::PEM)?;
    }
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut stream = match connector.build().connect("fogmux-agent", stream) {
        Ok(stream) => stream,
        Err(error) => return Ok(error.to_string()),
    };
    // TLS 1.3: the client's handshake is over before the server has looked at its certificate.
    let text = br#"{"ask":"greet","version":1}"#;
    let _ = stream.write_all(&[&u32::try_from(text.len())?.to_be_bytes()[..], text].concat());
    match stream.read(&mut [0; 1]) {
        Ok(0) => Ok("the connection ended".to_owned()),
        Ok(_) => anyhow::bail!("the agent answers a stranger"),
        Err(error) => Ok(error.to_string()),
    }
}

fn ends() -> Result<String> {
    let mut agent = Agent::start()?;
    let mut driver = agent.drive()?;
    driver.kill()?;
    driver.wait()?;
    agent.serves(false)?;
    let mut driver = agent.drive()?;
    terminate(agent.process.id())?;
    let ended = agent.process.wait()?;
    ensure!(ended.success(), "asked to end, the agent ended with {ended}");
    let said = driver.wait()?;
    ensure!(!said.success(), "without an agent nothing was measured, and the generator says it was");
    agent.leaves_nothing()?;
    Ok(String::new())
}

/// Whether one of the process's children is `fogmux serve`. A child is listed with the thread that has started it.
fn serving_children(parent: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let children = tasks.map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
    let serves = |child: &str| {
        let words = fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|word| word == b"serve")
    };
    children.collect::<Vec<_>>().iter().flat_map(|listed| listed.split_ascii_whitespace()).any(serves)
}

fn terminate(process: u32) -> Result<()> {
    let status = Command::new("kill").args(["-TERM", &process.to_string()]).status()?;
    ensure!(status.success(), "kill -TERM {process}: {status}");
    Ok(())
}
