//! AES in CCM (RFC 3610) as COSE has it for nonces of 13 bytes (AES-CCM-16-…, RFC 9053 §4.2).
//!
//! The cipher is the `aes` crate's; the mode is what the `ccm` crate does, which tests compare it with. Here it is one
//! visit of the cipher for a whole message: since `aes` 0.9 each visit spreads the round keys anew, and `ccm` 0.6 makes
//! three.

use aes::cipher::consts::U16;
use aes::cipher::{Array, BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser, InOut};
use subtle::ConstantTimeEq as _;

use crate::nonce::Nonce;

type Block = [u8; 16];

/// Bytes of a tag; those of 8 are the first half.
pub(crate) type Tag = [u8; 16];

/// Bytes of the length field: what a nonce of 13 leaves of a block (RFC 3610 §2.1).
const LENGTH_BYTES: u8 = 2;

/// A cipher in CCM with tags of 8 or 16 bytes.
pub(crate) struct Ccm<C> {
    cipher: C,
    tag_bytes: u8,
}

impl<C: BlockCipherEncrypt<BlockSize = U16>> Ccm<C> {
    pub(crate) const fn new(cipher: C, tag_bytes: u8) -> Self {
        Self { cipher, tag_bytes }
    }

    /// Encrypts what stands in `message` from `start` on, and appends the tag. `None` when it is too long.
    pub(crate) fn seal(&self, nonce: &Nonce, aad: &[u8], message: &mut Vec<u8>, start: usize) -> Option<()> {
        let tag = self.visit(nonce, aad, message.get_mut(start..)?, Direction::Seal)?;
        message.extend_from_slice(tag.get(..self.tag_bytes.into())?);
        Some(())
    }

    /// Decrypts what stands in `message` from `start` on; gives the length of the plaintext when the tag is right.
    /// Otherwise nothing may be done with what stands there.
    pub(crate) fn open(&self, nonce: &Nonce, aad: &[u8], message: &mut [u8], start: usize) -> Option<usize> {
        let sealed = message.get_mut(start..)?;
        let length = sealed.len().checked_sub(self.tag_bytes.into())?;
        let (body, tag) = sealed.split_at_mut(length);
        let right = self.visit(nonce, aad, body, Direction::Open)?;
        let right = right.get(..self.tag_bytes.into())?;
        bool::from(right.ct_eq(tag)).then_some(length)
    }

    fn visit(&self, nonce: &Nonce, aad: &[u8], body: &mut [u8], direction: Direction) -> Option<Tag> {
        let (length, aad_length) = (u16::try_from(body.len()).ok()?, u16::try_from(aad.len()).ok()?);
        // RFC 3610 §2.2: from 0xff00 on, and for none, the length of the additional data has another form. Ours is short.
        if aad_length == 0 || aad_length >= 0xff00 {
            return None;
        }
        let mut tag = [0; 16];
        let visit = Visit { nonce, aad, aad_length, body, length, direction, tag_bytes: self.tag_bytes, tag: &mut tag };
        self.cipher.encrypt_with_backend(visit);
        Some(tag)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Seal,
    Open,
}

/// All that happens to one message while the round keys are at hand.
struct Visit<'a> {
    nonce: &'a Nonce,
    aad: &'a [u8],
    aad_length: u16,
    body: &'a mut [u8],
    length: u16,
    direction: Direction,
    tag_bytes: u8,
    tag: &'a mut Tag,
}

impl BlockSizeUser for Visit<'_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for Visit<'_> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        let cipher = |block: &mut Block| {
            let block: &mut Array<u8, U16> = block.into();
            backend.encrypt_block(InOut::from(block));
        };
        // RFC 3610 §2.2: B_0 says that there is additional data, how long the tag is and how long the message.
        let flags = 0x40 | (((self.tag_bytes - 2) / 2) << 3) | (LENGTH_BYTES - 1);
        let mut mac = block(flags, self.nonce, self.length);
        cipher(&mut mac);
        let [high, low] = self.aad_length.to_be_bytes();
        let (first, rest) = self.aad.split_at(self.aad.len().min(14));
        xor(&mut mac, [high, low].into_iter().chain(first.iter().copied()));
        cipher(&mut mac);
        for chunk in rest.chunks(16) {
            xor(&mut mac, chunk.iter().copied());
            cipher(&mut mac);
        }
        // §2.3: the counters of the message begin with 1; 0 is that of the tag. Two bytes are enough for what fits its length.
        let none = u128::from_be_bytes(block(LENGTH_BYTES - 1, self.nonce, 0));
        let (whole, rest) = self.body.as_chunks_mut::<16>();
        let mut counter = none;
        for chunk in whole {
            counter += 1;
            let mut stream = counter.to_be_bytes();
            cipher(&mut stream);
            if self.direction == Direction::Seal {
                xor_block(&mut mac, chunk);
            }
            xor_block(chunk, &stream);
            if self.direction == Direction::Open {
                xor_block(&mut mac, chunk);
            }
            cipher(&mut mac);
        }
        if !rest.is_empty() {
            let mut stream = (counter + 1).to_be_bytes();
            cipher(&mut stream);
            if self.direction == Direction::Seal {
                xor(&mut mac, rest.iter().copied());
            }
            rest.iter_mut().zip(stream).for_each(|(byte, with)| *byte ^= with);
            if self.direction == Direction::Open {
                xor(&mut mac, rest.iter().copied());
            }
            cipher(&mut mac);
        }
        let mut stream = none.to_be_bytes();
        cipher(&mut stream);
        xor(&mut mac, stream);
        *self.tag = mac;
    }
}

/// Flags, nonce, and a number in two bytes.
#[inline(always)]
fn block(flags: u8, nonce: &Nonce, number: u16) -> Block {
    let mut block = [flags; 16];
    let bytes = nonce.iter().copied().chain(number.to_be_bytes());
    block.iter_mut().skip(1).zip(bytes).for_each(|(to, from)| *to = from);
    block
}

#[inline(always)]
fn xor(block: &mut Block, with: impl IntoIterator<Item = u8>) {
    block.iter_mut().zip(with).for_each(|(byte, with)| *byte ^= with);
}

/// The same for a whole block, at once.
#[inline(always)]
const fn xor_block(block: &mut Block, with: &Block) {
    *block = (u128::from_ne_bytes(*block) ^ u128::from_ne_bytes(*with)).to_ne_bytes();
}

#[cfg(test)]
mod tests {
    use aes::{Aes128Enc, Aes256Enc};
    use ccm::aead::{AeadInOut, KeyInit, array::ArraySize};
    use ccm::consts::{U8, U13};
    use proptest::prelude::*;

    use super::*;

    fn compare<C, T>(ours: &Ccm<C>, theirs: &ccm::Ccm<C, T, U13>, nonce: Nonce, aad: &[u8], plain: &[u8])
    where
        C: BlockCipherEncrypt<BlockSize = U16>,
        T: ccm::TagSize + ArraySize,
    {
        let (mut message, mut other) = ([b"head", plain].concat(), plain.to_vec());
        ours.seal(&nonce, aad, &mut message, 4).unwrap();
        let tag = theirs.encrypt_inout_detached(&Array(nonce), aad, other.as_mut_slice().into()).unwrap();
        other.extend_from_slice(&tag);
        assert_eq!(message[4..], other);
        assert_eq!(message[..4], *b"head");
        let mut opened = message.clone();
        assert_eq!(ours.open(&nonce, aad, &mut opened, 4), Some(plain.len()));
        assert_eq!(opened[4..4 + plain.len()], *plain);
        for at in [4, message.len() - 1] {
            let mut forged = message.clone();
            forged[at] ^= 0x10;
            assert_eq!(ours.open(&nonce, aad, &mut forged, 4), None);
        }
        assert_eq!(ours.open(&nonce, &[aad, &[0]].concat(), &mut message, 4), None);
    }

    proptest! {
        #[test]
        fn it_is_what_the_ccm_crate_does(
            key: [u8; 32],
            nonce: Nonce,
            aad in proptest::collection::vec(any::<u8>(), 1..70),
            plain in proptest::collection::vec(any::<u8>(), 1..300),
        ) {
            let (short, long) = (Aes128Enc::new_from_slice(&key[..16]).unwrap(), Aes256Enc::new(&Array(key)));
            let theirs = |tag| (tag, short.clone(), long.clone());
            let (_, small, large) = theirs(8);
            compare(&Ccm::new(small, 8), &ccm::Ccm::<_, U8, U13>::from(short.clone()), nonce, &aad, &plain);
            compare(&Ccm::new(large, 8), &ccm::Ccm::<_, U8, U13>::from(long.clone()), nonce, &aad, &plain);
            let (_, small, large) = theirs(16);
            compare(&Ccm::new(small, 16), &ccm::Ccm::<_, U16, U13>::from(short.clone()), nonce, &aad, &plain);
            compare(&Ccm::new(large, 16), &ccm::Ccm::<_, U16, U13>::from(long.clone()), nonce, &aad, &plain);
        }
    }

    #[test]
    fn what_is_too_long_is_not_sealed() {
        let ccm = Ccm::new(Aes128Enc::new(&Array([7; 16])), 8);
        let mut message = vec![0; 1 << 16];
        assert_eq!(ccm.seal(&[0; 13], &[1], &mut message, 0), None);
        assert_eq!(ccm.seal(&[0; 13], &[1], &mut message, 1), Some(()));
        assert_eq!(ccm.open(&[0; 13], &[1], &mut [1; 7], 0), None);
    }
}
