//! Deadlines of clients on the timers of the runtime, which count the time in which the gateway did not run: when one
//! rings too early for that, it is set again.

use std::{
    future::Future,
    io,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Sleep, sleep_until};

use crate::{WorkerContext, stops::Running};

/// A deadline and its timer.
#[derive(Debug)]
pub(crate) struct Deadline {
    at: Running,
    timer: Pin<Box<Sleep>>,
}

/// The deadline has passed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Late;

impl From<Late> for io::Error {
    fn from(Late: Late) -> Self {
        io::ErrorKind::TimedOut.into()
    }
}

impl Deadline {
    /// A deadline after so much running time from now on.
    pub(crate) fn after(ctx: &WorkerContext, limit: Duration) -> Self {
        let at = ctx.running() + limit;
        Self { at, timer: Box::pin(sleep_until(ctx.timer(at))) }
    }

    /// Gives the client more time.
    pub(crate) fn extend(&mut self, ctx: &WorkerContext, more: Duration) {
        self.at = self.at + more;
        self.timer.as_mut().reset(ctx.timer(self.at));
    }

    /// Ready when it has passed.
    pub(crate) fn poll(&mut self, ctx: &WorkerContext, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            if ctx.has_passed(self.at) {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(ctx.timer(self.at));
        }
    }
}

/// Waits for a step of a client until a deadline.
pub(crate) async fn in_time<T>(
    ctx: &WorkerContext,
    deadline: Running,
    step: impl Future<Output = T>,
) -> Result<T, Late> {
    let (mut step, mut timer) = (pin!(step), pin!(sleep_until(ctx.timer(deadline))));
    loop {
        tokio::select! {
            biased;
            done = &mut step => return Ok(done),
            () = &mut timer => {
                if ctx.has_passed(deadline) {
                    return Err(Late);
                }
                timer.as_mut().reset(ctx.timer(deadline));
            }
        }
    }
}
