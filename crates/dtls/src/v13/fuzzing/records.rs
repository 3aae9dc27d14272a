//! Records of both versions that are lost, repeated, disordered and bent, against a model of the replay window: a
//! record opens exactly when it is as it was sealed, new, and not older than the window; what does not open changes
//! nothing.

use std::collections::HashSet;

use zeroize::Zeroizing;

use super::input::Input;
use crate::{
    protection::{Protection, Window},
    session::{Identifiers, Session},
    suite::Aead,
    v13::{
        Sealed, identified, is_sealed,
        record::{Content, Reading, Writing},
    },
    wire::{self, CID, Cid, ContentType, DTLS_1_2, Fragment, Record},
};

/// Makes a record of a number, a content and what it holds; `None` when there is no such record.
type Seal<'a> = dyn FnMut(u64, u8, &[u8]) -> Option<Vec<u8>> + 'a;
/// Appends what a record held and gives its content.
type Open<'a> = dyn FnMut(&[u8], &mut Vec<u8>) -> Option<u8> + 'a;

/// Numbers behind the newest that are still taken (RFC 6347 §4.1.2.6).
const WINDOW: u64 = 64;
/// Half of the numbers that the two bytes of DTLS 1.3 tell apart (RFC 9147 §4.2.2).
const NEAR: u64 = 1 << 15;
/// Records that are remembered.
const OLD_MAX: usize = 64;

const OURS: Cid = [9; CID];

/// A record as it was sealed.
#[derive(Clone, PartialEq, Eq)]
struct Old {
    number: u64,
    content: u8,
    plain: Vec<u8>,
    bytes: Vec<u8>,
}

/// The numbers that were accepted.
#[derive(Default)]
struct Model {
    seen: HashSet<u64>,
    newest: Option<u64>,
}

impl Model {
    fn is_new(&self, number: u64) -> bool {
        let is_old = self.newest.is_some_and(|newest| newest >= number && newest - number >= WINDOW);
        !is_old && !self.seen.contains(&number)
    }

    /// Whether two bytes of a number are enough to know it.
    fn is_near(&self, number: u64) -> bool {
        let expected = self.newest.map_or(0, |newest| newest + 1);
        // At the beginning there is nothing before the first numbers that two bytes could mean instead.
        (number < expected + NEAR || number < 2 * NEAR) && number + NEAR > expected
    }

    /// Where a number cannot be said either way: two bytes at the very edge.
    fn is_at_the_edge(&self, number: u64) -> bool {
        let expected = self.newest.map_or(0, |newest| newest + 1);
        number == expected + NEAR || number + NEAR == expected
    }

    fn note(&mut self, number: u64) {
        assert!(self.seen.insert(number), "record {number} opened twice");
        self.newest = self.newest.max(Some(number));
    }
}

fn aead(how: u8) -> Aead {
    [Aead::Gcm, Aead::Ccm, Aead::Ccm8][usize::from(how) % 3]
}

/// Records and what became of them; `open` appends what a record held and gives its content.
struct Play<'a> {
    input: Input<'a>,
    model: Model,
    old: Vec<Old>,
    next: u64,
}

impl<'a> Play<'a> {
    fn new(input: Input<'a>) -> Self {
        Self { input, model: Model::default(), old: Vec::new(), next: 0 }
    }

    /// Plays until the input ends. `seal` makes a record with a number; `is_known` says whether numbers of the model
    /// are found again from what is on the wire.
    fn run(&mut self, seal: &mut Seal<'_>, open: &mut Open<'_>, is_shortened: bool) {
        while let Some(step) = self.input.next() {
            match step % 8 {
                0..=2 => {
                    let gap = [0, 0, 1, 60, 64, 300, NEAR - 2, 1 << 20][usize::from(step) / 8 % 8];
                    self.next = (self.next + 1 + gap).min(wire::SEQUENCE_MAX / 2);
                    let (content, plain) = (self.input.byte(), self.input.bytes().to_vec());
                    let Some(bytes) = seal(self.next, content, &plain) else { continue };
                    assert!(bytes.len() < plain.len() + 64, "{} bytes for {}", bytes.len(), plain.len());
                    self.old.truncate(OLD_MAX - 1);
                    self.old.insert(0, Old { number: self.next, content, plain, bytes });
                    if step % 8 > 0 {
                        self.arrive(0, None, open, is_shortened);
                    }
                }
                3 | 4 => {
                    let at = self.input.index(OLD_MAX);
                    self.arrive(at, None, open, is_shortened);
                }
                5 | 6 => {
                    let at = self.input.index(OLD_MAX);
                    let bend = (self.input.byte(), self.input.byte());
                    self.arrive(at, Some(bend), open, is_shortened);
                }
                _ => {
                    // Masked: the fuzzer learns genuine records from comparisons, and would repeat them.
                    let mask = (0..=u8::MAX).cycle().map(|at| at.wrapping_mul(31) ^ 0x5a);
                    let bytes: Vec<u8> = self.input.bytes().iter().zip(mask).map(|(byte, mask)| byte ^ mask).collect();
                    let mut plain = vec![7];
                    assert!(open(&bytes, &mut plain).is_none() && plain == [7], "made of nothing");
                }
            }
        }
    }

    /// A record arrives, as it was or with a byte changed.
    fn arrive(&mut self, at: usize, bend: Option<(u8, u8)>, open: &mut Open<'_>, is_shortened: bool) {
        let Some(old) = self.old.get(at).cloned() else { return };
        let mut bytes = old.bytes.clone();
        if let Some((place, with)) = bend {
            let place = usize::from(place) % bytes.len();
            bytes[place] ^= with;
        }
        let mut plain = vec![7];
        let opened = open(&bytes, &mut plain);
        let is_genuine = bytes == old.bytes;
        let near = !is_shortened || self.model.is_near(old.number);
        if is_genuine && self.model.is_new(old.number) && near {
            assert_eq!(opened, Some(old.content), "a new record does not open");
        } else if is_shortened && is_genuine && self.model.is_at_the_edge(old.number) {
            // Either is right.
        } else {
            assert_eq!(opened, None, "record {} opens, genuine: {is_genuine}", old.number);
        }
        match opened {
            Some(_) => {
                assert_eq!(plain[1..], old.plain);
                self.model.note(old.number);
            }
            None => assert_eq!(plain, [7], "something was left"),
        }
    }
}

/// Records of DTLS 1.2, with and without identifiers (RFC 9146).
pub fn records_12(data: &[u8]) {
    let mut input = Input(data);
    let how = input.byte();
    let has_cid = how & 64 != 0;
    let keys = |byte: u8| Protection::new(aead(how), [byte; 16], [byte; 4]);
    let mut sealing = keys(1);
    let mut session = Session::new(keys(1), keys(2), Window::default(), 0);
    let identifiers = Identifiers { ours: OURS, theirs: [3].into() };
    session.identify(has_cid.then(|| Box::new(identifiers)));
    let mut seal = |number: u64, content: u8, plain: &[u8]| {
        let content = ContentType::parse(content).filter(|content| *content != ContentType::Identified)?;
        let (number, mut out) = (wire::number(1, number), Vec::new());
        if has_cid {
            sealing.seal_identified(&OURS, content, number, plain, &mut out)?;
        } else {
            sealing.seal(content, number, plain, &mut out)?;
        }
        Some(out)
    };
    let mut open = |bytes: &[u8], plain: &mut Vec<u8>| {
        walk(bytes);
        let (record, rest) = Record::split(bytes)?;
        let mut again = Vec::new();
        record.put(&mut again);
        assert_eq!([&again[..], rest].concat(), bytes, "another record than was read");
        session.open(&record, plain).filter(|_| rest.is_empty()).map(ContentType::byte)
    };
    Play::new(input).run(&mut seal, &mut open, false);
    let mut out = Vec::new();
    session.seal(ContentType::ApplicationData, b"still there", &mut out);
    assert!(!out.is_empty(), "forged records have ended the session");
}

/// Records of DTLS 1.3 under the unified header.
pub fn records_13(data: &[u8]) {
    let mut input = Input(data);
    let how = input.byte();
    let cid: &[u8] = if how & 64 == 0 { &[] } else { &OURS };
    let (secret, epoch) = (Zeroizing::new([5; 32]), 2 + u64::from(how >> 2 & 7));
    let mut write = Writing::new(aead(how), secret.clone(), epoch);
    let mut read = Reading::new(aead(how), secret, epoch);
    let mut seal = |number: u64, content: u8, plain: &[u8]| {
        let content = Content::parse(content)?;
        let mut out = Vec::new();
        write.skip(epoch, number);
        write.seal(cid, content, plain, &mut out).map(|_| out)
    };
    let mut open = |bytes: &[u8], plain: &mut Vec<u8>| {
        walk(bytes);
        let (record, rest) = Sealed::split(bytes)?;
        assert!(rest.len() < bytes.len() && bytes.ends_with(rest));
        read.open(&record, plain).filter(|_| rest.is_empty()).map(|opened| opened.content.byte())
    };
    Play::new(input).run(&mut seal, &mut open, true);
}

/// Reads any datagram as both versions do, to its end.
fn walk(datagram: &[u8]) {
    let _ = identified(datagram);
    let mut rest = datagram;
    if is_sealed(datagram) {
        while let Some((_, after)) = Sealed::split(rest) {
            assert!(after.len() < rest.len());
            rest = after;
        }
    }
    while let Some((record, after)) = Record::split(rest) {
        assert!(after.len() < rest.len() && record.payload.len() <= usize::from(u16::MAX));
        assert!(record.version >> 8 == DTLS_1_2 >> 8 && record.sequence <= wire::SEQUENCE_MAX);
        let mut payload = record.payload;
        while let Some((fragment, more)) = Fragment::split(payload) {
            assert!(fragment.offset + fragment.body.len() <= fragment.length && more.len() < payload.len());
            payload = more;
        }
        rest = after;
    }
}
