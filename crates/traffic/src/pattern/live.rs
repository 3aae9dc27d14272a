//! Figures of a measurement while it lasts: one sample a second, for those who watch.

use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::stage::Stage;

/// How often a sample is taken.
const EACH: Duration = Duration::from_secs(1);

/// Takes samples.
pub type Live = Rc<dyn Fn(&Sample)>;

/// A moment of a measurement. Counts are those since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Sample {
    /// Since the measurement began, in seconds.
    pub seconds: f64,
    /// Operations begun.
    pub sent: u64,
    /// Operations answered with success.
    pub acknowledged: u64,
    /// Messages that reached subscribers.
    pub delivered: u64,
    /// Refusals and failures.
    pub errors: u64,
    /// Deliveries, else answers, a second since the sample before.
    pub per_s: f64,
    /// The median latency since the measurement began, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_p50_us: Option<f64>,
    /// The latency that 99 of 100 do not exceed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_p99_us: Option<f64>,
}

/// The clock of the samples; without a watcher it never strikes.
pub(super) struct Ticker {
    to: Option<(Live, Interval)>,
    before: Sample,
}

impl Ticker {
    /// From now on.
    pub(super) fn new(live: Option<&Live>) -> Self {
        let clock = || {
            let mut interval = interval_at(Instant::now() + EACH, EACH);
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval
        };
        Self { to: live.map(|live| (Rc::clone(live), clock())), before: Sample::default() }
    }

    /// Waits until a sample is due.
    pub(super) async fn due(&mut self) {
        match &mut self.to {
            Some((_, interval)) => drop(interval.tick().await),
            None => std::future::pending().await,
        }
    }

    /// Takes one.
    pub(super) fn sample(&mut self, stage: &Stage) {
        let Some((live, _)) = &self.to else { return };
        let delivers = stage.experiment.delivers();
        let sample = stage.ledger.borrow().sample(delivers, stage.now_ns());
        let done = |sample: &Sample| if delivers { sample.delivered } else { sample.acknowledged };
        let since = sample.seconds - self.before.seconds;
        #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
        let more = done(&sample).saturating_sub(done(&self.before)) as f64;
        let sample = Sample { per_s: if since > 0.0 { more / since } else { 0.0 }, ..sample };
        self.before = sample;
        live(&sample);
    }
}
