//! Signals between connections outside the bus: notices, and the order to close.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::Waker,
};

use futures_util::task::AtomicWaker;

/// Notices that wait for one connection; later ones are lost.
const NOTICES_MAX: usize = 64;
/// Their bytes, beside those of the first one: the name of a node may have 64 KiB.
const NOTICES_BYTES_MAX: usize = 64 << 10;

/// One connection's ear. The message of a notice lacks its head: the connection writes its own address.
#[derive(Debug, Default)]
pub(super) struct Control {
    conflict: AtomicBool,
    notices: Mutex<VecDeque<Box<[u8]>>>,
    waker: AtomicWaker,
}

impl Control {
    /// Another connection took the resource.
    pub(super) fn displace(&self) {
        self.conflict.store(true, Ordering::Relaxed);
        self.waker.wake();
    }

    /// Has the connection take a turn.
    pub(super) fn wake(&self) {
        self.waker.wake();
    }

    pub(super) fn is_displaced(&self) -> bool {
        self.conflict.load(Ordering::Relaxed)
    }

    /// Tells the connection something.
    pub(super) fn notify(&self, event: &[u8]) {
        let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting: usize = notices.iter().map(|notice| notice.len()).sum();
        if notices.is_empty() || (notices.len() < NOTICES_MAX && waiting + event.len() <= NOTICES_BYTES_MAX) {
            notices.push_back(event.into());
        }
        drop(notices);
        self.waker.wake();
    }

    pub(super) fn next_notice(&self) -> Option<Box<[u8]>> {
        let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        let notice = notices.pop_front();
        if notices.is_empty() {
            *notices = VecDeque::new();
        }
        notice
    }

    pub(super) fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }
}
