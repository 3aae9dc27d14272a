//! The outcome of a publication.

use std::cell::Cell;

/// The outcome of one publication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Destinations that it was delivered to.
    pub matched: u32,
    /// It could not be stored, or the bus was shut down. It was delivered to nobody, and the publisher is told.
    pub refused: bool,
    /// It was not retained. With `refused`, because the store did not take it; without, it was delivered all the same,
    /// for its publisher cannot be told.
    pub unkept: bool,
    /// [`crate::Publication::precondition`] did not hold; nothing happened.
    pub precondition_failed: bool,
    /// It replaced an earlier retained message.
    pub replaced: bool,
    /// Something of it is in the store of sessions; its acknowledgement waits for that.
    pub stored: bool,
    /// It was delivered to a subscriber that asks its publisher to slow down.
    pub slowed: bool,
}

impl Outcome {
    /// Whether nobody gets the publication.
    pub(crate) const fn is_refusal(self) -> bool {
        self.refused || self.precondition_failed
    }
}

/// The cell that a publication's outcome is written to, shared by reference during a batch.
pub(crate) type OutcomeCell = Cell<Outcome>;
