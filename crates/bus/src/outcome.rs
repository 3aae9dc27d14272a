//! What became of a publication.

use std::cell::Cell;

/// What became of one publication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Destinations it was handed to.
    pub matched: u32,
    /// There was no room to keep it, or the bus takes no more; nobody has got it, and the publisher is told.
    pub refused: bool,
    /// The store keeps nothing any more, or not now: with `refused`, the reason for it; without, the message went to
    /// subscribers and was not kept.
    pub unkept: bool,
    /// [`crate::Publication::precondition`] did not hold; nothing happened.
    pub precondition_failed: bool,
    /// It was retained and took the place of an earlier one.
    pub replaced: bool,
}

/// Where a publication's outcome is written; shared by reference during a batch.
pub(crate) type OutcomeCell = Cell<Outcome>;
