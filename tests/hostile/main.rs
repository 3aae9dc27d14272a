//! What must not end the gateway, nor grow it past 200 MB, nor slow a well-behaved client more than ten times.
//!
//! Every attack gets a fresh gateway. A client measures its round trips before and all through the attack, and a bare
//! echo beside it what the machine – two cores for attacker, gateway and clients – does to everybody; afterwards the
//! process has to be alive, every door has to answer, and the peak of its resident set is read from the kernel.

mod coap;
mod connections;
mod http;
mod mqtt;
mod mqtt_load;
mod xmpp;

use std::fmt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::probe::Probe;
use fogmux_tests::suite::{self, Case};
use fogmux_tests::{coap as datagram, tcp};

const RESIDENT_BYTES_MAX: u64 = 200_000_000;
const SLOWER_MAX: u32 = 10;
/// Round trips below this are noise on a shared machine with a gateway that was built without optimisation; ten times it
/// is the least bound.
const P99_FLOOR: Duration = Duration::from_millis(10);
/// How often a delay has to show to be believed.
const ATTEMPTS: usize = 3;
/// Sockets on our side: 10 000 connections and what the suite itself needs.
const FILES: u64 = 12_000;

fn main() -> ExitCode {
    if let Err(error) = raise_file_limit() {
        println!("{error:#}");
        return ExitCode::FAILURE;
    }
    let cases: Vec<Case> =
        [mqtt::CASES, mqtt_load::CASES, coap::CASES, http::CASES, xmpp::CASES, connections::CASES].concat();
    suite::run("hostile", &cases)
}

/// Runs one attack against a fresh gateway with the built-in defaults and checks what holds for all of them.
fn attack(attack: fn(&Gateway) -> Result<String>) -> Result<String> {
    attack_with(&[], attack)
}

/// The same with settings, each `KEY=VALUE`.
///
/// Only too long a delay is measured again: one that the gateway causes is there every time, one that the machine caused
/// is not.
fn attack_with(settings: &[&str], attack: fn(&Gateway) -> Result<String>) -> Result<String> {
    let mut attempts = Vec::new();
    while attempts.len() < ATTEMPTS {
        let trial = attacked(settings, attack)?;
        if trial.during <= trial.bound {
            return Ok(format!("({trial})"));
        }
        attempts.push(trial.to_string());
    }
    bail!("a well-behaved client was slowed down every time:\n  {}", attempts.join("\n  "))
}

/// What one attack did to a well-behaved client, and what was tolerable.
struct Trial {
    told: String,
    before: Duration,
    during: Duration,
    machine: Duration,
    bound: Duration,
    peak_bytes: u64,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { told, before, during, machine, peak_bytes, .. } = self;
        write!(f, "{told}; p99 {before:.1?} -> {during:.1?}, echo {machine:.1?}, peak {} MB", peak_bytes / 1_000_000)
    }
}

fn attacked(settings: &[&str], attack: fn(&Gateway) -> Result<String>) -> Result<Trial> {
    let mut gateway = Gateway::start(settings)?;
    let before = Probe::mqtt(gateway.address("mqtt")?)?.p99()?;
    let (probe, echo) = (Probe::mqtt(gateway.address("mqtt")?)?, Probe::echo()?);
    let outcome = attack(&gateway);
    gateway.check_alive()?;
    let (during, machine) = (probe.p99(), echo.p99()?);
    let told = outcome?;
    let during = during?;
    every_door_answers(&gateway).with_context(|| gateway.log())?;
    gateway.check_alive()?;
    let peak_bytes = gateway.peak_resident_bytes()?;
    ensure!(peak_bytes <= RESIDENT_BYTES_MAX, "it grew to {} MB; {told}", peak_bytes / 1_000_000);
    let bound = before.max(machine).max(P99_FLOOR) * SLOWER_MAX;
    Ok(Trial { told, before, during, machine, bound, peak_bytes })
}

/// A newcomer is served at each door.
fn every_door_answers(gateway: &Gateway) -> Result<()> {
    fogmux_tests::mqtt::Connection::open(gateway.address("mqtt")?, 5, "after").context("MQTT")?;
    let health = tcp::ask(gateway.address("http")?, b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    ensure!(health.starts_with(b"HTTP/1.1 200"), "HTTP answers {}", String::from_utf8_lossy(&health));
    let socket = datagram::endpoint(gateway.address("coap")?)?;
    let get = datagram::request(datagram::CON, datagram::GET, 7, b"tk", "after/all", &[], b"");
    let answer = datagram::exchange(&socket, &get, b"tk").context("CoAP")?;
    // 4.01 asks for an Echo where addresses have to be proved.
    ensure!(
        matches!(datagram::dotted(&answer).as_str(), "4.04" | "4.01"),
        "CoAP answers {}",
        datagram::dotted(&answer)
    );
    let config = fogmux_tests::tls::config(gateway.ca())?;
    fogmux_tests::xmpp::Session::anonymous(&config, gateway.address("xmpps")?).context("XMPP").map(drop)
}

/// Starts itself again with as many files as the system lets it have, when it has too few.
fn raise_file_limit() -> Result<()> {
    let limits = std::fs::read_to_string("/proc/self/limits")?;
    let line = limits.lines().find(|line| line.starts_with("Max open files")).context("no limit of files")?;
    let mut words = line.split_whitespace().skip(3).map(|word| word.parse().unwrap_or(u64::MAX));
    let (soft, hard) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
    if soft >= FILES {
        return Ok(());
    }
    ensure!(hard >= FILES, "10 000 connections need a limit of {FILES} open files; `ulimit -Hn` says {hard}");
    let program = std::env::current_exe()?;
    let status = Command::new("prlimit")
        .arg(format!("--nofile={hard}:{hard}"))
        .arg(program)
        .args(std::env::args().skip(1))
        .status()
        .context("prlimit (util-linux)")?;
    std::process::exit(status.code().unwrap_or(1));
}
