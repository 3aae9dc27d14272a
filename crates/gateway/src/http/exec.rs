//! The executor that hyper runs a stream's future on.

use std::{
    future::Future,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use super::{conn::Conn, unread};

/// Runs futures on the worker that they were made on.
#[derive(Clone)]
pub(super) struct LocalExec(pub(super) Rc<Conn>);

impl<F> hyper::rt::Executor<F> for LocalExec
where
    F: Future + 'static,
    F::Output: 'static,
{
    fn execute(&self, future: F) {
        // Most requests are answered at once: a first look saves them a task. A future that is not ready forgets this
        // waker at its next poll, which its task makes.
        let mut future = Box::pin(unread::watched(Rc::clone(&self.0), future));
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(_) => {}
            Poll::Pending => drop(tokio::task::spawn_local(future)),
        }
    }
}
