//! Attacks that must neither end the gateway, nor grow it past 200 MB, nor slow a well-behaved client more than ten
//! times.
//!
//! Every attack gets a fresh gateway. A client measures its round trips before and all through the attack, and a bare
//! echo beside it what the machine – two cores for attacker, gateway and clients – does to everybody; afterwards the
//! process has to be alive, every door has to answer, and the peak of its resident set is read from the kernel.

mod coap;
mod coap_tcp;
mod connections;
mod dtls;
mod dtls_sessions;
mod http;
mod mqtt;
mod mqtt_load;
mod proxy;
mod xmpp;

use std::fmt;
use std::io::Write;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::probe::Probe;
use fogmux_tests::suite::{self, Case};
use fogmux_tests::{coap as datagram, tcp};

const RESIDENT_BYTES_MAX: u64 = 200_000_000;
const SLOWER_MAX: u32 = 10;
/// Memory is returned within this time after the last client has gone.
const AFTER: Duration = Duration::from_secs(10);
/// The limit of what the CoAP door remembers of peers for minutes (RFC 7252 §4.8.2 EXCHANGE_LIFETIME): exchanges,
/// uploads, downloads and notifications of 16 MiB each.
const REMEMBERED_BYTES_MAX: u64 = 68_000_000;
/// An idle DTLS session, which lasts for hours when its peer has gone without a word.
const SESSION_BYTES_MAX: u64 = 4 << 10;
/// Round trips below this are the scheduler's noise with attacker, gateway and clients on two cores; ten times it is
/// the least bound. The gateway is built with optimisation (`xtask/src/gateway.rs`), so that it is not its own noise.
const P99_FLOOR: Duration = Duration::from_millis(2);
/// How often a delay has to show to be believed.
const ATTEMPTS: usize = 5;
/// Sockets on our side: 10 000 connections and what the suite itself needs.
const FILES: u64 = 12_000;

fn main() -> ExitCode {
    if let Err(error) = raise_file_limit() {
        println!("{error:#}");
        return ExitCode::FAILURE;
    }
    let cases: Vec<Case> = [
        mqtt::CASES,
        mqtt_load::CASES,
        coap::CASES,
        coap_tcp::CASES,
        dtls::CASES,
        dtls_sessions::CASES,
        http::CASES,
        xmpp::CASES,
        connections::CASES,
        proxy::CASES,
    ]
    .concat();
    suite::run("hostile", &cases)
}

/// Runs one attack against a fresh gateway with the built-in defaults and checks what holds for all of them.
fn attack(attack: fn(&Gateway) -> Result<String>) -> Result<String> {
    attack_with(&[], attack)
}

/// The configuration of a gateway: settings, each `KEY=VALUE`, and files of its data directory, name and text.
struct Setting {
    settings: &'static [&'static str],
    files: &'static [(&'static str, &'static str)],
}

/// The same with settings, each `KEY=VALUE`.
fn attack_with(settings: &'static [&'static str], attack: fn(&Gateway) -> Result<String>) -> Result<String> {
    attack_furnished(&Setting { settings, files: &[] }, attack)
}

/// The same with files too.
///
/// Only too long a delay is measured again: one that the gateway causes is there every time, one that the machine
/// caused is not.
fn attack_furnished(setting: &Setting, attack: fn(&Gateway) -> Result<String>) -> Result<String> {
    let mut attempts = Vec::new();
    while attempts.len() < ATTEMPTS {
        let trial = attacked(setting, attack)?;
        if trial.during <= trial.bound {
            return Ok(format!("({trial})"));
        }
        attempts.push(trial.to_string());
    }
    bail!("a well-behaved client was slowed down every time:\n  {}", attempts.join("\n  "))
}

/// The effect of one attack on a well-behaved client, and the bounds.
struct Trial {
    told: String,
    before: Duration,
    during: Duration,
    machine: Duration,
    stretch: f64,
    bound: Duration,
    peak_bytes: u64,
    after_bytes: u64,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { told, before, during, machine, stretch, bound, peak_bytes, after_bytes } = self;
        let (peak, after) = (peak_bytes / 1_000_000, after_bytes / 1_000_000);
        write!(
            f,
            "{told}; p99 {before:.1?} -> {during:.1?} of {bound:.1?}, bare echo {machine:.1?}, stretch {stretch:.1}, peak \
             {peak} MB, after {after}"
        )
    }
}

fn attacked(setting: &Setting, attack: fn(&Gateway) -> Result<String>) -> Result<Trial> {
    let mut gateway = Gateway::start_furnished(setting.settings, setting.files)?;
    let idle = gateway.resident_bytes()?;
    let before = Probe::mqtt(gateway.address("mqtt")?)?.p99()?;
    let (probe, echo) = (Probe::mqtt(gateway.address("mqtt")?)?, Probe::echo()?);
    let (ran, waited) = gateway.worker_times()?;
    let outcome = attack(&gateway);
    gateway.check_alive()?;
    let stretch = stretch(gateway.worker_times()?, (ran, waited));
    let (during, machine) = (probe.p99(), echo.p99()?);
    let told = outcome?;
    let during = during?;
    every_door_answers(&gateway).with_context(|| gateway.log())?;
    gateway.check_alive()?;
    let peak_bytes = gateway.peak_resident_bytes()?;
    ensure!(peak_bytes <= RESIDENT_BYTES_MAX, "it grew to {} MB; {told}", peak_bytes / 1_000_000);
    let after_bytes = gateway.comes_down(idle + kept_bytes(&gateway)?, Instant::now() + AFTER.mul_f64(stretch))?;
    let bound = (before.max(machine).max(P99_FLOOR) * SLOWER_MAX).mul_f64(stretch);
    Ok(Trial { told, before, during, machine, stretch, bound, peak_bytes, after_bytes })
}

/// How many times longer the gateway's work takes because other processes of the machine use the processors: a busy
/// worker loses its turn to them, and its clients wait, however short a bare echo stays.
fn stretch(now: (Duration, Duration), before: (Duration, Duration)) -> f64 {
    let (ran, waited) = (now.0.saturating_sub(before.0), now.1.saturating_sub(before.1));
    1.0 + waited.as_secs_f64() / ran.as_secs_f64().max(1e-3)
}

/// Bytes that the gateway holds on purpose when nobody is connected: retained messages, queues of sessions, and what
/// CoAP has to remember.
fn kept_bytes(gateway: &Gateway) -> Result<u64> {
    let queued = gateway.sum(&["fogmux_bus_mailbox_bytes", "fogmux_mqtt_wills_bytes"])?;
    // With the allocator's share and the store's index.
    let retained = gateway.sum(&["fogmux_bus_retained_bytes"])? / 2 * 3;
    let sessions = gateway.sum(&["fogmux_door_connections{door=\"coap\"}"])?;
    // The newcomer's request is one of some ten bytes.
    let spoken = gateway.sum(&["fogmux_door_read_bytes_total{door=\"coap\"}"])?;
    let sessions = sessions * SESSION_BYTES_MAX;
    Ok(queued + retained + sessions + if spoken > 10_000 { REMEMBERED_BYTES_MAX } else { 0 })
}

/// A newcomer is served at each door, and may publish: what is left of the attack holds nobody up.
fn every_door_answers(gateway: &Gateway) -> Result<()> {
    let mut after = fogmux_tests::mqtt::Connection::open(gateway.address("mqtt")?, 5, "after").context("MQTT")?;
    for _ in 0..3 {
        after.stream.write_all(&fogmux_tests::mqtt::publish(5, b"newcomer", b"x", 1, false, 1))?;
        let (first, _) = after.read().context("MQTT: no PUBACK")?;
        ensure!(first == 0x40, "MQTT: {first:#x} instead of PUBACK");
    }
    let health = tcp::ask(gateway.address("http")?, b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    ensure!(health.starts_with(b"HTTP/1.1 200"), "HTTP answers {}", String::from_utf8_lossy(&health));
    let socket = datagram::endpoint(gateway.address("coap")?)?;
    // The port may have been an attacker's, whose last answers are still on their way, and whose message IDs count as
    // repeated (RFC 7252 §4.5): a token and a number of our own.
    let get = datagram::request(datagram::CON, datagram::GET, 0xfeed, b"newcomer", "after/all", &[], b"");
    let answer = datagram::exchange(&socket, &get, b"newcomer").context("CoAP")?;
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
