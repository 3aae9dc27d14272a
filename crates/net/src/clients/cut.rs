//! Connections that end when their certificate is revoked.

use std::{
    fmt,
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};

use rustls::pki_types::CertificateDer;

/// A connection's share in the fate of its certificate.
pub struct Cut(Arc<CutState>);

pub(super) struct CutState {
    chain: Vec<CertificateDer<'static>>,
    cut: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl CutState {
    pub(super) fn new(chain: Vec<CertificateDer<'static>>) -> Self {
        Self { chain, cut: AtomicBool::new(false), waker: Mutex::default() }
    }

    /// The certificate and those that the client sent with it.
    pub(super) fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    pub(super) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Acquire)
    }

    pub(super) fn cut(&self) {
        self.cut.store(true, Ordering::Release);
        if let Some(waker) = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take() {
            waker.wake();
        }
    }
}

impl Cut {
    pub(super) const fn of(state: Arc<CutState>) -> Self {
        Self(state)
    }

    /// Ready once the certificate has been revoked. One task at a time is woken.
    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let state = &self.0;
        let mut waker = state.waker.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_cut() {
            return Poll::Ready(());
        }
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Whether the certificate has been revoked.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.0.is_cut()
    }

    /// Runs `work` until it ends or the certificate is revoked.
    pub async fn or_until<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        std::future::poll_fn(|cx| match self.poll(cx) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => work.as_mut().poll(cx).map(Some),
        })
        .await
    }
}

impl fmt::Debug for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cut").field("is_cut", &self.is_cut()).finish_non_exhaustive()
    }
}
