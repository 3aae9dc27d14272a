//! A fleet: all of its groups at the same time, against one gateway.

use std::rc::Rc;

use super::{Conductor, ConductorError, Target, before_now_unix_ms, ended, here, now_unix_ms, program_bytes};
use super::{Serving, gone, started, stopped, tasks, witnessed};
use crate::experiment::Experiment;
use crate::fleet::Fleet;
use crate::measure::limits;
use crate::measure::watch::Watch;
use crate::outcome::{Outcome, ProcessUse};
use crate::target::TargetError;

impl Conductor {
    /// One repetition of a fleet, which is `number` from 0. Returns the outcome of all groups together, and after it
    /// that of each. Has to be called within a `LocalRuntime`.
    ///
    /// # Errors
    /// There is nothing to be measured; why is said, with the name of the group.
    pub async fn repeat_fleet(&mut self, fleet: &Fleet, number: u32) -> Result<Vec<Outcome>, ConductorError> {
        let (watcher, whole) = (self.watcher.clone(), fleet.whole());
        let done = match self.stopped_by() {
            Some(why) => Err(ConductorError::Stopped(why)),
            None => self.execute_fleet(fleet, number).await,
        };
        if let Some(watcher) = watcher {
            let problem = done.as_ref().err().map(ToString::to_string);
            watcher.ended(&whole, number, problem.as_deref());
        }
        done
    }

    async fn execute_fleet(&mut self, fleet: &Fleet, number: u32) -> Result<Vec<Outcome>, ConductorError> {
        let first = fleet.groups().first().ok_or(ConductorError::Nothing)?;
        self.lay(&first.experiment, number)?;
        let link = self.network.laid();
        let Target::Gateway(home) = &mut self.target else {
            return Err(TargetError::Unsupported("a fleet runs against a gateway of this host".to_owned()).into());
        };
        let experiments: Vec<&Experiment> = fleet.groups().iter().map(|group| &group.experiment).collect();
        let gateway = started(home, link, &experiments)?;
        let access = |experiment: &Experiment| {
            let publishers = gateway.access(home, experiment, experiment.door)?;
            Ok::<_, TargetError>((publishers, gateway.access(home, experiment, experiment.reader_door())?))
        };
        let ways = experiments.iter().map(|experiment| access(experiment)).collect::<Result<Vec<_>, _>>()?;
        let program = program_bytes(home.binary());
        let works: Vec<_> = fleet
            .groups()
            .iter()
            .zip(ways)
            .map(|(group, ways)| self.work(&group.experiment, Some(&group.name), ways))
            .collect();
        let (began_unix_ms, since) = (now_unix_ms(), Rc::default());
        let mut serving = Serving::Gateway(gateway);
        let pids = serving.pids();
        let watch = Watch::of(&pids).map_err(ConductorError::Processes)?;
        let tasks = tasks();
        let done = tokio::select! {
            biased;
            why = stopped(self.stop.clone()) => Err(ConductorError::Stopped(why)),
            done = self.drive(&works, number, here(&pids), &since) => done,
            pid = watch.ended() => Err(ended(&mut serving, pid, &since)),
        };
        gone(tasks, &done).await;
        let measured_from_unix_ms = before_now_unix_ms(&since);
        let mut outcomes = witnessed(done, &mut serving, &watch, &since).await?;
        let counted = outcomes.iter().cloned().zip(fleet.groups());
        let mut counted = counted.map(|(outcome, group)| counted_as_deliveries(&group.experiment, outcome));
        let mut whole = counted.next().unwrap_or_default();
        counted.for_each(|other| whole.add(other));
        whole.gateway_affinity = pids.first().copied().and_then(limits::affinity);
        whole.more.extend(program);
        outcomes.iter_mut().for_each(only_own);
        outcomes.insert(0, whole);
        for outcome in &mut outcomes {
            self.network.note(outcome);
            outcome.settings = serving.settings();
            outcome.began_unix_ms = began_unix_ms;
            outcome.measured_from_unix_ms = measured_from_unix_ms;
        }
        Ok(outcomes)
    }
}

/// Where nobody listens the answer of an operation is its delivery: what is lost and how long it takes is then counted
/// for all groups together.
fn counted_as_deliveries(experiment: &Experiment, outcome: Outcome) -> Outcome {
    if experiment.delivers() {
        return outcome;
    }
    let (expected, delivered) = (outcome.sent.saturating_sub(outcome.errors), outcome.acknowledged);
    Outcome { expected, delivered, delivery: outcome.answer.clone(), ..outcome }
}

/// Leaves out what was read of processes, of the machine and of the link, which nobody can divide among groups.
fn only_own(outcome: &mut Outcome) {
    (outcome.gateway, outcome.gateway_connect) = (None, None);
    (outcome.generator, outcome.others_cpu_s) = (ProcessUse::default(), 0.0);
    (outcome.bytes.wire, outcome.connect_bytes.wire) = (None, None);
    outcome.more.clear();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Operation;
    use crate::report::figure::lost;

    #[test]
    fn a_request_that_is_never_answered_is_lost_of_the_whole() {
        let mut asked = Outcome { sent: 10, acknowledged: 6, errors: 1, ..Outcome::default() };
        asked.answer.record_many_ns(1_000, 6);
        let heard = Outcome { sent: 5, acknowledged: 5, expected: 10, delivered: 9, ..Outcome::default() };
        let post = Experiment { operation: Operation::Post, ..Experiment::default() };
        let mut whole = counted_as_deliveries(&Experiment::default(), heard.clone());
        whole.add(counted_as_deliveries(&post, asked.clone()));
        assert_eq!(lost(&whole), lost(&heard) + lost(&asked));
        assert_eq!((lost(&whole), whole.sent, whole.delivered, whole.delivery.count()), (4, 15, 15, 6));
    }
}
