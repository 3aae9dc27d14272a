//! The deliveries of a batch, grouped by destination.

use std::rc::Rc;

use super::{Entry, Routes};
use crate::{
    copies::Copies,
    durable::Gather,
    id::{SlotId, WorkerId},
    mailbox::Delivery,
    message::Publication,
};

/// A publication of a batch and an entry of its routes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pick {
    pub(crate) publication: u32,
    pub(crate) entry: u32,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    pick: Pick,
    next: u32,
}

const NONE: u32 = u32::MAX;

/// Picks of a batch in one arena, a list per destination: grouping costs no allocation per batch.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    links: Vec<Link>,
    /// By slot: first and last link.
    lists: Vec<(u32, u32)>,
    /// Slots with a list, with one of their picks, in the order in which they were first picked.
    touched: Vec<(SlotId, Pick)>,
    /// The most picks of a batch since the last [`Self::rest`].
    most: usize,
}

impl Staging {
    /// Picks for which an arena keeps its memory, whatever the batches were.
    const KEPT: usize = 1024;

    pub(crate) fn len(&self) -> usize {
        self.links.len()
    }

    #[inline]
    pub(crate) fn stage(&mut self, slot: SlotId, pick: Pick) {
        let Ok(link) = u32::try_from(self.links.len()) else { return };
        let index = slot.0 as usize;
        if index >= self.lists.len() {
            self.lists.resize(index + 1, (NONE, NONE));
        }
        self.links.push(Link { pick, next: NONE });
        let Some(list) = self.lists.get_mut(index) else { return };
        if list.0 == NONE {
            list.0 = link;
            self.touched.push((slot, pick));
        } else if let Some(last) = self.links.get_mut(list.1 as usize) {
            last.next = link;
        }
        list.1 = link;
    }

    /// Visits each destination once with its picks in order, then is empty.
    pub(crate) fn drain(&mut self, mut visit: impl FnMut(Pick, Picks<'_>)) {
        for &(slot, pick) in &self.touched {
            let Some(list) = self.lists.get_mut(slot.0 as usize) else { continue };
            let first = std::mem::replace(list, (NONE, NONE)).0;
            visit(pick, Picks { links: &self.links, at: first });
        }
        self.most = self.most.max(self.links.len());
        self.touched.clear();
        self.links.clear();
    }

    /// Gives back memory that no batch has used since the last call.
    pub(crate) fn rest(&mut self) {
        let most = std::mem::take(&mut self.most).max(Self::KEPT);
        if self.links.capacity() > 2 * most {
            self.links.shrink_to(most);
            self.touched.shrink_to(most);
        }
        if most == Self::KEPT && self.links.is_empty() && self.lists.capacity() > Self::KEPT {
            self.lists.truncate(Self::KEPT);
            self.lists.shrink_to(Self::KEPT);
        }
    }
}

/// The picks for one destination, in the order of the batch.
#[derive(Clone, Debug)]
pub(crate) struct Picks<'a> {
    links: &'a [Link],
    at: u32,
}

impl Iterator for Picks<'_> {
    type Item = Pick;

    fn next(&mut self) -> Option<Pick> {
        let link = self.links.get(self.at as usize)?;
        self.at = link.next;
        Some(link.pick)
    }
}

/// A batch of publications with the routes of each.
#[derive(Debug)]
pub(crate) struct Batch<'b, 'a> {
    pub(crate) publications: &'b [Publication<'a>],
    pub(crate) routes: &'b [Rc<Routes>],
    /// The bytes that all mailboxes held when it came.
    pub(crate) held: usize,
    pub(crate) copies: &'b Copies,
    pub(crate) gather: &'b Gather,
}

impl<'b, 'a> Batch<'b, 'a> {
    pub(crate) fn entry(&self, pick: Pick) -> Option<&'b Entry> {
        self.routes.get(pick.publication as usize)?.entries.get(pick.entry as usize)
    }

    pub(crate) fn publication(&self, pick: Pick) -> Option<&'b Publication<'a>> {
        self.publications.get(pick.publication as usize)
    }

    /// The publication, and how it is delivered to a subscriber whose home is this worker.
    pub(crate) fn delivery(&self, pick: Pick, home: WorkerId) -> Option<(&'b Publication<'a>, Delivery<'b>)> {
        let routes = self.routes.get(pick.publication as usize)?;
        let entry = routes.entries.get(pick.entry as usize)?;
        Some((
            self.publication(pick)?,
            Delivery {
                tag: entry.tag,
                max_qos: entry.max_qos,
                retain_as_published: entry.retain_as_published,
                ids: &entry.ids,
                shared: pick.entry as usize >= routes.direct,
                topic: routes.topic.as_ref(),
                held: self.held,
                copy: if routes.is_wide() { self.copies.place(home, pick) } else { None },
                gather: Some(self.gather),
            },
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_gives_back_what_no_batch_used_since() {
        let mut staging = Staging::default();
        let batch = |staging: &mut Staging, picks: u32| {
            (0..picks).for_each(|n| staging.stage(SlotId(n), Pick { publication: 0, entry: n }));
            let mut visited = 0;
            staging.drain(|_, picks| visited += picks.count());
            assert_eq!(visited, picks as usize);
        };
        batch(&mut staging, 16_000);
        staging.rest();
        assert!(staging.links.capacity() >= 16_000, "a batch used it");
        batch(&mut staging, 10);
        staging.rest();
        assert!(staging.links.capacity() <= 2 * Staging::KEPT);
        assert!(staging.touched.capacity() <= 2 * Staging::KEPT && staging.lists.capacity() <= 2 * Staging::KEPT);
        batch(&mut staging, 16_000);
    }
}
