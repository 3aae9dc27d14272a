//! The arrivals at one subscriber: which numbers came, in which order, and which are missing.

use std::collections::BTreeMap;

/// The messages of one lane that one subscriber has received.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The highest number received, plus one.
    pub(super) next: u32,
    /// Numbers below `next` that have not come, as ranges: first and one above the last.
    missing: BTreeMap<u32, u32>,
    /// Where in the lane's batches the last one was found.
    pub(super) cursor: usize,
}

/// The kind of an arrival at one subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    New,
    /// After a later one.
    Late,
    Duplicate,
}

impl Seen {
    /// Takes one number, and says how many before it are missing since then.
    pub(super) fn take(&mut self, number: u32) -> (Kind, u32) {
        if number == self.next {
            self.next += 1;
            return (Kind::New, 0);
        }
        if number > self.next {
            let skipped = number - self.next;
            self.missing.insert(self.next, number);
            self.next = number + 1;
            return (Kind::New, skipped);
        }
        let hole = self.missing.range(..=number).next_back().map(|(first, end)| (*first, *end));
        let Some((first, end)) = hole.filter(|(_, end)| number < *end) else { return (Kind::Duplicate, 0) };
        self.missing.remove(&first);
        if first < number {
            self.missing.insert(first, number);
        }
        if number + 1 < end {
            self.missing.insert(number + 1, end);
        }
        (Kind::Late, 0)
    }
}
