//! Turns of the streams of one HTTP/3 connection to give it bytes, and the deadline of a stream that gives none.
//!
//! A stream waits because the connection has no room, or because the client has closed the window of that stream. QUIC
//! does not tell which, and offers room first to the stream that began to wait last. So streams have turns, in the
//! order in which they asked: while a stream has its turn, the others leave the room to it. A stream that cannot give
//! its piece in its turn waits without one, because the client may want other streams before that one.
//!
//! The next stream tries, now and then, whether there is room although the one before it gives nothing. If there is, it
//! is the window of that stream which is closed, and the others pass it. A try asks for no wake, so the room that the
//! connection gets later is still offered to the stream that has its turn.

use std::{
    cell::Cell,
    future::Future,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::{sleep, timeout},
};

use crate::{deadline::in_time, http::HttpContext};

/// How long a stream that cannot give its piece keeps the others from theirs. The client has something to read
/// meanwhile: QUIC buffers what they gave before.
const TURN: Duration = Duration::from_secs(1);
/// The same before a stream is reset: enough for a piece over a slow link.
const LAST_TURN: Duration = Duration::from_secs(5);

/// The interval at which the next stream tries whether it can pass the one that has its turn.
const TRY: Duration = Duration::from_millis(10);

/// The turns of the streams of one connection.
pub(super) struct Turns {
    ctx: Rc<HttpContext>,
    turn: Semaphore,
    /// The place behind the stream that has its turn.
    next: Semaphore,
    /// Whether a stream has passed the one that has its turn.
    passed: Cell<bool>,
    /// The pieces that all streams gave, ever; wraps.
    given: Cell<u64>,
}

/// The result of waiting for a turn.
enum Waited<'t, T> {
    /// The stream has its turn.
    Turn(SemaphorePermit<'t>),
    /// The step is done: the stream has passed.
    Done(T),
}

impl Turns {
    pub(super) fn new(ctx: &Rc<HttpContext>) -> Self {
        Self {
            ctx: Rc::clone(ctx),
            turn: Semaphore::new(1),
            next: Semaphore::new(1),
            passed: Cell::default(),
            given: Cell::default(),
        }
    }

    /// Runs a step that gives a piece of a stream. `None`, and the stream has to be reset, when the connection takes
    /// nothing for the write timeout, or takes pieces of other streams only, although this one has had its turn.
    pub(super) async fn take<T>(&self, step: impl Future<Output = T>) -> Option<T> {
        let done = self.try_take(pin!(step)).await;
        if done.is_some() {
            self.given.set(self.given.get().wrapping_add(1));
        } else {
            self.ctx.shared.metrics.http.timed_out.increment();
        }
        done
    }

    async fn try_take<T>(&self, mut step: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        let turn = match self.wait(step.as_mut()).await? {
            Waited::Turn(turn) => turn,
            Waited::Done(done) => return Some(done),
        };
        self.passed.set(false);
        let done = timeout(TURN, step.as_mut()).await;
        drop(turn);
        if let Ok(done) = done {
            return Some(done);
        }
        let given = self.given.get();
        let deadline = self.ctx.running() + self.ctx.door.config.write_timeout;
        if let Ok(done) = in_time(&self.ctx, deadline, step.as_mut()).await {
            return Some(done);
        }
        if self.given.get() == given {
            return None;
        }
        let turn = tokio::select! {
            biased;
            done = step.as_mut() => return Some(done),
            turn = self.turn.acquire() => turn.ok()?,
        };
        self.passed.set(false);
        let done = in_time(&self.ctx, self.ctx.running() + LAST_TURN, step).await;
        drop(turn);
        done.ok()
    }

    /// Waits for a turn, or until the stream has passed the one that has it. `None` is never returned: the semaphores
    /// are not closed.
    async fn wait<T>(&self, mut step: Pin<&mut impl Future<Output = T>>) -> Option<Waited<'_, T>> {
        if let Ok(turn) = self.turn.try_acquire() {
            return Some(Waited::Turn(turn));
        }
        let _next = self.next.acquire().await.ok()?;
        let mut turn = pin!(self.turn.acquire());
        while !self.passed.get() {
            tokio::select! {
                biased;
                turn = turn.as_mut() => return turn.ok().map(Waited::Turn),
                () = sleep(TRY) => {}
            }
            if let Poll::Ready(done) = step.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                self.passed.set(true);
                return Some(Waited::Done(done));
            }
        }
        tokio::select! {
            biased;
            turn = turn => turn.ok().map(Waited::Turn),
            done = step => Some(Waited::Done(done)),
        }
    }
}
