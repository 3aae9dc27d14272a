//! Protected records: AES-128 in GCM (RFC 5288) and CCM (RFC 6655).

mod window;

use fogmux_ccm::{Aes128Enc, Ccm, Tag, TagLength};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroizing;

pub(super) use self::window::Window;
use super::{
    limit::RecordLimit,
    suite::Aead,
    wire::{self, ContentType, DTLS_1_2, RECORD_HEADER, Record},
};

/// Bytes of what a record holds (RFC 5246 §6.2.1, RFC 8446 §5.1).
pub(super) const PLAIN_MAX: usize = 1 << 14;

/// Bytes of the part of the nonce that travels (RFC 5288 §3).
const EXPLICIT_NONCE: usize = 8;

/// One direction's key. What is computed from it is kept only while it is used: a session that rests keeps 32 bytes.
pub(super) struct Protection {
    aead: Aead,
    key: Zeroizing<[u8; 16]>,
    salt: [u8; 4],
    /// Of records that are sealed.
    limit: RecordLimit,
    schedule: Option<Box<Schedule>>,
}

/// A cipher with its round keys.
pub(super) enum Schedule {
    Gcm(Box<LessSafeKey>),
    Ccm(Ccm<Aes128Enc, 12>),
}

impl Protection {
    pub(super) fn new(aead: Aead, key: [u8; 16], salt: [u8; 4]) -> Self {
        Self { aead, key: Zeroizing::new(key), salt, limit: RecordLimit::V12, schedule: None }
    }

    pub(super) const fn aead(&self) -> Aead {
        self.aead
    }

    /// Keeps to the limit of the end that reads what is sealed (RFC 8449 §4), and to the protocol's own.
    pub(super) fn limit_to(&mut self, limit: RecordLimit) {
        self.limit = limit.min(RecordLimit::V12);
    }

    /// The most bytes that a sealed record may hold.
    pub(super) const fn limit(&self) -> usize {
        self.limit.bytes()
    }

    /// Lets go of what can be computed again.
    pub(super) fn rest(&mut self) {
        self.schedule = None;
    }

    #[cfg(test)]
    pub(super) fn is_at_rest(&self) -> bool {
        self.schedule.is_none()
    }

    /// Appends a protected record. `None`: nothing was appended, for want of a cipher or because it is too long.
    pub(super) fn seal(&mut self, content: ContentType, number: u64, plain: &[u8], out: &mut Vec<u8>) -> Option<()> {
        if plain.len() > self.limit() {
            return None;
        }
        let tag_len = self.aead.tag();
        let nonce = self.nonce(number.to_be_bytes());
        let aad = additional_data(number, content, plain.len());
        let start = out.len();
        wire::put_record_header(out, content, DTLS_1_2, number, EXPLICIT_NONCE + plain.len() + tag_len);
        out.extend_from_slice(&number.to_be_bytes());
        let body = out.len();
        out.extend_from_slice(plain);
        let sealed = out.get_mut(body..).and_then(|plain| self.schedule().seal(nonce, &aad, plain));
        match sealed {
            Some(tag) => out.extend(tag.into_iter().take(tag_len)),
            None => out.truncate(start),
        }
        sealed.map(drop)
    }

    /// Appends a record under the identifier that the other end wants (RFC 9146 §4).
    pub(super) fn seal_identified(
        &mut self,
        cid: &[u8],
        content: ContentType,
        number: u64,
        plain: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<()> {
        // The type of the content is sealed too.
        if plain.len() >= self.limit() {
            return None;
        }
        let tag_len = self.aead.tag();
        let nonce = self.nonce(number.to_be_bytes());
        let (start, len) = (out.len(), plain.len() + 1);
        let aad = identified_data(number, cid, len);
        out.push(ContentType::Identified.byte());
        out.extend_from_slice(&DTLS_1_2.to_be_bytes());
        out.extend_from_slice(&number.to_be_bytes());
        out.extend_from_slice(cid);
        out.extend_from_slice(&wire::length16(EXPLICIT_NONCE + len + tag_len));
        out.extend_from_slice(&number.to_be_bytes());
        let body = out.len();
        out.extend_from_slice(plain);
        out.push(content.byte());
        let sealed = out.get_mut(body..).and_then(|plain| self.schedule().seal(nonce, &aad, plain));
        match sealed {
            Some(tag) => out.extend(tag.into_iter().take(tag_len)),
            None => out.truncate(start),
        }
        sealed.map(drop)
    }

    /// Appends what a record holds, and gives of what kind it is. `None`: it is not genuine, and nothing was appended.
    pub(super) fn open(&mut self, record: &Record<'_>, out: &mut Vec<u8>) -> Option<ContentType> {
        let (explicit, sealed) = record.payload.split_first_chunk::<EXPLICIT_NONCE>()?;
        let (body, tag) = sealed.split_at_checked(sealed.len().checked_sub(self.aead.tag())?)?;
        if body.len() > PLAIN_MAX {
            return None;
        }
        let nonce = self.nonce(*explicit);
        let start = out.len();
        out.extend_from_slice(body);
        let plain = out.get_mut(start..)?;
        let opened = match record.cid {
            None => {
                let aad = additional_data(record.number(), record.content, body.len());
                self.schedule().open(nonce, &aad, plain, tag).map(|()| record.content)
            }
            Some(cid) => {
                let aad = identified_data(record.number(), cid, body.len());
                let opened = self.schedule().open(nonce, &aad, plain, tag);
                opened.and_then(|()| inner_content(start, out))
            }
        };
        if opened.is_none() {
            out.truncate(start);
        }
        opened
    }

    fn nonce(&self, explicit: [u8; EXPLICIT_NONCE]) -> [u8; 12] {
        let mut nonce = [0; 12];
        nonce.iter_mut().zip(self.salt.into_iter().chain(explicit)).for_each(|(to, from)| *to = from);
        nonce
    }

    fn schedule(&mut self) -> &Schedule {
        let Self { aead, key, schedule, .. } = self;
        schedule.get_or_insert_with(|| Box::new(Schedule::new(*aead, key)))
    }
}

/// RFC 5246 §6.2.3.3.
fn additional_data(number: u64, content: ContentType, len: usize) -> [u8; RECORD_HEADER] {
    let mut data = [0; RECORD_HEADER];
    let bytes = number.to_be_bytes().into_iter().chain([content.byte()]);
    let bytes = bytes.chain(DTLS_1_2.to_be_bytes()).chain(wire::length16(len));
    data.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    data
}

/// RFC 9146 §5.3.
fn identified_data(number: u64, cid: &[u8], len: usize) -> Vec<u8> {
    let kind = ContentType::Identified.byte();
    let mut data = Vec::with_capacity(RECORD_HEADER + 10 + cid.len());
    data.extend_from_slice(&[0xff; 8]);
    data.extend_from_slice(&[kind, u8::try_from(cid.len()).unwrap_or(u8::MAX), kind]);
    data.extend_from_slice(&DTLS_1_2.to_be_bytes());
    data.extend_from_slice(&number.to_be_bytes());
    data.extend_from_slice(cid);
    data.extend_from_slice(&wire::length16(len));
    data
}

/// Takes padding and the kind off what was inside (RFC 9146 §4).
fn inner_content(start: usize, out: &mut Vec<u8>) -> Option<ContentType> {
    let at = start + out.get(start..)?.iter().rposition(|byte| *byte != 0)?;
    let content = ContentType::parse(*out.get(at)?).filter(|content| *content != ContentType::Identified)?;
    out.truncate(at);
    Some(content)
}

impl Schedule {
    #[expect(clippy::expect_used, reason = "the key has the one length that AES-128 has")]
    pub(super) fn new(aead: Aead, key: &[u8; 16]) -> Self {
        let ccm = |tag| Self::Ccm(Ccm::new(key, tag).expect("AES-128 has keys of 16 bytes"));
        match aead {
            Aead::Gcm => {
                let key = UnboundKey::new(&AES_128_GCM, key).expect("AES-128 has keys of 16 bytes");
                Self::Gcm(Box::new(LessSafeKey::new(key)))
            }
            Aead::Ccm => ccm(TagLength::Sixteen),
            Aead::Ccm8 => ccm(TagLength::Eight),
        }
    }

    /// Encrypts in place; the first bytes of what it gives are the tag.
    pub(super) fn seal(&self, nonce: [u8; 12], aad: &impl AsRef<[u8]>, plain: &mut [u8]) -> Option<Tag> {
        match self {
            Self::Gcm(key) => {
                let nonce = Nonce::assume_unique_for_key(nonce);
                let tag = key.seal_in_place_separate_tag(nonce, Aad::from(aad), plain).ok()?;
                <Tag>::try_from(tag.as_ref()).ok()
            }
            Self::Ccm(key) => key.seal(&nonce, aad, plain),
        }
    }

    /// Decrypts in place when the tag is right.
    pub(super) fn open(&self, nonce: [u8; 12], aad: &impl AsRef<[u8]>, body: &mut [u8], tag: &[u8]) -> Option<()> {
        match self {
            Self::Gcm(key) => {
                let nonce = Nonce::assume_unique_for_key(nonce);
                let tag = ring::aead::Tag::from(<Tag>::try_from(tag).ok()?);
                key.open_in_place_separate_tag(nonce, Aad::from(aad), tag, body, 0..).ok().map(drop)
            }
            Self::Ccm(key) => key.open(&nonce, aad, body, tag),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(aead: Aead) -> (Protection, Protection) {
        (Protection::new(aead, [7; 16], [1; 4]), Protection::new(aead, [7; 16], [1; 4]))
    }

    #[test]
    fn what_is_sealed_opens_once_and_unchanged_only() {
        for aead in [Aead::Gcm, Aead::Ccm, Aead::Ccm8] {
            let (mut seal, mut open) = pair(aead);
            let mut bytes = Vec::new();
            seal.seal(ContentType::ApplicationData, wire::number(1, 5), b"hello", &mut bytes).unwrap();
            assert_eq!(bytes.len(), RECORD_HEADER + 8 + 5 + aead.tag());
            let mut plain = vec![0];
            open.rest();
            let opened = open.open(&Record::split(&bytes).unwrap().0, &mut plain);
            assert_eq!((opened, &plain[..]), (Some(ContentType::ApplicationData), &b"\0hello"[..]));
            for at in [0, 3, 10, RECORD_HEADER, RECORD_HEADER + 8, bytes.len() - 1] {
                let mut bent = bytes.clone();
                bent[at] ^= 1;
                let Some((record, _)) = Record::split(&bent) else { continue };
                assert_eq!(open.open(&record, &mut plain), None, "{aead:?}, byte {at}");
                assert_eq!(plain, b"\0hello");
            }
        }
    }

    #[test]
    fn rfc_9146_what_is_sealed_under_an_identifier_opens_unchanged_only() {
        for aead in [Aead::Gcm, Aead::Ccm, Aead::Ccm8] {
            let (mut seal, mut open) = pair(aead);
            let mut bytes = Vec::new();
            seal.seal_identified(&[9; wire::CID], ContentType::Alert, wire::number(1, 5), b"hello", &mut bytes)
                .unwrap();
            let mut plain = Vec::new();
            let opened = open.open(&Record::split(&bytes).unwrap().0, &mut plain);
            assert_eq!((opened, &plain[..]), (Some(ContentType::Alert), &b"hello"[..]));
            for at in 3..bytes.len() {
                let mut bent = bytes.clone();
                bent[at] ^= 1;
                let Some((record, _)) = Record::split(&bent) else { continue };
                assert_eq!(open.open(&record, &mut Vec::new()), None, "{aead:?}, byte {at}");
            }
        }
    }

    #[test]
    fn a_short_record_is_not_genuine() {
        for len in 0..24 {
            let (_, mut open) = pair(Aead::Gcm);
            let mut bytes = Vec::new();
            wire::put_record(&mut bytes, ContentType::ApplicationData, DTLS_1_2, 1 << 48, &vec![0; len]);
            assert_eq!(open.open(&Record::split(&bytes).unwrap().0, &mut Vec::new()), None);
        }
    }

    #[test]
    fn s6_2_1_no_record_holds_more_than_16_kib() {
        for aead in [Aead::Gcm, Aead::Ccm, Aead::Ccm8] {
            for (len, fits) in [(PLAIN_MAX, true), (PLAIN_MAX + 1, false)] {
                let (mut seal, mut open) = pair(aead);
                let (number, mut plain, mut ours) = (wire::number(1, 5), vec![7; len], Vec::new());
                let sealed = seal.seal(ContentType::ApplicationData, number, &plain, &mut ours);
                assert_eq!((sealed.is_some(), ours.is_empty()), (fits, !fits));
                // By somebody who does not keep to it.
                let nonce = seal.nonce(number.to_be_bytes());
                let aad = additional_data(number, ContentType::ApplicationData, len);
                let tag = seal.schedule().seal(nonce, &aad, &mut plain).unwrap();
                let payload = [&number.to_be_bytes()[..], &plain, &tag[..aead.tag()]].concat();
                let mut theirs = Vec::new();
                wire::put_record(&mut theirs, ContentType::ApplicationData, DTLS_1_2, number, &payload);
                let opened = open.open(&Record::split(&theirs).unwrap().0, &mut Vec::new());
                assert_eq!(opened.is_some(), fits, "{aead:?}, {len}");
            }
        }
    }

    #[test]
    fn rfc_8449_s4_no_record_holds_more_than_its_reader_takes() {
        let limit = |bytes: u16| RecordLimit::parse(&bytes.to_be_bytes()).unwrap();
        for aead in [Aead::Gcm, Aead::Ccm, Aead::Ccm8] {
            for (announced, most) in [(64, 64), (65, 65), (1000, 1000), (1 << 14, 1 << 14), ((1 << 14) + 1, 1 << 14)] {
                let (mut seal, mut open) = pair(aead);
                seal.limit_to(limit(announced));
                let mut sealed = |len: usize, identified: bool| {
                    let (plain, mut out) = (vec![7; len], Vec::new());
                    let number = wire::number(1, 5);
                    let content = ContentType::ApplicationData;
                    let done = match identified {
                        true => seal.seal_identified(&[9; wire::CID], content, number, &plain, &mut out),
                        false => seal.seal(content, number, &plain, &mut out),
                    };
                    assert_eq!(done.is_none(), out.is_empty());
                    if done.is_some() {
                        let mut opened = Vec::new();
                        open.open(&Record::split(&out).unwrap().0, &mut opened).unwrap();
                        assert_eq!(opened, plain);
                    }
                    done.is_some()
                };
                assert_eq!([most, most + 1].map(|len| sealed(len, false)), [true, false], "{aead:?}, {announced}");
                // The type of the content is one of the bytes.
                assert_eq!([most - 1, most].map(|len| sealed(len, true)), [true, false], "{aead:?}, {announced}");
            }
        }
    }
}
