//! The liveness oracle: a task that goes to sleep holds nothing that it could send now.
//!
//! A connection that sleeps on a backlog, although its socket has room and its peer allows more, is woken by nobody:
//! its peer waits for ever. Each door asks this when a task is about to return `Pending` without a waker for more
//! output. Release builds do not ask; their counter stays 0.

use std::fmt;

use crate::WorkerContext;

/// Counts and logs a task that sleeps on output that it could send, and panics in unit tests. `stuck` returns the
/// task's state in that case; it is not called in release builds.
#[expect(clippy::assertions_on_constants, reason = "constant in each build, and different in unit tests")]
pub(crate) fn check_sleep<T: fmt::Debug>(ctx: &WorkerContext, door: &str, stuck: impl FnOnce() -> Option<T>) {
    if !cfg!(debug_assertions) {
        return;
    }
    if let Some(state) = stuck() {
        ctx.shared.metrics.missed_wakes.increment();
        tracing::error!(door, ?state, "a task sleeps on output that it could send");
        assert!(!cfg!(test), "{door} sleeps on output that it could send: {state:?}");
    }
}
