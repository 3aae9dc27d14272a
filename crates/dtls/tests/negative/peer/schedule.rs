//! Transcript and secrets of a handshake of DTLS 1.3 (RFC 8446 §7.1), for misbehaving peers of both roles.

use super::{
    crypto::{Half13, derive, extract, finished, sha256},
    wire::{kind, length24},
};

/// A transcript, and the secret that follows from it so far.
pub(crate) struct Schedule {
    pub(crate) transcript: Vec<u8>,
    early: [u8; 32],
    secret: [u8; 32],
}

/// A message as the transcript has it (RFC 9147 §5.2).
pub(crate) fn hashed(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &length24(body.len()), body].concat()
}

impl Schedule {
    pub(crate) fn new(psk: Option<&[u8]>) -> Self {
        let early = extract(&[0; 32], psk.unwrap_or(&[0; 32]));
        Self { transcript: Vec::new(), early, secret: early }
    }

    pub(crate) fn add(&mut self, kind: u8, body: &[u8]) {
        self.transcript.extend(hashed(kind, body));
    }

    /// Replaces the transcript so far by its hash (RFC 8446 §4.4.1).
    pub(crate) fn retry(&mut self) {
        self.transcript = hashed(254, &sha256(&self.transcript));
    }

    pub(crate) fn hash(&self) -> [u8; 32] {
        sha256(&self.transcript)
    }

    /// The binder over the transcript and a ClientHello of `len` bytes that ends before the binders.
    pub(crate) fn binder(&self, len: usize, part: &[u8]) -> [u8; 32] {
        let key = derive(&self.early, "ext binder", &sha256(&[]));
        let hash = sha256(&[&self.transcript[..], &[kind::CLIENT_HELLO], &length24(len), part].concat());
        finished(&key, &hash)
    }

    /// The keys of the handshake: the client's, and the server's.
    pub(crate) fn handshake(&mut self, agreed: Option<&[u8]>) -> (Half13, Half13) {
        self.secret = extract(&derive(&self.secret, "derived", &sha256(&[])), agreed.unwrap_or(&[0; 32]));
        let half = |label| Half13::new(derive(&self.secret, label, &self.hash()), 2);
        (half("c hs traffic"), half("s hs traffic"))
    }

    /// The keys of data, likewise. The transcript ends with the server's Finished.
    pub(crate) fn data(&mut self) -> (Half13, Half13) {
        self.secret = extract(&derive(&self.secret, "derived", &sha256(&[])), &[0; 32]);
        let half = |label| Half13::new(derive(&self.secret, label, &self.hash()), 3);
        (half("c ap traffic"), half("s ap traffic"))
    }
}

/// The content that a CertificateVerify signs (RFC 8446 §4.4.3).
pub(crate) fn signed(side: &str, hash: &[u8]) -> Vec<u8> {
    [&[0x20; 64][..], format!("TLS 1.3, {side} CertificateVerify").as_bytes(), &[0], hash].concat()
}
