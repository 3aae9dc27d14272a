//! Taking turns on a worker.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll},
};

/// Lets others have their turn: this task is polled again when the worker has looked at its sockets. A task that merely
/// wakes itself is run dozens of times before that, and who floods would hold everybody else up for as long.
pub(crate) fn again(cx: &mut Context<'_>) {
    // Its first poll leaves the waker with the runtime, which calls it after the sockets.
    if let Poll::Ready(()) = pin!(tokio::task::yield_now()).poll(cx) {
        cx.waker().wake_by_ref();
    }
}
