//! The destinations of a publication, and the work of finding them.

use std::rc::Rc;

use super::Worker;
use crate::{
    counters::Tally,
    limits::{DELIVERIES_PER_TURN, RUN_MAX},
    message::Publication,
    outcome::Outcome,
    route::{Pick, Routes},
    topic::TopicRef,
};

impl Worker {
    /// The work that a publication to a topic makes, in deliveries, for doors that cannot set a part of a batch aside:
    /// they publish before a batch makes more than [`DELIVERIES_PER_TURN`]. Finding the subscribers counts as work of
    /// the next batch.
    pub fn reach(&mut self, topic: TopicRef<'_>) -> u64 {
        let mut tally = Tally::default();
        let before = self.routed;
        let routes = self.route(topic, &mut tally);
        if tally.route_misses > 0 {
            // A hit is counted when the publication follows.
            self.bus.counters().add(&tally);
        }
        (routes.direct + routes.groups.len()) as u64 + self.routed - before
    }

    pub(super) fn route(&mut self, topic: TopicRef<'_>, tally: &mut Tally) -> Rc<Routes> {
        // The stamp is read before the tree: a change in between makes the entry stale, never wrongly fresh.
        let stamp = self.bus.stamp(topic.as_str());
        if let Some(routes) = self.cache.get(topic.as_str(), stamp) {
            tally.route_hits += 1;
            return routes;
        }
        tally.route_misses += 1;
        let matched = self.bus.matching(topic.as_str());
        self.routed += matched.work();
        self.has_wide |= matched.work() >= DELIVERIES_PER_TURN / RUN_MAX as u64;
        let routes = Rc::new(Routes::build(topic, matched.direct, matched.groups));
        self.cache.put(topic.as_str(), stamp, &routes);
        routes
    }

    /// Stages a publication for each of its destinations.
    #[inline]
    pub(super) fn stage_one(
        &mut self,
        index: usize,
        publication: &Publication<'_>,
        routes: &Routes,
        tally: &mut Tally,
    ) {
        let Ok(index) = u32::try_from(index) else { return };
        let mut matched = 0;
        for (entry, at) in routes.entries.iter().take(routes.direct).zip(0..) {
            if !entry.no_local || publication.publisher.slot != Some(entry.slot) {
                self.staging.stage(entry.slot, Pick { publication: index, entry: at });
                matched += 1;
            }
        }
        if !routes.groups.is_empty() {
            matched += self.stage_groups(index, publication, routes);
        }
        if matched == 0 {
            tally.unmatched += 1;
        }
        tally.matched += u64::from(matched);
        let bytes = publication.payload.as_slice().len() as u64;
        tally.published_bytes += bytes;
        tally.delivered_bytes += bytes * u64::from(matched);
        publication.outcome.set(Outcome { matched, ..publication.outcome() });
    }

    /// Stages for one member of each group. Returns how many.
    #[inline(never)]
    fn stage_groups(&mut self, index: u32, publication: &Publication<'_>, routes: &Routes) -> u32 {
        let mut matched = 0;
        for group in &routes.groups {
            let chosen = routes.choose(group, &self.bus.slots);
            let chosen = chosen.and_then(|at| Some((routes.entries.get(at)?, u32::try_from(at).ok()?)));
            let Some((entry, at)) = chosen else { continue };
            if !entry.no_local || publication.publisher.slot != Some(entry.slot) {
                self.staging.stage(entry.slot, Pick { publication: index, entry: at });
                matched += 1;
            }
        }
        matched
    }
}
