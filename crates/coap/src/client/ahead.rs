//! States that were fetched by a request and told before their notifications came.
//!
//! The answer to a GET has no sequence number, so RFC 7641 §3.4 does not order it among the notifications of the same
//! resource. One that was sent before it and comes after it would take its reader back to an older state.

use std::{collections::VecDeque, time::Duration};

use super::waiting::Path;
use crate::Timestamp;
use crate::etag::ETag;
use crate::message::Message;
use crate::option::OptionNumber;

/// A state of a resource, as far as its messages tell it from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// There is no value: an error, or an empty payload.
    Absent,
    /// The value with this tag; all values of a server that sends no tags are one.
    Present(Option<ETag>),
}

impl State {
    pub(super) fn of(message: &Message<'_>) -> Self {
        if !message.code.is_success() || message.payload().is_empty() {
            return Self::Absent;
        }
        Self::Present(message.option(OptionNumber::ETAG).and_then(|option| ETag::new(option.value)))
    }
}

/// Longer than a datagram is under way. A notification that is sent again is of the newest state (RFC 7641 §4.5.2).
const WINDOW: Duration = Duration::from_secs(10);

/// Resources that are remembered for one observation.
pub(super) const AHEAD_MAX: usize = 64;

/// The fetched states of one observation's resources, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Ahead(VecDeque<(Path, State, Timestamp)>);

impl Ahead {
    /// Remembers the state of a resource that was fetched, if its newest notification is of another, `notified`, or if
    /// an earlier one is remembered. The oldest is forgotten when there are too many.
    pub(super) fn note(&mut self, path: &[String], state: State, notified: Option<State>, now: Timestamp) {
        let known = self.0.iter().position(|(known, ..)| known == path);
        match known {
            // Those that were sent before have arrived, unless a state was the same twice.
            Some(at) if notified == Some(state) => {
                self.0.get_mut(at).into_iter().for_each(|(_, told, _)| *told = state);
                return;
            }
            Some(at) => drop(self.0.remove(at)),
            None if notified == Some(state) => return,
            None => {}
        }
        if self.0.len() == AHEAD_MAX {
            self.0.pop_front();
        }
        self.0.push_back((path.to_vec(), state, now));
    }

    /// The state of a resource that was told, while older notifications may still come.
    pub(super) fn told(&mut self, path: &[String], now: Timestamp) -> Option<State> {
        while self.0.front().is_some_and(|(_, _, at)| now.since(*at) > WINDOW) {
            self.0.pop_front();
        }
        self.0.iter().find(|(known, ..)| known == path).map(|(_, state, _)| *state)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_by_number_and_by_age() {
        let (start, tag) = (Timestamp::from_millis(1), |byte| State::Present(ETag::new(&[byte])));
        let path = |name: usize| vec!["ps".to_owned(), name.to_string()];
        let mut ahead = Ahead::default();
        for name in 0..AHEAD_MAX {
            ahead.note(&path(name), tag(1), Some(tag(0)), start);
        }
        ahead.note(&path(0), tag(2), None, start + WINDOW / 2);
        assert_eq!((ahead.told(&path(0), start), ahead.len()), (Some(tag(2)), AHEAD_MAX));
        ahead.note(&path(AHEAD_MAX), State::Absent, None, start + WINDOW / 2);
        assert_eq!((ahead.told(&path(1), start), ahead.len()), (None, AHEAD_MAX));
        ahead.note(&path(2), tag(3), Some(tag(3)), start + WINDOW / 2);
        assert_eq!(ahead.told(&path(2), start), Some(tag(3)));
        let later = start + WINDOW + Duration::from_millis(1);
        assert_eq!((ahead.told(&path(2), later), ahead.told(&path(0), later)), (None, Some(tag(2))));
        ahead.note(&path(2), tag(4), Some(tag(4)), later);
        assert_eq!((ahead.told(&path(2), later), ahead.len()), (None, 2));
    }
}
