//! A gateway that stands still for a second: whoever measures must see that second (no coordinated omission).

use std::collections::HashSet;
use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fogmux_tests::suite::Case;
use serde_json::Value;

use crate::{bench, check, number, outcomes, parse};

pub(crate) const CASES: &[Case] = &[Case { name: "a stall of one second is in the percentiles", run: stall }];

const RATE: f64 = 200.0;
const SECONDS: f64 = 4.0;
const STALL: Duration = Duration::from_secs(1);

fn stall() -> Result<String> {
    let (rate, seconds) = (RATE.to_string(), SECONDS.to_string());
    let words = [
        "run",
        "--qos",
        "1",
        "--window",
        "1",
        "--rate",
        &rate,
        "--seconds",
        &seconds,
        "--warm-up",
        "0",
        "--repeat",
        "1",
        "--json",
    ];
    let generator = bench(&words)?.spawn()?;
    let gateway = child_of(generator.id())?;
    wait_for_clients(gateway)?;
    wait_for_messages(gateway)?;
    signal(gateway, "STOP")?;
    sleep(STALL);
    signal(gateway, "CONT")?;
    let report = parse(&generator.wait_with_output()?)?;
    let outcome = outcomes(&report)?.into_iter().next().context("no outcome")?;
    check(outcome)?;
    let all = number(outcome, "sent")?;
    // A generator that omits the messages due during the stall sends a quarter less.
    ensure!(all >= RATE * SECONDS * 0.9, "{all} were sent, with a window of one");
    let late = above(outcome, Duration::from_millis(500))?;
    // Of a second at this rate half waited for more than half of it; with coordinated omission it would be one.
    ensure!(late > RATE * 0.35, "only {late} of {all} deliveries took more than half a second");
    let longest = above(outcome, Duration::from_millis(900))?;
    ensure!(longest >= 1.0, "none took as long as the stall");
    Ok(format!("({late} of {all} deliveries took more than 0.5 s)"))
}

/// Waits until a publisher and a subscriber are connected: then the measurement begins.
pub(crate) fn wait_for_clients(gateway: u32) -> Result<()> {
    wait_for_sockets(gateway, "tcp", 2)
}

/// Waits until a process has so many connected sockets of TCP or UDP.
pub(crate) fn wait_for_sockets(process: u32, protocol: &str, least: usize) -> Result<()> {
    let until = Instant::now() + Duration::from_secs(60);
    while established(process, protocol)? < least {
        ensure!(Instant::now() < until, "no clients are connected");
        sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Waits until messages flow: each wakes a thread of the gateway.
fn wait_for_messages(gateway: u32) -> Result<()> {
    const MESSAGES: u64 = 100;
    let until = Instant::now() + Duration::from_secs(30);
    let before = wakes(gateway)?;
    while wakes(gateway)? < before + MESSAGES {
        ensure!(Instant::now() < until, "no messages flow");
        sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// How often the threads of a process have waited for something and were woken (proc_pid_status(5)).
fn wakes(process: u32) -> Result<u64> {
    let mut all = 0;
    for thread in fs::read_dir(format!("/proc/{process}/task"))?.flatten() {
        let status = fs::read_to_string(thread.path().join("status"))?;
        let waits = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        all += waits.context("no context switches")?.trim().parse::<u64>()?;
    }
    Ok(all)
}

/// The connections of a process: its sockets by their inodes, and those that the kernel lists as established.
fn established(process: u32, protocol: &str) -> Result<usize> {
    let files = fs::read_dir(format!("/proc/{process}/fd"))?.flatten();
    let inodes: HashSet<String> = files
        .filter_map(|file| {
            let target = fs::read_link(file.path()).ok()?;
            Some(target.to_str()?.strip_prefix("socket:[")?.trim_end_matches(']').to_owned())
        })
        .collect();
    let listed = fs::read_to_string(format!("/proc/{process}/net/{protocol}"))?;
    let is_established = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(3) == Some(&"01") && words.get(9).is_some_and(|inode| inodes.contains(*inode))
    };
    Ok(listed.lines().filter(is_established).count())
}

/// How many deliveries took longer.
fn above(outcome: &Value, least: Duration) -> Result<f64> {
    let counts = outcome.get("delivery").and_then(Value::as_array).context("no deliveries")?;
    let least = least.as_nanos();
    let pair = |pair: &Value| Some((pair.get(0)?.as_u64()?, pair.get(1)?.as_f64()?));
    Ok(counts.iter().filter_map(pair).filter(|(ns, _)| u128::from(*ns) > least).map(|(_, count)| count).sum())
}

/// The gateway that the generator has started: its child that serves.
pub(crate) fn child_of(parent: u32) -> Result<u32> {
    let until = Instant::now() + Duration::from_secs(30);
    let children = format!("/proc/{parent}/task/{parent}/children");
    while Instant::now() < until {
        let listed = fs::read_to_string(&children).unwrap_or_default();
        for child in listed.split_ascii_whitespace() {
            let words = fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
            if words.split(|byte| *byte == 0).any(|word| word == b"serve") {
                return Ok(child.parse()?);
            }
        }
        sleep(Duration::from_millis(5));
    }
    anyhow::bail!("the generator has started no gateway")
}

pub(crate) fn signal(process: u32, name: &str) -> Result<()> {
    let status = Command::new("kill").args([format!("-{name}"), process.to_string()]).status()?;
    ensure!(status.success(), "kill -{name} {process}: {status}");
    Ok(())
}
