//! Detection of changed files that are no longer being written, so that a file written in two steps is not read in
//! between.

/// The state of files when they were last read and applied, and at the last check.
#[derive(Debug)]
pub(super) struct Looked<T> {
    /// `None` while the files are to be read again, whatever their state.
    applied: Option<T>,
    seen: T,
    /// The last error, and the state of files that it is about.
    said: Option<(String, T)>,
}

impl<T: Clone + PartialEq> Looked<T> {
    /// Creates the state from the one before the files were read.
    pub(super) fn new(read: T) -> Self {
        Self { seen: read.clone(), applied: Some(read), said: None }
    }

    /// Returns whether they are unchanged since they were applied.
    pub(super) fn is(&self, now: &T) -> bool {
        self.applied.as_ref() == Some(now)
    }

    /// Returns whether they are as they were at the last check.
    pub(super) fn is_quiet(&self, now: &T) -> bool {
        self.seen == *now
    }

    /// Checks whether they have changed since they were applied, and not since the previous check.
    pub(super) fn settled(&mut self, now: &T) -> bool {
        let quiet = self.is_quiet(now);
        self.seen = now.clone();
        quiet && !self.is(now)
    }

    /// Records that they were read between the states `before` and `after`; returns whether the result can be used.
    pub(super) fn read(&mut self, before: &T, after: T) -> bool {
        self.seen = after;
        *before == self.seen
    }

    /// Records that the state `read` is in force.
    pub(super) fn apply(&mut self, read: T) {
        (self.applied, self.said) = (Some(read), None);
    }

    /// Records that they could not be used, so that the next check reads them again: a disk or a process that has no
    /// descriptor left fails for a while and leaves the files as they are. Returns whether that is news.
    pub(super) fn fail(&mut self, error: &str) -> bool {
        self.applied = None;
        let is_news = self.said.as_ref().is_none_or(|(said, of)| said != error || *of != self.seen);
        if is_news {
            self.said = Some((error.to_owned(), self.seen.clone()));
        }
        is_news
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
        assert!(!looked.read(&3, 4), "changed while it was read");
        assert!(looked.settled(&4));
        assert!(looked.read(&4, 4));
        looked.apply(4);
        assert!(!looked.settled(&4), "once is enough");
        assert!(!looked.settled(&5));
        assert!(!looked.settled(&4), "what was there for a moment is not read");
    }

    #[test]
    fn what_could_not_be_used_is_read_again_and_said_once() {
        let mut looked = Looked::new(1);
        assert!(!looked.settled(&2) && looked.settled(&2));
        assert!(looked.read(&2, 2) && looked.fail("no descriptor left"));
        assert!(looked.settled(&2), "nothing has changed, and nothing was read");
        assert!(looked.read(&2, 2) && !looked.fail("no descriptor left"));
        assert!(looked.settled(&2) && looked.fail("a mistake"), "another message");
        assert!(!looked.settled(&3) && looked.settled(&3) && looked.fail("a mistake"), "in another file");
        looked.apply(3);
        assert!(!looked.settled(&3));
        assert!(looked.fail("a mistake"), "said since it was well");
        assert!(!looked.settled(&1) && looked.settled(&1), "what was in force before is read as well");
    }
}
