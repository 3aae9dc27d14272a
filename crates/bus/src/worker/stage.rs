//! The destinations of a publication.

use super::Worker;
use crate::{
    counters::Tally,
    message::Publication,
    outcome::Outcome,
    route::{Pick, Routes},
};

impl Worker {
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
