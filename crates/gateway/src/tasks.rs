//! The tasks of a worker that a shutdown waits for.

use std::{
    cell::Cell,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
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
    pub(crate) fn spawn_flat(&self, work: impl Future<Output = ()> + Unpin + 'static, beside: impl Unpin + 'static) {
        self.0.count.set(self.0.count.get() + 1);
        spawn_local(Flat { work, _beside: (beside, Task(Rc::clone(&self.0))) });
    }

    pub(crate) async fn finished(&self) {
        while self.0.count.get() > 0 {
            self.0.none.notified().await;
        }
    }
}

/// A future and a value that lives as long; an `async` block would hold each twice, which matters for ten thousand.
struct Flat<F, B> {
    work: F,
    _beside: B,
}

impl<F: Future<Output = ()> + Unpin, B: Unpin> Future for Flat<F, B> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.work).poll(cx)
    }
}
