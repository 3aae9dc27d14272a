//! The door between messages and requests for those who protect requests from end to end (OSCORE, RFC 8613).
//!
//! A request with an OSCORE option is handed to [`Protection::open`]; the request inside goes the way of all others,
//! and whatever answers it – response, notification, error – passes [`Exchange::seal`] on its way out. Deduplication,
//! acknowledgements and retransmissions stay outside: what is sent again is the same bytes.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use bumpalo::Bump;

use crate::Timestamp;
use crate::code::Code;
use crate::message::Message;

/// Opens protected requests.
pub trait Protection {
    /// Appends the decrypted message to `inner`, in the format of RFC 7252, with the type, message identifier and token
    /// of `outer` and the unprotected (class U) options of `outer`.
    fn open(&mut self, now: Timestamp, outer: &Message<'_>, inner: &mut Vec<u8>) -> Opened;
}

/// The outcome of opening a protected request.
#[derive(Debug)]
pub enum Opened {
    /// A request, which is in the buffer.
    Request(Rc<dyn Exchange>),
    /// A request that is answered at once. The response is in the buffer and not sealed yet (RFC 8613 appendix B.1.2).
    Answer(Rc<dyn Exchange>),
    /// A request that cannot be opened. The response is not protected (RFC 8613 §8.2).
    Refused {
        /// The code of the response.
        code: Code,
        /// Its diagnostic payload.
        text: &'static str,
    },
}

/// One protected request, for as long as anything may answer it.
pub trait Exchange: fmt::Debug {
    /// The user that the security context belongs to.
    fn user(&self) -> &Arc<str>;

    /// The same number for all exchanges of a security context, never 0, and never that of another context: what one
    /// context has begun, no other goes on with.
    fn scope(&self) -> u64;

    /// Appends to `out` the protected form of `plain`, with its type, message identifier and token.
    ///
    /// # Errors
    /// [`Unsealed::NotNow`]: a notification is retried soon; a response is not sent and its request may be repeated.
    /// [`Unsealed::Never`]: the observation ends; the response is not sent.
    fn seal(&self, now: Timestamp, plain: &Message<'_>, role: Role, out: &mut Vec<u8>) -> Result<(), Unsealed>;
}

/// The role of a message in its exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The response to the request itself.
    Answer,
    /// A later notification.
    Notification,
}

/// Why a message is not protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsealed {
    /// No sequence number may be used at the moment.
    #[error("no sequence number may be used at the moment")]
    NotNow,
    /// Neither now nor later.
    #[error("it can never be protected")]
    Never,
}

/// Room for the requests inside protected ones, for the length of a turn.
#[derive(Debug, Default)]
pub struct Room {
    bump: Bump,
}

impl Room {
    /// Keeps bytes for as long as the room is not cleared.
    pub(crate) fn keep(&self, bytes: &[u8]) -> &[u8] {
        self.bump.alloc_slice_copy(bytes)
    }

    /// Forgets all and keeps the space.
    pub fn clear(&mut self) {
        self.bump.reset();
    }
}
