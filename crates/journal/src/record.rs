//! Identifiers of records.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// Low bits of a [`Key`] that number the parts of a record.
const PART_BITS: u32 = 8;
/// A record has at most so many parts.
pub(crate) const PARTS_MAX: u32 = 1 << PART_BITS;
/// Each start begins at a multiple of this, so that an identifier that was given out and never committed is not given
/// out again, unless more were given out since the last frame: more cannot be waiting for a commit, but users may drop
/// batches. No frame names an identifier of these. That would matter only if the next frame cannot be read at one start
/// and can be at a later one. 2³² starts are possible.
pub(crate) const STRIDE: u64 = 1 << 24;

/// The largest identifier that a header may name as the next one: it leaves 2³¹ starts before they are used up.
pub(crate) const NEXT_ID_MAX: u64 = 1 << 55;

/// The identifier of a record. Identifiers ascend in the order in which they were given, over restarts too, and none is
/// used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId(u64);

impl RecordId {
    /// Identifiers have 56 bits.
    pub const MAX: Self = Self(u64::MAX >> PART_BITS);

    /// The identifier that a user has stored as a number, or `None` if it is larger than [`RecordId::MAX`].
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        if number <= Self::MAX.0 { Some(Self(number)) } else { None }
    }

    /// The identifier as a number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    pub(crate) const fn key(self, part: u32) -> Key {
        Key(self.0 << PART_BITS | (part % PARTS_MAX) as u64)
    }
}

/// A part of a record: its identifier, and its place among the parts. A record that fits into a frame has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(u64);

impl Key {
    pub(crate) const fn from_u64(number: u64) -> Self {
        Self(number)
    }

    pub(crate) const fn get(self) -> u64 {
        self.0
    }

    pub(crate) const fn id(self) -> RecordId {
        RecordId(self.0 >> PART_BITS)
    }

    pub(crate) const fn is_first(self) -> bool {
        self.0.trailing_zeros() >= PART_BITS
    }

    /// The key of the next part of the same record.
    pub(crate) const fn next_part(self) -> Option<Self> {
        if self.0 % PARTS_MAX as u64 == PARTS_MAX as u64 - 1 { None } else { Some(Self(self.0 + 1)) }
    }
}

/// The source of identifiers, shared by all who make batches. The default is that of no journal.
#[derive(Clone, Debug, Default)]
pub struct Ids(Arc<AtomicU64>);

impl Ids {
    /// Begins at the first multiple of the stride that is not below `least`.
    pub(crate) fn from(least: u64) -> Self {
        Self(Arc::new(AtomicU64::new(least.div_ceil(STRIDE) * STRIDE)))
    }

    /// Takes the next identifier.
    pub(crate) fn next(&self) -> RecordId {
        RecordId(self.0.fetch_add(1, Relaxed) & RecordId::MAX.0)
    }

    /// The number that is taken next.
    pub(crate) fn peek(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_the_order_of_their_records_and_parts() {
        let id = RecordId::new(7).unwrap();
        assert!(id.key(0).is_first() && !id.key(1).is_first());
        assert_eq!(id.key(0).next_part(), Some(id.key(1)));
        assert_eq!(id.key(255).next_part(), None);
        assert!(id.key(255) < RecordId::new(8).unwrap().key(0));
        assert_eq!(id.key(200).id(), id);
        assert_eq!(RecordId::new(1 << 56), None);
    }

    #[test]
    fn a_start_repeats_no_identifier() {
        assert_eq!(Ids::from(0).next().get(), 0);
        assert_eq!(Ids::from(1).next().get(), 1 << 24);
        assert_eq!(Ids::from((1 << 24) + 1).next().get(), 2 << 24);
    }
}
