//! Batches that the store holds, by publisher: what one publishes later does not overtake them on its way to the disk.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use super::store::Gathering;
use crate::message::Publisher;

/// As many entries as this are not searched for those that are over.
const UNSWEPT_MAX: usize = 64;

/// Those of a worker. A publisher stays with its worker.
#[derive(Debug, Default)]
pub(crate) struct Earlier {
    /// By the address of the publisher, which nobody else has as long as there is a reference to it.
    held: HashMap<*const Publisher, (Weak<Publisher>, Vec<Weak<Gathering>>)>,
    count: usize,
    /// How many there were after the last sweep.
    swept: usize,
}

impl Earlier {
    /// One more is held.
    pub(crate) fn push(&mut self, publisher: &Arc<Publisher>, gathering: &Arc<Gathering>) {
        if self.count >= 2 * self.swept + UNSWEPT_MAX {
            self.sweep();
        }
        let of_publisher = self.held.entry(Arc::as_ptr(publisher));
        of_publisher.or_insert_with(|| (Arc::downgrade(publisher), Vec::new())).1.push(Arc::downgrade(gathering));
        self.count += 1;
    }

    /// Has those of a publisher appended, in the order of its publications.
    pub(crate) fn append(&mut self, publisher: &Arc<Publisher>) {
        let Some((_, gatherings)) = self.held.remove(&Arc::as_ptr(publisher)) else { return };
        self.count -= gatherings.len();
        gatherings.iter().filter_map(Weak::upgrade).for_each(|gathering| gathering.append_held());
    }

    fn sweep(&mut self) {
        self.held.retain(|_, (_, gatherings)| {
            gatherings.retain(|gathering| gathering.upgrade().is_some_and(|gathering| gathering.is_held()));
            !gatherings.is_empty()
        });
        self.count = self.held.values().map(|(_, gatherings)| gatherings.len()).sum();
        self.swept = self.count;
    }
}
