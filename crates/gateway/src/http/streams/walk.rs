//! The walk of an event stream over the retained messages of its filters.
//!
//! Retained messages are not queued but looked up in chunks. A place among them is a filter and a topic; a mark
//! remembers the place behind one message, so that the walk can resume there when the reader returns without having
//! received all. Marks are close together at first and then a quarter of the distance apart: a few dozen cover any
//! number of messages, and a reader that had received `n` messages is sent at most a quarter of those again, so that it
//! always gets to the end.

use fogmux_bus::Topic;

/// A place among the retained messages of a stream's subscriptions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::http) struct Place {
    /// Index of the subscription.
    pub(in crate::http) subscription: usize,
    /// The last topic of it that was sent.
    pub(in crate::http) after: Option<Topic>,
}

#[derive(Debug)]
struct Mark {
    /// The number of the last message before the place.
    sequence: u64,
    place: Place,
}

/// The walk; see the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// Where to continue; `None` at the end.
    place: Option<Place>,
    marks: Vec<Mark>,
    /// Messages sent since the walk began or was resumed.
    sent: u64,
    /// The value of `sent` at which the next mark is made.
    due: u64,
}

impl Walk {
    pub(super) fn new(place: Option<Place>) -> Self {
        Self { place, ..Self::default() }
    }

    pub(super) fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }

    /// Notes that a message was sent under this number, and moves behind it.
    pub(super) fn pass(&mut self, sequence: u64, subscription: usize, topic: &Topic) {
        let place = Place { subscription, after: Some(topic.clone()) };
        self.sent += 1;
        if self.sent >= self.due {
            self.due = self.sent + (self.sent / 4).max(1);
            self.marks.push(Mark { sequence, place: place.clone() });
        }
        self.place = Some(place);
    }

    /// Continues elsewhere, or ends.
    pub(super) fn move_to(&mut self, place: Option<Place>) {
        self.place = place;
    }

    /// Resumes at the last mark behind which the reader has received everything, up to `sequence`.
    pub(super) fn begin_again(&mut self, sequence: u64) {
        self.marks.retain(|mark| mark.sequence <= sequence);
        let passed = self.marks.pop();
        self.place = Some(passed.as_ref().map(|mark| mark.place.clone()).unwrap_or_default());
        // Earlier marks would serve only a reader that forgets what it has received; it begins at the first message.
        self.marks = passed.into_iter().collect();
        self.sent = 0;
        self.due = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(number: u64) -> Topic {
        Topic::new(&format!("t/{number:06}")).unwrap()
    }

    fn walked(count: u64) -> Walk {
        let mut walk = Walk::new(Some(Place::default()));
        for number in 1..=count {
            walk.pass(number, 0, &topic(number));
        }
        walk
    }

    #[test]
    fn a_reader_is_sent_at_most_a_quarter_again_and_never_nothing_new() {
        for received in [1, 2, 3, 7, 97, 1_000, 99_999] {
            let mut walk = walked(100_000);
            assert!(walk.marks.len() < 80, "{}", walk.marks.len());
            walk.begin_again(received);
            let after = walk.place().unwrap().after.clone().unwrap();
            let begins = (1..=received).rev().find(|number| topic(*number) == after).unwrap();
            assert!(received - begins <= received / 4, "{received}: begins behind {begins}");
        }
    }

    #[test]
    fn a_reader_that_received_nothing_begins_at_the_first() {
        let mut walk = walked(10);
        walk.begin_again(0);
        assert_eq!(walk.place(), Some(&Place::default()));
    }
}
