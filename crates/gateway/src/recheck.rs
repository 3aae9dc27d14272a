//! Whether the rules have changed since a queue was last empty. A delivery is let in by the rules of its moment, so
//! that sending it costs no second question; what waits when they change has to be asked about again.

/// The rules that a queue was filled under.
#[derive(Debug)]
pub(crate) struct Recheck {
    /// The lower half: an idle connection of XMPP has no room for the other.
    generation: u32,
    is_due: bool,
}

impl Recheck {
    /// For a queue that is filled from now on.
    pub(crate) const fn new(generation: u64) -> Self {
        Self { generation: lower(generation), is_due: false }
    }

    /// For a queue that was filled under rules that nobody remembers.
    pub(crate) const fn of_unknown(generation: u64) -> Self {
        Self { generation: lower(generation), is_due: true }
    }

    /// Notes the rules of the moment. Returns whether they are others than at the last call.
    pub(crate) const fn note(&mut self, generation: u64) -> bool {
        let generation = lower(generation);
        let has_changed = self.generation != generation;
        self.generation = generation;
        self.is_due |= has_changed;
        has_changed
    }

    /// Whether each message of the queue has to be asked about before it is sent.
    pub(crate) const fn is_due(&self) -> bool {
        self.is_due
    }

    /// Notes that nothing is left of what came in before the last call of [`note`](Self::note).
    pub(crate) const fn emptied(&mut self) {
        self.is_due = false;
    }
}

/// The lower half of a generation, which tells any two near one another apart.
#[expect(clippy::cast_possible_truncation, reason = "the half that is wanted")]
pub(crate) const fn lower(generation: u64) -> u32 {
    generation as u32
}
