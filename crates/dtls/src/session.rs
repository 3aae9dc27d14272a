//! An association after its handshake: keys, numbers, and the last flight in case it was lost. Everything else is gone.

use super::{
    Alert,
    limit::RecordLimit,
    prf::VERIFY_DATA,
    protection::{Protection, Window},
    wire::{self, Cid, ContentType, DTLS_1_2, Record, SEQUENCE_MAX},
};

/// The epoch of all that is protected: there is no second handshake in an association.
pub(super) const EPOCH: u16 = 1;

/// Bytes of a block of AES.
const AES_BLOCK: u64 = 16;
/// Blocks of a record beside its content: the last one, the header (RFC 5246 §6.2.3.3), the nonce and the tag.
const OTHER_BLOCKS: u64 = 4;
/// Blocks of a record of full size.
const RECORD_BLOCKS: u64 = 1 << 10;

/// Bytes of a Finished with its header.
pub(super) const FINISHED: usize = wire::HANDSHAKE_HEADER + VERIFY_DATA;

pub(super) struct Session {
    read: Protection,
    write: Protection,
    window: Window,
    sent: u64,
    /// Blocks of AES that were protected.
    blocks: u64,
    /// Records that were forged.
    forged: u64,
    /// Our Finished and the next number of epoch 0, should the other end not have heard it.
    finished: [u8; FINISHED],
    sent_plain: u64,
    identifiers: Option<Box<Identifiers>>,
}

/// The meaning of an alert under keys for a session of DTLS 1.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// `close_notify`, which is answered with the same (RFC 5246 §7.2.1).
    Closed,
    /// It is fatal (RFC 5246 §7.2.2).
    Over(Alert),
    /// A warning.
    Nothing,
    /// It cannot be read, and the peer is told so.
    Malformed(Alert),
}

impl Told {
    pub(super) const fn by_alert(plain: &[u8]) -> Self {
        match *plain {
            [_, 0] => Self::Closed,
            [2, alert] => Self::Over(Alert::parse(alert)),
            [_, _] => Self::Nothing,
            _ => Self::Malformed(Alert::DecodeError),
        }
    }
}

/// The connection identifiers that both ends want in records to them (RFC 9146 §3).
pub(super) struct Identifiers {
    pub(super) ours: Cid,
    /// Maybe nothing: then ours to it are as they always were.
    pub(super) theirs: Box<[u8]>,
}

impl Session {
    pub(super) fn new(read: Protection, write: Protection, window: Window, sent: u64) -> Self {
        Self {
            read,
            write,
            window,
            sent,
            blocks: 0,
            forged: 0,
            finished: [0; FINISHED],
            sent_plain: 0,
            identifiers: None,
        }
    }

    /// Under identifiers from now on.
    pub(super) fn identify(&mut self, identifiers: Option<Box<Identifiers>>) {
        self.identifiers = identifiers;
    }

    /// Keeps to the limit that the other end has announced, if it has (RFC 8449 §4).
    pub(super) fn limit_to(&mut self, limit: Option<RecordLimit>) {
        if let Some(limit) = limit {
            self.write.limit_to(limit);
        }
    }

    /// The most bytes of data in a record. Under an identifier, the type of the content takes one (RFC 9146 §4).
    pub(super) fn data_max(&self) -> usize {
        let identified = self.identifiers.as_ref().is_some_and(|identifiers| !identifiers.theirs.is_empty());
        self.write.limit() - usize::from(identified)
    }

    /// The identifier under which records come to it.
    pub(super) fn identifier(&self) -> Option<&Cid> {
        self.identifiers.as_ref().map(|identifiers| &identifiers.ours)
    }

    /// Whether a record comes after everything that came before: from where it comes, the peer is now.
    pub(super) const fn is_newest(&self, record: &Record<'_>) -> bool {
        self.window.is_newest(record.sequence)
    }

    /// Keeps the flight that [`Session::put_last_flight`] sends.
    pub(super) fn keep_last_flight(&mut self, finished: [u8; FINISHED], record_sequence: u64) {
        self.finished = finished;
        self.sent_plain = record_sequence;
    }

    /// Appends ChangeCipherSpec and Finished, with new numbers each time.
    pub(super) fn put_last_flight(&mut self, out: &mut Vec<u8>) {
        put_change_cipher_spec(out, &mut self.sent_plain);
        let finished = self.finished;
        self.seal(ContentType::Handshake, &finished, out);
    }

    /// Appends a protected record.
    pub(super) fn seal(&mut self, content: ContentType, plain: &[u8], out: &mut Vec<u8>) -> Option<()> {
        // RFC 6347 §4.1: rather no association than a number used twice. What ends one is said beyond the limits.
        if self.sent > SEQUENCE_MAX || content == ContentType::ApplicationData && self.is_spent() {
            return None;
        }
        // No number and no wear for what is not sent.
        if plain.len() > self.data_max() {
            return None;
        }
        let number = wire::number(EPOCH, self.sent);
        self.sent += 1;
        self.blocks += plain.len() as u64 / AES_BLOCK + OTHER_BLOCKS;
        match self.identifiers.as_ref().filter(|identifiers| !identifiers.theirs.is_empty()) {
            None => self.write.seal(content, number, plain, out),
            Some(identifiers) => self.write.seal_identified(&identifiers.theirs, content, number, plain, out),
        }
    }

    pub(super) fn put_alert(&mut self, alert: Alert, out: &mut Vec<u8>) {
        // Without a number left nothing more can be said.
        let _ = self.seal(ContentType::Alert, &alert.bytes(), out);
    }

    /// Appends what a record of our epoch holds, when it is genuine and new, and gives of what kind it is.
    pub(super) fn open(&mut self, record: &Record<'_>, out: &mut Vec<u8>) -> Option<ContentType> {
        if record.epoch != EPOCH || record.version != DTLS_1_2 || !self.window.may_accept(record.sequence) {
            return None;
        }
        // RFC 9146 §3: once there is one, records without it are nobody's.
        if self.identifier() != record.cid {
            return None;
        }
        let content = self.read.open(record, out);
        match content {
            Some(_) => self.window.note(record.sequence),
            None => self.forged += 1,
        }
        content
    }

    /// Whether the keys or the numbers are used up. DTLS 1.2 has no change of keys: the association ends, and the peer
    /// makes another. RFC 6347 has no limits for keys; these are those of RFC 9147 §4.5.3, where a record is counted
    /// by its blocks, for records here are short.
    pub(super) const fn is_spent(&self) -> bool {
        let aead = self.write.aead();
        // One number is left for the alert.
        self.sent >= SEQUENCE_MAX
            || self.blocks >= aead.sealed_max() * RECORD_BLOCKS
            || self.forged >= aead.forged_max()
    }

    /// Lets go of what can be computed again.
    pub(super) fn rest(&mut self) {
        self.read.rest();
        self.write.rest();
    }

    /// As if so many blocks had been sealed and so many records forged.
    #[cfg(test)]
    pub(super) const fn wear_down(&mut self, blocks: u64, forged: u64) {
        (self.blocks, self.forged) = (blocks, forged);
    }

    /// As if so many records had been sent.
    #[cfg(test)]
    pub(super) const fn skip(&mut self, sent: u64) {
        self.sent = sent;
    }

    #[cfg(test)]
    pub(super) fn is_at_rest(&self) -> bool {
        self.read.is_at_rest() && self.write.is_at_rest()
    }
}

pub(super) fn put_change_cipher_spec(out: &mut Vec<u8>, record_sequence: &mut u64) {
    wire::put_record(out, ContentType::ChangeCipherSpec, DTLS_1_2, wire::number(0, *record_sequence), &[1]);
    *record_sequence += 1;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::Aead;

    #[test]
    fn rfc_8449_s4_what_is_too_long_takes_no_number_and_wears_nothing() {
        let protection = |byte| Protection::new(Aead::Gcm, [byte; 16], [byte; 4]);
        let mut session = Session::new(protection(1), protection(2), Window::default(), 0);
        assert_eq!(session.data_max(), 1 << 14);
        session.limit_to(Some(RecordLimit::MIN));
        assert_eq!(session.data_max(), 64);
        let mut out = Vec::new();
        assert_eq!(session.seal(ContentType::ApplicationData, &[7; 65], &mut out), None);
        assert_eq!((session.sent, session.blocks, out.len()), (0, 0, 0));
        assert!(session.seal(ContentType::ApplicationData, &[7; 64], &mut out).is_some());
        // An alert and the last flight are shorter than every limit.
        session.keep_last_flight([0; FINISHED], 0);
        out.clear();
        session.put_last_flight(&mut out);
        session.put_alert(Alert::CloseNotify, &mut out);
        assert_eq!(session.sent, 3);
        for (theirs, most) in [(&b"cid"[..], 63), (b"", 64)] {
            session.identify(Some(Box::new(Identifiers { ours: [1; 8], theirs: theirs.into() })));
            assert_eq!(session.data_max(), most);
        }
    }

    #[test]
    fn s4_1_no_number_is_used_twice_when_they_are_used_up() {
        let protection = |byte| Protection::new(Aead::Gcm, [byte; 16], [byte; 4]);
        let mut session = Session::new(protection(1), protection(2), Window::default(), SEQUENCE_MAX - 1);
        let mut out = Vec::new();
        assert!(session.seal(ContentType::ApplicationData, b"last", &mut out).is_some());
        assert_eq!(Record::split(&out).unwrap().0.sequence, SEQUENCE_MAX - 1);
        out.clear();
        assert!(session.is_spent());
        assert!(session.seal(ContentType::ApplicationData, b"one more", &mut out).is_none());
        session.put_alert(Alert::CloseNotify, &mut out);
        assert_eq!(Record::split(&out).unwrap().0.sequence, SEQUENCE_MAX, "there is a number left for this");
        out.clear();
        session.put_alert(Alert::CloseNotify, &mut out);
        session.put_last_flight(&mut out);
        let mut rest = &out[..];
        while let Some((record, after)) = Record::split(rest) {
            assert_eq!(record.epoch, 0, "nothing under the key");
            rest = after;
        }
    }
}
