//! Protected records (RFC 9147 §4): the unified header, encrypted record numbers, and which records were seen.

mod content;
mod header;
#[cfg(test)]
mod tests;

use aes::{
    Aes128Enc,
    cipher::{Array, BlockCipherEncrypt as _, KeyInit as _},
};

pub(crate) use self::content::Content;
use self::header::Header;
use super::schedule::{self, Secret};
use crate::{
    limit::RecordLimit,
    protection::{PLAIN_MAX, Schedule, Window},
    suite::Aead,
    wire::{self, CID, Cid, ContentType, RECORD_HEADER, Reader},
};

/// RFC 9147 §4: `0b001CSLEE`.
const FIXED: u8 = 0b0010_0000;
const FIXED_MASK: u8 = 0b1110_0000;
const WITH_CID: u8 = 0b0001_0000;
const LONG_SEQUENCE: u8 = 0b0000_1000;
const WITH_LENGTH: u8 = 0b0000_0100;
const EPOCH_MASK: u8 = 0b0000_0011;

/// Bytes of ciphertext that the number of a record is encrypted by (§4.2.3).
const SAMPLE: usize = 16;
/// RFC 9147 §4.2.1 and §8: an association ends rather than use a number or an epoch twice.
const SEQUENCE_MAX: u64 = (1 << 48) - 1;

/// Whether a datagram begins with a protected record of DTLS 1.3 (RFC 9147 §4.1).
pub(crate) fn is_sealed(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| first & FIXED_MASK == FIXED)
}

/// The first byte of the identifier in a datagram of either version, if it has one that may be ours: the number that
/// its endpoint was given.
#[must_use]
pub fn identified(datagram: &[u8]) -> Option<u8> {
    let first = *datagram.first()?;
    if first == ContentType::Identified.byte() {
        // RFC 9146 §4: between the number and the length.
        return datagram.get(RECORD_HEADER - 2).copied();
    }
    (first & (FIXED_MASK | WITH_CID) == FIXED | WITH_CID).then(|| datagram.get(1).copied()).flatten()
}

/// Which record: what acknowledgements name (RFC 9147 §4, §7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) epoch: u64,
    pub(super) sequence: u64,
}

/// A record as it comes, still closed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sealed<'a> {
    flags: u8,
    pub(crate) cid: Option<&'a [u8]>,
    sequence: u16,
    length: Option<u16>,
    body: &'a [u8],
}

impl<'a> Sealed<'a> {
    /// Takes the first record off a datagram.
    pub(crate) fn split(datagram: &'a [u8]) -> Option<(Self, &'a [u8])> {
        Self::split_with(datagram, CID)
    }

    /// With identifiers of so many bytes.
    pub(super) fn split_with(datagram: &'a [u8], cid_len: usize) -> Option<(Self, &'a [u8])> {
        let mut reader = Reader(datagram);
        let flags = reader.u8().filter(|flags| flags & FIXED_MASK == FIXED)?;
        let cid = if flags & WITH_CID == 0 { None } else { Some(reader.take(cid_len)?) };
        let sequence = if flags & LONG_SEQUENCE == 0 { u16::from(reader.u8()?) } else { reader.u16()? };
        let length = if flags & WITH_LENGTH == 0 { None } else { Some(reader.u16()?) };
        let body = reader.take(length.map_or(reader.0.len(), usize::from))?;
        // §4.2.3: without a whole sample it is nobody's.
        (body.len() >= SAMPLE).then_some((Self { flags, cid, sequence, length, body }, reader.0))
    }

    /// Whether it may be for who is known by this identifier. Records behind the first of a datagram may leave it out
    /// (RFC 9147 §4); one that has another is nobody's, though its tag may be right.
    pub(super) fn is_for(&self, ours: Option<&Cid>) -> bool {
        self.cid.is_none_or(|cid| ours.is_some_and(|ours| ours[..] == *cid))
    }

    const fn epoch_bits(&self) -> u64 {
        (self.flags & EPOCH_MASK) as u64
    }

    /// Takes the mask off the number, and gives the header as it was before it was put on, which is what the tag
    /// covers.
    fn header(&self, mask: [u8; 2]) -> (u16, Header) {
        let mut header = Header::default();
        header.push(&[self.flags]);
        if let Some(cid) = self.cid {
            header.push(cid);
        }
        let [high, low] = mask;
        let sequence = if self.flags & LONG_SEQUENCE == 0 {
            let sequence = self.sequence.to_be_bytes()[1] ^ high;
            header.push(&[sequence]);
            u16::from(sequence)
        } else {
            let sequence = self.sequence ^ u16::from_be_bytes([high, low]);
            header.push(&sequence.to_be_bytes());
            sequence
        };
        if let Some(length) = self.length {
            header.push(&length.to_be_bytes());
        }
        (sequence, header)
    }

    /// The number that is nearest to the one expected next (§4.2.2).
    const fn nearest(&self, expected: u64, low: u16) -> u64 {
        let span: u64 = if self.flags & LONG_SEQUENCE == 0 { 1 << 8 } else { 1 << 16 };
        let here = (expected & !(span - 1)) | low as u64;
        if here + span / 2 <= expected {
            here + span
        } else if here > expected + span / 2 && here >= span {
            here - span
        } else {
            here
        }
    }
}

/// One direction's key: a secret, and what is computed from it while it is used.
struct Protection {
    aead: Aead,
    secret: Secret,
    expanded: Option<Box<Expanded>>,
}

struct Expanded {
    cipher: Schedule,
    iv: [u8; 12],
    /// The key that encrypts record numbers.
    numbers: Aes128Enc,
}

impl Expanded {
    fn new(aead: Aead, secret: &Secret) -> Self {
        let numbers = Aes128Enc::new(&Array(*schedule::expanded(secret, b"sn")));
        let cipher = Schedule::new(aead, &schedule::expanded(secret, b"key"));
        Self { cipher, iv: *schedule::expanded(secret, b"iv"), numbers }
    }

    /// RFC 8446 §5.3; the number is that within the epoch (RFC 9147 §4).
    fn nonce(&self, sequence: u64) -> [u8; 12] {
        let mut nonce = self.iv;
        nonce.iter_mut().skip(4).zip(sequence.to_be_bytes()).for_each(|(to, from)| *to ^= from);
        nonce
    }

    /// §4.2.3.
    fn mask(&self, body: &[u8]) -> Option<[u8; 2]> {
        let mut block = Array(*body.first_chunk::<SAMPLE>()?);
        self.numbers.encrypt_block(&mut block);
        block.0.first_chunk::<2>().copied()
    }
}

impl Protection {
    const fn new(aead: Aead, secret: Secret) -> Self {
        Self { aead, secret, expanded: None }
    }

    fn expanded(&mut self) -> &Expanded {
        let Self { aead, secret, expanded } = self;
        expanded.get_or_insert_with(|| Box::new(Expanded::new(*aead, secret)))
    }
}

/// An epoch that we write.
pub(super) struct Writing {
    protection: Protection,
    epoch: u64,
    sent: u64,
    limit: RecordLimit,
}

impl Writing {
    pub(super) const fn new(aead: Aead, secret: Secret, epoch: u64) -> Self {
        Self { protection: Protection::new(aead, secret), epoch, sent: 0, limit: RecordLimit::V13 }
    }

    /// The epoch that follows (RFC 9147 §8).
    pub(super) fn next(&self) -> Self {
        let next = Self::new(self.protection.aead, schedule::updated(&self.protection.secret), self.epoch + 1);
        Self { limit: self.limit, ..next }
    }

    /// Keeps to the limit of the peer (RFC 8449 §4), and to the protocol's own.
    pub(super) fn limit_to(&mut self, limit: RecordLimit) {
        self.limit = limit.min(RecordLimit::V13);
    }

    /// The limit of the peer.
    pub(super) const fn limit(&self) -> RecordLimit {
        self.limit
    }

    /// The most bytes that a record may hold beside the type of its content.
    pub(super) const fn content_max(&self) -> usize {
        self.limit.bytes() - 1
    }

    pub(super) const fn secret(&self) -> &Secret {
        &self.protection.secret
    }

    pub(super) const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// As if it were this epoch, and so many had been sent.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) const fn skip(&mut self, epoch: u64, sent: u64) {
        (self.epoch, self.sent) = (epoch, sent);
    }

    pub(super) const fn sent(&self) -> u64 {
        self.sent
    }

    /// Bytes that a record has beside what it holds.
    pub(super) const fn overhead(&self, cid: &[u8]) -> usize {
        1 + cid.len() + 2 + 2 + 1 + self.protection.aead.tag()
    }

    /// Appends a record; the length stays in the header, so that others may follow. Gives its number.
    pub(super) fn seal(&mut self, cid: &[u8], content: Content, plain: &[u8], out: &mut Vec<u8>) -> Option<Number> {
        if plain.len() > self.content_max() || self.sent > SEQUENCE_MAX {
            return None;
        }
        let (epoch, sequence, tag_len) = (self.epoch, self.sent, self.protection.aead.tag());
        // §4.2.3: short ones are padded up to a sample, which is below every limit.
        let inner = (plain.len() + 1).max(SAMPLE - tag_len);
        let [.., epoch_bits] = epoch.to_be_bytes();
        let [.., high, low] = sequence.to_be_bytes();
        let flags = FIXED | LONG_SEQUENCE | WITH_LENGTH | (epoch_bits & EPOCH_MASK);
        let mut header = Header::default();
        header.push(&[flags | if cid.is_empty() { 0 } else { WITH_CID }]);
        header.push(cid);
        header.push(&[high, low]);
        header.push(&wire::length16(inner + tag_len));
        let start = out.len();
        out.extend_from_slice(header.as_ref());
        let body = out.len();
        out.extend_from_slice(plain);
        out.push(content.byte());
        out.resize(body + inner, 0);
        let keys = self.protection.expanded();
        let sealed = out.get_mut(body..).and_then(|plain| keys.cipher.seal(keys.nonce(sequence), &header, plain));
        let Some(tag) = sealed else {
            out.truncate(start);
            return None;
        };
        out.extend(tag.into_iter().take(tag_len));
        let mask = out.get(body..).and_then(|body| keys.mask(body))?;
        let number = out.get_mut(start + 1 + cid.len()..body)?;
        number.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
        self.sent += 1;
        Some(Number { epoch, sequence })
    }

    pub(super) fn rest(&mut self) {
        self.protection.expanded = None;
    }
}

/// The header of an opened record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opened {
    pub(super) content: Content,
    pub(super) number: Number,
    /// Whether all others of its epoch were sent before it.
    pub(super) newest: bool,
}

/// An epoch that we read.
pub(super) struct Reading {
    protection: Protection,
    epoch: u64,
    window: Window,
    /// Records that were forged under this key.
    forged: u64,
}

impl Reading {
    pub(super) fn new(aead: Aead, secret: Secret, epoch: u64) -> Self {
        Self { protection: Protection::new(aead, secret), epoch, window: Window::default(), forged: 0 }
    }

    /// The epoch that follows (RFC 9147 §8).
    pub(super) fn next(&self) -> Self {
        Self::new(self.protection.aead, schedule::updated(&self.protection.secret), self.epoch + 1)
    }

    pub(super) const fn secret(&self) -> &Secret {
        &self.protection.secret
    }

    pub(super) const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Records that have failed authentication under this key (RFC 9147 §4.5.3).
    pub(super) const fn forged(&self) -> u64 {
        self.forged
    }

    /// As if the records up to this had come.
    #[cfg(test)]
    pub(super) fn jump(&mut self, sequence: u64) {
        self.window.note(sequence);
    }

    /// As if so many had failed.
    #[cfg(test)]
    pub(super) const fn forge(&mut self, forged: u64) {
        self.forged = forged;
    }

    /// Whether nothing has come yet.
    pub(super) const fn is_unused(&self) -> bool {
        self.window.is_newest(0)
    }

    /// Whether the header may be one of this epoch.
    pub(super) const fn may_be(&self, record: &Sealed<'_>) -> bool {
        record.epoch_bits() == self.epoch & EPOCH_MASK as u64
    }

    /// Appends what a record holds, when it is genuine and new. `None`: nothing was appended. One that is too long is
    /// discarded: RFC 9147 §4.5.2 names the length, where RFC 8446 §5.2 ends the connection.
    pub(super) fn open(&mut self, record: &Sealed<'_>, out: &mut Vec<u8>) -> Option<Opened> {
        if !self.may_be(record) {
            return None;
        }
        let aead = self.protection.aead;
        // §4.5.3: with a key that is used up nothing is opened any more.
        if self.forged >= aead.forged_max() {
            return None;
        }
        let tag_len = aead.tag();
        let (body, tag) = record.body.split_at_checked(record.body.len().checked_sub(tag_len)?)?;
        if body.len() > PLAIN_MAX + 256 {
            return None;
        }
        let expected = if self.is_unused() { 0 } else { self.window.newest() + 1 };
        let keys = self.protection.expanded();
        let (low, header) = record.header(keys.mask(record.body)?);
        let sequence = record.nearest(expected, low);
        if !self.window.may_accept(sequence) {
            return None;
        }
        let start = out.len();
        out.extend_from_slice(body);
        let opened = out.get_mut(start..).and_then(|body| keys.cipher.open(keys.nonce(sequence), &header, body, tag));
        if opened.is_none() {
            out.truncate(start);
            self.forged += 1;
            return None;
        }
        let newest = self.window.is_newest(sequence);
        self.window.note(sequence);
        // RFC 8446 §5.4: what it holds, its type and padding have 2^14 + 1 bytes at most. RFC 8449 §4: we announce
        // that, and may discard what is above it.
        if body.len() > PLAIN_MAX + 1 {
            out.truncate(start);
            return None;
        }
        let content = content::take(start, out);
        Some(Opened { content, number: Number { epoch: self.epoch, sequence }, newest })
    }

    pub(super) fn rest(&mut self) {
        self.protection.expanded = None;
    }

    #[cfg(test)]
    pub(super) const fn is_at_rest(&self) -> bool {
        self.protection.expanded.is_none()
    }
}
