//! Taking turns on a worker.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll},
};

use fogmux_bus::DELIVERIES_PER_TURN;

/// The deliveries of a turn, as far as they matter: idle connections have room for no more.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Deliveries(u16);

const _: () = assert!(DELIVERIES_PER_TURN <= u16::MAX as u64, "they are counted so far");

impl Deliveries {
    pub(crate) fn add(&mut self, deliveries: u64) {
        self.0 = self.0.saturating_add(u16::try_from(deliveries).unwrap_or(u16::MAX));
    }

    /// Whether others have their turn now.
    pub(crate) const fn are_enough(self) -> bool {
        self.0 as u64 >= DELIVERIES_PER_TURN
    }
}

/// The work of a task that nobody waits for, measured in deliveries: as much as others have to wait for, then they have
/// their turn.
#[derive(Debug)]
pub(crate) struct Portion {
    left: u64,
}

impl Portion {
    pub(crate) const fn new() -> Self {
        Self { left: DELIVERIES_PER_TURN }
    }

    /// Notes work that was done.
    pub(crate) async fn spend(&mut self, deliveries: u64) {
        // Work without a delivery takes time as well.
        self.left = self.left.saturating_sub(deliveries.max(1));
        if self.left == 0 {
            tokio::task::yield_now().await;
            *self = Self::new();
        }
    }
}

/// Waits until the worker has looked at its sockets. Any wake of its task ends a plain `yield_now`, and hyper wakes the
/// task of a connection again and again while there is input.
pub(crate) async fn others_first() {
    // It is not aborted, and does not panic.
    let _ = tokio::task::spawn_local(tokio::task::yield_now()).await;
}

/// Lets others have their turn: this task is polled again when the worker has looked at its sockets. A task that merely
/// wakes itself is run dozens of times before that, and who floods would hold everybody else up for as long.
pub(crate) fn again(cx: &mut Context<'_>) {
    // Its first poll leaves the waker with the runtime, which calls it after the sockets.
    if let Poll::Ready(()) = pin!(tokio::task::yield_now()).poll(cx) {
        cx.waker().wake_by_ref();
    }
}
