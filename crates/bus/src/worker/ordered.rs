//! Publications that are ordered among all publishers of their topics: retained or conditional ones.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use super::Worker;
use crate::{
    completions::Completions,
    counters::Counters,
    durable::Gather,
    limits::{DELIVERED_UNDER_LOCK, DELIVERIES_PER_TURN, RUN_MAX},
    message::Publication,
    order::Held,
    outcome::Outcome,
    retained::{Kept, RetainedError},
    route::Pushed,
};

impl Worker {
    /// Retains and delivers run by run, until there are so many deliveries; see [`crate::order`]. Returns how many
    /// publications were delivered.
    pub(super) fn publish_in_order(
        &mut self,
        most: u64,
        batch: &[Publication<'_>],
        gather: &Gather,
        pushed: &mut Pushed,
        completions: &mut Completions,
    ) -> usize {
        let bus = Arc::clone(&self.bus);
        let mut rest = batch;
        let mut held: Option<(Held<'_>, u64)> = None;
        while !rest.is_empty() {
            let before = self.work(&pushed.tally, gather);
            let next = self.within_turn(rest.get(..self.run_max).unwrap_or(rest));
            let (count, shards) = bus.order().run(next);
            let (run, later) = rest.split_at(count);
            // Runs of the same topics, as of one sensor's burst, share the locks until they have made much work.
            let few = |since: &u64| before - since < DELIVERED_UNDER_LOCK;
            if !held.as_ref().is_some_and(|(held, since)| held.covers(shards) && few(since)) {
                drop(held.take()); // All locks of a run are taken together, in ascending order.
                held = Some((bus.order().lock(shards), before));
            }
            self.keep(run, batch.len() - rest.len(), completions);
            self.deliver(u64::MAX, run, gather, pushed);
            rest = later;
            // After a run with very many subscribers the next ones are short.
            let is_wide = self.work(&pushed.tally, gather) - before >= DELIVERIES_PER_TURN;
            self.run_max = if is_wide { 1 } else { (2 * self.run_max).min(RUN_MAX) };
            if self.work(&pushed.tally, gather) >= most {
                break;
            }
        }
        batch.len() - rest.len()
    }

    /// The publications at the start that make no more work than one turn has.
    fn within_turn<'p, 'a>(&mut self, publications: &'p [Publication<'a>]) -> &'p [Publication<'a>] {
        if !self.has_wide {
            return publications;
        }
        let mut work = 0;
        let last = publications.iter().position(|publication| {
            work += self.reach(publication.topic);
            work >= DELIVERIES_PER_TURN
        });
        last.and_then(|last| publications.get(..=last)).unwrap_or(publications)
    }

    /// Retains the publications of a run that begins at this place in its batch.
    fn keep(&self, run: &[Publication<'_>], start: usize, completions: &mut Completions) {
        self.bus.keep().keep_run(run, |place, publication, kept| {
            self.note_kept(publication, start + place, kept, completions);
        });
    }

    fn note_kept(
        &self,
        publication: &Publication<'_>,
        place: usize,
        kept: Result<Kept, RetainedError>,
        completions: &mut Completions,
    ) {
        match kept {
            Ok(kept) => {
                publication.outcome.set(Outcome { replaced: kept.replaced, ..publication.outcome() });
                completions.push(place, kept.completion);
            }
            Err(RetainedError::Precondition) => {
                publication.outcome.set(Outcome { precondition_failed: true, ..publication.outcome() });
            }
            Err(why @ (RetainedError::Full | RetainedError::Share)) => {
                if why == RetainedError::Share {
                    Counters::beyond_share(&self.bus.counters().share_retained);
                }
                let refused = publication.can_be_refused();
                self.count_unkept(refused);
                publication.outcome.set(Outcome { refused, unkept: !refused, ..publication.outcome() });
            }
            Err(RetainedError::Store(_)) => {
                let refused = publication.can_be_refused();
                self.count_unkept(refused);
                publication.outcome.set(Outcome { refused, unkept: true, ..publication.outcome() });
            }
        }
    }

    /// A publication that cannot be refused is still delivered to current subscribers (3.1.1's [MQTT-3.3.1-7]).
    fn count_unkept(&self, refused: bool) {
        if !refused {
            self.bus.counters().unkept.fetch_add(1, Relaxed);
        }
    }
}
