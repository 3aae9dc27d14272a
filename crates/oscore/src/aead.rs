//! The AEADs themselves: AES-CCM on the `aes` crate, which uses AES-NI and its like where the processor has them; GCM and
//! ChaCha20/Poly1305 from `ring`, which has no CCM.

use std::fmt;

use aes::cipher::KeyInit as _;
use aes::{Aes128Enc, Aes256Enc};
use ring::aead as ring_aead;

use crate::algorithm::Algorithm;
use crate::ccm::Ccm;
use crate::derive::KeyBytes;
use crate::nonce::Nonce;

/// A key, expanded and ready.
pub(crate) enum Cipher {
    Ccm128(Box<Ccm<Aes128Enc>>),
    Ccm256(Box<Ccm<Aes256Enc>>),
    Ring(Box<ring_aead::LessSafeKey>),
}

/// The message is not what the other end sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forged;

impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cipher")
    }
}

impl Cipher {
    /// `None` only if the key did not have the length of the algorithm.
    pub(crate) fn new(algorithm: Algorithm, key: &KeyBytes) -> Option<Self> {
        let key = key.get(..algorithm.key_bytes())?;
        let ring = |algorithm| {
            let key = ring_aead::UnboundKey::new(algorithm, key).ok()?;
            Some(Self::Ring(Box::new(ring_aead::LessSafeKey::new(key))))
        };
        let tag_bytes = if algorithm.tag_bytes() == 8 { 8 } else { 16 };
        match algorithm {
            Algorithm::AesCcm1664128 | Algorithm::AesCcm16128128 => {
                let cipher = Aes128Enc::new_from_slice(key).ok()?;
                Some(Self::Ccm128(Box::new(Ccm::new(cipher, tag_bytes))))
            }
            Algorithm::AesCcm1664256 | Algorithm::AesCcm16128256 => {
                let cipher = Aes256Enc::new_from_slice(key).ok()?;
                Some(Self::Ccm256(Box::new(Ccm::new(cipher, tag_bytes))))
            }
            Algorithm::A128Gcm => ring(&ring_aead::AES_128_GCM),
            Algorithm::A256Gcm => ring(&ring_aead::AES_256_GCM),
            Algorithm::ChaCha20Poly1305 => ring(&ring_aead::CHACHA20_POLY1305),
        }
    }

    /// Encrypts what stands in `message` from `start` on, and appends the tag.
    pub(crate) fn seal(&self, nonce: &Nonce, aad: &[u8], message: &mut Vec<u8>, start: usize) -> Option<()> {
        match self {
            Self::Ccm128(ccm) => ccm.seal(nonce, aad, message, start),
            Self::Ccm256(ccm) => ccm.seal(nonce, aad, message, start),
            Self::Ring(key) => {
                let plaintext = message.get_mut(start..)?;
                let aad = ring_aead::Aad::from(aad);
                let tag = key.seal_in_place_separate_tag(ring_nonce(nonce)?, aad, plaintext).ok()?;
                message.extend_from_slice(tag.as_ref());
                Some(())
            }
        }
    }

    /// Decrypts what stands in `message` from `start` on, and takes the tag away.
    pub(crate) fn open(&self, nonce: &Nonce, aad: &[u8], message: &mut Vec<u8>, start: usize) -> Result<(), Forged> {
        let opened = match self {
            Self::Ccm128(ccm) => ccm.open(nonce, aad, message, start),
            Self::Ccm256(ccm) => ccm.open(nonce, aad, message, start),
            Self::Ring(key) => ring_nonce(nonce).and_then(|nonce| {
                let ciphertext = message.get_mut(start..)?;
                let plaintext = key.open_in_place(nonce, ring_aead::Aad::from(aad), ciphertext).ok()?;
                Some(plaintext.len())
            }),
        };
        message.truncate(start + opened.ok_or(Forged)?);
        Ok(())
    }
}

fn ring_nonce(nonce: &Nonce) -> Option<ring_aead::Nonce> {
    ring_aead::Nonce::try_assume_unique_for_key(nonce.get(..ring_aead::NONCE_LEN)?).ok()
}
