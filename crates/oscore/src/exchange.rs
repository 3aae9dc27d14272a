//! The binding of responses to a request (RFC 8613 §7.1): its context and its Partial IV.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::context::Context;
use crate::partial_iv::PartialIv;

/// One request that was opened, for as long as something may answer it: an observation keeps it.
#[derive(Debug)]
pub struct Exchange {
    context: Arc<Context>,
    request_piv: PartialIv,
    /// Whether a message of ours was sealed with the nonce of the request, or must not be.
    nonce_spent: AtomicBool,
}

impl Exchange {
    pub(crate) const fn new(context: Arc<Context>, request_piv: PartialIv, nonce: RequestNonce) -> Self {
        let spent = matches!(nonce, RequestNonce::Spent);
        Self { context, request_piv, nonce_spent: AtomicBool::new(spent) }
    }

    /// The context of the request.
    #[must_use]
    pub const fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The sequence number of the request.
    #[must_use]
    pub const fn request_piv(&self) -> &PartialIv {
        &self.request_piv
    }

    /// Gives the nonce of the request to one caller, the first (RFC 8613 §8.3).
    pub(crate) fn spend_nonce(&self) -> RequestNonce {
        if self.nonce_spent.swap(true, Ordering::AcqRel) { RequestNonce::Spent } else { RequestNonce::Free }
    }
}

/// Whether an answer may be sealed with the nonce of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestNonce {
    /// It may, once.
    Free,
    /// It may not: it was used, or the request may be a replay (RFC 8613 appendix B.1.2).
    Spent,
}
