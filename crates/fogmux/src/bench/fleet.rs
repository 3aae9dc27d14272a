//! `fogmux bench fleet`: the groups of a script, all at the same time.

use std::time::Duration;

use fogmux_traffic::fleet::{Fleet, FleetError, WHOLE};
use fogmux_traffic::outcome::Run;
use fogmux_traffic::repetition::Void;
use fogmux_traffic::{Experiment, Outcome};

use super::arguments::{self, Host};
use super::record::Record;
use super::{Done, signals};
use crate::exit::{Failure, Status};
use crate::open_files;

/// Runs a fleet as often as is asked for. The first run of the report is all of it, the others are its groups.
pub(super) fn run(arguments: &arguments::Fleet) -> Result<(), Failure> {
    let fleet = Fleet::read(&arguments.file).map_err(|error| match error {
        FleetError::File(..) => Failure::new(Status::NoInput, error),
        FleetError::Content(..) | FleetError::Group { .. } => Failure::new(Status::DataErr, error),
    })?;
    let experiments: Vec<Experiment> = fleet.groups().iter().map(|group| group.experiment.clone()).collect();
    super::prepare(&experiments, &arguments.output)?;
    open_files::check_room(fleet.clients()).map_err(|error| Failure::new(Status::Usage, error))?;
    let done = super::block_on(perform(arguments, &fleet))??;
    super::finish(done, &arguments.output, &arguments.columns, &arguments.thresholds)
}

async fn perform(arguments: &arguments::Fleet, fleet: &Fleet) -> Result<Done, Failure> {
    let output = &arguments.output;
    let stop = signals::stop()?;
    let conductor = super::conductor(&Host::default(), output)?.until(stop.clone());
    let mut conductor = conductor.watched(super::watcher(output)?);
    let target = conductor.target();
    let named =
        |name: &str, experiment: Experiment| Run { name: Some(name.to_owned()), ..Run::of(experiment, target.clone()) };
    let groups = fleet.groups().iter().map(|group| named(&group.name, group.experiment.clone()));
    let all = std::iter::once(named(WHOLE, fleet.whole())).chain(groups).collect();
    let mut record = Record::of_rounds(output, all, 1)?;
    let mut runs = record.runs();
    let begun = runs.first().map_or(0, |whole| whole.outcomes.len() + whole.failed.len());
    for number in u32::try_from(begun).unwrap_or(u32::MAX)..arguments.repeat {
        say(fleet, number);
        match conductor.repeat_fleet(fleet, number).await {
            Ok(outcomes) => add(&mut record, &mut runs, outcomes),
            Err(error) => {
                let void = Void::from(error);
                record.note(0, &Err(void.clone()));
                if failed(runs.first_mut(), void) {
                    break;
                }
            }
        }
    }
    // A meter measures the gateway, which nobody can divide among groups.
    super::energy::note(output, runs.get_mut(..1).unwrap_or_default());
    let stopped = *stop.borrow();
    Ok(Done { record, runs, gateway_environment: None, stopped })
}

fn say(fleet: &Fleet, number: u32) {
    let Some(first) = fleet.groups().first().map(|group| &group.experiment) else { return };
    let lasts = Duration::from_secs_f64(first.seconds + first.warm_up_seconds);
    let (groups, clients) = (fleet.groups().len(), fleet.clients());
    eprintln!("#{}: {groups} groups, {clients} clients, {lasts:?}", number + 1);
}

fn add(record: &mut Record, runs: &mut [Run], outcomes: Vec<Outcome>) {
    for (at, (run, outcome)) in runs.iter_mut().zip(outcomes).enumerate() {
        record.note(at, &Ok(outcome.clone()));
        run.outcomes.push(outcome);
    }
}

/// Notes why a repetition of the whole has no outcome. Returns whether it was stopped.
fn failed(whole: Option<&mut Run>, void: Void) -> bool {
    let (Void::Failed(why) | Void::Stopped(why)) = &void;
    if let Some(whole) = whole {
        whole.problem = Some(why.clone());
        whole.failed.extend(matches!(void, Void::Failed(_)).then(|| why.clone()));
    }
    matches!(void, Void::Stopped(_))
}
