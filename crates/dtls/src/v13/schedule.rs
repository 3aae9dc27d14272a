//! The key schedule (RFC 8446 §7.1) with the labels of DTLS (RFC 9147 §5.9), and the transcript that goes into it.
//! SHA-256 throughout.

use ring::{digest, hmac};
use zeroize::Zeroizing;

use crate::{
    prf::Side,
    wire::{self, message},
};

/// A secret of the key schedule.
pub(super) type Secret = Zeroizing<[u8; 32]>;
/// SHA-256 of something.
pub(crate) type Hash = [u8; 32];

/// RFC 9147 §5.9: where TLS has "tls13 ".
const PREFIX: &[u8] = b"dtls13";

/// HKDF-Extract (RFC 5869 §2.2).
fn extract(salt: &[u8], material: &[u8]) -> Secret {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, salt), material);
    secret(&tag)
}

fn secret(tag: &hmac::Tag) -> Secret {
    let mut secret = Zeroizing::new([0; 32]);
    secret.iter_mut().zip(tag.as_ref()).for_each(|(to, from)| *to = *from);
    secret
}

/// HKDF-Expand-Label (RFC 8446 §7.1) for up to 32 bytes, which are one block.
fn expand(prefix: &[u8], from: &Secret, label: &[u8], context: &[u8], out: &mut [u8]) {
    let mut info = Vec::with_capacity(64);
    info.extend_from_slice(&wire::length16(out.len()));
    info.push(u8::try_from(prefix.len() + label.len()).unwrap_or(u8::MAX));
    info.extend_from_slice(prefix);
    info.extend_from_slice(label);
    wire::put_vector8(&mut info, context);
    info.push(1);
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, from.as_ref()), &info);
    debug_assert!(out.len() <= 32, "one block");
    out.iter_mut().zip(tag.as_ref()).for_each(|(to, from)| *to = *from);
}

/// A key, or what goes with it: `key`, `iv`, `sn` (RFC 8446 §7.3, RFC 9147 §4.2.3).
pub(super) fn expanded<const N: usize>(from: &Secret, label: &[u8]) -> Zeroizing<[u8; N]> {
    let mut out = Zeroizing::new([0; N]);
    expand(PREFIX, from, label, &[], out.as_mut());
    out
}

fn derive(from: &Secret, label: &[u8], transcript: &Hash) -> Secret {
    let mut out = Zeroizing::new([0; 32]);
    expand(PREFIX, from, label, transcript, out.as_mut());
    out
}

/// SHA-256 of what a message holds.
pub(super) fn hash(bytes: &[u8]) -> Hash {
    let mut hash = [0; 32];
    hash.iter_mut().zip(digest::digest(&digest::SHA256, bytes).as_ref()).for_each(|(to, from)| *to = *from);
    hash
}

/// Before anything was agreed: of the pre-shared key, or of nothing.
pub(super) struct Early(Secret);

impl Early {
    pub(super) fn new(psk: Option<&[u8]>) -> Self {
        Self(extract(&[0; 32], psk.unwrap_or(&[0; 32])))
    }

    /// The binder of an external key over a transcript that ends before the binders (RFC 8446 §4.2.11.2).
    pub(super) fn binder(&self, transcript: &Hash) -> Hash {
        finished(&derive(&self.0, b"ext binder", &hash(&[])), transcript)
    }

    /// With what was agreed; nothing for `psk_ke`.
    pub(super) fn handshake(&self, agreed: Option<&[u8]>) -> Stage {
        Stage { secret: next(&self.0, agreed), of_client: b"c hs traffic", of_server: b"s hs traffic" }
    }
}

/// The secret of handshakes, or the master secret.
pub(super) struct Stage {
    secret: Secret,
    of_client: &'static [u8],
    of_server: &'static [u8],
}

impl Stage {
    pub(super) fn traffic(&self, side: Side, transcript: &Hash) -> Secret {
        let label = match side {
            Side::Client => self.of_client,
            Side::Server => self.of_server,
        };
        derive(&self.secret, label, transcript)
    }

    pub(super) fn master(&self) -> Self {
        Self { secret: next(&self.secret, None), of_client: b"c ap traffic", of_server: b"s ap traffic" }
    }
}

fn next(from: &Secret, material: Option<&[u8]>) -> Secret {
    extract(derive(from, b"derived", &hash(&[])).as_ref(), material.unwrap_or(&[0; 32]))
}

/// Returns the content of Finished (RFC 8446 §4.4.4) by the side that has that secret.
pub(super) fn finished(secret: &Secret, transcript: &Hash) -> Hash {
    let key: Zeroizing<[u8; 32]> = expanded(secret, b"finished");
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key.as_ref()), transcript);
    *self::secret(&tag)
}

/// The secret after a KeyUpdate (RFC 8446 §7.2).
pub(super) fn updated(secret: &Secret) -> Secret {
    expanded(secret, b"traffic upd")
}

/// A running hash of messages, without what is of datagrams in their headers (RFC 9147 §5.2).
#[derive(Clone)]
pub(super) struct Transcript(digest::Context);

impl Transcript {
    pub(super) fn empty() -> Self {
        Self(digest::Context::new(&digest::SHA256))
    }

    /// Of a first ClientHello, of which only the hash is left, and the HelloRetryRequest that answered it.
    pub(super) fn after_retry(first: &Hash, retry: &[u8]) -> Self {
        let mut transcript = Self::empty();
        transcript.add(message::MESSAGE_HASH, first);
        transcript.add(message::SERVER_HELLO, retry);
        transcript
    }

    pub(super) fn add(&mut self, kind: u8, body: &[u8]) {
        self.add_part(kind, body.len(), body);
    }

    /// The beginning of a message that is `len` bytes long.
    pub(super) fn add_part(&mut self, kind: u8, len: usize, part: &[u8]) {
        self.0.update(&[kind]);
        self.0.update(&wire::length24(len));
        self.0.update(part);
    }

    pub(super) fn hash(&self) -> Hash {
        let mut hash = [0; 32];
        hash.iter_mut().zip(self.0.clone().finish().as_ref()).for_each(|(to, from)| *to = *from);
        hash
    }
}

/// The hash of a ClientHello as a transcript has it.
pub(super) fn hash_of_hello(body: &[u8]) -> Hash {
    let mut transcript = Transcript::empty();
    transcript.add(message::CLIENT_HELLO, body);
    transcript.hash()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<const N: usize>(hex: &str) -> [u8; N] {
        let hex: String = hex.split_whitespace().collect();
        std::array::from_fn(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
    }

    /// RFC 8448 §3, "Simple 1-RTT Handshake": the same computations under the labels of TLS.
    #[test]
    fn rfc_8448_section_3() {
        let early = extract(&[0; 32], &[0; 32]);
        assert_eq!(*early, bytes("33ad0a1c607ec03b09e6cd9893680ce210adf300aa1f2660e1b22e10f170f92a"));
        let label = |from: &Secret, label: &[u8], context: &[u8]| {
            let mut out = Zeroizing::new([0; 32]);
            expand(b"tls13 ", from, label, context, out.as_mut());
            out
        };
        let derived = label(&early, b"derived", &hash(&[]));
        assert_eq!(*derived, bytes("6f2615a108c702c5678f54fc9dbab69716c076189c48250cebeac3576c3611ba"));
        let agreed: [u8; 32] = bytes("8bd4054fb55b9d63fdfbacf9f04b9f0d35e6d63f537563efd46272900f89492d");
        let handshake = extract(derived.as_ref(), &agreed);
        assert_eq!(*handshake, bytes("1dc826e93606aa6fdc0aadc12f741b01046aa6b99f691ed221a9f0ca043fbeac"));
        let hello: Hash = bytes("860c06edc07858ee8e78f0e7428c58edd6b43f2ca3e6e95f02ed063cf0e1cad8");
        let client = label(&handshake, b"c hs traffic", &hello);
        assert_eq!(*client, bytes("b3eddb126e067f35a780b3abf45e2d8f3b1a950738f52e9600746a0e27a55a21"));
        let server = label(&handshake, b"s hs traffic", &hello);
        assert_eq!(*server, bytes("b67b7d690cc16c4e75e54213cb2d37b4e9c912bcded9105d42befd59d391ad38"));
        let mut key = [0; 16];
        expand(b"tls13 ", &server, b"key", &[], &mut key);
        assert_eq!(key, bytes("3fce516009c21727d0f2e4e86ee403bc"));
        let mut iv = [0; 12];
        expand(b"tls13 ", &server, b"iv", &[], &mut iv);
        assert_eq!(iv, bytes("5d313eb2671276ee13000b30"));
    }
}
