//! `fogmux bench curve`: the highest rate that a gateway keeps up with, and its latency below that.

use fogmux_traffic::Experiment;
use fogmux_traffic::experiment::Operation;
use fogmux_traffic::saturation::{self, Load, Search};

use super::arguments::Curve;
use super::effect::{self, Served};
use super::signals;
use crate::exit::{Failure, Status};

/// Searches the highest rate, unless rates are given, and measures at shares of it.
pub(super) fn run(arguments: &Curve) -> Result<(), Failure> {
    let shape = arguments.shape.experiment();
    if shape.rate.is_some() || shape.gap_seconds.is_some() {
        return Err(Failure::new(Status::Usage, "a curve has rates of its own: leave --rate and --gap away"));
    }
    if shape.operation == Operation::Hold {
        return Err(Failure::new(Status::Usage, "a curve is one of rates, and --operation hold has none"));
    }
    effect::refuse(&arguments.shape.given, &shape, Served::Gateway)?;
    let rates = match arguments.rates.as_slice() {
        [] => searched(arguments, &shape)?,
        rates => rates.to_vec(),
    };
    let at = |rate: f64| Experiment { rate: Some(rate), ..shape.clone() };
    let experiments: Vec<Experiment> = rates.into_iter().map(at).collect();
    super::prepare(&experiments, &arguments.output)?;
    let (output, repetitions) = (&arguments.output, arguments.until.repetitions(arguments.repeat));
    let done = super::perform(|| super::conductor(&arguments.host, output), &experiments, repetitions, output)?;
    super::finish(done, output, &arguments.columns, &arguments.thresholds)
}

/// Finds the highest rate and returns the rates of the curve.
fn searched(arguments: &Curve, shape: &Experiment) -> Result<Vec<f64>, Failure> {
    let first = Experiment { rate: Some(arguments.from), seconds: arguments.step_seconds, ..shape.clone() };
    super::prepare(std::slice::from_ref(&first), &arguments.output)?;
    let search = super::block_on(search(arguments, &first))??;
    let Some(rate) = search.rate() else {
        let why = "no rate was kept: something was late, lost or refused at every one that was tried";
        return Err(Failure::new(Status::Unavailable, why));
    };
    let rates = saturation::curve(rate);
    let shown = rates.last().copied().unwrap_or(rate);
    match search.limited_by_generator() {
        Some(why) => eprintln!("{shown}/s is the highest rate that the generator offers ({why}): a lower bound"),
        None => eprintln!("{shown}/s is the highest rate that is kept, to a tenth"),
    }
    Ok(rates)
}

async fn search(arguments: &Curve, first: &Experiment) -> Result<Search, Failure> {
    let stop = signals::stop()?;
    let conductor = super::conductor(&arguments.host, &arguments.output)?.until(stop.clone());
    let mut conductor = conductor.watched(super::watcher(&arguments.output)?);
    let mut search = Search::from(arguments.from);
    let mut number = 0;
    while let Some(rate) = search.next() {
        let experiment = Experiment { rate: Some(rate), ..first.clone() };
        let measured = conductor.repeat(&experiment, number).await;
        if let Some(signal) = *stop.borrow() {
            return Err(signals::failure(signal));
        }
        let outcome = measured.map_err(|error| Failure::new(Status::Unavailable, error))?;
        let load = Load::of(&experiment, &outcome);
        let word = match &load {
            Load::Kept => "kept",
            Load::Behind => "not kept",
            Load::Limited(_) => "not offered: the generator was the limit",
        };
        eprintln!("{rate:.0}/s: {word}");
        search.tried(rate, load);
        number += 1;
    }
    Ok(search)
}
