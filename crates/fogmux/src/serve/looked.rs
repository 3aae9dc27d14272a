//! When files have changed and are quiet again: who writes a file in two steps is not read in between.

/// The state of files when they were last read, and the time of the last look.
#[derive(Debug)]
pub(super) struct Looked<T> {
    read: T,
    seen: T,
}

impl<T: Clone + PartialEq> Looked<T> {
    /// They were read after they looked like this.
    pub(super) fn new(read: T) -> Self {
        Self { seen: read.clone(), read }
    }

    /// Whether they look as they did when they were read.
    pub(super) fn is(&self, now: &T) -> bool {
        self.read == *now
    }

    /// Looks: whether they are other files than were read, and the same as at the look before.
    pub(super) fn settled(&mut self, now: &T) -> bool {
        let quiet = self.seen == *now;
        self.seen = now.clone();
        quiet && self.read != *now
    }

    /// They were read when they looked like `before`, and then looked like `after`: whether what was read can be used.
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
