//! The AEADs themselves: AES-CCM on the `aes` crate, which uses AES-NI and its like where the processor has them; GCM
//! and ChaCha20/Poly1305 from `ring`, which has no CCM.

use std::fmt;

use fogmux_ccm::{Aes128Enc, Aes256Enc, AesCipher, Ccm, TagLength};
use ring::aead as ring_aead;

use crate::algorithm::Algorithm;
use crate::derive::KeyBytes;
use crate::nonce::{NONCE_BYTES_MAX, Nonce};

/// A key, expanded and ready.
pub(crate) enum Cipher {
    Ccm128(Box<Ccm<Aes128Enc, NONCE_BYTES_MAX>>),
    Ccm256(Box<Ccm<Aes256Enc, NONCE_BYTES_MAX>>),
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
        let tag = if algorithm.tag_bytes() == 8 { TagLength::Eight } else { TagLength::Sixteen };
        match algorithm {
            Algorithm::AesCcm1664128 | Algorithm::AesCcm16128128 => Some(Self::Ccm128(Box::new(Ccm::new(key, tag)?))),
            Algorithm::AesCcm1664256 | Algorithm::AesCcm16128256 => Some(Self::Ccm256(Box::new(Ccm::new(key, tag)?))),
            Algorithm::A128Gcm => ring(&ring_aead::AES_128_GCM),
            Algorithm::A256Gcm => ring(&ring_aead::AES_256_GCM),
            Algorithm::ChaCha20Poly1305 => ring(&ring_aead::CHACHA20_POLY1305),
        }
    }

    /// Encrypts what stands in `message` from `start` on, and appends the tag.
    pub(crate) fn seal(&self, nonce: &Nonce, aad: &[u8], message: &mut Vec<u8>, start: usize) -> Option<()> {
        match self {
            Self::Ccm128(ccm) => seal(ccm, nonce, aad, message, start),
            Self::Ccm256(ccm) => seal(ccm, nonce, aad, message, start),
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
            Self::Ccm128(ccm) => open(ccm, nonce, aad, message, start),
            Self::Ccm256(ccm) => open(ccm, nonce, aad, message, start),
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

type Aes<C> = Ccm<C, NONCE_BYTES_MAX>;

fn seal<C: AesCipher>(ccm: &Aes<C>, nonce: &Nonce, aad: &[u8], message: &mut Vec<u8>, start: usize) -> Option<()> {
    let tag = ccm.seal(nonce, &aad, message.get_mut(start..)?)?;
    message.extend_from_slice(tag.get(..ccm.tag_bytes())?);
    Some(())
}

/// The length of the plaintext.
fn open<C: AesCipher>(ccm: &Aes<C>, nonce: &Nonce, aad: &[u8], message: &mut [u8], start: usize) -> Option<usize> {
    let sealed = message.get_mut(start..)?;
    let length = sealed.len().checked_sub(ccm.tag_bytes())?;
    let (body, tag) = sealed.split_at_mut_checked(length)?;
    ccm.open(nonce, &aad, body, tag).map(|()| length)
}

fn ring_nonce(nonce: &Nonce) -> Option<ring_aead::Nonce> {
    ring_aead::Nonce::try_assume_unique_for_key(nonce.get(..ring_aead::NONCE_LEN)?).ok()
}
