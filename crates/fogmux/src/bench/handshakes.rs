//! `fogmux bench handshakes`: each cipher suite with each group and each key of the gateway.

use std::collections::BTreeMap;

use fogmux_traffic::Experiment;
use fogmux_traffic::experiment::Suite;
use fogmux_traffic::handshakes::{Axes, Impossible};
use fogmux_traffic::repetition::Repetitions;
use fogmux_traffic::report::figure::Figure;

use super::arguments::{Columns, Handshakes};
use crate::exit::{Failure, Status};
use crate::output::say;

/// One suite of each kind: what protects records hardly adds to a handshake.
const QUICK: [&str; 6] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_PSK_WITH_AES_128_CCM_8",
];

/// The figures that are printed unless others are asked for.
const FIGURES: [Figure; 4] = [Figure::Rate, Figure::ConnectP50, Figure::HandshakeBytes, Figure::HandshakeCpu];

/// Measures the cells of the grid, and says which of them no gateway does.
pub(super) fn run(arguments: &Handshakes) -> Result<(), Failure> {
    let quick = arguments.quick;
    let base = Experiment {
        seconds: arguments.seconds.unwrap_or(if quick { 0.3 } else { 1.0 }),
        link: arguments.link.clone(),
        ..Experiment::default()
    };
    let axes = axes(arguments);
    let (experiments, impossible) = axes.cells(&base);
    if arguments.impossible {
        return impossible.iter().try_for_each(|cell| say!("{}: {}\n", cell.what, cell.why));
    }
    if experiments.is_empty() {
        let why = impossible.first().map_or("no suite goes with such a key", |cell| cell.why);
        return Err(Failure::new(Status::Usage, format!("no gateway does any of these: {why}")));
    }
    super::prepare(&experiments, &arguments.output)?;
    let repetitions = Repetitions::exactly(arguments.repeat.unwrap_or(if quick { 3 } else { 5 }));
    let output = &arguments.output;
    let done = super::perform(|| super::conductor(&arguments.host, output), &experiments, repetitions, output)?;
    summarize(&impossible);
    let columns = match arguments.columns.columns.as_slice() {
        [] => Columns { columns: FIGURES.to_vec() },
        _ => arguments.columns.clone(),
    };
    super::finish(done, output, &columns, &arguments.thresholds)
}

fn axes(arguments: &Handshakes) -> Axes {
    let quick = || QUICK.iter().filter_map(|name| name.parse::<Suite>().ok()).collect();
    Axes {
        doors: arguments.doors.clone(),
        suites: if arguments.quick && arguments.suites.is_empty() { quick() } else { arguments.suites.clone() },
        groups: arguments.groups.clone(),
        keys: arguments.keys.clone(),
    }
}

/// How many cells are not measured, reason by reason.
fn summarize(impossible: &[Impossible]) {
    let mut reasons = BTreeMap::new();
    impossible.iter().for_each(|cell| *reasons.entry(cell.why).or_insert(0) += 1);
    for (why, cells) in reasons {
        eprintln!("not measured, {cells} combinations: {why} (--impossible lists them)");
    }
}
