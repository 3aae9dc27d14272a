//! Connections made and held: what one costs that does nothing.

use std::time::Duration;

use tokio::time::sleep;

use super::connections::Connections;
use super::{Bench, PatternError};
use crate::driver::Role;
use crate::experiment::Experiment;
use crate::measure::process::{MachineProbe, ThreadProbe, limit};
use crate::outcome::Outcome;

/// Opens all connections, holds them for the time of the experiment, and closes them.
///
/// `more` has `resident_bytes_per_connection`, the gateway's growth by one connection, and `connects_per_s`.
pub(crate) async fn run(experiment: &Experiment, bench: &mut Bench<'_>) -> Result<Outcome, PatternError> {
    let wire = bench.wire();
    let (machine, thread) = (MachineProbe::start(), ThreadProbe::start());
    bench.start();
    let before = bench.gateway.as_ref().map(|gateway| gateway.read().resident_bytes);
    let began = std::time::Instant::now();
    let mut held = Connections::open(&*bench.publishers, Role::Publisher, experiment.publishers).await?;
    let seconds = began.elapsed().as_secs_f64();
    let mut outcome = Outcome {
        sent: u64::from(experiment.publishers),
        acknowledged: u64::from(experiment.publishers),
        seconds,
        connect: std::mem::take(&mut held.took),
        cipher: std::mem::take(&mut held.cipher),
        connect_bytes: held.bytes(),
        gateway_connect: bench.gateway.as_ref().map(|gateway| gateway.read()),
        limited_by_generator: limit(thread.busy(), None),
        ..Outcome::default()
    };
    outcome.connect_bytes.wire = bench.wire_since(wire);
    sleep(Duration::from_secs_f64(experiment.seconds)).await;
    bench.end(machine, &mut outcome);
    let connections = f64::from(experiment.publishers);
    outcome.more.insert("connects_per_s".to_owned(), connections / seconds);
    if let (Some(before), Some(after)) = (before, outcome.gateway) {
        #[expect(clippy::cast_precision_loss, reason = "memory is below 2^53 bytes")]
        let grown = after.resident_bytes.saturating_sub(before) as f64;
        outcome.more.insert("resident_bytes_per_connection".to_owned(), grown / connections);
    }
    held.close().await;
    Ok(outcome)
}
