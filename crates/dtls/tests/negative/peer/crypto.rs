//! The cryptography of misbehaving peers, on ring alone: AES-128-GCM, X25519, ECDSA with P-256.

use ring::{
    aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey, quic},
    agreement::{self, EphemeralPrivateKey, UnparsedPublicKey, X25519},
    digest, hmac,
    rand::{SecureRandom as _, SystemRandom},
};

use super::wire::{self, Cursor, IDENTIFIED, V12, vec8, vec16};

pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).unwrap();
    bytes
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    digest::digest(&digest::SHA256, bytes).as_ref().try_into().unwrap()
}

pub(crate) fn hmac(key: &[u8], data: &[u8]) -> [u8; 32] {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), data).as_ref().try_into().unwrap()
}

/// One half of a key exchange.
pub(crate) struct Share(Option<EphemeralPrivateKey>, pub(crate) Vec<u8>);

impl Share {
    pub(crate) fn new() -> Self {
        let key = EphemeralPrivateKey::generate(&X25519, &SystemRandom::new()).unwrap();
        let public = key.compute_public_key().unwrap().as_ref().to_vec();
        Self(Some(key), public)
    }

    pub(crate) fn agree(&mut self, point: &[u8]) -> Vec<u8> {
        let theirs = UnparsedPublicKey::new(&X25519, point);
        agreement::agree_ephemeral(self.0.take().unwrap(), &theirs, <[u8]>::to_vec).unwrap()
    }
}

/// RFC 5246 §5.
pub(crate) fn prf(secret: &[u8], label: &str, seed: &[u8], len: usize) -> Vec<u8> {
    let seed = [label.as_bytes(), seed].concat();
    let (mut a, mut out) = (seed.clone(), Vec::new());
    while out.len() < len {
        a = hmac(secret, &a).to_vec();
        out.extend(hmac(secret, &[&a[..], &seed].concat()));
    }
    out.truncate(len);
    out
}

fn gcm(key: &[u8]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_128_GCM, key).unwrap())
}

/// One direction of DTLS 1.2 under TLS_*_WITH_AES_128_GCM_SHA256 (RFC 5288).
pub(crate) struct Half12 {
    key: LessSafeKey,
    salt: [u8; 4],
}

impl Half12 {
    /// Both directions: the client's, and the server's.
    pub(crate) fn both(master: &[u8], client: &[u8; 32], server: &[u8; 32]) -> (Self, Self) {
        let block = prf(master, "key expansion", &[&server[..], client].concat(), 40);
        let half = |key: usize, salt: usize| Self {
            key: gcm(&block[key..key + 16]),
            salt: block[salt..salt + 4].try_into().unwrap(),
        };
        (half(0, 32), half(16, 36))
    }

    fn nonce(&self, number: u64) -> Nonce {
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(&self.salt);
        nonce[4..].copy_from_slice(&number.to_be_bytes());
        Nonce::assume_unique_for_key(nonce)
    }

    fn data(number: u64, content: u8, len: usize) -> Vec<u8> {
        let len = u16::try_from(len).unwrap().to_be_bytes();
        [&number.to_be_bytes()[..], &[content], &V12.to_be_bytes(), &len].concat()
    }

    /// RFC 9146 §5.3.
    fn identified_data(number: u64, cid: &[u8], len: usize) -> Vec<u8> {
        let len = u16::try_from(len).unwrap().to_be_bytes();
        let kinds = [IDENTIFIED, u8::try_from(cid.len()).unwrap(), IDENTIFIED];
        [&[0xff; 8][..], &kinds, &V12.to_be_bytes(), &number.to_be_bytes(), cid, &len].concat()
    }

    pub(crate) fn seal(&self, content: u8, number: u64, plain: &[u8]) -> Vec<u8> {
        let sealed = self.encrypt(number, &Self::data(number, content, plain.len()), plain);
        wire::record(content, number, &sealed)
    }

    /// With an identifier (RFC 9146 §4); `inner` is content, type and padding.
    pub(crate) fn seal_identified(&self, cid: &[u8], number: u64, inner: &[u8]) -> Vec<u8> {
        let sealed = self.encrypt(number, &Self::identified_data(number, cid, inner.len()), inner);
        [&[IDENTIFIED][..], &V12.to_be_bytes(), &number.to_be_bytes(), cid, &vec16(&sealed)].concat()
    }

    fn encrypt(&self, number: u64, data: &[u8], plain: &[u8]) -> Vec<u8> {
        let mut body = plain.to_vec();
        self.key.seal_in_place_append_tag(self.nonce(number), Aad::from(data), &mut body).unwrap();
        [&number.to_be_bytes()[..], &body].concat()
    }

    pub(crate) fn open(&self, content: u8, number: u64, payload: &[u8]) -> Option<Vec<u8>> {
        self.decrypt(&Self::data(number, content, payload.len().checked_sub(24)?), payload)
    }

    /// With an identifier: the type that was inside, and the content.
    pub(crate) fn open_identified(&self, cid: &[u8], number: u64, payload: &[u8]) -> Option<(u8, Vec<u8>)> {
        let data = Self::identified_data(number, cid, payload.len().checked_sub(24)?);
        let mut inner = self.decrypt(&data, payload)?;
        Some((inner.pop()?, inner))
    }

    fn decrypt(&self, data: &[u8], payload: &[u8]) -> Option<Vec<u8>> {
        let explicit = Cursor(payload).number(8);
        let mut body = payload[8..].to_vec();
        let plain = self.key.open_in_place(self.nonce(explicit), Aad::from(data), &mut body).ok()?;
        Some(plain.to_vec())
    }
}

/// HKDF-Extract.
pub(crate) fn extract(salt: &[u8], material: &[u8]) -> [u8; 32] {
    hmac(salt, material)
}

/// HKDF-Expand-Label with the prefix of DTLS (RFC 9147 §5.9).
pub(crate) fn expand(secret: &[u8], label: &str, context: &[u8], len: usize) -> Vec<u8> {
    let label = format!("dtls13{label}");
    let len16 = u16::try_from(len).unwrap().to_be_bytes();
    let info = [&len16[..], &vec8(label.as_bytes()), &vec8(context), &[1]].concat();
    hmac(secret, &info)[..len].to_vec()
}

/// Derive-Secret over a hash.
pub(crate) fn derive(secret: &[u8], label: &str, hash: &[u8]) -> [u8; 32] {
    expand(secret, label, hash, 32).try_into().unwrap()
}

pub(crate) fn finished(secret: &[u8], hash: &[u8]) -> [u8; 32] {
    hmac(&expand(secret, "finished", &[], 32), hash)
}

/// One direction of one epoch of DTLS 1.3 under TLS_AES_128_GCM_SHA256.
pub(crate) struct Half13 {
    pub(crate) secret: [u8; 32],
    pub(crate) epoch: u64,
    key: LessSafeKey,
    iv: Vec<u8>,
    numbers: quic::HeaderProtectionKey,
    pub(crate) next: u64,
}

/// The content of a record of DTLS 1.3.
pub(crate) struct Opened {
    pub(crate) content: u8,
    pub(crate) number: (u64, u64),
    pub(crate) plain: Vec<u8>,
    /// Bytes of all that was inside: content, type and padding.
    pub(crate) inner: usize,
}

impl Half13 {
    pub(crate) fn new(secret: [u8; 32], epoch: u64) -> Self {
        let key = gcm(&expand(&secret, "key", &[], 16));
        let numbers = quic::HeaderProtectionKey::new(&quic::AES_128, &expand(&secret, "sn", &[], 16)).unwrap();
        Self { iv: expand(&secret, "iv", &[], 12), secret, epoch, key, numbers, next: 0 }
    }

    /// The epoch that follows a KeyUpdate.
    pub(crate) fn updated(&self) -> Self {
        Self::new(derive(&self.secret, "traffic upd", &[]), self.epoch + 1)
    }

    fn nonce(&self, sequence: u64) -> Nonce {
        let mut nonce: [u8; 12] = self.iv[..].try_into().unwrap();
        nonce[4..].iter_mut().zip(sequence.to_be_bytes()).for_each(|(to, from)| *to ^= from);
        Nonce::assume_unique_for_key(nonce)
    }

    /// A record with all that the header can have.
    pub(crate) fn seal(&mut self, cid: &[u8], content: u8, plain: &[u8]) -> Vec<u8> {
        self.seal_inner(cid, &[plain, &[content]].concat())
    }

    /// The same of what is inside, whole: content, type and padding.
    pub(crate) fn seal_inner(&mut self, cid: &[u8], inner: &[u8]) -> Vec<u8> {
        let sequence = self.next;
        self.next += 1;
        self.seal_at(cid, sequence, inner)
    }

    pub(crate) fn seal_at(&self, cid: &[u8], sequence: u64, inner: &[u8]) -> Vec<u8> {
        let epoch = u8::try_from(self.epoch & 3).unwrap();
        let flags = 0b0010_1100 | epoch | if cid.is_empty() { 0 } else { 0b0001_0000 };
        let low = sequence.to_be_bytes()[6..].to_vec();
        let len = u16::try_from(inner.len() + 16).unwrap().to_be_bytes();
        let mut header = [&[flags][..], cid, &low, &len].concat();
        let mut body = inner.to_vec();
        self.key.seal_in_place_append_tag(self.nonce(sequence), Aad::from(&header), &mut body).unwrap();
        let mask = self.numbers.new_mask(&body[..16]).unwrap();
        header[1 + cid.len()] ^= mask[0];
        header[2 + cid.len()] ^= mask[1];
        [header, body].concat()
    }

    /// Opens the first record of a datagram, under identifiers of so many bytes; the rest comes with it.
    pub(crate) fn open<'a>(&self, cid_len: usize, datagram: &'a [u8]) -> Option<(Opened, &'a [u8])> {
        let flags = datagram[0];
        let start = 1 + if flags & 0b0001_0000 == 0 { 0 } else { cid_len };
        assert_eq!(flags & 0b0000_1100, 0b0000_1100, "what we write has both");
        let len = usize::try_from(Cursor(&datagram[start + 2..]).number(2)).unwrap();
        let (whole, rest) = datagram.split_at(start + 4 + len);
        let (header, body) = whole.split_at(start + 4);
        let (mut header, mut body) = (header.to_vec(), body.to_vec());
        let mask = self.numbers.new_mask(&body[..16]).unwrap();
        header[start] ^= mask[0];
        header[start + 1] ^= mask[1];
        let sequence = Cursor(&header[start..]).number(2);
        if u64::from(flags & 3) != self.epoch & 3 {
            return None;
        }
        let plain = self.key.open_in_place(self.nonce(sequence), Aad::from(&header), &mut body).ok()?;
        let inner = plain.len();
        let end = plain.iter().rposition(|byte| *byte != 0)?;
        let (content, plain) = (plain[end], plain[..end].to_vec());
        Some((Opened { content, number: (self.epoch, sequence), plain, inner }, rest))
    }
}
