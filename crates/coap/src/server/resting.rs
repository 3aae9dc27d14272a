//! Kept representations in the order in which they last moved, so that the one that has rested for longest is found
//! without a walk through all of them.

use std::collections::BTreeSet;

use fogmux_fair::Owner;

use crate::Timestamp;

/// When a representation last moved, as far as noted: never later than it did. `None` for one that is not needed any
/// more, which comes before all others.
pub(crate) type Noted = Option<Timestamp>;

/// The order of all representations, and of each owner's.
#[derive(Debug, Default)]
pub(crate) struct Resting {
    all: BTreeSet<(Noted, u64)>,
    by_owner: BTreeSet<(Owner, Noted, u64)>,
}

impl Resting {
    /// Adds a representation by its number.
    pub(crate) fn add(&mut self, owner: &Owner, noted: Noted, number: u64) {
        self.all.insert((noted, number));
        self.by_owner.insert((owner.clone(), noted, number));
    }

    /// Removes one.
    pub(crate) fn remove(&mut self, owner: &Owner, noted: Noted, number: u64) {
        self.all.remove(&(noted, number));
        self.by_owner.remove(&(owner.clone(), noted, number));
    }

    /// The first one, of an owner or of all.
    pub(crate) fn first(&self, owner: Option<&Owner>) -> Option<(Noted, u64)> {
        let Some(owner) = owner else { return self.all.first().copied() };
        let (of, noted, number) = self.by_owner.range((owner.clone(), None, 0)..).next()?;
        (of == owner).then_some((*noted, *number))
    }
}
