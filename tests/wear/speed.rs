//! The cost of durability: flows to sessions that outlive their connection, with `none` and with `group` in turn.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::flow::Flow;
use crate::medium::Medium;
use crate::report;
use crate::subject::{Running, Subject};
use crate::written::Written;

const LENGTH: Duration = Duration::from_secs(3);
const ROUNDS: usize = 3;
/// Below the 100 000 messages that wait for a session by default.
const ABSENT_MAX: u64 = 50_000;

const FLOWS: [Flow; 4] = [
    Flow { name: "W2", pairs: 1, size: 10, window: 100, absent: false, count_max: u64::MAX },
    Flow { name: "W6", pairs: 10, size: 1024, window: 100, absent: false, count_max: u64::MAX },
    Flow { name: "W2, absent", pairs: 1, size: 10, window: 100, absent: true, count_max: ABSENT_MAX },
    Flow { name: "W6, absent", pairs: 10, size: 1024, window: 100, absent: true, count_max: ABSENT_MAX / 10 },
];

const STORES: [Subject; 2] =
    [Subject::Gateway(&["store.durability=none"]), Subject::Gateway(&["store.durability=group"])];

/// A run of a flow.
struct Run {
    per_second: f64,
    /// Processor time of the gateway for a message, in µs.
    cpu_us: f64,
    commits_per_second: f64,
    process_bytes: f64,
    device_bytes: Option<f64>,
}

/// Prints a line for each flow and store, the medians of all rounds.
pub(crate) fn measure() -> Result<()> {
    let heads =
        ["flow", "store", "messages/s", "CPU-µs a message", "commits/s", "process B/message", "device B/message"];
    println!("{}", report::line(&heads));
    println!("{}", report::line(&heads.map(|_| "---")));
    for flow in FLOWS {
        let mut runs = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (store, runs) in STORES.iter().zip(&mut runs) {
                runs.push(run(flow, store).with_context(|| format!("{}, {}", flow.name, store.name()))?);
            }
        }
        for (store, runs) in STORES.iter().zip(&runs) {
            let median = |figure: fn(&Run) -> f64, digits: usize| {
                let mut figures: Vec<f64> = runs.iter().map(figure).collect();
                figures.sort_by(f64::total_cmp);
                let figure = figures.get(ROUNDS / 2).copied().unwrap_or(f64::NAN);
                if figure.is_nan() { "–".to_owned() } else { format!("{figure:.digits$}") }
            };
            let cells = [
                flow.name.to_owned(),
                store.name(),
                median(|run| run.per_second, 0),
                median(|run| run.cpu_us, 3),
                median(|run| run.commits_per_second, 1),
                median(|run| run.process_bytes, 1),
                median(|run| run.device_bytes.unwrap_or(f64::NAN), 1),
            ];
            println!("{}", report::line(&cells));
        }
    }
    Ok(())
}

fn run(flow: Flow, store: &Subject) -> Result<Run> {
    let medium = Medium::new(crate::DEFAULTS)?;
    let broker = store.start(&medium)?;
    let read = |broker: &Running| -> Result<_> { Ok((Written::read(&medium, broker)?, processor(broker.pid())?)) };
    medium.sync()?;
    let (before, idle) = read(&broker)?;
    let passed = flow.run(broker.address()?, LENGTH)?;
    let (_, busy) = read(&broker)?;
    medium.sync()?;
    let written = Written::read(&medium, &broker)? - before;
    let messages = passed.messages as f64;
    Ok(Run {
        per_second: messages / passed.elapsed.as_secs_f64(),
        cpu_us: (busy - idle).as_secs_f64() * 1e6 / messages,
        commits_per_second: written.commits.unwrap_or_default() as f64 / passed.elapsed.as_secs_f64(),
        process_bytes: written.calls as f64 / messages,
        device_bytes: written.device.map(|bytes| bytes as f64 / messages),
    })
}

/// The time that all threads of a process have run (`schedstat` of proc(5)).
fn processor(pid: u32) -> Result<Duration> {
    let mut time = Duration::ZERO;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end meanwhile.
        let stat = fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
        let nanoseconds = stat.split_whitespace().next().and_then(|field| field.parse().ok());
        time += nanoseconds.map_or(Duration::ZERO, Duration::from_nanos);
    }
    Ok(time)
}
