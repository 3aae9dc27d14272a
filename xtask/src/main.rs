//! Developer commands: `cargo xtask test` proves the tree, `cargo xtask cross` builds it for the Pi, `cargo xtask fuzz`
//! runs the fuzz targets. The commands people type are the ones CI runs.

mod check;
mod command;
mod cross;
mod deny;
mod deploy;
mod foreign;
mod fuzz;
mod gateway;
mod links;
mod setup;
mod simulate;
mod tree;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};

use tree::Tree;

const USAGE: &str = "\
cargo xtask test [PART]…   everything, or only these parts, in this order:
                           fmt deny clippy unit docs deploy conformance delivery hostile interop bench
cargo xtask setup          only installs what the tests need, under target/
cargo xtask cross          builds for aarch64 and runs `fogmux demo` under qemu
cargo xtask simulate [N]   runs N seeds of the simulation, 10 000 unless told otherwise, with optimisation
cargo xtask fuzz [SECONDS] runs every fuzz target, 60 seconds each unless told otherwise (nightly, cargo-fuzz)";

/// A part of the proof, by the name people type.
struct Part {
    name: &'static str,
    run: fn(&Tree) -> Result<()>,
}

const PARTS: [Part; 11] = [
    Part { name: "fmt", run: check::fmt },
    Part { name: "deny", run: deny::deny },
    Part { name: "clippy", run: check::clippy },
    Part { name: "unit", run: check::unit },
    Part { name: "docs", run: check::docs },
    Part { name: "deploy", run: deploy::deploy },
    Part { name: "conformance", run: foreign::conformance },
    Part { name: "delivery", run: foreign::delivery },
    Part { name: "hostile", run: foreign::hostile },
    Part { name: "interop", run: foreign::interop },
    Part { name: "bench", run: foreign::bench },
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
        Some("setup") => setup::everything(&tree),
        Some("cross") => cross::cross(&tree),
        Some("simulate") => simulate::simulate(&tree, words.next()),
        Some("fuzz") => fuzz::fuzz(&tree, words.next()),
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
    let mut failed = Vec::new();
    let mut passed = Vec::new();
    for part in PARTS.iter().filter(|part| names.is_empty() || names.contains(&part.name)) {
        println!("==> {}", part.name);
        let began = Instant::now();
        let outcome = (part.run)(tree);
        let seconds = began.elapsed().as_secs();
        match outcome {
            Ok(()) => {
                println!("==> {} passed in {seconds} s", part.name);
                passed.push(part.name);
            }
            Err(error) => {
                println!("==> {} FAILED in {seconds} s: {error:#}", part.name);
                failed.push(part.name);
            }
        }
    }
    println!("passed: {}", passed.join(" "));
    if !failed.is_empty() {
        println!("failed: {}", failed.join(" "));
    }
    println!("{} passed, {} failed", passed.len(), failed.len());
    if failed.is_empty() { Ok(()) } else { bail!("{} failed", failed.join(", ")) }
}
