//! Sessions by the principal that has proved to be there. Those without a credential are not in here.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    hash::BuildHasher as _,
};

use foldhash::{fast, quality};

use crate::{Channel, Credentials};

/// A principal, as a keyed hash of its name: four bytes for a session, whatever the length of a name. Two principals
/// with the same hash count as one; of 32 768 that is one pair in every eighth process, and nobody can aim at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Owner(u32);

/// A slot without a session that has an owner.
const NOBODY: Owner = Owner(0);

/// Counts of sessions. Principals with one session, which are most, cost a number in a set.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    hasher: quality::RandomState,
    of_slots: Vec<Owner>,
    with_one: HashSet<Owner, fast::RandomState>,
    with_more: HashMap<Owner, u32, fast::RandomState>,
    by_count: BTreeSet<(u32, Owner)>,
}

impl Owners {
    /// The owner of what a handshake has made; `None` without a credential.
    pub(super) fn of_channel(&self, credentials: &dyn Credentials, channel: &Channel) -> Option<Owner> {
        let identity = || channel.psk.as_ref().map(|psk| self.hasher.hash_one((1, &*psk.identity)));
        let certificate = || channel.certificate.as_ref().map(|certificate| self.hasher.hash_one((2, &**certificate)));
        let shown = certificate().or_else(identity)?;
        let principal = credentials.principal(channel).map(|name| self.hasher.hash_one((0, &*name)));
        let [.., a, b, c, d] = principal.unwrap_or(shown).to_be_bytes();
        Some(Owner(u32::from_be_bytes([a, b, c, d]).max(1)))
    }

    /// The sessions that it has.
    pub(super) fn sessions(&self, owner: Owner) -> usize {
        match self.with_more.get(&owner) {
            Some(count) => usize::try_from(*count).unwrap_or(usize::MAX),
            None => usize::from(self.with_one.contains(&owner)),
        }
    }

    /// The sessions of the one that has most.
    pub(super) fn most(&self) -> usize {
        let most = self.by_count.last().and_then(|(count, _)| usize::try_from(*count).ok());
        most.unwrap_or_else(|| usize::from(!self.with_one.is_empty()))
    }

    /// Some of those that have most, if that is more than one session.
    pub(super) fn heaviest(&self) -> impl Iterator<Item = Owner> {
        let most = self.by_count.last().map(|(count, _)| *count);
        let from_top = self.by_count.iter().rev();
        from_top.take_while(move |(count, _)| Some(*count) == most).map(|(_, owner)| *owner)
    }

    /// The owner of a slot's session.
    pub(super) fn of_slot(&self, slot: usize) -> Option<Owner> {
        self.of_slots.get(slot).copied().filter(|owner| *owner != NOBODY)
    }

    pub(super) fn add(&mut self, slot: usize, owner: Owner) {
        if self.of_slots.len() <= slot {
            self.of_slots.resize(slot + 1, NOBODY);
        }
        if let Some(of_slot) = self.of_slots.get_mut(slot) {
            *of_slot = owner;
        }
        if let Some(count) = self.with_more.get_mut(&owner) {
            self.by_count.remove(&(*count, owner));
            *count += 1;
            self.by_count.insert((*count, owner));
        } else if self.with_one.remove(&owner) {
            self.with_more.insert(owner, 2);
            self.by_count.insert((2, owner));
        } else {
            self.with_one.insert(owner);
        }
    }

    pub(super) fn remove(&mut self, slot: usize) {
        let Some(of_slot) = self.of_slots.get_mut(slot) else { return };
        let owner = std::mem::replace(of_slot, NOBODY);
        match self.with_more.get_mut(&owner) {
            Some(count) => {
                self.by_count.remove(&(*count, owner));
                *count -= 1;
                if *count > 1 {
                    self.by_count.insert((*count, owner));
                } else {
                    self.with_more.remove(&owner);
                    self.with_one.insert(owner);
                }
            }
            None => {
                self.with_one.remove(&owner);
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        let is_empty = self.with_one.is_empty() && self.with_more.is_empty() && self.by_count.is_empty();
        is_empty && self.of_slots.iter().all(|owner| *owner == NOBODY)
    }
}
