//! The tables of statements, and the proofs of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

/// The number of statements in appendix B of each standard.
const STANDARDS: [Standard; 2] = [
    Standard { name: "MQTT 3.1.1", prefix: "3", text: include_str!("3.1.1.txt"), statements: 141 },
    Standard { name: "MQTT 5.0", prefix: "5", text: include_str!("5.txt"), statements: 251 },
];

/// The page that has the counts.
const DOCUMENT: &str = include_str!("../../../docs/protocols/mqtt.md");

struct Standard {
    name: &'static str,
    /// Before the identifiers of its statements where a case names them.
    prefix: &'static str,
    text: &'static str,
    statements: usize,
}

/// Compares the statements with the cases that passed. Prints the counts, and the proofs if `details`.
pub(crate) fn check(passed: &BTreeSet<&str>, details: bool) -> Result<()> {
    let mut proofs: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for proof in super::proofs() {
        for statement in proof.proves.split_ascii_whitespace() {
            proofs.entry(statement).or_default().push(proof.name);
        }
    }
    let mut named = BTreeSet::new();
    let mut faults = Vec::new();
    for standard in &STANDARDS {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for line in standard.text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let mut words = line.splitn(3, ' ');
            let (id, binds) = (words.next().unwrap_or_default(), words.next().context("no second column")?);
            let text = words.next().with_context(|| format!("{id} has no text"))?;
            let key = format!("{}:{id}", standard.prefix);
            ensure!(named.insert(key.clone()), "{key} twice");
            let cases = proofs.get(key.as_str()).cloned().unwrap_or_default();
            let failed: Vec<&&str> = cases.iter().filter(|case| !passed.contains(**case)).collect();
            match binds {
                "server" if cases.is_empty() => faults.push(format!("{key} has no proof: {text}")),
                "server" if !failed.is_empty() => faults.push(format!("{key} is not proved, {failed:?} did not pass")),
                "server" => {}
                "elsewhere" => exists(text).with_context(|| key.clone())?,
                "client" | "none" => ensure!(cases.is_empty(), "{key} binds no server, but has a proof"),
                other => bail!("{key}: {other}"),
            }
            *counts.entry(binds).or_default() += 1;
            if details {
                println!("{key:<14} {binds:<9} {text} {cases:?}");
            }
        }
        let all: usize = counts.values().sum();
        ensure!(all == standard.statements, "{}: {all} statements of {}", standard.name, standard.statements);
        let count = |binds| counts.get(binds).copied().unwrap_or(0);
        let [here, source, client, none] = ["server", "elsewhere", "client", "none"].map(count);
        println!(
            "{}: {all} statements, {here} proved here, {source} by tests of the source, {client} bind clients only, \
             {none} do not arise",
            standard.name
        );
        let row = format!("| {} | {all} | {here} | {source} | {client} | {none} |", standard.name);
        ensure!(DOCUMENT.contains(&row), "docs/protocols/mqtt.md has not the row {row}");
    }
    let unknown: Vec<&&str> = proofs.keys().filter(|key| !named.contains(**key)).collect();
    ensure!(unknown.is_empty(), "there are no statements {unknown:?}");
    ensure!(faults.is_empty(), "{} of the statements:\n  {}", faults.len(), faults.join("\n  "));
    Ok(())
}

/// Whether the file of a test has it: `PATH:NAME`.
fn exists(place: &str) -> Result<()> {
    let (file, name) = place.split_once(':').context("no PATH:NAME")?;
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file))?;
    ensure!(text.contains(&format!("fn {name}(")), "{file} has no {name}");
    Ok(())
}
