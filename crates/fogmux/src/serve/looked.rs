//! Detection of changed files that are no longer being written, so that a file written in two steps is not read in
//! between.

/// The state of files when they were last read, and at the last check.
#[derive(Debug)]
pub(super) struct Looked<T> {
    read: T,
    seen: T,
}

impl<T: Clone + PartialEq> Looked<T> {
    /// Creates the state from the one before the files were read.
    pub(super) fn new(read: T) -> Self {
        Self { seen: read.clone(), read }
    }

    /// Returns whether they are unchanged since they were read.
    pub(super) fn is(&self, now: &T) -> bool {
        self.read == *now
    }

    /// Checks whether they have changed since they were read, and not since the previous check.
    pub(super) fn settled(&mut self, now: &T) -> bool {
        let quiet = self.seen == *now;
        self.seen = now.clone();
        quiet && self.read != *now
    }

    /// Records that they were read between the states `before` and `after`; returns whether the result can be used.
    pub(super) fn read(&mut self, before: T, after: T) -> bool {
        let quiet = before == after;
        if quiet {
            self.read = before;
        }
        self.seen = after;
        quiet
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_when_they_are_quiet_again() {
        let mut looked = Looked::new(1);
        assert!(!looked.settled(&1), "nothing new");
        assert!(!looked.settled(&2), "perhaps not finished");
        assert!(!looked.settled(&3), "not finished indeed");
        assert!(looked.settled(&3));
        assert!(!looked.read(3, 4), "changed while it was read");
        assert!(looked.settled(&4));
        assert!(looked.read(4, 4));
        assert!(!looked.settled(&4), "once is enough");
        assert!(!looked.settled(&5));
        assert!(!looked.settled(&4), "what was there for a moment is not read");
    }
}
