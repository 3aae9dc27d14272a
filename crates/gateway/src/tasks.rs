//! The tasks of a worker that a shutdown waits for.

use std::{
    cell::Cell,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use tokio::{sync::Notify, task::spawn_local};

/// The tasks of a worker that a drain waits for, counted.
#[derive(Clone, Default)]
pub(crate) struct Tasks(Rc<Live>);

#[derive(Default)]
struct Live {
    count: Cell<usize>,
    none: Notify,
}

struct Task(Rc<Live>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get() - 1);
        if self.0.count.get() == 0 {
            self.0.none.notify_one();
        }
    }
}

impl Tasks {
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + 'static) {
        self.0.count.set(self.0.count.get() + 1);
        let task = Task(Rc::clone(&self.0));
        spawn_local(async move {
            let _task = task;
            work.await;
        });
    }

    /// As [`spawn`](Self::spawn), for a future that is `Unpin`, with a value that lives as long.
    pub(crate) fn spawn_flat<B: 'static>(&self, work: impl Future<Output = ()> + Unpin + 'static, beside: B) {
        self.0.count.set(self.0.count.get() + 1);
        spawn_local(Flat { work, _beside: Box::new((beside, Task(Rc::clone(&self.0)))) });
    }

    pub(crate) async fn finished(&self) {
        while self.0.count.get() > 0 {
            self.0.none.notified().await;
        }
    }
}

/// A future and a value that lives as long; an `async` block would hold each twice, which matters for ten thousand.
///
/// tokio aligns a task to 128 bytes, of which it has 104 itself: a future of up to three words makes a task of 128
/// bytes, a larger one takes 256. Hence the box.
struct Flat<F, B> {
    work: F,
    _beside: Box<B>,
}

impl<F: Future<Output = ()> + Unpin, B> Future for Flat<F, B> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.work).poll(cx)
    }
}

/// A stage of a connection, such as its login: a future of its own that returns the next stage, if there is one. What
/// a stage needed is freed when it ends, and the task is no larger than two words.
pub(crate) struct Stage(Pin<Box<dyn Future<Output = Option<Self>>>>);

impl Stage {
    pub(crate) fn new(work: impl Future<Output = Option<Self>> + 'static) -> Self {
        Self(Box::pin(work))
    }
}

impl Future for Stage {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(next) = ready!(self.0.as_mut().poll(cx)) {
            *self = next;
        }
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_task_of_a_connection_takes_three_words() {
        assert!(size_of::<Flat<Stage, ()>>() <= 3 * size_of::<usize>());
    }
}
