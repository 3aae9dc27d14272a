//! Returns freed memory to the system after a peak: when the process has grown, or has freed much, and is quiet.

use std::time::{Duration, Instant};

use fogmux_gateway::Shared;

/// The least growth that justifies a walk over all heaps.
const WORTH_BYTES: u64 = 4 << 20;
/// The least time between two walks.
const PAUSE: Duration = Duration::from_secs(4);
/// The time between two walks while the gateway is busy, and between two without a reason: much freed memory is in no
/// gauge (exchanges of CoAP, tables of the store).
const PAUSE_LONG: Duration = Duration::from_secs(60);
/// Publications a second below which the gateway is quiet: a walk of some milliseconds delays few of them.
const QUIET_PER_SECOND: u64 = 1_000;
/// The largest share of time for walks. A heap of 200 000 holes takes 0.1 s.
const SHARE: u32 = 1_000;
/// The approximate size of an idle connection: 2 KB without TLS and 10 with.
const CONNECTION_BYTES: u64 = 8 << 10;

/// The values of the previous check, and of the last walk over the heaps.
pub(super) struct Memory {
    walked: Instant,
    took: Duration,
    /// The resident set after the last walk.
    floor_bytes: u64,
    /// The maximum held since the last walk.
    held_bytes_most: u64,
    activity: Activity,
}

/// The gateway's activity.
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

    /// Returns whether little has happened since `before`, a second ago: no new connections and hardly any
    /// publications.
    const fn is_quiet_since(self, before: Self) -> bool {
        self.connections == before.connections && self.published - before.published < QUIET_PER_SECOND
    }
}

/// Returns the bytes in the gauges: connections, queues, unfinished input, subscriptions, retained messages and nodes.
fn held_bytes(shared: &Shared) -> u64 {
    let (_, retained) = shared.bus.retained_size();
    let counts = shared.metrics.counts();
    let queued = shared.bus.memory().held() + counts.unfinished_bytes + shared.bus.subscriptions_bytes();
    let kept = retained + counts.kept_bytes;
    shared.admission.connections() as u64 * CONNECTION_BYTES + queued as u64 + kept as u64
}

impl Memory {
    pub(super) fn new() -> Self {
        Self::starting(Instant::now())
    }

    fn starting(now: Instant) -> Self {
        Self { walked: now, took: Duration::ZERO, floor_bytes: 0, held_bytes_most: 0, activity: Activity::default() }
    }

    /// Checks once a second, and returns free memory if it is time.
    pub(super) fn look(&mut self, shared: &Shared) {
        let (now, held) = (Instant::now(), held_bytes(shared));
        let activity = Activity::of(shared);
        let quiet = activity.is_quiet_since(std::mem::replace(&mut self.activity, activity));
        let resident = fogmux_memory::resident_bytes().unwrap_or_default();
        if !self.is_due(now, quiet, resident, held) {
            return;
        }
        let began = fogmux_memory::thread_time();
        fogmux_memory::give_back();
        // On a machine kept busy by others, the walk only seems to take long.
        let worked = began.zip(fogmux_memory::thread_time()).map(|(began, ended)| ended.saturating_sub(began));
        self.took = worked.unwrap_or_else(|| now.elapsed());
        self.walked = Instant::now();
        self.floor_bytes = fogmux_memory::resident_bytes().unwrap_or(resident);
        self.held_bytes_most = held;
        tracing::debug!(before = resident, after = self.floor_bytes, took = ?self.took, "gave memory back");
    }

    /// Returns whether it is time for a walk. Disconnecting clients do not change the resident set, so it does not show
    /// them if there was a walk while they were connected.
    fn is_due(&mut self, now: Instant, quiet: bool, resident_bytes: u64, held_bytes: u64) -> bool {
        self.held_bytes_most = self.held_bytes_most.max(held_bytes);
        let worth_it =
            resident_bytes >= self.floor_bytes + WORTH_BYTES || self.held_bytes_most - held_bytes >= WORTH_BYTES;
        let pause = match (quiet, worth_it) {
            (true, true) => PAUSE,
            (true, false) | (false, true) => PAUSE_LONG,
            (false, false) => return false,
        };
        now.saturating_duration_since(self.walked) >= pause.max(self.took * SHARE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn traffic_and_newcomers_are_no_quiet() {
        let before = Activity { connections: 7, published: 100 };
        assert!(Activity { published: 1_099, ..before }.is_quiet_since(before));
        assert!(!Activity { published: 1_100, ..before }.is_quiet_since(before));
        assert!(!Activity { connections: 6, ..before }.is_quiet_since(before));
    }

    /// A memory that walked at zero seconds with `floor` MiB resident and `held` MiB held.
    fn walked(floor: u64, held: u64) -> (Memory, impl Fn(u64) -> Instant) {
        let start = Instant::now();
        let memory = Memory { floor_bytes: floor * MIB, held_bytes_most: held * MIB, ..Memory::starting(start) };
        (memory, move |seconds| start + Duration::from_secs(seconds))
    }

    #[test]
    fn growth_brings_a_walk_soon_when_it_is_quiet_and_later_when_it_is_not() {
        let (mut memory, at) = walked(14, 0);
        assert!(!memory.is_due(at(3), true, 100 * MIB, 0), "too soon");
        assert!(memory.is_due(at(4), true, 18 * MIB, 0));
        assert!(!memory.is_due(at(59), false, 100 * MIB, 0));
        assert!(memory.is_due(at(60), false, 18 * MIB, 0));
        assert!(!memory.is_due(at(1000), false, 17 * MIB, 0), "busy, and not worth it");
    }

    #[test]
    fn clients_that_leave_after_a_walk_bring_another() {
        let (mut memory, at) = walked(100, 80);
        assert!(!memory.is_due(at(10), true, 100 * MIB, 80 * MIB), "they are there");
        assert!(!memory.is_due(at(10), true, 100 * MIB, 77 * MIB), "some have left");
        assert!(memory.is_due(at(10), true, 100 * MIB, 76 * MIB));
        assert!(memory.is_due(at(10), true, 100 * MIB, 0));
    }

    #[test]
    fn what_no_gauge_shows_is_looked_for_once_a_minute() {
        let (mut memory, at) = walked(100, 0);
        assert!(!memory.is_due(at(59), true, 100 * MIB, 0));
        assert!(memory.is_due(at(60), true, 100 * MIB, 0));
    }

    #[test]
    fn walks_that_take_long_are_rare() {
        let (mut memory, at) = walked(100, 0);
        memory.took = Duration::from_millis(100);
        assert!(!memory.is_due(at(99), true, 200 * MIB, 0));
        assert!(memory.is_due(at(100), true, 200 * MIB, 0));
    }
}
