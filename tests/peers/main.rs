//! The gateway beside servers of others on one machine, in one run: each load on each server that has the door, in
//! turn, several rounds of it, with the project's own generator. Processor time a message is the figure to compare; the
//! rates of two machines, or of two moments on one, are not.
//!
//! Words on the command line name loads; `--rounds N` (5) and `--seconds S` (2) are the measure. `FOGMUX_BIN` names the
//! gateway, which is the generator, too.

mod figures;
mod loads;
mod servers;
mod table;

use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, ensure};

use figures::Figures;
use loads::{LOADS, Load};
use servers::{IDENTITY, Server};
use table::Row;

fn main() -> ExitCode {
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The words on the command line.
struct Words {
    rounds: usize,
    seconds: String,
    names: Vec<String>,
}

impl Words {
    fn read() -> Result<Self> {
        let mut words = Self { rounds: 5, seconds: "2".to_owned(), names: Vec::new() };
        let mut given = std::env::args().skip(1);
        while let Some(word) = given.next() {
            match word.as_str() {
                "--rounds" => words.rounds = given.next().context("--rounds N")?.parse().context("--rounds N")?,
                "--seconds" => words.seconds = given.next().context("--seconds S")?,
                name => {
                    let known = LOADS.iter().any(|load| load.name == name);
                    ensure!(known, "no load {name}; there are {}", loads::names());
                    words.names.push(word);
                }
            }
        }
        ensure!(words.rounds > 0, "--rounds is at least 1");
        Ok(words)
    }

    fn chosen(&self) -> impl Iterator<Item = &'static Load> {
        LOADS.iter().filter(|load| self.names.is_empty() || self.names.iter().any(|name| name == load.name))
    }
}

fn measure() -> Result<()> {
    let words = Words::read()?;
    let servers = servers::present();
    let mut rows = Vec::new();
    for load in words.chosen() {
        let taking: Vec<&Server> = servers.iter().filter(|server| server.has(load.door)).collect();
        let mut rounds = vec![Vec::new(); taking.len()];
        for round in 0..words.rounds {
            for (server, figures) in taking.iter().zip(&mut rounds) {
                let done = repetition(server, load, round, &words.seconds);
                match done.with_context(|| format!("{} of {}, round {}", load.name, server.name, round + 1)) {
                    Ok(done) => figures.push(done),
                    // A load that another server does not survive is a result; a fault of the gateway ends the run.
                    Err(error) if server.is_foreign() => println!("{error:#}"),
                    Err(error) => return Err(error),
                }
            }
        }
        let each = taking.iter().zip(&rounds).filter(|(_, rounds)| !rounds.is_empty());
        let each = each.map(|(server, rounds)| (server.name, Figures::median(rounds)));
        let row = Row { load, each: each.collect() };
        println!("{}", row.line());
        rows.push(row);
    }
    println!("\n{}", table::markdown(&rows));
    Ok(())
}

/// One repetition on a fresh server.
fn repetition(server: &Server, load: &Load, round: usize, seconds: &str) -> Result<Figures> {
    let running = server.start(load.settings)?;
    let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN names no gateway; use `cargo xtask peers`")?;
    let mut bench = Command::new(binary);
    bench.args(["bench", "peer", &running.url(load.door)?, "--pid", &running.pid().to_string()]);
    bench.args(["--repeat", "1", "--json", "--seconds", seconds, "--seed", &(round + 1).to_string()]);
    bench.args(load.flags);
    match load.door {
        "coaps" => drop(bench.args(["--psk-id", IDENTITY, "--psk", &servers::key()])),
        "xmpp" => drop(bench.args(["--name", "localhost"])),
        _ => {}
    }
    let output = bench.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let report = serde_json::from_slice(&output.stdout).with_context(|| said.clone())?;
    Figures::of(&report).with_context(|| said)
}
