//! AES in CCM (RFC 3610) over one call of the cipher's backend for each message.
//!
//! DTLS has nonces of 12 bytes (RFC 6655 §3, RFC 8446 §5.3), and COSE of 13 (AES-CCM-16-…, RFC 9053 §4.2); what a nonce
//! leaves of a block counts the message's bytes. The cipher is that of the `aes` crate, and the mode is that of the
//! `ccm` crate, which the tests compare it with. It is here because each call of `aes` 0.9 spreads the round keys anew
//! and `ccm` 0.6 makes three calls for each message: 790 ns instead of 250 for a DTLS record of 80 bytes.
//!
//! This crate has no randomness and keeps no nonce: that none is used twice under one key is its caller's duty.

pub use aes::{Aes128Enc, Aes256Enc};

use aes::cipher::consts::U16;
use aes::cipher::{
    Array, BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser, InOut, KeyInit,
};
use subtle::ConstantTimeEq as _;

type Block = [u8; 16];

/// The bytes of a tag; a tag of 8 bytes is the first half.
pub type Tag = [u8; 16];

/// The length of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TagLength {
    /// 8 bytes, as CCM_8 and AES-CCM-16-64 have it.
    Eight = 8,
    /// 16 bytes.
    Sixteen = 16,
}

/// A block cipher that CCM can be built on: AES with keys of 128 or 256 bits.
pub trait AesCipher: BlockCipherEncrypt<BlockSize = U16> + KeyInit {}

impl AesCipher for Aes128Enc {}
impl AesCipher for Aes256Enc {}

/// An AES key in CCM with nonces of `NONCE` bytes, ready to be used.
pub struct Ccm<C, const NONCE: usize> {
    cipher: C,
    tag: TagLength,
}

impl<C: AesCipher, const NONCE: usize> Ccm<C, NONCE> {
    /// The longest message.
    const BYTES_MAX: u64 = (1 << (8 * (length_field(NONCE) + 1))) - 1;

    /// Expands a key. `None`: it does not have the cipher's length.
    #[inline]
    #[must_use]
    pub fn new(key: &[u8], tag: TagLength) -> Option<Self> {
        Some(Self { cipher: C::new_from_slice(key).ok()?, tag })
    }

    /// Encrypts `body` in place and returns the tag, of which the first [`TagLength`] bytes count. `None`: the body is
    /// longer than the length field can say, or the additional data has no bytes or more than 65 279.
    #[inline]
    pub fn seal(&self, nonce: &[u8; NONCE], aad: &impl AsRef<[u8]>, body: &mut [u8]) -> Option<Tag> {
        self.visit(nonce, aad, body, Direction::Seal)
    }

    /// Decrypts `body` in place when the tag is right. Otherwise nothing may be done with the bytes there.
    #[inline]
    pub fn open(&self, nonce: &[u8; NONCE], aad: &impl AsRef<[u8]>, body: &mut [u8], tag: &[u8]) -> Option<()> {
        let right = self.visit(nonce, aad, body, Direction::Open)?;
        let right = right.get(..self.tag_bytes())?;
        bool::from(right.ct_eq(tag)).then_some(())
    }

    /// The bytes of a tag: 8 or 16.
    #[inline]
    #[must_use]
    pub const fn tag_bytes(&self) -> usize {
        self.tag as usize
    }

    #[inline]
    fn visit(&self, nonce: &[u8; NONCE], aad: &impl AsRef<[u8]>, body: &mut [u8], direction: Direction) -> Option<Tag> {
        let length = u32::try_from(body.len()).ok().filter(|length| u64::from(*length) <= Self::BYTES_MAX)?;
        // RFC 3610 §2.2: from 0xff00 on, and for none, the length of the additional data has another form.
        let aad_length = u16::try_from(aad.as_ref().len()).ok().filter(|length| (1..0xff00).contains(length))?;
        let mut tag = [0; 16];
        let tag_bytes = self.tag as u8;
        let visit = Visit { nonce, aad, aad_length, body, length, direction, tag_bytes, tag: &mut tag };
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
struct Visit<'a, A, const NONCE: usize> {
    nonce: &'a [u8; NONCE],
    aad: &'a A,
    aad_length: u16,
    body: &'a mut [u8],
    length: u32,
    direction: Direction,
    tag_bytes: u8,
    tag: &'a mut Tag,
}

impl<A: AsRef<[u8]>, const NONCE: usize> BlockSizeUser for Visit<'_, A, NONCE> {
    type BlockSize = U16;
}

impl<A: AsRef<[u8]>, const NONCE: usize> BlockCipherEncClosure for Visit<'_, A, NONCE> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        let cipher = |block: &mut Block| {
            let block: &mut Array<u8, U16> = block.into();
            backend.encrypt_block(InOut::from(block));
        };
        // RFC 3610 §2.2: B_0 says that there is additional data, how long the tag is and how long the message.
        let length_field = const { length_field(NONCE) };
        let flags = 0x40 | (((self.tag_bytes - 2) / 2) << 3) | length_field;
        let mut mac = block(flags, self.nonce, self.length);
        cipher(&mut mac);
        // The compiler knows the length of an array, and makes one block of the additional data of DTLS 1.2.
        let aad = self.aad.as_ref();
        let (first, rest) = aad.split_at(aad.len().min(14));
        xor(&mut mac, self.aad_length.to_be_bytes().into_iter().chain(first.iter().copied()));
        cipher(&mut mac);
        for chunk in rest.chunks(16) {
            xor(&mut mac, chunk.iter().copied());
            cipher(&mut mac);
        }
        // §2.3: the counters of the message begin with 1; 0 is that of the tag. No message is long enough for a carry
        // beyond the counter's field.
        let none = u128::from_be_bytes(block(length_field, self.nonce, 0));
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

/// L − 1, where L is the number of bytes that a nonce leaves for a message's length (RFC 3610 §2.1).
const fn length_field(nonce: usize) -> u8 {
    match nonce {
        13 => 1,
        12 => 2,
        _ => panic!("DTLS has nonces of 12 bytes, COSE of 13"),
    }
}

/// Flags, nonce, and a number in the bytes that are left.
#[inline(always)]
fn block<const NONCE: usize>(flags: u8, nonce: &[u8; NONCE], number: u32) -> Block {
    let mut block = (u128::from(flags) << 120 | u128::from(number)).to_be_bytes();
    block.iter_mut().skip(1).zip(nonce).for_each(|(to, from)| *to = *from);
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
    use aes::cipher::consts::{U8, U12, U13};
    use ccm::aead::AeadInOut;
    use ccm::aead::array::ArraySize;
    use proptest::prelude::*;

    use super::*;

    fn compare<C, T, const NONCE: usize, N>(key: &[u8], nonce: [u8; NONCE], aad: &[u8], plain: &[u8])
    where
        C: AesCipher,
        T: ccm::TagSize + ArraySize,
        N: ccm::NonceSize + ArraySize<ArrayType<u8> = [u8; NONCE]>,
    {
        let length = if T::USIZE == 8 { TagLength::Eight } else { TagLength::Sixteen };
        let ours = Ccm::<C, NONCE>::new(key, length).unwrap();
        let theirs = ccm::Ccm::<C, T, N>::from(C::new_from_slice(key).unwrap());
        let (mut body, mut other) = (plain.to_vec(), plain.to_vec());
        let tag = &ours.seal(&nonce, &aad, &mut body).unwrap()[..T::USIZE];
        let their_tag = theirs.encrypt_inout_detached(&Array(nonce), aad, other.as_mut_slice().into()).unwrap();
        assert_eq!((&body[..], tag), (&other[..], &their_tag[..]));
        let opens = |body: &[u8], aad: &[u8], tag: &[u8]| {
            let mut body = body.to_vec();
            ours.open(&nonce, &aad, &mut body, tag).map(|()| body)
        };
        assert_eq!(opens(&body, aad, tag).as_deref(), Some(plain));
        for at in [0, tag.len() - 1] {
            let mut forged = tag.to_vec();
            forged[at] ^= 0x10;
            assert_eq!(opens(&body, aad, &forged), None);
        }
        if let Some(first) = body.first_mut() {
            *first ^= 0x10;
            assert_eq!(opens(&body, aad, tag), None);
            body[0] ^= 0x10;
        }
        assert_eq!(opens(&body, &[aad, &[0]].concat(), tag), None);
        assert_eq!(opens(&body, aad, &tag[1..]), None, "a tag cut short");
    }

    proptest! {
        #[test]
        fn it_is_what_the_ccm_crate_does(
            key: [u8; 32],
            nonce: [u8; 13],
            aad in proptest::collection::vec(any::<u8>(), 1..70),
            plain in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let short = *nonce.first_chunk::<12>().unwrap();
            compare::<Aes128Enc, U8, 13, U13>(&key[..16], nonce, &aad, &plain);
            compare::<Aes256Enc, U8, 13, U13>(&key, nonce, &aad, &plain);
            compare::<Aes128Enc, U16, 13, U13>(&key[..16], nonce, &aad, &plain);
            compare::<Aes256Enc, U16, 13, U13>(&key, nonce, &aad, &plain);
            compare::<Aes128Enc, U8, 12, U12>(&key[..16], short, &aad, &plain);
            compare::<Aes128Enc, U16, 12, U12>(&key[..16], short, &aad, &plain);
        }
    }

    #[test]
    fn lengths_that_their_fields_cannot_hold_are_refused() {
        let cose = Ccm::<Aes128Enc, 13>::new(&[7; 16], TagLength::Eight).unwrap();
        let dtls = Ccm::<Aes128Enc, 12>::new(&[7; 16], TagLength::Eight).unwrap();
        for (len, fits) in [(0xffff, true), (0x1_0000, false)] {
            assert_eq!(cose.seal(&[0; 13], &[1], &mut vec![0; len]).is_some(), fits, "RFC 3610 §2.1, {len}");
            assert!(dtls.seal(&[0; 12], &[1], &mut vec![0; len]).is_some());
        }
        for (len, fits) in [(0, false), (1, true), (0xfeff, true), (0xff00, false)] {
            assert_eq!(cose.seal(&[0; 13], &vec![0; len], &mut []).is_some(), fits, "RFC 3610 §2.2, {len}");
        }
        assert!(Ccm::<Aes256Enc, 13>::new(&[7; 16], TagLength::Eight).is_none(), "a key of AES-128");
    }
}
