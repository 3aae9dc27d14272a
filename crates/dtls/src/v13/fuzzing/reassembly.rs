//! Reassembly against a model that keeps a mark for each byte: overlapping and differing fragments, lengths that lie,
//! messages far ahead.

use std::collections::BTreeMap;

use super::input::Input;
use crate::{
    reassembly::{Fit, Reassembly},
    wire::{self, Fragment},
};

const BYTES_MAX: usize = 600;
/// As in `reassembly`.
const AHEAD: u16 = 5;
const PIECES: usize = 32;

struct Model {
    next: u16,
    partial: BTreeMap<u16, Partial>,
}

struct Partial {
    kind: u8,
    epoch: u16,
    body: Vec<u8>,
    /// For each byte, and for each place between two: what was covered. Fragments that touch share the place between.
    marks: Vec<bool>,
}

impl Model {
    fn push(&mut self, epoch: u16, fragment: &Fragment<'_>) -> Fit {
        let Some(ahead) = fragment.sequence.checked_sub(self.next) else { return Fit::Past };
        let taken: usize = self.partial.values().map(|partial| partial.body.len()).sum();
        let is_known = self.partial.contains_key(&fragment.sequence);
        if !is_known && (ahead >= AHEAD || taken + fragment.length > BYTES_MAX) {
            return Fit::Taken;
        }
        let partial = self.partial.entry(fragment.sequence).or_insert_with(|| Partial {
            kind: fragment.kind,
            epoch,
            body: vec![0; fragment.length],
            marks: vec![false; 2 * fragment.length + 1],
        });
        let fits = (partial.kind, partial.epoch, partial.body.len()) == (fragment.kind, epoch, fragment.length);
        if fits && partial.pieces() < PIECES {
            let (start, end) = (fragment.offset, fragment.offset + fragment.body.len());
            partial.body[start..end].copy_from_slice(fragment.body);
            partial.marks[2 * start..=2 * end].fill(true);
        }
        Fit::Taken
    }

    fn pop(&mut self) -> Option<Partial> {
        let partial = self.partial.get(&self.next)?;
        if !partial.marks.iter().all(|mark| *mark) {
            return None;
        }
        let whole = self.partial.remove(&self.next);
        self.next = self.next.checked_add(1)?;
        whole
    }
}

impl Partial {
    /// Runs of marks.
    fn pieces(&self) -> usize {
        let begins = |at: &usize| self.marks[*at] && (*at == 0 || !self.marks[*at - 1]);
        (0..self.marks.len()).filter(begins).count()
    }
}

/// One fragment of the fuzzer's, with its header: mostly one that fits, sometimes any.
fn fragment(input: &mut Input<'_>, next: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    let how = input.byte();
    // Near what is awaited, or anywhere.
    let sequence = if how & 0x80 == 0 { next.wrapping_add(u16::from(how & 7)).wrapping_sub(1) } else { input.number() };
    let kind = if how & 0x40 == 0 { 11 } else { input.byte() };
    match how >> 3 & 3 {
        // A piece of a message of which all bytes are known.
        0 | 1 => {
            let length = if how >> 3 & 3 == 0 { 40 } else { 250 };
            let offset = input.index(length + 1);
            let len = input.index(length - offset + 1);
            let body: Vec<u8> = (offset..offset + len).map(|at| u8::try_from(at % 251).unwrap_or_default()).collect();
            wire::put_fragment(&mut bytes, kind, sequence, length, offset, &body);
        }
        // Any bytes anywhere.
        2 => {
            let (length, offset) = (input.index(256), input.index(256));
            wire::put_fragment(&mut bytes, kind, sequence, length, offset, input.bytes());
        }
        // Numbers of three bytes that fit nothing.
        _ => {
            let (length, offset) = (usize::from(input.number()) << 8, usize::from(input.number()) << 8);
            wire::put_fragment(&mut bytes, kind, sequence, length, offset, input.bytes());
        }
    }
    bytes
}

/// Fragments in any order: what comes out, and when, is what the model says, and no more is kept than the bound.
pub fn reassembly(data: &[u8]) {
    let mut input = Input(data);
    // Up to the last number there is.
    let next = if input.byte() == 0 { u16::MAX - 2 } else { 1 };
    let mut ours = Reassembly::new(next, BYTES_MAX);
    let mut model = Model { next, partial: BTreeMap::new() };
    while let Some(epoch) = input.next() {
        let epoch = u16::from(epoch == 255);
        let bytes = fragment(&mut input, model.next);
        let Some((fragment, rest)) = Fragment::split(&bytes) else { continue };
        assert!(rest.is_empty() && fragment.offset + fragment.body.len() <= fragment.length);
        assert_eq!(ours.push(epoch, &fragment), model.push(epoch, &fragment));
        assert!(ours.bytes() <= BYTES_MAX, "{} bytes are kept", ours.bytes());
        loop {
            let expected = model.next;
            match (ours.pop(), model.pop()) {
                (Some(message), Some(partial)) => {
                    assert_eq!(message.sequence, expected);
                    assert_eq!((message.kind, message.epoch), (partial.kind, partial.epoch));
                    assert_eq!(message.body, partial.body);
                }
                (None, None) => break,
                (message, partial) => panic!("{message:?}, and the model: {}", partial.is_some()),
            }
        }
    }
}
