//! The clock: monotonic time since the start of the process, and the wall-clock time of that start.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use fogmux_bus::{ClockSet, Timestamp};
use tokio::time::Instant;

use crate::stops::Stops;

/// More than the wall clock and the monotonic one come apart when nobody sets one.
const APART_MAX_MS: u64 = 2_000;

/// Monotonic time since the start of the process, and the wall-clock time of that start. What elapses is judged by the
/// monotonic clock alone; the wall clock may be set at any time.
#[derive(Clone, Debug)]
pub struct Clock {
    origin: Instant,
    origin_unix_ms: Arc<AtomicU64>,
    stops: Arc<Stops>,
}

impl Clock {
    /// Starts counting.
    #[must_use]
    pub fn start() -> Self {
        let origin_unix_ms = Arc::new(AtomicU64::new(wall_unix_ms()));
        Self { origin: Instant::now(), origin_unix_ms, stops: Arc::default() }
    }

    /// Milliseconds since the start; never goes back.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp::from_millis(u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// Microseconds since the start.
    pub(crate) fn micros(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// A bus timestamp as milliseconds since 1970, by the wall clock as it was a second ago at most.
    #[must_use]
    pub fn unix_ms(&self, at: Timestamp) -> u64 {
        self.origin_unix_ms.load(Ordering::Relaxed).saturating_add(at.as_millis())
    }

    /// Microseconds since the start as microseconds since 1970.
    #[cfg(feature = "traces")]
    pub(crate) fn unix_us(&self, micros: u64) -> u64 {
        self.unix_ms(Timestamp::ZERO).saturating_mul(1000).saturating_add(micros)
    }

    /// Times in which the gateway did not run.
    pub(crate) const fn stops(&self) -> &Arc<Stops> {
        &self.stops
    }

    /// Looks whether the wall clock was set: a board without a battery starts in 1970, or when it was shut down, and
    /// hears of the time later.
    pub(crate) fn look(&self) -> Option<ClockSet> {
        self.compare(wall_unix_ms())
    }

    fn compare(&self, unix_ms: u64) -> Option<ClockSet> {
        let before_unix_ms = self.origin_unix_ms.load(Ordering::Relaxed);
        let origin_unix_ms = unix_ms.saturating_sub(self.now().as_millis());
        if origin_unix_ms.abs_diff(before_unix_ms) <= APART_MAX_MS {
            return None;
        }
        self.origin_unix_ms.store(origin_unix_ms, Ordering::Relaxed);
        Some(ClockSet { before_unix_ms, origin_unix_ms })
    }

    /// A bus timestamp as an instant, for timers.
    #[must_use]
    pub fn instant(&self, at: Timestamp) -> Instant {
        self.origin
            .checked_add(std::time::Duration::from_millis(at.as_millis()))
            .unwrap_or_else(|| self.origin + std::time::Duration::from_secs(86_400 * 365))
    }
}

fn wall_unix_ms() -> u64 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(unix.as_millis()).unwrap_or_default()
}
