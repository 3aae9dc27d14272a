//! AEAD nonces (RFC 8613 §5.2).

use crate::algorithm::Algorithm;
use crate::id::Id;
use crate::partial_iv::{PARTIAL_IV_BYTES_MAX, PartialIv};

/// The longest nonce, that of AES-CCM-16.
pub(crate) const NONCE_BYTES_MAX: usize = 13;

/// A nonce or a Common IV; shorter algorithms use the first bytes.
pub(crate) type Nonce = [u8; NONCE_BYTES_MAX];

/// The nonce of a Partial IV that the end with this ID made: size and ID, Partial IV at the end, XOR Common IV.
pub(crate) fn nonce(algorithm: Algorithm, common_iv: &Nonce, id: &Id, partial_iv: &PartialIv) -> Nonce {
    let length = algorithm.nonce_bytes();
    let mut nonce = *common_iv;
    if let Some(first) = nonce.first_mut() {
        *first ^= id.length();
    }
    let mut mix = |end: usize, bytes: &[u8]| {
        let places = nonce.get_mut(end.saturating_sub(bytes.len())..end).unwrap_or(&mut []);
        places.iter_mut().zip(bytes).for_each(|(to, from)| *to ^= from);
    };
    mix(length - PARTIAL_IV_BYTES_MAX, id.as_slice());
    mix(length, partial_iv.as_slice());
    nonce
}
