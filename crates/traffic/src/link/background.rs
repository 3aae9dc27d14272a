//! A thread beside the generator, that is told to end by a descriptor it polls.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::measure::process::Apart;

/// A thread that gives a `T` when it ends; dropping this ends it.
#[derive(Debug)]
pub(super) struct Background<T> {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<T>>,
}

impl<T: Send + 'static> Background<T> {
    pub(super) fn start(name: &str, work: impl FnOnce(Watch) -> T + Send + 'static) -> io::Result<Self> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let watched = Arc::clone(&stop);
        let (begun, is_apart) = mpsc::channel();
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            let watch = Watch { stop: watched, apart: Apart::begin() };
            let _ = begun.send(());
            work(watch)
        })?;
        // A measurement that begins from now on must exclude the thread.
        let _ = is_apart.recv();
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Ends the thread. Returns `None` if it panicked.
    pub(super) fn finish(mut self) -> Option<T> {
        self.end()
    }
}

impl<T> Background<T> {
    fn end(&mut self) -> Option<T> {
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        self.thread.take()?.join().ok()
    }
}

impl<T> Drop for Background<T> {
    fn drop(&mut self) {
        self.end();
    }
}

/// The handle with which a background thread waits for its end.
#[derive(Debug)]
pub(super) struct Watch {
    stop: Arc<OwnedFd>,
    apart: Apart,
}

impl Watch {
    /// Waits until one of them can be read or the time is over; whether to go on.
    pub(super) fn wait<const N: usize>(&mut self, sources: [BorrowedFd<'_>; N], timeout: Option<Duration>) -> bool {
        self.apart.settle();
        let stop = PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN);
        let mut polled = vec![stop];
        polled.extend(sources.map(|source| PollFd::from_borrowed_fd(source, PollFlags::IN)));
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        // Interrupted: as if the time were over.
        let _ = poll(&mut polled, timeout.as_ref());
        polled.first().is_some_and(|stop| stop.revents().is_empty())
    }
}
