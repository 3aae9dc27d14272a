//! The window that lets no record in twice (RFC 6347 §4.1.2.6).

/// Which records of an epoch have been seen: the newest and the 63 before it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Window {
    newest: u64,
    seen: u64,
}

impl Window {
    /// The highest number that was noted; 0 when none was.
    pub(crate) const fn newest(&self) -> u64 {
        self.newest
    }

    /// Whether a record comes after all that were noted.
    pub(crate) const fn is_newest(&self, sequence: u64) -> bool {
        self.seen == 0 || sequence > self.newest
    }

    /// Whether a record may be new. Only one that is genuine is then noted.
    pub(crate) fn may_accept(&self, sequence: u64) -> bool {
        if self.seen == 0 || sequence > self.newest {
            return true;
        }
        let age = self.newest - sequence;
        age < 64 && self.seen & (1 << age) == 0
    }

    pub(crate) fn note(&mut self, sequence: u64) {
        if self.seen == 0 {
            *self = Self { newest: sequence, seen: 1 };
        } else if let Some(ahead) = sequence.checked_sub(self.newest).filter(|ahead| *ahead > 0) {
            self.seen = u32::try_from(ahead).ok().and_then(|ahead| self.seen.checked_shl(ahead)).unwrap_or(0) | 1;
            self.newest = sequence;
        } else if let Some(bit) = u32::try_from(self.newest - sequence).ok().and_then(|age| 1_u64.checked_shl(age)) {
            self.seen |= bit;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn s4_1_2_6_the_window_accepts_nothing_twice(numbers in proptest::collection::vec(0_u64..200, 0..300)) {
            let mut window = Window::default();
            let mut seen = HashSet::new();
            for number in numbers {
                if window.may_accept(number) {
                    window.note(number);
                    prop_assert!(seen.insert(number));
                }
            }
        }

        #[test]
        fn what_is_new_and_not_too_old_is_accepted(newest in 0_u64..1 << 48, age in 0_u64..64) {
            let mut window = Window::default();
            window.note(newest);
            prop_assert!(!window.may_accept(newest));
            if age > 0 && newest >= age {
                prop_assert!(window.may_accept(newest - age));
                window.note(newest - age);
                prop_assert!(!window.may_accept(newest - age));
            }
        }
    }
}
