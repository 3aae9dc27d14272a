//! Resources of one observation whose states are fetched later, because as many as may be are on their way.

use std::collections::VecDeque;

use super::blockwise::Download;

/// Resources that wait: as many as a gateway queues for one observer by default (`observer_queue_max`).
pub(super) const WAITING_MAX: usize = 1024;
/// Bytes of their paths and first blocks.
const BYTES_MAX: usize = 2 << 20;

/// A path, as the levels of Location-Path.
pub(super) type Path = Vec<String>;

/// States that wait, the one that waits longest first: what their notifications brought of them.
///
/// The first block is kept, because a server holds the rest of a state that is not retained for those that ask for it
/// by number; a request for the whole would be answered with another state, or none.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    states: VecDeque<Download>,
    bytes: usize,
}

impl Waiting {
    /// Adds a state, in place of an older one of the same resource. Returns those that have to go, oldest first.
    pub(super) fn push(&mut self, state: Download) -> Vec<Path> {
        self.bytes += bytes(&state);
        match self.position(&state.location).and_then(|at| self.states.get_mut(at)) {
            Some(older) => self.bytes -= bytes(&std::mem::replace(older, state)),
            None => self.states.push_back(state),
        }
        let mut dropped = Vec::new();
        while self.states.len() > WAITING_MAX || self.bytes > BYTES_MAX {
            dropped.extend(self.pop().map(|state| state.location));
        }
        dropped
    }

    /// Takes the state that waits longest.
    pub(super) fn pop(&mut self) -> Option<Download> {
        let state = self.states.pop_front()?;
        self.bytes -= bytes(&state);
        Some(state)
    }

    /// Takes the state of a resource out, if it waits.
    pub(super) fn remove(&mut self, path: &[String]) {
        if let Some(state) = self.position(path).and_then(|at| self.states.remove(at)) {
            self.bytes -= bytes(&state);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    fn position(&self, path: &[String]) -> Option<usize> {
        self.states.iter().position(|waiting| waiting.location == path)
    }
}

/// Bytes of a state in memory.
fn bytes(state: &Download) -> usize {
    let path: usize = state.location.iter().map(|level| size_of::<String>() + level.len()).sum();
    size_of::<Download>() + path + state.body.capacity()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::BlockSize;

    fn state(levels: &[&str], bytes: usize) -> Download {
        let location = levels.iter().map(|level| (*level).to_owned()).collect();
        let size = BlockSize::at_most(1024);
        let mut state = Download::new(size, location, false);
        state.body = vec![7; bytes];
        state
    }

    fn path(levels: &[&str]) -> Path {
        levels.iter().map(|level| (*level).to_owned()).collect()
    }

    #[test]
    fn the_oldest_go_by_number_and_by_bytes() {
        let mut waiting = Waiting::default();
        for number in 0..WAITING_MAX {
            assert!(waiting.push(state(&["ps", &number.to_string()], 1024)).is_empty());
        }
        assert_eq!(waiting.push(state(&["one more"], 0)), [path(&["ps", "0"])]);
        let long = state(&["long"], BYTES_MAX - 2 * size_of::<Download>());
        assert_eq!(waiting.push(long).len(), WAITING_MAX);
        assert!(waiting.position(&path(&["long"])).is_some() && waiting.bytes <= BYTES_MAX);
        // Longer than all may be.
        assert_eq!(waiting.push(state(&["longer"], BYTES_MAX)).len(), 2);
        assert!(waiting.is_empty() && waiting.bytes == 0);
    }

    #[test]
    fn a_state_is_taken_out_or_replaced_wherever_it_is() {
        let mut waiting = Waiting::default();
        for name in ["a", "b", "c"] {
            assert!(waiting.push(state(&[name], 1)).is_empty());
        }
        waiting.remove(&path(&["b"]));
        waiting.remove(&path(&["d"]));
        assert!(waiting.push(state(&["a"], 5)).is_empty());
        let left: Vec<_> = std::iter::from_fn(|| waiting.pop()).map(|it| (it.location, it.body.len())).collect();
        assert_eq!(left, [(path(&["a"]), 5), (path(&["c"]), 1)]);
        assert_eq!(waiting.bytes, 0);
    }
}
