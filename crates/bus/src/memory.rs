//! The global watermark: memory held by all mailboxes. Publishers are paused above it; nothing else slows them.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
};

/// The fraction of the high mark that has to be given back before publishers that pause go on. Little, because doors
/// that answer each request take it as soon as the mark is passed, and those that pause must not wait for much longer.
const LOW: usize = 16;
/// The fraction of the high mark that one client may hold beyond its own bound, and all of them beyond the mark.
const EXCESS: usize = 8;

/// Bytes held in mailboxes, against a high and a low mark.
#[derive(Debug)]
pub struct Memory {
    used: AtomicUsize,
    waiting_messages: AtomicUsize,
    high: usize,
    low: usize,
    waiting: Mutex<Vec<Waker>>,
}

impl Memory {
    pub(crate) const fn new(high_bytes: usize) -> Self {
        Self {
            used: AtomicUsize::new(0),
            waiting_messages: AtomicUsize::new(0),
            high: high_bytes,
            low: high_bytes - high_bytes / LOW,
            waiting: Mutex::new(Vec::new()),
        }
    }

    /// Bytes held now.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// Messages that wait in mailboxes; see [`crate::Mailbox::waiting`].
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting_messages.load(Relaxed)
    }

    pub(crate) fn change_waiting(&self, before: usize, after: usize) {
        if after > before {
            self.waiting_messages.fetch_add(after - before, Relaxed);
        } else if after < before {
            self.waiting_messages.fetch_sub(before - after, Relaxed);
        }
    }

    /// Whether publishers have to pause.
    #[must_use]
    pub fn pressure(&self) -> bool {
        self.used() > self.high
    }

    /// Whether more came than the publications that were under way when publishers had to pause.
    #[must_use]
    pub fn is_overfull(&self) -> bool {
        self.used() > self.high.saturating_add(self.high / EXCESS)
    }

    /// The bytes that one client may hold beyond its own bound, because publishers wait for it.
    #[must_use]
    pub const fn excess_max(&self) -> usize {
        self.high / EXCESS
    }

    /// Completes once there is room again.
    pub const fn relieved(&self) -> Relieved<'_> {
        Relieved(self)
    }

    /// Mailboxes hold `after` bytes instead of `before`. What a door keeps elsewhere is not counted here: nobody's
    /// messages are to be dropped for it, and no publisher is to wait.
    pub(crate) fn change(&self, before: usize, after: usize) {
        if after >= before {
            if after > before {
                self.used.fetch_add(after - before, Relaxed);
            }
            return;
        }
        let freed = before - after;
        let was = self.used.fetch_sub(freed, Relaxed);
        if was > self.low && was - freed <= self.low {
            let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
            waiting.into_iter().for_each(Waker::wake);
        }
    }
}

/// See [`Memory::relieved`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Relieved<'a>(&'a Memory);

impl Future for Relieved<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if !self.0.pressure() {
            return Poll::Ready(());
        }
        let mut waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting.iter().any(|w| w.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
        drop(waiting);
        // Room may have been made between the look and the registration; `low` is where wakers are called.
        if self.0.used() <= self.0.low { Poll::Ready(()) } else { Poll::Pending }
    }
}
