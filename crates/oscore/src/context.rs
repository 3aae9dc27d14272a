//! A security context (RFC 8613 §3.1): keys that never change, and the numbers that do, behind a lock.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fogmux_coap::Timestamp;

use crate::aead::Cipher;
use crate::algorithm::Algorithm;
use crate::derive::{Derivation, hmac};
use crate::fingerprint::Fingerprint;
use crate::id::Id;
use crate::nonce::{self, Nonce};
use crate::parameters::{Parameters, ParametersError};
use crate::partial_iv::PartialIv;
use crate::sequence::{NoNumber, Numbers, Reservation, SequenceStore};
use crate::window::ReplayWindow;

/// Bytes of the value by which a client shows that a request is new (RFC 9175 §2).
pub(crate) const ECHO_BYTES: usize = 8;
/// How often the Echo value changes. A device answers it at once; twice this is as long as CoAP's own Echo values last.
const ECHO_PERIOD_MS: u64 = 150_000;

/// The number of the next context.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Where a context begins (RFC 8613 §7.5, appendix B.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The first sequence number of this end that was certainly not used.
    pub next: u64,
    /// Numbers below it may be used at once, since their reservation is on disk.
    pub durable: u64,
    /// The requests of the other end that were received.
    pub requests: Requests,
}

/// This end's knowledge of the requests of the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requests {
    /// All requests below this number may have been received, and none from it on. 0 for a context that was never used.
    SeenBelow(u64),
    /// Not known: the first request must be repeated with an Echo (RFC 8613 appendix B.1.2).
    Unknown {
        /// Random bytes, from which the Echo values are made.
        echo: [u8; ECHO_BYTES],
    },
}

/// One end of a security context. To be shared between threads and between both roles.
pub struct Context {
    name: Arc<str>,
    number: u64,
    fingerprint: Fingerprint,
    algorithm: Algorithm,
    sender_id: Id,
    recipient_id: Id,
    id_context: Option<Box<[u8]>>,
    common_iv: Nonce,
    sender: Cipher,
    recipient: Cipher,
    store: Arc<dyn SequenceStore>,
    state: Mutex<State>,
}

struct State {
    numbers: Numbers,
    window: Window,
}

/// This end's knowledge of the requests of the other end.
enum Window {
    Known(ReplayWindow),
    /// Not known yet: an Echo is required (RFC 8613 appendix B.1.2).
    Unknown([u8; ECHO_BYTES]),
}

/// Why a message was not sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// Soon it will be possible.
    #[error("the next sequence numbers are not on the disk yet")]
    NotDurable,
    /// Never again with this context.
    #[error("all sequence numbers are used (RFC 8613 §7.2.1)")]
    Exhausted,
    /// The message has an OSCORE option already (RFC 8613 §4.1.3.7).
    #[error("the message is protected already")]
    Nested,
    /// A Proxy-Uri must be taken apart first (RFC 8613 §4.1.3.3).
    #[error("Proxy-Uri is to be given as Proxy-Scheme and Uri options")]
    ProxyUri,
    /// Longer than the algorithm can seal.
    #[error("the message is too long")]
    TooLong,
}

impl From<NoNumber> for SealError {
    fn from(error: NoNumber) -> Self {
        match error {
            NoNumber::NotDurable => Self::NotDurable,
            NoNumber::Exhausted => Self::Exhausted,
        }
    }
}

/// The replay window's verdict on a request that was decrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    New,
    Replay,
    /// The request must be repeated with this Echo.
    Prove([u8; ECHO_BYTES]),
}

impl Context {
    /// A context. `name` is for the caller: who it is that holds the other end.
    ///
    /// # Errors
    /// [`ParametersError`] when these parameters make no context.
    pub fn new(
        name: Arc<str>,
        parameters: &Parameters,
        start: Start,
        store: Arc<dyn SequenceStore>,
    ) -> Result<Arc<Self>, ParametersError> {
        parameters.check()?;
        let Parameters { master_secret, master_salt, id_context, sender_id, recipient_id, algorithm } = parameters;
        let derivation = Derivation::new(master_secret, master_salt, id_context.as_deref(), *algorithm);
        let cipher = |id| Cipher::new(*algorithm, &derivation.key(id)).ok_or(ParametersError::NoSecret);
        Ok(Arc::new(Self {
            name,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            fingerprint: Fingerprint::of(&derivation.key(sender_id)),
            algorithm: *algorithm,
            sender_id: *sender_id,
            recipient_id: *recipient_id,
            id_context: id_context.as_deref().map(Box::from),
            common_iv: derivation.common_iv(),
            sender: cipher(sender_id)?,
            recipient: cipher(recipient_id)?,
            store,
            state: Mutex::new(State::new(start)),
        }))
    }

    /// The user at the other end.
    #[must_use]
    pub const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// A number unique among all contexts that this process has or had; never 0.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// The fingerprint of its keys.
    #[must_use]
    pub const fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    /// The AEAD algorithm.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Our ID.
    #[must_use]
    pub const fn sender_id(&self) -> &Id {
        &self.sender_id
    }

    /// The ID of the other end.
    #[must_use]
    pub const fn recipient_id(&self) -> &Id {
        &self.recipient_id
    }

    /// The ID Context.
    #[must_use]
    pub fn id_context(&self) -> Option<&[u8]> {
        self.id_context.as_deref()
    }

    /// Asks for the first chunk of numbers, so that it is there when it is needed.
    pub fn prepare(self: &Arc<Self>) {
        let wish = self.state().numbers.wish();
        self.reserve(wish);
    }

    /// The first number of ours that was not used.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        self.state().numbers.next()
    }

    /// A number of ours that is used nowhere else.
    pub(crate) fn take_number(self: &Arc<Self>) -> Result<PartialIv, SealError> {
        let mut state = self.state();
        let number = state.numbers.take();
        let wish = state.numbers.wish();
        drop(state);
        self.reserve(wish);
        Ok(number?)
    }

    fn reserve(self: &Arc<Self>, wish: Option<u64>) {
        if let Some(below) = wish {
            self.store.reserve(Reservation::new(Arc::clone(self), below));
        }
    }

    pub(crate) fn numbers_durable(&self, below: u64) {
        self.state().numbers.durable_below(below);
    }

    pub(crate) fn reservation_over(&self, below: u64) {
        self.state().numbers.reservation_over(below);
    }

    /// Whether a number is certainly a replay, before anything is decrypted.
    pub(crate) fn is_replay(&self, number: u64) -> bool {
        match &self.state().window {
            Window::Known(window) => !window.is_new(number),
            Window::Unknown(_) => false,
        }
    }

    /// Notes a request that is authentic (RFC 8613 §7.4, appendix B.1.2); `echo` is the Echo in it. One that somebody
    /// kept back is not fresh, however authentic it is (RFC 9175 §2.3): the value holds for one to two periods.
    pub(crate) fn note_request(&self, now: Timestamp, number: u64, echo: Option<&[u8]>) -> Verdict {
        let mut state = self.state();
        match &mut state.window {
            Window::Known(window) => {
                if window.accept(number) {
                    Verdict::New
                } else {
                    Verdict::Replay
                }
            }
            // No secret is compared: whoever opens a sealed message may know the value.
            Window::Unknown(secret) if is_fresh(secret, now, echo) => {
                let mut window = ReplayWindow::starting_at(number);
                window.accept(number);
                state.window = Window::Known(window);
                Verdict::New
            }
            Window::Unknown(secret) => Verdict::Prove(echo_of(secret, period(now))),
        }
    }

    /// The nonce of a Partial IV of ours.
    pub(crate) fn own_nonce(&self, partial_iv: &PartialIv) -> Nonce {
        nonce::nonce(self.algorithm, &self.common_iv, &self.sender_id, partial_iv)
    }

    /// The nonce of a Partial IV of the other end.
    pub(crate) fn their_nonce(&self, partial_iv: &PartialIv) -> Nonce {
        nonce::nonce(self.algorithm, &self.common_iv, &self.recipient_id, partial_iv)
    }

    pub(crate) const fn sender(&self) -> &Cipher {
        &self.sender
    }

    pub(crate) const fn recipient(&self) -> &Cipher {
        &self.recipient
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// In which period a moment lies.
fn period(now: Timestamp) -> u64 {
    now.as_millis() / ECHO_PERIOD_MS
}

/// The Echo value of a period (RFC 9175 appendix A, item 2).
fn echo_of(secret: &[u8; ECHO_BYTES], period: u64) -> [u8; ECHO_BYTES] {
    let code = hmac(secret, &[b"fogmux oscore echo", &period.to_be_bytes()]);
    let mut echo = [0; ECHO_BYTES];
    echo.iter_mut().zip(code.iter()).for_each(|(to, from)| *to = *from);
    echo
}

/// Whether an Echo value is of this period or of the one before.
fn is_fresh(secret: &[u8; ECHO_BYTES], now: Timestamp, echo: Option<&[u8]>) -> bool {
    let this = period(now);
    echo.is_some_and(|echo| [this, this.saturating_sub(1)].iter().any(|period| echo == echo_of(secret, *period)))
}

impl State {
    const fn new(start: Start) -> Self {
        let window = match start.requests {
            Requests::SeenBelow(lowest) => Window::Known(ReplayWindow::starting_at(lowest)),
            Requests::Unknown { echo } => Window::Unknown(echo),
        };
        Self { numbers: Numbers::new(start.next, start.durable), window }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("name", &self.name)
            .field("algorithm", &self.algorithm)
            .field("sender_id", &self.sender_id)
            .field("recipient_id", &self.recipient_id)
            .finish_non_exhaustive()
    }
}
