//! The pseudorandom function of TLS 1.2 (RFC 5246 §5) and what is made with it: master secret, keys, Finished.

use ring::{digest, hmac};
use zeroize::{Zeroize as _, Zeroizing};

use super::{protection::Protection, suite::Suite};

/// Bytes of `verify_data` (RFC 5246 §7.4.9).
pub(super) const VERIFY_DATA: usize = 12;

/// RFC 5246 §8.1.
pub(super) type MasterSecret = Zeroizing<[u8; 48]>;

/// Fills `out` with `PRF(secret, label, seed)`.
pub(super) fn prf(secret: &[u8], label: &[u8], seed: &[&[u8]], out: &mut [u8]) {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let sign = |part: &[u8]| hmac::sign(&key, part);
    let seeded = |first: &[u8]| {
        let mut context = hmac::Context::with_key(&key);
        context.update(first);
        context.update(label);
        seed.iter().for_each(|part| context.update(part));
        context.sign()
    };
    let mut a = seeded(&[]);
    let mut chunks = out.chunks_mut(32).peekable();
    while let Some(chunk) = chunks.next() {
        let block = seeded(a.as_ref());
        chunk.iter_mut().zip(block.as_ref()).for_each(|(to, from)| *to = *from);
        if chunks.peek().is_some() {
            a = sign(a.as_ref());
        }
    }
}

/// The randoms of both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Randoms {
    pub(super) client: [u8; 32],
    pub(super) server: [u8; 32],
}

/// RFC 5246 §8.1, or RFC 7627 §4 when `transcript` – up to and with ClientKeyExchange – is given.
pub(super) fn master_secret(premaster: &[u8], randoms: &Randoms, transcript: Option<&[u8]>) -> MasterSecret {
    let mut master = Zeroizing::new([0; 48]);
    match transcript {
        Some(transcript) => {
            let hash = digest::digest(&digest::SHA256, transcript);
            prf(premaster, b"extended master secret", &[hash.as_ref()], master.as_mut());
        }
        None => prf(premaster, b"master secret", &[&randoms.client, &randoms.server], master.as_mut()),
    }
    master
}

/// The premaster secret of a pre-shared key: with what a key exchange has agreed (RFC 5489 §2), or with as many zeros
/// as the key has bytes (RFC 4279 §2).
pub(super) fn psk_premaster(psk: &[u8], agreed: Option<&[u8]>) -> Zeroizing<Vec<u8>> {
    let other = agreed.map_or(psk.len(), <[u8]>::len);
    let mut premaster = Zeroizing::new(Vec::with_capacity(4 + other + psk.len()));
    premaster.extend_from_slice(&super::wire::length16(other));
    match agreed {
        Some(agreed) => premaster.extend_from_slice(agreed),
        None => premaster.resize(2 + other, 0),
    }
    premaster.extend_from_slice(&super::wire::length16(psk.len()));
    premaster.extend_from_slice(psk);
    premaster
}

/// The keys of both directions: the client's and the server's writing (RFC 5246 §6.3; RFC 5288 §3 for the salts).
pub(super) fn keys(suite: Suite, master: &MasterSecret, randoms: &Randoms) -> (Protection, Protection) {
    let mut block = [0; 40];
    prf(master.as_ref(), b"key expansion", &[&randoms.server, &randoms.client], &mut block);
    let mut reader = super::wire::Reader(&block);
    let client_key = reader.array().unwrap_or_default();
    let server_key = reader.array().unwrap_or_default();
    let client_salt = reader.array().unwrap_or_default();
    let server_salt = reader.array().unwrap_or_default();
    block.zeroize();
    (Protection::new(suite.aead(), client_key, client_salt), Protection::new(suite.aead(), server_key, server_salt))
}

/// The side that sends a Finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

/// RFC 5246 §7.4.9.
pub(super) fn verify_data(master: &MasterSecret, side: Side, transcript: &[u8]) -> [u8; VERIFY_DATA] {
    let label: &[u8] = match side {
        Side::Client => b"client finished",
        Side::Server => b"server finished",
    };
    let mut data = [0; VERIFY_DATA];
    prf(master.as_ref(), label, &[digest::digest(&digest::SHA256, transcript).as_ref()], &mut data);
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vector that Peter Gutmann and the TLS working group use for P_SHA256 (ietf-tls list, "Test vectors for TLS
    /// 1.2 PRF").
    #[test]
    fn the_known_vector() {
        let secret = [0x9b, 0xbe, 0x43, 0x6b, 0xa9, 0x40, 0xf0, 0x17, 0xb1, 0x76, 0x52, 0x84, 0x9a, 0x71, 0xdb, 0x35];
        let seed = [0xa0, 0xba, 0x9f, 0x93, 0x6c, 0xda, 0x31, 0x18, 0x27, 0xa6, 0xf7, 0x96, 0xff, 0xd5, 0x19, 0x8c];
        let mut out = [0; 100];
        prf(&secret, b"test label", &[&seed], &mut out);
        assert_eq!(out[..8], [0xe3, 0xf2, 0x29, 0xba, 0x72, 0x7b, 0xe1, 0x7b]);
        assert_eq!(out[92..], [0x10, 0xff, 0xf7, 0x01, 0x87, 0x34, 0x7b, 0x66]);
    }

    #[test]
    fn rfc_4279_section_2_premaster() {
        assert_eq!(psk_premaster(b"abc", None).as_slice(), b"\0\x03\0\0\0\0\x03abc");
        assert_eq!(psk_premaster(b"abc", Some(b"12345")).as_slice(), b"\0\x0512345\0\x03abc", "RFC 5489 §2");
    }
}
