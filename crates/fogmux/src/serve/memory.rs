//! Returns memory to the system after a peak, when the process has grown and is quiet again.

use std::time::{Duration, Instant};

use fogmux_gateway::context::Shared;

/// The least growth that is worth a walk over all heaps.
const GROWTH_BYTES: u64 = 4 << 20;
/// The least time between two walks.
const PAUSE: Duration = Duration::from_secs(4);
/// The time between two walks however busy the gateway is.
const PAUSE_BUSY: Duration = Duration::from_secs(60);
/// Publications a second below which the gateway is quiet: a walk of some milliseconds delays few of them.
const QUIET_PER_SECOND: u64 = 1_000;

/// The state of the last look.
pub(super) struct Memory {
    last: Instant,
    /// The resident set after the last walk.
    floor_bytes: u64,
    activity: Activity,
}

/// The work of the gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Activity {
    connections: usize,
    published: u64,
}

impl Activity {
    fn of(shared: &Shared) -> Self {
        let published = shared.bus.counters().published.load(std::sync::atomic::Ordering::Relaxed);
        Self { connections: shared.admission.connections(), published }
    }

    /// Whether little has happened since `before`, a second ago: nobody came, and hardly anything was published.
    const fn is_quiet_since(self, before: Self) -> bool {
        self.connections == before.connections && self.published - before.published < QUIET_PER_SECOND
    }
}

impl Memory {
    pub(super) fn new() -> Self {
        Self { last: Instant::now(), floor_bytes: 0, activity: Activity::default() }
    }

    /// Looks, once a second, and gives back what is free if it is time.
    pub(super) fn look(&mut self, shared: &Shared) {
        let now = Activity::of(shared);
        let before = std::mem::replace(&mut self.activity, now);
        let pause = if now.is_quiet_since(before) { PAUSE } else { PAUSE_BUSY };
        if self.last.elapsed() < pause {
            return;
        }
        let resident = fogmux_memory::resident_bytes().unwrap_or_default();
        if resident < self.floor_bytes + GROWTH_BYTES {
            return;
        }
        fogmux_memory::give_back();
        self.floor_bytes = fogmux_memory::resident_bytes().unwrap_or(resident);
        self.last = Instant::now();
        tracing::debug!(before = resident, after = self.floor_bytes, "gave memory back");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_and_newcomers_are_no_quiet() {
        let before = Activity { connections: 7, published: 100 };
        assert!(Activity { published: 1_099, ..before }.is_quiet_since(before));
        assert!(!Activity { published: 1_100, ..before }.is_quiet_since(before));
        assert!(!Activity { connections: 6, ..before }.is_quiet_since(before));
    }
}
