//! Developer commands: `cargo xtask test` proves the tree, `cargo xtask cross` builds it for the Pi, `cargo xtask fuzz`
//! runs the fuzz targets. The commands people type are the ones CI runs.

mod check;
mod command;
mod cost;
mod cross;
mod deny;
mod deploy;
mod dist;
mod fail2ban;
mod footprint;
mod foreign;
mod fuzz;
mod gateway;
mod graph;
mod library;
mod links;
mod peers;
mod prose;
mod service;
mod setup;
mod simulate;
mod size;
mod tree;
mod wear;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};

use tree::Tree;

const USAGE: &str = "\
cargo xtask test [PART]…   everything, or only these parts, in this order:
                           fmt deny clippy doors unit docs deploy conformance delivery hostile interop bench cost
cargo xtask graph [TREE]   only checks the imports of the gateway's modules (a part of `docs`), here or in another tree
cargo xtask prose          only checks lines, comments and the index of decisions (a part of `docs`)
cargo xtask setup          only installs what the tests need, under target/
cargo xtask size           builds the release program with the doors only and with all features: sizes
cargo xtask dist [--lean] [--target TRIPLE] [--check [--previous PROGRAM]]
                           builds the release program and makes packages, an archive or a container image of it, under
                           target/dist; --check installs and uses them (root; under qemu if they are of another
                           architecture), and upgrades to them from PROGRAM
cargo xtask cross [TARGET] builds for aarch64, or this target, and runs `fogmux demo` under qemu
cargo xtask cost [debug] [record] [TRACE]…
                           counts the instructions that the release program, or the debug build, needs for a message
                           of each trace, or of these, and compares them with tests/cost/release.txt, or debug.txt, or
                           writes that file (valgrind)
cargo xtask cost growth    counts them beside 1 to 100 000 subscriptions, topics and connections: a table, and the plot
                           docs/growth.svg
cargo xtask peers [--rounds N] [--seconds S] [LOAD]…
                           measures the release program beside the brokers and servers of others that this machine
                           has, in turn: processor time a message, rate, latency, memory of a connection
cargo xtask footprint [SECONDS]
                           measures the memory of the release program under a steady load on every door with the limits
                           of config/pi-zero-2w.toml, for ten minutes unless told otherwise
cargo xtask wear [SECONDS] [LOAD]…
                           measures what the release program writes for steady loads, each for 120 seconds unless told
                           otherwise, on file systems of their own (root), beside Mosquitto, and compares it with the
                           goals; the loads are 1/s, 100/s, connected and absent
cargo xtask wear speed     measures what durability costs flows that are as fast as they go
cargo xtask conformance mqtt
                           asks the gateway about every normative statement of MQTT 3.1.1 and 5.0 (a part of `test
                           conformance`), and prints each with its proof, or why there is none
cargo xtask simulate [N]   runs N seeds of the simulation, 10 000 unless told otherwise, with optimisation
cargo xtask fuzz [SECONDS] [TARGET]…
                           runs every fuzz target, or these (`dtls_*` are all that begin so), 60 seconds each unless
                           told otherwise (nightly, cargo-fuzz)";

/// A part of the proof, by the name people type.
struct Part {
    name: &'static str,
    run: fn(&Tree) -> Result<()>,
}

const PARTS: [Part; 13] = [
    Part { name: "fmt", run: check::fmt },
    Part { name: "deny", run: deny::deny },
    Part { name: "clippy", run: check::clippy },
    Part { name: "doors", run: check::doors },
    Part { name: "unit", run: check::unit },
    Part { name: "docs", run: check::docs },
    Part { name: "deploy", run: deploy::deploy },
    Part { name: "conformance", run: foreign::conformance },
    Part { name: "delivery", run: foreign::delivery },
    Part { name: "hostile", run: foreign::hostile },
    Part { name: "interop", run: foreign::interop },
    Part { name: "bench", run: foreign::bench },
    Part { name: "cost", run: cost::check },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(arguments: &[String]) -> Result<()> {
    let tree = Tree::find()?;
    let mut words = arguments.iter().map(String::as_str);
    match words.next() {
        Some("test") => test(&tree, &words.collect::<Vec<_>>()),
        Some("graph") => graph::check(words.next().map_or(tree.root(), Path::new)),
        Some("prose") => prose::check(&tree),
        Some("setup") => setup::everything(&tree),
        Some("size") => size::size(&tree),
        Some("dist") => dist::dist(&tree, &words.collect::<Vec<_>>()),
        Some("cross") => cross::cross(&tree, words.next()),
        Some("conformance") => foreign::statements(&tree, &words.collect::<Vec<_>>()),
        Some("cost") => cost::cost(&tree, &words.collect::<Vec<_>>()),
        Some("footprint") => footprint::footprint(&tree, &words.collect::<Vec<_>>()),
        Some("peers") => peers::peers(&tree, &words.collect::<Vec<_>>()),
        Some("wear") => wear::wear(&tree, &words.collect::<Vec<_>>()),
        Some("simulate") => simulate::simulate(&tree, words.next()),
        Some("fuzz") => fuzz::fuzz(&tree, &words.collect::<Vec<_>>()),
        Some("help" | "--help" | "-h") => {
            println!("{USAGE}");
            Ok(())
        }
        Some(word) => bail!("there is no `{word}`\n{USAGE}"),
        None => bail!("what?\n{USAGE}"),
    }
}

/// Runs the parts; one that fails does not keep the others from being run.
fn test(tree: &Tree, names: &[&str]) -> Result<()> {
    if let Some(unknown) = names.iter().find(|name| PARTS.iter().all(|part| part.name != **name)) {
        bail!("there is no part `{unknown}`\n{USAGE}");
    }
    let mut rows = Vec::new();
    for part in PARTS.iter().filter(|part| names.is_empty() || names.contains(&part.name)) {
        println!("==> {}", part.name);
        let began = Instant::now();
        command::take_passed();
        let outcome = (part.run)(tree);
        if let Err(error) = &outcome {
            println!("==> {} FAILED: {error:#}", part.name);
        }
        let (tests, seconds) = (command::take_passed(), began.elapsed().as_secs());
        rows.push(Row { part: part.name, tests, seconds, passed: outcome.is_ok() });
    }
    // The end of a long output is the part that people see: failures are repeated there.
    for failure in command::take_failures() {
        println!("{failure}");
    }
    println!("{}", table(&rows));
    let failed: Vec<_> = rows.iter().filter(|row| !row.passed).map(|row| row.part).collect();
    if failed.is_empty() { Ok(()) } else { bail!("{} failed", failed.join(", ")) }
}

/// The result of a part.
struct Row {
    part: &'static str,
    tests: u64,
    seconds: u64,
    passed: bool,
}

/// The last lines of a run: parts, tests that passed in them, seconds.
fn table(rows: &[Row]) -> String {
    let line = |part: &str, tests: u64, seconds: u64, outcome: &str| {
        let tests = if tests == 0 { "-".to_owned() } else { tests.to_string() };
        format!("{part:<12} {tests:>7} {seconds:>8}  {outcome}\n")
    };
    let mut text = format!("\n{:<12} {:>7} {:>8}\n", "part", "passed", "seconds");
    for row in rows {
        text += &line(row.part, row.tests, row.seconds, if row.passed { "ok" } else { "FAILED" });
    }
    let failed = rows.iter().filter(|row| !row.passed).count();
    let outcome = if failed == 0 { "ok".to_owned() } else { format!("{failed} FAILED") };
    text += &line("all", rows.iter().map(|row| row.tests).sum(), rows.iter().map(|row| row.seconds).sum(), &outcome);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_with_a_table() {
        let row = |part, tests, passed| Row { part, tests, seconds: 7, passed };
        let text = table(&[row("fmt", 0, true), row("unit", 1_234, true), row("interop", 15_873, false)]);
        let lines: Vec<_> = text.lines().skip(2).collect();
        let expected = [
            "fmt                -        7  ok",
            "unit            1234        7  ok",
            "interop        15873        7  FAILED",
            "all            17107       21  1 FAILED",
        ];
        assert_eq!(lines, expected);
    }
}
