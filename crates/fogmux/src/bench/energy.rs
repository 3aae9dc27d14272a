//! `--energy` and `--meter`: the energy of repetitions, noted when all are done.

use fogmux_traffic::measure::energy::{Meter, Model};
use fogmux_traffic::outcome::Run;

use super::arguments::Output;
use crate::exit::{Failure, Status};

/// Reads the files that the flags name, before anything is measured.
///
/// # Errors
/// A file cannot be read or has something else in it, or there is no model of that name.
pub(super) fn check(output: &Output) -> Result<(), Failure> {
    let model = output.energy.as_deref().map(Model::load).transpose();
    model.map_err(|error| Failure::new(Status::Usage, error))?;
    let meter = output.meter.as_deref().map(Meter::read).transpose();
    meter.map_err(|error| Failure::new(Status::DataErr, error))?;
    Ok(())
}

/// Notes the energy of all repetitions; the meter has written on until now. A file that has become unreadable meanwhile
/// leaves them without energy, and not without their other results.
pub(super) fn note(output: &Output, runs: &mut [Run]) {
    let model = output
        .energy
        .as_deref()
        .and_then(|word| Model::load(word).inspect_err(|error| eprintln!("no energy of a model: {error}")).ok());
    let meter = output.meter.as_deref().map(|path| Meter::read(path).map_err(|error| error.to_string()));
    runs.iter_mut().for_each(|run| run.note_energy(model.as_ref(), meter.as_ref()));
}
