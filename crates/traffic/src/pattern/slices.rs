//! Figures by slice of the measured time, for experiments whose rate changes in it.

use std::time::Duration;

use super::stage::nanoseconds;
use crate::experiment::Experiment;
use crate::outcome::Slice;

/// Slices of a measurement.
const SLICES: u64 = 10;

/// The slices of a measurement that has begun; none where the rate stays.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slices {
    began_ns: u64,
    each_ns: u64,
    all: Vec<Slice>,
}

impl Slices {
    /// The length of a slice of this experiment, in nanoseconds; none where the rate stays.
    pub(crate) fn each_ns(experiment: &Experiment) -> Option<u64> {
        experiment.rate_to?;
        Some((nanoseconds(Duration::from_secs_f64(experiment.seconds)) / SLICES).max(1))
    }

    /// Slices of this length, of a measurement that begins now.
    pub(crate) fn of(each_ns: Option<u64>, began_ns: u64) -> Self {
        let Some(each_ns) = each_ns else { return Self::default() };
        let seconds = |slices: u64| Duration::from_nanos(each_ns * slices).as_secs_f64();
        let slice = |number| Slice { from_s: seconds(number), to_s: seconds(number + 1), ..Slice::default() };
        Self { began_ns, each_ns, all: (0..SLICES).map(slice).collect() }
    }

    fn at(&mut self, ns: u64) -> Option<&mut Slice> {
        let last = self.all.len().checked_sub(1)?;
        let number = ns.saturating_sub(self.began_ns) / self.each_ns;
        self.all.get_mut(usize::try_from(number).map_or(last, |number| number.min(last)))
    }

    /// An operation begins that was due then.
    pub(crate) fn begun(&mut self, due_ns: u64, now_ns: u64) {
        if let Some(slice) = self.at(due_ns) {
            slice.sent += 1;
            slice.offered += 1;
        }
        // An operation that begins in the drain begins in no slice.
        let end_ns = self.began_ns + self.each_ns * u64::try_from(self.all.len()).unwrap_or_default();
        if let Some(slice) = self.at(now_ns).filter(|_| now_ns < end_ns) {
            slice.begun += 1;
        }
    }

    /// A message that was due then should reach so many subscribers.
    pub(crate) fn expect(&mut self, due_ns: u64, deliveries: u64) {
        if let Some(slice) = self.at(due_ns) {
            slice.expected += deliveries;
        }
    }

    /// One of these deliveries.
    pub(crate) fn delivered(&mut self, due_ns: u64, latency_ns: u64) {
        if let Some(slice) = self.at(due_ns) {
            slice.delivered += 1;
            slice.latency.record_ns(latency_ns);
        }
    }

    /// An answer with success; with its latency where nothing more comes of it.
    pub(crate) fn acknowledged(&mut self, due_ns: u64, latency_ns: Option<u64>) {
        if let Some(slice) = self.at(due_ns) {
            slice.acknowledged += 1;
            latency_ns.into_iter().for_each(|ns| slice.latency.record_ns(ns));
        }
    }

    /// A refusal or failure.
    pub(crate) fn failed(&mut self, due_ns: u64) {
        if let Some(slice) = self.at(due_ns) {
            slice.errors += 1;
        }
    }

    /// Ends them.
    pub(crate) fn finish(self) -> Vec<Slice> {
        self.all
    }
}
