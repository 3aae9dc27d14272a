//! The limit of open files: as many connections as fit are taken; beyond it connections are closed at once, and logged.

use std::fs;
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::mqtt::{Connection, V4};
use fogmux_tests::suite::Case;
use fogmux_tests::tcp;

pub(super) const FEW_FILES: Case = Case { name: "two hundred open files leave room for most of them", run: few_files };
pub(super) const NONE_LEFT: Case = Case { name: "no descriptor left: connections are closed at once", run: none_left };

fn few_files() -> Result<String> {
    // A soft limit is raised, a hard one is not.
    let soft = Gateway::start_as(Plan { launcher: &["prlimit", "--nofile=200:4096"], ..Plan::default() })?;
    let raised = open_files_max(&soft)?;
    ensure!(raised == 4096, "the soft limit is {raised}");
    drop(soft);
    let mut gateway = Gateway::start_as(Plan { launcher: &["prlimit", "--nofile=200:200"], ..Plan::default() })?;
    let open = fs::read_dir(format!("/proc/{}/fd", gateway.pid()))?.count();
    let mut connections = fill(&gateway)?;
    let taken = connections.len();
    // A quarter of what is left stays for files.
    let least = (200 - open) * 7 / 10;
    ensure!(taken >= least, "{taken} connections with 200 open files, {open} of them before");
    turned_away(&gateway, &mut connections)?;
    let said = gateway.whole_log().lines().filter(|line| line.contains("turned away")).count();
    ensure!(said == 1, "the log says it {said} times");
    connections.clear();
    let address = gateway.address("mqtt")?;
    let deadline = Instant::now() + Duration::from_secs(10);
    while Connection::open(address, V4, "later").is_err() {
        ensure!(Instant::now() < deadline, "no room after all have gone");
    }
    let rejected = gateway.metrics()?.get("fogmux_door_rejected_total{door=\"mqtt\"}").copied().unwrap_or_default();
    ensure!(rejected >= 2.0, "door_rejected is {rejected}");
    gateway.settle()?;
    Ok(format!("({taken} connections beside {open} open files)"))
}

/// The limit is reached in spite of our count: somebody has lowered it.
fn none_left() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let open = fs::read_dir(format!("/proc/{}/fd", gateway.pid()))?.count();
    let limit = open + 10;
    let lowered = Command::new("prlimit")
        .args([format!("--pid={}", gateway.pid()), format!("--nofile={limit}:{limit}")])
        .status()?;
    ensure!(lowered.success(), "prlimit failed");
    let mut connections = fill(&gateway)?;
    ensure!(connections.len() >= 5, "{} connections", connections.len());
    let before = cpu_ticks(&gateway)?;
    let began = Instant::now();
    turned_away(&gateway, &mut connections)?;
    std::thread::sleep(Duration::from_secs(1).saturating_sub(began.elapsed()));
    let ticks = cpu_ticks(&gateway)? - before;
    let per_second = ticks as f64 / began.elapsed().as_secs_f64();
    // A hundred are one core.
    ensure!(per_second < 50.0, "{per_second:.0} hundredths of a core with nothing to do");
    ensure!(gateway.whole_log().contains("turned away"), "the log says nothing");
    connections.clear();
    let address = gateway.address("mqtt")?;
    let deadline = Instant::now() + Duration::from_secs(10);
    while Connection::open(address, V4, "later").is_err() {
        ensure!(Instant::now() < deadline, "no room after all have gone");
    }
    gateway.settle()?;
    Ok(String::new())
}

/// Connects until it is refused.
fn fill(gateway: &Gateway) -> Result<Vec<Connection>> {
    let address = gateway.address("mqtt")?;
    let mut connections = Vec::new();
    while let Ok(connection) = Connection::open(address, V4, &format!("c{}", connections.len())) {
        connections.push(connection);
        ensure!(connections.len() < 300, "no end");
    }
    Ok(connections)
}

/// Newcomers are closed at once, and those who are there are served.
fn turned_away(gateway: &Gateway, connections: &mut [Connection]) -> Result<()> {
    let address = gateway.address("mqtt")?;
    for _ in 0..20 {
        let mut stream = TcpStream::connect(address)?;
        let end = tcp::read_end(&mut stream, Duration::from_secs(5))?;
        ensure!(end.is_closed(), "a connection beyond the limit hangs");
    }
    let first = connections.first_mut().context("no connection")?;
    let granted = first.subscribe(1, &["a"], 0)?;
    ensure!(granted == [0], "SUBACK {granted:?}");
    first.publish("a", b"x")?;
    ensure!(first.read()?.0 == 0x30, "no message");
    Ok(())
}

fn open_files_max(gateway: &Gateway) -> Result<u64> {
    let limits = fs::read_to_string(format!("/proc/{}/limits", gateway.pid()))?;
    let line = limits.lines().find(|line| line.starts_with("Max open files")).context("no limit")?;
    Ok(line.split_whitespace().nth(3).context("no soft limit")?.parse()?)
}

/// Hundredths of a second of user and system time (proc_pid_stat(5): fields 14 and 15).
fn cpu_ticks(gateway: &Gateway) -> Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", gateway.pid()))?;
    let (_, after_name) = stat.rsplit_once(')').context("no name")?;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).copied().unwrap_or_default().parse::<u64>();
    Ok(field(14)? + field(15)?)
}
