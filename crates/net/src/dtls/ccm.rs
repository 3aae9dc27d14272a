//! AES-128 in CCM (RFC 3610) as DTLS has it (RFC 6655): nonces of 12 bytes, additional data of 13 in DTLS 1.2 and of
//! the record's header in 1.3.
//!
//! The cipher is the `aes` crate's, and the mode is that of the `ccm` crate, which tests compare it with. Here it is
//! one visit of the cipher for a whole record: since `aes` 0.9 each visit spreads the round keys anew, and three
//! visits made of 250 ns for a record of 80 bytes 790.

use aes::{
    Aes128Enc,
    cipher::{
        Array, BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt as _, BlockSizeUser, InOut,
        KeyInit as _, consts::U16,
    },
};
use subtle::ConstantTimeEq as _;

use super::wire;

type Block = [u8; 16];

/// Bytes of a tag, of which CCM_8 sends the first eight.
pub(super) type Tag = [u8; 16];

/// A key, ready to be used.
pub(super) struct Ccm {
    cipher: Aes128Enc,
    tag_len: u8,
}

impl Ccm {
    /// With tags of 8 or 16 bytes.
    pub(super) fn new(key: &[u8; 16], tag_len: u8) -> Self {
        Self { cipher: Aes128Enc::new(&Array(*key)), tag_len }
    }

    /// Encrypts in place; the first bytes of what it gives are the tag.
    pub(super) fn seal(&self, nonce: &[u8; 12], aad: &impl AsRef<[u8]>, plain: &mut [u8]) -> Tag {
        self.visit(nonce, aad, plain, true)
    }

    /// Decrypts in place when the tag is right; else nothing may be done with what is there then.
    pub(super) fn open(&self, nonce: &[u8; 12], aad: &impl AsRef<[u8]>, body: &mut [u8], tag: &[u8]) -> Option<()> {
        let right = self.visit(nonce, aad, body, false);
        let right = right.get(..usize::from(self.tag_len))?;
        bool::from(right.ct_eq(tag)).then_some(())
    }

    fn visit(&self, nonce: &[u8; 12], aad: &impl AsRef<[u8]>, body: &mut [u8], encrypt: bool) -> Tag {
        let mut tag = [0; 16];
        let visit = Visit { nonce, aad, body, encrypt, tag_len: self.tag_len, tag: &mut tag };
        self.cipher.encrypt_with_backend(visit);
        tag
    }
}

struct Visit<'a, A> {
    nonce: &'a [u8; 12],
    aad: &'a A,
    body: &'a mut [u8],
    encrypt: bool,
    tag_len: u8,
    tag: &'a mut Tag,
}

impl<A: AsRef<[u8]>> BlockSizeUser for Visit<'_, A> {
    type BlockSize = U16;
}

impl<A: AsRef<[u8]>> BlockCipherEncClosure for Visit<'_, A> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        let cipher = |block: &mut Block| {
            let block: &mut Array<u8, U16> = block.into();
            backend.encrypt_block(InOut::from(block));
        };
        // RFC 3610 §2.2: B_0 – additional data, length of the tag, three bytes of length – and the additional data.
        let mut mac = block(0x40 | (((self.tag_len - 2) / 2) << 3) | 2, self.nonce, self.body.len());
        cipher(&mut mac);
        // The compiler knows the length that DTLS 1.2 has, and makes one block of it.
        let aad = self.aad.as_ref();
        let (first, more) = aad.split_at(aad.len().min(14));
        xor(&mut mac, wire::length16(aad.len()).into_iter().chain(first.iter().copied()));
        cipher(&mut mac);
        for chunk in more.chunks(16) {
            xor(&mut mac, chunk.iter().copied());
            cipher(&mut mac);
        }
        // §2.3: the counter that the body is encrypted with begins with 1, 0 is the tag's.
        let none = u128::from_be_bytes(block(2, self.nonce, 0));
        let (whole, rest) = self.body.as_chunks_mut::<16>();
        let mut counter = none;
        for chunk in whole {
            counter += 1;
            let mut stream = counter.to_be_bytes();
            cipher(&mut stream);
            if self.encrypt {
                xor_block(&mut mac, chunk);
            }
            xor_block(chunk, &stream);
            if !self.encrypt {
                xor_block(&mut mac, chunk);
            }
            cipher(&mut mac);
        }
        if !rest.is_empty() {
            let mut stream = (counter + 1).to_be_bytes();
            cipher(&mut stream);
            if self.encrypt {
                xor(&mut mac, rest.iter().copied());
            }
            rest.iter_mut().zip(stream).for_each(|(byte, with)| *byte ^= with);
            if !self.encrypt {
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

/// Flags, nonce, and a number in three bytes. A record has at most 2^14 bytes.
#[inline(always)]
fn block(flags: u8, nonce: &[u8; 12], number: usize) -> Block {
    let mut block = [flags; 16];
    let [_, number @ ..] = u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes();
    let bytes = nonce.iter().copied().chain(number);
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
    use ccm::{
        AeadInOut as _, KeyInit as _,
        consts::{U8, U12},
    };
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_what_the_ccm_crate_does(
            key: [u8; 16], nonce: [u8; 12], aad in proptest::collection::vec(any::<u8>(), 1..50),
            plain in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let (mut ours, mut short, mut long) = (plain.clone(), plain.clone(), plain.clone());
            let tag = Ccm::new(&key, 8).seal(&nonce, &aad, &mut ours);
            let theirs: ccm::Ccm<Aes128Enc, U8, U12> = ccm::Ccm::new(&Array(key));
            let other = theirs.encrypt_inout_detached(&Array(nonce), &aad, short.as_mut_slice().into()).unwrap();
            prop_assert_eq!((&ours, &tag[..8]), (&short, &other[..]));
            prop_assert_eq!(Ccm::new(&key, 8).open(&nonce, &aad, &mut ours, &tag[..8]), Some(()));
            prop_assert_eq!(&ours, &plain);
            let tag = Ccm::new(&key, 16).seal(&nonce, &aad, &mut ours);
            let theirs: ccm::Ccm<Aes128Enc, U16, U12> = ccm::Ccm::new(&Array(key));
            let other = theirs.encrypt_inout_detached(&Array(nonce), &aad, long.as_mut_slice().into()).unwrap();
            prop_assert_eq!((&ours, &tag[..]), (&long, &other[..]));
            prop_assert_eq!(Ccm::new(&key, 16).open(&nonce, &aad, &mut ours, &tag[..8]), None);
        }
    }
}
