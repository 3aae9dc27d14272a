//! A rate limit for log lines that peers can cause: one a second.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use fogmux_bus::Timestamp;

const INTERVAL: Duration = Duration::from_secs(1);

/// Lets one line through a second and counts the others.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    /// In milliseconds.
    next: AtomicU64,
    suppressed: AtomicU64,
}

impl Throttle {
    /// Whether to log now; if so, how many lines were suppressed since the last.
    pub(crate) fn admit(&self, now: Timestamp) -> Option<u64> {
        let next = self.next.load(Relaxed);
        let until = (now + INTERVAL).as_millis();
        let is_free = next <= now.as_millis() && self.next.compare_exchange(next, until, Relaxed, Relaxed).is_ok();
        if is_free {
            return Some(self.suppressed.swap(0, Relaxed));
        }
        self.suppressed.fetch_add(1, Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_and_the_others_are_counted() {
        let throttle = Throttle::default();
        let at = |ms| throttle.admit(Timestamp::from_millis(ms));
        assert_eq!(
            [at(5), at(6), at(1004), at(1005), at(1006), at(9000)],
            [Some(0), None, None, Some(2), None, Some(1)]
        );
    }
}
