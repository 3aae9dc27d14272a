//! The lines of the README and of the pages beside it that people copy, as they stand there; only shortened by flags
//! that follow them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use fogmux_tests::suite::Case;

use crate::bench;

pub(crate) const CASES: &[Case] = &[Case { name: "the README's lines do what they say", run: lines }];

/// The pages whose lines are tried, from the root of the repository.
const PAGES: [&str; 3] = ["README.md", "docs/benchmarks.md", "docs/papers.md"];
const SHORT: &[&str] = &["--seconds", "0.3", "--warm-up", "0", "--repeat", "1"];

/// The flags that shorten a command of the pages, by its first words; `Err` with the reason why it is not run here.
const SHORTER: &[(&str, Result<&[&str], &str>)] = &[
    ("run ", Ok(SHORT)),
    ("matrix ", Ok(&["--doors", "mqtt,http1", "--securities", "none", "--seconds", "0.2", "--repeat", "1"])),
    ("curve ", Ok(&["--rates", "20,40", "--count", "10", "--repeat", "1"])),
    ("fleet ", Err("fleet.rs: with fewer devices, for less time")),
    ("handshakes ", Ok(&["--seconds", "0.02", "--repeat", "1"])),
    ("compare ", Ok(&[])),
    ("pair ", Err("reports.rs: two programs have to be there")),
    ("paper list", Ok(&[])),
    ("paper show ", Ok(&[])),
    ("paper run ", Ok(&["--table", "6"])),
    ("peer ", Err("peers.rs: a broker has to be there")),
    ("agent", Err("agent.rs: an agent has to be there")),
];

fn lines() -> Result<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text =
        PAGES.map(|page| fs::read_to_string(root.join(page)).context(page)).into_iter().collect::<Result<String>>()?;
    let lines = text.lines().filter_map(|line| line.strip_prefix("    fogmux bench "));
    let lines: BTreeSet<&str> =
        lines.map(|line| line.split_once(" #").map_or(line, |(line, _)| line).trim_end()).collect();
    let place = tempfile::tempdir()?;
    for name in ["before", "after"] {
        let made = bench(&["run", "--count", "100", "--repeat", "2", "--out", name])?.current_dir(&place).output()?;
        ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
    let mut tried = 0;
    for line in lines {
        let shorter = SHORTER.iter().find(|(begin, _)| line.starts_with(begin));
        let (_, shorter) = shorter.with_context(|| format!("nobody tries `fogmux bench {line}`"))?;
        let Ok(shorter) = shorter else { continue };
        if line.contains("--agent ") {
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().chain(shorter.iter().copied()).collect();
        let done = bench(&words)?.current_dir(&place).output()?;
        let said = String::from_utf8_lossy(&done.stderr);
        // 1 is what `compare` says of a regression, which two runs of a tenth of a second may show, and 75 of two
        // repetitions, which are too few.
        let is_told = line.starts_with("compare") && matches!(done.status.code(), Some(1 | 75));
        let fine = done.status.success() || is_told;
        ensure!(fine && !done.stdout.is_empty(), "`fogmux bench {line}`: {} {said}", done.status);
        tried += 1;
    }
    ensure!(place.path().join("results/report.html").exists(), "the matrix has written no results/report.html");
    ensure!(tried >= 8, "only {tried} lines were found");
    Ok(format!("({tried} lines)"))
}
