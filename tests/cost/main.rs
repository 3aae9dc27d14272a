//! Instructions of the gateway for each message of fixed traces, counted by callgrind: the same on a loaded machine and
//! on a quiet one, where times are not.
//!
//! The gateway is stopped while the clients of a trace send, so that it finds the same input at once every time, on one
//! worker. What the kernel does is not counted. `FOGMUX_COST` names the file with the figures on record;
//! `FOGMUX_COST_RECORD`, if it is set, has it written anew; `FOGMUX_COST_PROFILES` names a directory for the profiles,
//! which `callgrind_annotate` reads. `FOGMUX_COST_GROWTH` asks for one message beside ever more of everything instead,
//! and names the file of the plot.

mod coap;
mod dtls;
mod growth;
mod http;
mod meter;
mod mqtt;
mod oscore;
mod plot;
mod record;
mod xmpp;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};

use meter::Meter;
use record::Record;

/// A trace: its name in `docs/benchmarks.md`, and what it sends. The result is the number of messages.
struct Trace {
    name: &'static str,
    settings: &'static [&'static str],
    run: fn(&mut Meter) -> Result<u32>,
}

/// Without records on the disk, which the committer's thread would write whenever its time comes.
const IN_MEMORY: &[&str] = &["store.durability=none"];

const TRACES: [Trace; 14] = [
    Trace { name: "W1", settings: IN_MEMORY, run: mqtt::w1 },
    Trace { name: "W2", settings: IN_MEMORY, run: mqtt::w2 },
    Trace { name: "W3", settings: IN_MEMORY, run: mqtt::w3 },
    Trace { name: "W4", settings: IN_MEMORY, run: mqtt::w4 },
    Trace { name: "W5", settings: IN_MEMORY, run: mqtt::w5 },
    Trace { name: "W6", settings: IN_MEMORY, run: mqtt::w6 },
    Trace { name: "C2-get", settings: IN_MEMORY, run: coap::get },
    Trace { name: "C2-put", settings: IN_MEMORY, run: coap::put },
    Trace { name: "C3", settings: IN_MEMORY, run: dtls::get },
    Trace { name: "C4", settings: IN_MEMORY, run: dtls::handshakes },
    Trace { name: "C6", settings: IN_MEMORY, run: oscore::get },
    Trace { name: "X1", settings: IN_MEMORY, run: xmpp::x1 },
    Trace { name: "h1-get", settings: IN_MEMORY, run: http::get },
    Trace { name: "h2-get", settings: IN_MEMORY, run: http::get_h2 },
];

fn main() -> ExitCode {
    let profiles = std::env::var_os("FOGMUX_COST_PROFILES").map(PathBuf::from);
    let measured = match std::env::var_os("FOGMUX_COST_GROWTH") {
        Some(plot) => growth::measure(plot.as_ref(), profiles.as_deref()).map(|()| true),
        None => measure(profiles.as_deref()),
    };
    match measured {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cost: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the traces named on the command line, or all. Returns whether none costs more than is on record.
fn measure(profiles: Option<&Path>) -> Result<bool> {
    let names: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let file = std::env::var("FOGMUX_COST").context("FOGMUX_COST names no file of figures; use `cargo xtask cost`")?;
    let mut record = Record::read(file.as_ref())?;
    let mut good = true;
    for trace in TRACES.iter().filter(|trace| names.is_empty() || names.iter().any(|name| name == trace.name)) {
        let mut meter = Meter::start(trace.settings)?;
        let messages = (trace.run)(&mut meter).with_context(|| trace.name)?;
        let kept = profiles.map(|directory| directory.join(format!("callgrind.out.{}", trace.name)));
        let instructions = meter.finish(kept.as_deref()).with_context(|| trace.name)? / u64::from(messages);
        let verdict = record.compare(trace.name, instructions);
        println!("cost {}: {instructions} instructions a message, {verdict}", trace.name);
        good &= verdict.is_good();
    }
    if std::env::var_os("FOGMUX_COST_RECORD").is_some() {
        record.write(file.as_ref())?;
        return Ok(true);
    }
    Ok(good)
}
