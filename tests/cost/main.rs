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

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};

use anyhow::{Context, Result, anyhow};

use meter::Meter;
use record::{Record, Verdict};

/// How often a trace is counted at most.
const COUNTS_MAX: usize = 3;

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

/// Runs the traces named on the command line, or all, as many at once as there are processors: what else runs makes
/// none of them dearer. Returns whether none costs more than is on record.
fn measure(profiles: Option<&Path>) -> Result<bool> {
    let names: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let file = std::env::var("FOGMUX_COST").context("FOGMUX_COST names no file of figures; use `cargo xtask cost`")?;
    let record = Record::read(file.as_ref())?;
    let is_new = std::env::var_os("FOGMUX_COST_RECORD").is_some();
    println!("cost on {}; {}", record.here(), record.tolerance());
    let mut chosen = TRACES.iter().filter(|trace| names.is_empty() || names.iter().any(|name| name == trace.name));
    let waiting = Mutex::new(&mut chosen);
    let take = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
    let lane = || -> Result<Vec<Counted>> {
        let mut counted = Vec::new();
        while let Some(trace) = take() {
            counted.push(count(trace, &record, is_new, profiles).with_context(|| trace.name)?);
        }
        Ok(counted)
    };
    let lanes = thread::available_parallelism().map_or(1, NonZero::get);
    let counted = thread::scope(|scope| {
        let lanes: Vec<_> = (0..lanes).map(|_| scope.spawn(lane)).collect();
        let end = |lane: ScopedJoinHandle<'_, _>| lane.join().map_err(|_| anyhow!("a trace panicked"))?;
        lanes.into_iter().map(end).collect::<Result<Vec<_>>>()
    })?;
    let counted: Vec<Counted> = counted.into_iter().flatten().collect();
    if is_new {
        record.write(file.as_ref(), counted.iter().map(|counted| (counted.name, counted.instructions)))?;
        return Ok(true);
    }
    Ok(counted.iter().all(|counted| counted.verdict.is_good()))
}

/// A trace that was counted.
struct Counted {
    name: &'static str,
    /// Instructions a message.
    instructions: u64,
    verdict: Verdict,
}

/// Counts a trace. One that costs too much is counted again: of two counts the smaller has less of what the gateway
/// does beside the messages, such as a commit that came at that moment. For a record that is done at once.
fn count(trace: &Trace, record: &Record, is_new: bool, profiles: Option<&Path>) -> Result<Counted> {
    let once = || -> Result<u64> {
        let mut meter = Meter::start(trace.settings)?;
        let messages = (trace.run)(&mut meter)?;
        let kept = profiles.map(|directory| directory.join(format!("callgrind.out.{}", trace.name)));
        Ok(meter.finish(kept.as_deref())? / u64::from(messages))
    };
    let mut instructions = once()?;
    for _ in 1..COUNTS_MAX {
        if !is_new && record.compare(trace.name, instructions).is_good() {
            break;
        }
        instructions = instructions.min(once()?);
    }
    let verdict = record.compare(trace.name, instructions);
    println!("cost {}: {instructions} instructions a message, {verdict}", trace.name);
    Ok(Counted { name: trace.name, instructions, verdict })
}
