//! The replay window (RFC 8613 §7.4): which of the newest sequence numbers have been seen.
//!
//! A ring of bits as in RFC 6479, so that sliding moves nothing. It is larger than the 32 of RFC 8613 §3.2.2, because
//! the requests of one context may be read by several workers, which are not equally far: at 80 000 requests a second,
//! one that gets no processor for 10 ms is 800 numbers behind.

/// 1 KiB, allocated at the first request of a context.
const WORDS: usize = 128;
const WORD_BITS: u64 = 64;
const RING_BITS: u64 = WORD_BITS * WORDS as u64;

/// The distance that a number may be behind the newest; one word of the ring is always being cleared.
pub(crate) const WINDOW: u64 = RING_BITS - WORD_BITS;

/// The sequence numbers received so far, as a ring of bits (RFC 8613 §7.4).
#[derive(Clone, Debug)]
pub(crate) struct ReplayWindow {
    /// The newest number received, plus one.
    next: u64,
    /// Numbers below it are refused, whatever their bits are.
    lowest: u64,
    /// Empty before the first number.
    bits: Vec<u64>,
}

impl ReplayWindow {
    /// Nothing seen, and everything from `lowest` on is new (RFC 8613 appendix B.1.2).
    pub(crate) const fn starting_at(lowest: u64) -> Self {
        Self { next: lowest, lowest, bits: Vec::new() }
    }

    /// Whether a number has not been seen, as far as is known.
    pub(crate) fn is_new(&self, number: u64) -> bool {
        if number >= self.next {
            return true;
        }
        if number < self.lowest || self.next - number > WINDOW {
            return false;
        }
        self.bits.get(word(number)).is_none_or(|word| word & bit(number) == 0)
    }

    /// Notes a number; `false` when it has been seen or is too old.
    pub(crate) fn accept(&mut self, number: u64) -> bool {
        if !self.is_new(number) {
            return false;
        }
        self.bits.resize(WORDS, 0);
        if number >= self.next {
            self.slide_to(number);
        }
        if let Some(word) = self.bits.get_mut(word(number)) {
            *word |= bit(number);
        }
        true
    }

    /// Clears the words that are entered anew.
    fn slide_to(&mut self, number: u64) {
        // The word of `next - 1` is in use already; before the first number, none is.
        let first = if self.next == 0 { 0 } else { (self.next - 1) / WORD_BITS + 1 };
        let last = number / WORD_BITS;
        let words = WORDS as u64;
        for entered in first.max((last + 1).saturating_sub(words))..=last {
            if let Some(word) = self.bits.get_mut(usize::try_from(entered % words).unwrap_or(0)) {
                *word = 0;
            }
        }
        self.next = number + 1;
    }
}

fn word(number: u64) -> usize {
    usize::try_from((number / WORD_BITS) % WORDS as u64).unwrap_or(0)
}

const fn bit(number: u64) -> u64 {
    1 << (number % WORD_BITS)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn s7_4_no_number_twice() {
        let mut window = ReplayWindow::starting_at(0);
        assert!(window.accept(0) && !window.accept(0));
        assert!(window.accept(31) && window.accept(1) && !window.accept(1));
        assert!(window.accept(50_000) && !window.accept(31));
        assert!(window.accept(50_001 - WINDOW) && !window.accept(50_000 - WINDOW));
    }

    #[test]
    fn b_1_2_nothing_below_the_lower_limit() {
        let mut window = ReplayWindow::starting_at(1000);
        assert!(!window.accept(999));
        assert!(window.accept(1000) && window.accept(1003) && window.accept(1001));
        assert!(!window.accept(1001) && !window.accept(999));
        assert_eq!(window.next, 1004);
    }

    proptest! {
        /// Against a set of all that was accepted.
        #[test]
        fn agrees_with_a_set(start in 0_u64..30_000, steps in prop::collection::vec(-9000_i64..9000, 1..400)) {
            let (mut window, mut seen, mut newest) = (ReplayWindow::starting_at(start), HashSet::new(), start);
            for step in steps {
                let number = newest.saturating_add_signed(step);
                let in_reach = number >= start && number + WINDOW > newest;
                let expected = number >= newest && !seen.contains(&number) || (in_reach && !seen.contains(&number));
                // Before anything is seen, `newest` stands for nothing.
                let accepted = window.accept(number);
                if accepted {
                    prop_assert!(seen.insert(number));
                    newest = newest.max(number);
                } else {
                    prop_assert!(!expected || seen.contains(&number) || seen.is_empty());
                }
            }
        }
    }
}
