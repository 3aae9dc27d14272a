//! The choice of publications whose deliveries are timed (ADR 0054).
//!
//! Few publications a second are all timed. Beyond a budget one in [`ONE_IN`] is, and stands for so many. Nothing is
//! done for a publication that is not chosen, and the clock is read once for a batch with one that is.

use std::num::NonZeroU32;

use crate::{Timestamp, message::Publication};

/// Of so many publications beyond the budget one is timed: the mean of the gaps between them.
const ONE_IN: u32 = 128;
/// Gaps of 1 to `GAPS` have the mean (GAPS + 1) / 2.
const GAPS: usize = 255;
const _: () = assert!(GAPS + 1 == 2 * ONE_IN as usize, "what stands for others stands for as many as there are");
/// Added to the last gap modulo [`GAPS`]. The two have no common factor, so that all gaps come before one comes again,
/// in no order that the batches of a publisher are likely to have.
const STRIDE: usize = 158;
/// Deliveries that are all timed at once.
const BUDGET: i64 = 256;
/// The time in which the budget is refilled by one: what takes a hundred deliveries a second costs nothing that could
/// be measured.
const REFILL_MS: u64 = 8;
/// A single publication may have any number of deliveries; no more of them are held against those that follow.
const DEBT_MAX: i64 = 1024;
/// Bits of a time in microseconds.
const TIME_BITS: u32 = 29;
/// Above this the time in milliseconds is taken, because the other one wraps after nine minutes.
const LONG_US: u64 = 450_000_000;

/// The lowest two bits: the number of publications that it stands for. None of them is zero.
const KIND: u32 = 0b011;
const ONE: NonZeroU32 = NonZeroU32::MIN;
const MANY: NonZeroU32 = ONE.saturating_add(1);
#[cfg(feature = "traces")]
const NONE: NonZeroU32 = MANY.saturating_add(1);
/// The publication is traced (ADR 0071).
#[cfg(feature = "traces")]
const TRACED: u32 = 0b100;

/// When a publication was taken, and how many publications it stands for. Four bytes, which a message has to spare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample(NonZeroU32);

impl Sample {
    /// Of a publication that was taken at a time in microseconds, and stands for itself or for [`ONE_IN`].
    fn new(taken_us: u64, stands_for_many: bool) -> Self {
        Self(if stands_for_many { MANY } else { ONE } | wrapped(taken_us))
    }

    /// How many publications it stands for.
    #[must_use]
    pub fn stands_for(self) -> u64 {
        let kind = self.0.get() & KIND;
        if kind == ONE.get() {
            return 1;
        }
        u64::from(if kind == MANY.get() { ONE_IN } else { 0 })
    }

    /// The microseconds from then until `now_us`, which is in microseconds since the origin of timestamps. `ingest` is
    /// when the message came in.
    #[must_use]
    pub fn elapsed_us(self, ingest: Timestamp, now_us: u64) -> u64 {
        let long_us = now_us.saturating_sub(ingest.as_millis().saturating_mul(1000));
        if long_us > LONG_US {
            return long_us;
        }
        let then = self.0.get() >> (32 - TIME_BITS) << (32 - TIME_BITS);
        u64::from(wrapped(now_us).wrapping_sub(then) >> (32 - TIME_BITS))
    }
}

/// A time in microseconds, in the highest bits.
#[expect(clippy::cast_possible_truncation, reason = "it wraps")]
const fn wrapped(us: u64) -> u32 {
    (us as u32) << (32 - TIME_BITS)
}

#[cfg(feature = "traces")]
impl Sample {
    /// Of a publication that is traced, whose deliveries are not counted.
    pub(crate) fn traced(taken_us: u64) -> Self {
        Self(NONE | TRACED | wrapped(taken_us))
    }

    /// Whether the publication is traced.
    #[must_use]
    pub const fn is_traced(self) -> bool {
        self.0.get() & TRACED != 0
    }

    /// The same where `other` was of the same publication: it stays traced.
    pub(crate) fn and_traced(self, other: Option<Self>) -> Self {
        Self(self.0 | other.map_or(0, |other| other.0.get() & TRACED))
    }

    /// The same for a delivery that is not counted.
    #[must_use]
    pub fn uncounted(self) -> Self {
        Self(self.0 | NONE.get())
    }
}

/// The choice of one worker.
pub(crate) struct Sampling {
    /// Gives microseconds since the origin of timestamps.
    clock: Box<dyn Fn() -> u64>,
    /// Deliveries that may all be timed, below zero if there were too many.
    budget: i64,
    refilled_ms: u64,
    /// Publications beyond the budget before the next one that is timed.
    before_next: usize,
    gap: usize,
}

impl Sampling {
    pub(crate) fn new(clock: impl Fn() -> u64 + 'static) -> Self {
        Self { clock: Box::new(clock), budget: BUDGET, refilled_ms: 0, before_next: 0, gap: 0 }
    }

    /// Chooses among a batch. Returns whether all are timed, so that [`Sampling::spend`] is to be told of them.
    pub(crate) fn choose(&mut self, batch: &mut [Publication<'_>]) -> bool {
        let Some(first) = batch.first() else { return false };
        self.refill(first.ingest);
        if i64::try_from(batch.len()).is_ok_and(|length| length <= self.budget) {
            let sample = Sample::new((self.clock)(), false);
            batch.iter_mut().for_each(|publication| publication.time(sample));
            return true;
        }
        if self.before_next < batch.len() {
            let sample = Sample::new((self.clock)(), true);
            while let Some(publication) = batch.get_mut(self.before_next) {
                publication.time(sample);
                self.gap = (self.gap + STRIDE) % GAPS;
                self.before_next += self.gap + 1;
            }
        }
        self.before_next -= batch.len();
        false
    }

    fn refill(&mut self, now: Timestamp) {
        let gained = now.as_millis().saturating_sub(self.refilled_ms) / REFILL_MS;
        if gained > 0 {
            self.refilled_ms += gained * REFILL_MS;
            self.budget = self.budget.saturating_add_unsigned(gained).min(BUDGET);
        }
    }

    /// Notes the deliveries of a batch that are all timed.
    pub(crate) fn spend(&mut self, deliveries: u64) {
        self.budget = self.budget.saturating_sub_unsigned(deliveries.max(1)).max(-DEBT_MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{message::Payload, message::Publisher, topic::TopicRef};

    fn batch(publisher: &Arc<Publisher>, length: usize, at: Timestamp) -> Vec<Publication<'_>> {
        let publication = || Publication::new(TopicRef::new("t").unwrap(), Payload::Slice(b""), publisher, at, 0);
        (0..length).map(|_| publication()).collect()
    }

    /// The sum of what they stand for.
    fn weight(batch: &[Publication<'_>]) -> u64 {
        batch.iter().filter_map(|publication| publication.sample).map(Sample::stands_for).sum()
    }

    #[test]
    fn few_publications_are_all_timed() {
        let publisher = Publisher::internal();
        let mut sampling = Sampling::new(|| 0);
        for second in 1..100 {
            let mut few = batch(&publisher, 50, Timestamp::from_millis(second * 1000));
            assert!(sampling.choose(&mut few));
            sampling.spend(100);
            assert!(few.iter().all(|publication| publication.sample.is_some_and(|sample| sample.stands_for() == 1)));
        }
    }

    #[test]
    fn those_chosen_of_many_stand_for_all_whatever_the_batches_are() {
        let publisher = Publisher::internal();
        for length in [1, 2, 3, 7, 64, 127, 128, 255, 500, 1000] {
            let mut sampling = Sampling::new(|| 0);
            sampling.budget = 0;
            let all = 255 * 1000 / length;
            let weight: u64 = (0..all)
                .map(|_| {
                    let mut many = batch(&publisher, length, Timestamp::ZERO);
                    assert!(!sampling.choose(&mut many), "there is no budget");
                    weight(&many)
                })
                .sum();
            let (weight, all) = (weight as f64, (all * length) as f64);
            assert!((weight / all - 1.0).abs() < 0.02, "{length}: {weight} of {all}");
        }
    }

    #[test]
    fn deliveries_use_the_budget_up_and_time_refills_it() {
        let publisher = Publisher::internal();
        let mut sampling = Sampling::new(|| 0);
        let mut chosen = |at| sampling.choose(&mut batch(&publisher, 1, Timestamp::from_millis(at)));
        assert!(chosen(1));
        sampling.spend(10_000);
        let mut chosen = |at| sampling.choose(&mut batch(&publisher, 1, Timestamp::from_millis(at)));
        assert!(!chosen(8000), "a publication with ten thousand deliveries used it up");
        assert!(chosen(8200), "and was not held against others for ever");
    }

    #[test]
    fn times_are_exact_to_a_microsecond_and_never_wrap() {
        let hour = 3_600_000_000;
        for taken_us in [0, 1, 999, 12_345_678, 40 * hour + 7] {
            let ingest = Timestamp::from_millis(taken_us / 1000);
            for elapsed in [0, 1, 99, 100, 1_000_000, 449_000_000] {
                for many in [false, true] {
                    let sample = Sample::new(taken_us, many);
                    assert_eq!(sample.elapsed_us(ingest, taken_us + elapsed), elapsed);
                    assert_eq!(sample.stands_for(), if many { 128 } else { 1 });
                }
            }
            for elapsed in [451_000_000, 536_870_912, hour, 30 * hour] {
                let found = Sample::new(taken_us, false).elapsed_us(ingest, taken_us + elapsed);
                assert!(found.abs_diff(elapsed) <= 1000, "{found}");
            }
        }
    }

    #[cfg(feature = "traces")]
    #[test]
    fn what_is_traced_stays_so_and_is_counted_only_if_it_was_chosen() {
        let traced = Sample::traced(77);
        assert_eq!((traced.stands_for(), traced.elapsed_us(Timestamp::ZERO, 99)), (0, 22));
        for many in [false, true] {
            let chosen = Sample::new(12, many);
            assert!(!chosen.is_traced());
            let both = chosen.and_traced(Some(traced));
            assert!(both.is_traced() && both.uncounted().is_traced());
            assert_eq!((both.stands_for(), both.uncounted().stands_for()), (chosen.stands_for(), 0));
            assert_eq!(both.elapsed_us(Timestamp::ZERO, 15), 3);
            assert_eq!(chosen.and_traced(None), chosen);
        }
    }
}
