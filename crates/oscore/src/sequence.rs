//! Sender Sequence Numbers (RFC 8613 §7.2), of which none is used before it is on the disk that it may have been
//! (appendix B.1.1): numbers are taken from a chunk, and the next chunk is asked for when half of this one is used.

use std::sync::Arc;

use crate::context::Context;
use crate::partial_iv::{PartialIv, SEQUENCE_MAX};

/// Numbers in a chunk. A write to the disk for each 1024 notifications costs little, and 2^40 numbers are enough for a
/// thousand million restarts.
pub const CHUNK: u64 = 1024;

/// Writes down how far numbers may have been used. Called with no lock held, from whichever thread used a number; it
/// must not wait for the disk.
pub trait SequenceStore: Send + Sync {
    /// Once it is certain that even a power cut will not undo it, [`Reservation::is_durable`] is to be called; to drop
    /// the reservation means that it failed, and it will be asked for again.
    fn reserve(&self, reservation: Reservation);
}

/// A wish to use more numbers.
#[derive(Debug)]
pub struct Reservation {
    context: Arc<Context>,
    below: u64,
}

impl Reservation {
    pub(crate) const fn new(context: Arc<Context>, below: u64) -> Self {
        Self { context, below }
    }

    /// For which context.
    #[must_use]
    pub const fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// All numbers below this may have been used from now on.
    #[must_use]
    pub const fn below(&self) -> u64 {
        self.below
    }

    /// It is written.
    pub fn is_durable(self) {
        self.context.numbers_durable(self.below);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.context.reservation_over(self.below);
    }
}

/// Why there is no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoNumber {
    #[error("the next sequence numbers are not on the disk yet")]
    NotDurable,
    #[error("all sequence numbers are used (RFC 8613 §7.2.1)")]
    Exhausted,
}

/// The numbers of one context.
#[derive(Debug)]
pub(crate) struct Numbers {
    next: u64,
    durable: u64,
    asked: u64,
}

impl Numbers {
    /// From `next` on; those below `durable` may be used at once.
    pub(crate) const fn new(next: u64, durable: u64) -> Self {
        Self { next, durable, asked: durable }
    }

    pub(crate) fn take(&mut self) -> Result<PartialIv, NoNumber> {
        let number = PartialIv::of(self.next).ok_or(NoNumber::Exhausted)?;
        if self.next >= self.durable {
            return Err(NoNumber::NotDurable);
        }
        self.next += 1;
        Ok(number)
    }

    /// Returns the number up to which to reserve, if few are left. It is returned only once for each reservation.
    pub(crate) fn wish(&mut self) -> Option<u64> {
        let short = self.durable.saturating_sub(self.next) <= CHUNK / 2;
        if !short || self.asked > self.durable || self.durable > SEQUENCE_MAX {
            return None;
        }
        self.asked = self.durable.max(self.next) + CHUNK;
        Some(self.asked)
    }

    pub(crate) fn durable_below(&mut self, below: u64) {
        self.durable = self.durable.max(below);
    }

    /// The reservation of `below` is over, whether it was written or not.
    pub(crate) fn reservation_over(&mut self, below: u64) {
        if self.asked == below && self.durable < below {
            self.asked = self.durable;
        }
    }

    /// The first number that has not been used.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b_1_1_no_number_before_its_chunk_is_durable() {
        let mut numbers = Numbers::new(0, 0);
        assert_eq!(numbers.take(), Err(NoNumber::NotDurable));
        assert_eq!((numbers.wish(), numbers.wish()), (Some(CHUNK), None));
        numbers.reservation_over(CHUNK);
        assert_eq!(numbers.wish(), Some(CHUNK));
        numbers.durable_below(CHUNK);
        numbers.reservation_over(CHUNK);
        for expected in 0..CHUNK / 2 {
            assert_eq!(numbers.wish(), None);
            assert_eq!(numbers.take().map(|number| number.number()), Ok(expected));
        }
        assert_eq!(numbers.wish(), Some(2 * CHUNK));
        for _ in 0..CHUNK / 2 {
            assert!(numbers.take().is_ok());
        }
        assert_eq!(numbers.take(), Err(NoNumber::NotDurable));
    }

    #[test]
    fn s7_2_1_no_number_after_the_last() {
        let mut numbers = Numbers::new(SEQUENCE_MAX, SEQUENCE_MAX + 1);
        assert!(numbers.take().is_ok());
        assert_eq!(numbers.take(), Err(NoNumber::Exhausted));
        assert_eq!(numbers.wish(), None);
    }
}
