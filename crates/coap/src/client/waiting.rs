//! Resources of one observation whose states are fetched later, because as many as may be are on their way.

use std::collections::VecDeque;

/// Resources that wait: as many as a gateway queues for one observer by default (`observer_queue_max`).
pub(super) const WAITING_MAX: usize = 1024;
/// Bytes of their paths.
const PATH_BYTES_MAX: usize = 1 << 20;

/// A path, as the levels of Location-Path.
pub(super) type Path = Vec<String>;

/// Paths of resources, the one that waits longest first.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    paths: VecDeque<Path>,
    bytes: usize,
}

impl Waiting {
    /// Adds a path. Returns those that have to go, oldest first; they are no more than what was added.
    pub(super) fn push(&mut self, path: Path) -> Vec<Path> {
        self.bytes += bytes(&path);
        self.paths.push_back(path);
        let mut dropped = Vec::new();
        while self.paths.len() > WAITING_MAX || self.bytes > PATH_BYTES_MAX {
            dropped.extend(self.pop());
        }
        dropped
    }

    /// Takes the path that waits longest.
    pub(super) fn pop(&mut self) -> Option<Path> {
        let path = self.paths.pop_front()?;
        self.bytes -= bytes(&path);
        Some(path)
    }

    /// Takes a path out, if it waits.
    pub(super) fn remove(&mut self, path: &[String]) {
        if let Some(path) = self.position(path).and_then(|at| self.paths.remove(at)) {
            self.bytes -= bytes(&path);
        }
    }

    pub(super) fn contains(&self, path: &[String]) -> bool {
        self.position(path).is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    fn position(&self, path: &[String]) -> Option<usize> {
        self.paths.iter().position(|waiting| waiting == path)
    }
}

/// Bytes of a path in memory.
fn bytes(path: &[String]) -> usize {
    path.iter().map(|level| size_of::<String>() + level.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(levels: &[&str]) -> Path {
        levels.iter().map(|level| (*level).to_owned()).collect()
    }

    #[test]
    fn the_oldest_go_by_number_and_by_bytes() {
        let mut waiting = Waiting::default();
        for number in 0..WAITING_MAX {
            assert!(waiting.push(path(&["ps", &number.to_string()])).is_empty());
        }
        assert_eq!(waiting.push(path(&["one more"])), [path(&["ps", "0"])]);
        let long = path(&[&"x".repeat(PATH_BYTES_MAX - size_of::<String>())]);
        assert_eq!(waiting.push(long.clone()).len(), WAITING_MAX);
        assert!(waiting.contains(&long) && waiting.bytes == PATH_BYTES_MAX);
        // Longer than all may be.
        assert_eq!(waiting.push(path(&[&"y".repeat(PATH_BYTES_MAX)])).len(), 2);
        assert!(waiting.is_empty() && waiting.bytes == 0);
    }

    #[test]
    fn a_path_is_taken_out_wherever_it_is() {
        let mut waiting = Waiting::default();
        for name in ["a", "b", "c"] {
            assert!(waiting.push(path(&[name])).is_empty());
        }
        waiting.remove(&path(&["b"]));
        waiting.remove(&path(&["d"]));
        assert_eq!([waiting.pop(), waiting.pop(), waiting.pop()], [Some(path(&["a"])), Some(path(&["c"])), None]);
        assert_eq!(waiting.bytes, 0);
    }
}
