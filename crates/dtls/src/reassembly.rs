//! Handshake messages put together from fragments that come in any order (RFC 6347 §4.2.3), under a bound.

use super::{
    Alert,
    wire::{self, Fragment, message},
};

/// Messages ahead of the one that is awaited that are kept: a client's last flight has four.
const AHEAD: u16 = 5;
/// Separate pieces of one message that are kept track of.
const PIECES: usize = 32;

/// Handshake fragments that are not whole yet, or whose turn has not come.
pub(super) struct Reassembly {
    next: u16,
    partial: Vec<Partial>,
    bytes_max: usize,
}

struct Partial {
    kind: u8,
    sequence: u16,
    /// Of the epoch that its fragments came in; all the same.
    epoch: u16,
    body: Vec<u8>,
    /// Received ranges: sorted, not touching.
    pieces: Vec<(usize, usize)>,
}

/// A message, whole and in its turn.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: u8,
    pub(super) sequence: u16,
    pub(super) epoch: u16,
    pub(super) body: Vec<u8>,
}

impl Message {
    /// As transcripts have it.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        wire::put_message(out, self.kind, self.sequence, &self.body);
    }
}

/// The outcome of adding a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// Kept, or too much to be kept.
    Taken,
    /// Of a message that was dealt with before: the other end has not heard our answer.
    Past,
}

impl Reassembly {
    /// `next` is awaited first; unfinished messages may have `bytes_max` together.
    pub(super) const fn new(next: u16, bytes_max: usize) -> Self {
        Self { next, partial: Vec::new(), bytes_max }
    }

    pub(super) fn push(&mut self, epoch: u16, fragment: &Fragment<'_>) -> Fit {
        let Some(ahead) = fragment.sequence.checked_sub(self.next) else { return Fit::Past };
        let known = self.partial.iter_mut().find(|partial| partial.sequence == fragment.sequence);
        if let Some(partial) = known {
            partial.add(epoch, fragment);
            return Fit::Taken;
        }
        let bytes: usize = self.partial.iter().map(|partial| partial.body.len()).sum();
        if ahead < AHEAD && bytes + fragment.length <= self.bytes_max {
            let body = vec![0; fragment.length];
            let (kind, sequence) = (fragment.kind, fragment.sequence);
            let mut partial = Partial { kind, sequence, epoch, body, pieces: Vec::new() };
            partial.add(epoch, fragment);
            self.partial.push(partial);
        }
        Fit::Taken
    }

    /// Takes in all fragments of a record of DTLS 1.3.
    ///
    /// # Errors
    /// The alert with which the handshake ends: RFC 8446 §5.4 has no record without content, §5.1 nothing behind the
    /// last message under a key.
    pub(super) fn push_all(&mut self, mut payload: &[u8]) -> Result<(), Alert> {
        if payload.is_empty() {
            return Err(Alert::UnexpectedMessage);
        }
        let mut is_last = false;
        while !payload.is_empty() {
            let (fragment, rest) = Fragment::split(payload).ok_or(Alert::DecodeError)?;
            if is_last {
                return Err(Alert::UnexpectedMessage);
            }
            payload = rest;
            self.push(0, &fragment);
            is_last = fragment.kind == message::FINISHED;
        }
        Ok(())
    }

    /// Bytes that are kept.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn bytes(&self) -> usize {
        self.partial.iter().map(|partial| partial.body.len()).sum()
    }

    /// The message whose turn it is, once it is whole.
    pub(super) fn pop(&mut self) -> Option<Message> {
        let at = self.partial.iter().position(|partial| partial.sequence == self.next && partial.is_whole())?;
        let Partial { kind, sequence, epoch, body, .. } = self.partial.swap_remove(at);
        self.next = self.next.checked_add(1)?;
        Some(Message { kind, sequence, epoch, body })
    }
}

impl Partial {
    fn add(&mut self, epoch: u16, fragment: &Fragment<'_>) {
        let fits = self.kind == fragment.kind && self.body.len() == fragment.length && self.epoch == epoch;
        if !fits || self.pieces.len() >= PIECES {
            return;
        }
        let (start, end) = (fragment.offset, fragment.offset + fragment.body.len());
        let Some(place) = self.body.get_mut(start..end) else { return };
        place.copy_from_slice(fragment.body);
        let (mut from, mut to) = (start, end);
        self.pieces.retain(|(a, b)| {
            let apart = *b < from || to < *a;
            if !apart {
                (from, to) = (from.min(*a), to.max(*b));
            }
            apart
        });
        let at = self.pieces.partition_point(|(a, _)| *a < from);
        self.pieces.insert(at, (from, to));
    }

    fn is_whole(&self) -> bool {
        self.pieces.first() == Some(&(0, self.body.len()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fragment(sequence: u16, whole: &[u8], from: usize, to: usize) -> Fragment<'_> {
        Fragment { kind: 11, length: whole.len(), sequence, offset: from, body: &whole[from..to] }
    }

    #[test]
    fn an_empty_message_is_whole_at_once() {
        let mut parts = Reassembly::new(0, 100);
        assert_eq!(parts.push(0, &fragment(0, &[], 0, 0)), Fit::Taken);
        assert_eq!(parts.pop().unwrap().body, []);
        assert_eq!(parts.push(0, &fragment(0, &[], 0, 0)), Fit::Past);
    }

    #[test]
    fn too_much_is_not_kept() {
        let mut parts = Reassembly::new(0, 100);
        parts.push(0, &fragment(0, &[1; 101], 0, 1));
        parts.push(0, &fragment(AHEAD, &[1; 10], 0, 10));
        assert!(parts.partial.is_empty());
    }

    proptest! {
        #[test]
        fn s4_2_3_order_overlap_and_repetition_change_nothing(
            body in proptest::collection::vec(any::<u8>(), 1..200),
            cuts in proptest::collection::vec((0_usize..200, 1_usize..60), 0..20),
        ) {
            let mut parts = Reassembly::new(7, 4096);
            for (from, len) in cuts {
                let from = from.min(body.len());
                parts.push(0, &fragment(7, &body, from, (from + len).min(body.len())));
            }
            for from in (0..body.len()).step_by(50).rev() {
                parts.push(0, &fragment(7, &body, from, (from + 50).min(body.len())));
            }
            prop_assert_eq!(parts.pop().unwrap().body, body);
        }
    }
}
