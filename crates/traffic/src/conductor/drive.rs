//! Has the clients of one experiment, or of several at the same time, do their work.

use std::iter::repeat_n;
use std::rc::Rc;
use std::time::Duration;

use super::recorder::{is_recorded, recorder};
use super::threads::{Threads, Work};
use super::{Conductor, ConductorError};
use crate::experiment::{Door, Experiment};
use crate::link::{Conditions, Laid};
use crate::measure::gateway::GatewayProbe;
use crate::measure::process::ProcessProbe;
use crate::outcome::Outcome;
use crate::pattern::{self, Bench, Live, Member, Since};
use crate::target::Access;

/// The time added to the longest expected duration of an experiment, after which it counts as hanging.
const GRACE: Duration = Duration::from_secs(120);
/// The same on a link that loses frames: both ends may connect, and subscribe, for 90 s each.
const GRACE_LOSSY: Duration = Duration::from_secs(300);

impl Conductor {
    /// The work of an experiment's publishers and subscribers, which is a group of several if it has a name.
    pub(super) fn work(
        &self,
        experiment: &Experiment,
        group: Option<&str>,
        (mut publishers, mut subscribers): (Access, Access),
    ) -> Work {
        for access in [&mut publishers, &mut subscribers] {
            access.key_log.clone_from(&self.key_log);
            access.group = group.map(str::to_owned);
        }
        let conflates = matches!(experiment.reader_door(), Door::Coap | Door::CoapTcp);
        let (experiment, group) = (experiment.clone(), group.map(str::to_owned));
        Work { group, experiment, publishers, subscribers, conflates, is_watched: self.watcher.is_some() }
    }

    /// Has all works done at the same time: they begin when all are connected, and end together. Returns their outcomes
    /// in order; what was read of processes and of the link is in the first, and of all of them.
    pub(super) async fn drive(
        &self,
        works: &[Work],
        number: u32,
        probe: Option<GatewayProbe>,
        since: &Since,
    ) -> Result<Vec<Outcome>, ConductorError> {
        let threads: Vec<u32> = works.iter().map(|work| work.experiment.threads).collect();
        let each = |(work, threads): (&Work, &u32)| repeat_n(work.clone(), usize::try_from(*threads).unwrap_or(1));
        let mut all = works.iter().zip(&threads).flat_map(each).zip(Member::together(&threads, number));
        let (work, member) = all.next().ok_or(ConductorError::Nothing)?;
        let experiment = &work.experiment;
        let (writer, reader) = work.drivers().map_err(|why| work.named(why))?;
        let laid = self.network.laid();
        let _inside = laid.map(Laid::enter_client).transpose()?;
        // They are in the same network as this one, from their first instruction on.
        let further = Threads::start(&member, all)?;
        let mut bench = Bench {
            publishers: writer,
            subscribers: reader,
            gateway: probe,
            generator: ProcessProbe::own(),
            wire: laid.map(Laid::counter),
            record: laid.filter(|_| is_recorded(experiment)).map(|laid| recorder(laid, experiment)),
            conflates: work.conflates,
            since: Rc::clone(since),
            live: self.live(experiment, number, &member),
            member: member.clone(),
        };
        let most = works.iter().map(|work| longest(&work.experiment)).max().unwrap_or_default();
        let done = async {
            let first = tokio::select! {
                done = pattern::run(experiment, &mut bench) => done,
                why = member.failed() => Err(why),
            };
            let first = match first {
                Ok(first) => first,
                Err(why) => {
                    // Unless another has failed before, and this one with it.
                    member.fail(work.named(why));
                    return Err(member.failed().await);
                }
            };
            let mut outcomes = std::iter::once(first).chain(further.join().await?);
            let sum = |threads: &u32| {
                let mut outcomes = outcomes.by_ref().take(usize::try_from(*threads).unwrap_or(1));
                let mut sum = outcomes.next().unwrap_or_default();
                outcomes.for_each(|other| sum.add(other));
                sum
            };
            Ok(threads.iter().map(sum).collect())
        };
        Ok(tokio::time::timeout(most, done).await.map_err(|_| ConductorError::Hanging(most))??)
    }

    /// The watcher of all threads, if anybody watches.
    fn live(&self, experiment: &Experiment, number: u32, member: &Member) -> Option<Live> {
        let live = self.watcher.as_ref()?.live(experiment, number);
        if !member.has_others() {
            return Some(live);
        }
        let member = member.clone();
        Some(Rc::new(move |sample| live(&member.sum(sample))))
    }
}

/// The time after which an experiment counts as hanging.
fn longest(experiment: &Experiment) -> Duration {
    let lasts = experiment.seconds + experiment.warm_up_seconds + 2.0 * experiment.drain_seconds;
    let grace = if is_lossy(experiment) { GRACE_LOSSY } else { GRACE };
    Duration::from_secs_f64(lasts + experiment.start_spread_seconds) + grace
}

fn is_lossy(experiment: &Experiment) -> bool {
    experiment.link.parse::<Conditions>().is_ok_and(|conditions| conditions.is_lossy())
}
