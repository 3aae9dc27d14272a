//! Additional authenticated data (RFC 8613 §5.4): what binds a message to its algorithm and to its request.

use smallvec::SmallVec;

use crate::algorithm::Algorithm;
use crate::cbor;
use crate::id::Id;
use crate::partial_iv::PartialIv;

/// The OSCORE version (RFC 8613 §5.4).
const VERSION: usize = 1;

/// Held inline: 11 bytes before the external_aad, 1 for its head, 8 fixed, 7 of the ID and 5 of the Partial IV at most.
pub(crate) type Aad = SmallVec<[u8; 40]>;

/// The Enc_structure of a request, or of all that answers it. There are no Class I options.
pub(crate) fn aad(algorithm: Algorithm, request_kid: &Id, request_piv: &PartialIv) -> Aad {
    let mut external = Aad::new();
    cbor::array(&mut external, 5);
    cbor::unsigned(&mut external, VERSION);
    cbor::array(&mut external, 1);
    cbor::unsigned(&mut external, algorithm.number().into());
    cbor::bytes(&mut external, request_kid.as_slice());
    cbor::bytes(&mut external, request_piv.as_slice());
    cbor::bytes(&mut external, &[]);
    let mut aad = Aad::new();
    cbor::array(&mut aad, 3);
    cbor::text(&mut aad, "Encrypt0");
    cbor::bytes(&mut aad, &[]);
    cbor::bytes(&mut aad, &external);
    aad
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partial_iv::SEQUENCE_MAX;

    #[test]
    fn s5_4_the_example() {
        let kid = Id::new(&[0]).unwrap();
        let aad = aad(Algorithm::AesCcm1664128, &kid, &PartialIv::decode(&[0x25]).unwrap());
        assert_eq!(aad.as_slice(), b"\x83\x68Encrypt0\x40\x49\x85\x01\x81\x0a\x41\x00\x41\x25\x40");
    }

    #[test]
    fn the_longest_is_held_inline() {
        let kid = Id::new(&[7; 7]).unwrap();
        let aad = aad(Algorithm::AesCcm16128256, &kid, &PartialIv::of(SEQUENCE_MAX).unwrap());
        assert!(!aad.spilled() && aad.ends_with(&[0x45, 255, 255, 255, 255, 255, 0x40]));
    }
}
