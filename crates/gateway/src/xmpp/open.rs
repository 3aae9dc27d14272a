//! The bytes of incomplete stanzas of all connections together.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes that a connection may always keep, so that stanzas of usual size are never refused.
const FREE_BYTES: usize = 8 << 10;

/// Bytes of open stanzas, against a bound.
#[derive(Debug)]
pub(super) struct OpenStanzas {
    bytes: AtomicUsize,
    bytes_max: usize,
}

impl OpenStanzas {
    pub(super) const fn new(bytes_max: usize) -> Self {
        Self { bytes: AtomicUsize::new(0), bytes_max }
    }

    /// A connection keeps `after` bytes instead of `before`; false when that is more than there is room for.
    pub(super) fn change(&self, before: usize, after: usize) -> bool {
        if after <= before {
            self.bytes.fetch_sub(before - after, Relaxed);
            return true;
        }
        let all = self.bytes.fetch_add(after - before, Relaxed) + (after - before);
        after <= FREE_BYTES || all <= self.bytes_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_ones_are_refused_and_small_ones_pass() {
        let open = OpenStanzas::new(100_000);
        assert!(open.change(0, 100_000));
        assert!(!open.change(0, 9_000));
        assert!(open.change(0, 8_000));
        assert!(open.change(100_000, 0));
        assert!(open.change(8_000, 50_000));
    }
}
