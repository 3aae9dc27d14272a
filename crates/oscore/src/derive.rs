//! Derivation of keys and Common IV (RFC 8613 §3.2.1): HKDF SHA-256 (RFC 5869), of which one block is always enough.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::algorithm::Algorithm;
use crate::cbor;
use crate::id::Id;
use crate::nonce::{NONCE_BYTES_MAX, Nonce};

/// The size of a SHA-256 hash in bytes, which is that of the longest key.
const HASH_BYTES: usize = 32;

/// A key. Algorithms with shorter keys use its first bytes.
pub(crate) type KeyBytes = Zeroizing<[u8; HASH_BYTES]>;

/// The output of HKDF-Extract over Master Secret and Master Salt, and the members of every `info` (RFC 8613 §3.2.1).
pub(crate) struct Derivation<'a> {
    pseudo_random_key: KeyBytes,
    algorithm: Algorithm,
    id_context: Option<&'a [u8]>,
}

impl<'a> Derivation<'a> {
    pub(crate) fn new(secret: &[u8], salt: &[u8], id_context: Option<&'a [u8]>, algorithm: Algorithm) -> Self {
        Self { pseudo_random_key: hmac(salt, &[secret]), algorithm, id_context }
    }

    /// The key of the end with this ID.
    pub(crate) fn key(&self, id: &Id) -> KeyBytes {
        self.expand(id, "Key", self.algorithm.key_bytes())
    }

    pub(crate) fn common_iv(&self) -> Nonce {
        let length = self.algorithm.nonce_bytes();
        let mut common_iv = [0; NONCE_BYTES_MAX];
        let bytes = self.expand(&Id::default(), "IV", length);
        common_iv.iter_mut().zip(bytes.iter().take(length)).for_each(|(to, from)| *to = *from);
        common_iv
    }

    fn expand(&self, id: &Id, kind: &str, length: usize) -> KeyBytes {
        hmac(self.pseudo_random_key.as_slice(), &[&self.info(id, kind, length), &[1]])
    }

    fn info(&self, id: &Id, kind: &str, length: usize) -> Vec<u8> {
        let mut info = Vec::new();
        cbor::array(&mut info, 5);
        cbor::bytes(&mut info, id.as_slice());
        match self.id_context {
            Some(id_context) => cbor::bytes(&mut info, id_context),
            None => cbor::null(&mut info),
        }
        cbor::unsigned(&mut info, self.algorithm.number().into());
        cbor::text(&mut info, kind);
        cbor::unsigned(&mut info, length);
        info
    }
}

pub(crate) fn hmac(key: &[u8], parts: &[&[u8]]) -> KeyBytes {
    // HMAC takes keys of any length, so there is no error to see.
    let mac = Hmac::<Sha256>::new_from_slice(key).ok();
    let code = mac.map(|mac| parts.iter().fold(mac, |mac, part| mac.chain_update(part)).finalize().into_bytes());
    let mut out = Zeroizing::new([0; HASH_BYTES]);
    out.iter_mut().zip(code.unwrap_or_default()).for_each(|(to, from)| *to = from);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nonce::nonce;
    use crate::partial_iv::PartialIv;

    const SECRET: &str = "0102030405060708090a0b0c0d0e0f10";
    const SALT: &str = "9e7ca92223786340";

    fn hex(text: &str) -> Vec<u8> {
        text.as_bytes().chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    }

    struct Vector {
        salt: &'static str,
        id_context: Option<&'static str>,
        /// Of the client and of the server: ID, `info` of its key, its key, the nonce of its Partial IV 0.
        ends: [[&'static str; 4]; 2],
        iv_info: &'static str,
        common_iv: &'static str,
    }

    fn check(vector: &Vector) {
        let id_context = vector.id_context.map(hex);
        let algorithm = Algorithm::AesCcm1664128;
        let derivation = Derivation::new(&hex(SECRET), &hex(vector.salt), id_context.as_deref(), algorithm);
        assert_eq!(derivation.info(&Id::default(), "IV", 13), hex(vector.iv_info));
        let common_iv = derivation.common_iv();
        assert_eq!(common_iv.to_vec(), hex(vector.common_iv));
        for [id, info, key, first_nonce] in vector.ends {
            let id = Id::new(&hex(id)).unwrap();
            assert_eq!(derivation.info(&id, "Key", 16), hex(info));
            assert_eq!(derivation.key(&id)[..16], hex(key));
            let made = nonce(algorithm, &common_iv, &id, &PartialIv::of(0).unwrap());
            assert_eq!(made.to_vec(), hex(first_nonce));
        }
    }

    #[test]
    fn c_1_key_derivation_with_master_salt() {
        check(&Vector {
            salt: SALT,
            id_context: None,
            ends: [
                ["", "8540f60a634b657910", "f0910ed7295e6ad4b54fc793154302ff", "4622d4dd6d944168eefb54987c"],
                ["01", "854101f60a634b657910", "ffb14e093c94c9cac9471648b4f98710", "4722d4dd6d944169eefb54987c"],
            ],
            iv_info: "8540f60a6249560d",
            common_iv: "4622d4dd6d944168eefb54987c",
        });
    }

    #[test]
    fn c_2_key_derivation_without_master_salt() {
        check(&Vector {
            salt: "",
            id_context: None,
            ends: [
                ["00", "854100f60a634b657910", "321b26943253c7ffb6003b0b64d74041", "bf35ae297d2dace910c52e99f9"],
                ["01", "854101f60a634b657910", "e57b5635815177cd679ab4bcec9d7dda", "bf35ae297d2dace810c52e99f9"],
            ],
            iv_info: "8540f60a6249560d",
            common_iv: "be35ae297d2dace910c52e99f9",
        });
    }

    #[test]
    fn c_3_key_derivation_with_id_context() {
        check(&Vector {
            salt: SALT,
            id_context: Some("37cbf3210017a2d3"),
            ends: [
                [
                    "",
                    "85404837cbf3210017a2d30a634b657910",
                    "af2a1300a5e95788b356336eeecd2b92",
                    "2ca58fb85ff1b81c0b7181b85e",
                ],
                [
                    "01",
                    "8541014837cbf3210017a2d30a634b657910",
                    "e39a0c7c77b43f03b4b39ab9a268699f",
                    "2da58fb85ff1b81d0b7181b85e",
                ],
            ],
            iv_info: "85404837cbf3210017a2d30a6249560d",
            common_iv: "2ca58fb85ff1b81c0b7181b85e",
        });
    }
}
