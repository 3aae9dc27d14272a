//! Seeded randomness of a simulation: SplitMix64, so that a seed yields the same sequence on every machine.

use std::{cell::Cell, rc::Rc};

/// A generator; clones draw from the same sequence.
#[derive(Clone, Debug)]
pub(super) struct Random(Rc<Cell<u64>>);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(Rc::new(Cell::new(seed)))
    }

    /// A generator of its own, seeded by this one.
    pub(super) fn fork(&self) -> Self {
        Self::new(self.next())
    }

    fn next(&self) -> u64 {
        let state = self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.0.set(state);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not zero.
    pub(super) fn below(&self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    /// True in `percent` of a hundred draws.
    pub(super) fn percent(&self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of these.
    pub(super) fn pick<'a, T>(&self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}
