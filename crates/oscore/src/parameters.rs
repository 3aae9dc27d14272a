//! The input parameters that two ends share in advance (RFC 8613 §3.2).

use std::fmt;

use zeroize::Zeroizing;

use crate::algorithm::Algorithm;
use crate::derive::Derivation;
use crate::fingerprint::Fingerprint;
use crate::id::{Id, TooLong};

/// The input parameters of a context, as one end sees it.
#[derive(Clone, PartialEq, Eq)]
pub struct Parameters {
    /// Known to both ends and nobody else; 16 random bytes are enough (RFC 8613 §12.3).
    pub master_secret: Zeroizing<Vec<u8>>,
    /// May be empty.
    pub master_salt: Vec<u8>,
    /// Tells contexts apart that have the same IDs.
    pub id_context: Option<Vec<u8>>,
    /// Our ID.
    pub sender_id: Id,
    /// The ID of the other end.
    pub recipient_id: Id,
    /// The AEAD algorithm.
    pub algorithm: Algorithm,
}

/// Parameters that make no context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParametersError {
    /// No Master Secret.
    #[error("the master secret is empty")]
    NoSecret,
    /// The same keys in both directions (RFC 8613 §3.3).
    #[error("sender ID and recipient ID are the same")]
    SameIds,
    /// An ID that leaves no room in the nonce.
    #[error("an ID is longer than {max} bytes, the most for {algorithm} (RFC 8613 §3.3)", max = .0.id_bytes_max(),
        algorithm = .0)]
    IdTooLong(Algorithm),
    /// An ID that no algorithm has room for.
    #[error(transparent)]
    TooLong(#[from] TooLong),
}

impl Parameters {
    /// Whether a context can be made of them.
    ///
    /// # Errors
    /// Which parameter is wrong.
    pub fn check(&self) -> Result<(), ParametersError> {
        let longest = usize::from(self.sender_id.length().max(self.recipient_id.length()));
        if self.master_secret.is_empty() {
            Err(ParametersError::NoSecret)
        } else if self.sender_id == self.recipient_id {
            Err(ParametersError::SameIds)
        } else if longest > self.algorithm.id_bytes_max() {
            Err(ParametersError::IdTooLong(self.algorithm))
        } else {
            Ok(())
        }
    }

    /// Returns a fingerprint of this end's keys, which identifies them and reveals nothing about them.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let id_context = self.id_context.as_deref();
        let derivation = Derivation::new(&self.master_secret, &self.master_salt, id_context, self.algorithm);
        Fingerprint::of(&derivation.key(&self.sender_id))
    }

    /// Returns the same context from the other end's point of view.
    #[must_use]
    pub fn mirrored(&self) -> Self {
        Self { sender_id: self.recipient_id, recipient_id: self.sender_id, ..self.clone() }
    }
}

impl fmt::Debug for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parameters")
            .field("sender_id", &self.sender_id)
            .field("recipient_id", &self.recipient_id)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}
