//! The executor that hyper runs a stream's future on.

use std::{
    future::Future,
    task::{Context, Poll, Waker},
};

/// Runs futures on the worker that they were made on.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalExec;

impl<F> hyper::rt::Executor<F> for LocalExec
where
    F: Future + 'static,
    F::Output: 'static,
{
    fn execute(&self, future: F) {
        // Most requests are answered at once: a first look saves them a task. A future that is not ready forgets this
        // waker at its next poll, which its task makes.
        let mut future = Box::pin(future);
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(_) => {}
            Poll::Pending => drop(tokio::task::spawn_local(future)),
        }
    }
}
