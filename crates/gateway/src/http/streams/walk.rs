//! The walk of an event stream over the retained messages that its filters match: the next place, and the places from
//! which it begins again when its reader comes back without having received all of them.
//!
//! Retained messages are not queued: they are looked up in chunks, and a place among them is a filter and a topic. A
//! mark remembers the place behind one message. Marks lie close together at first and then a quarter of the distance
//! apart, so that a few dozen of them cover any number of messages, and a reader that gets `n` messages further each
//! time it connects is sent at most a quarter of those again and always gets to the end.

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
    /// The number on the stream of the message before the place.
    sequence: u64,
    place: Place,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// Where to go on; `None` at the end.
    place: Option<Place>,
    marks: Vec<Mark>,
    /// Messages sent since the walk began, or began again.
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

    /// Notes that a message was sent with this number; the walk stands behind it.
    pub(super) fn pass(&mut self, sequence: u64, subscription: usize, topic: &Topic) {
        let place = Place { subscription, after: Some(topic.clone()) };
        self.sent += 1;
        if self.sent >= self.due {
            self.due = self.sent + (self.sent / 4).max(1);
            self.marks.push(Mark { sequence, place: place.clone() });
        }
        self.place = Some(place);
    }

    /// Goes on elsewhere, or nowhere.
    pub(super) fn move_to(&mut self, place: Option<Place>) {
        self.place = place;
    }

    /// Begins again at the last marked place that a reader has passed that has received everything up to `sequence`.
    pub(super) fn begin_again(&mut self, sequence: u64) {
        self.marks.retain(|mark| mark.sequence <= sequence);
        let passed = self.marks.pop();
        self.place = Some(passed.as_ref().map(|mark| mark.place.clone()).unwrap_or_default());
        // Earlier marks serve only a reader that forgets what it has shown before: it begins at the first message.
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
