//! Deadlines by the thousand: one wheel per worker instead of a timer per connection. Pure: the time is an argument.
//!
//! Entries are sorted into slots by the tick they are due in. Moving a deadline later – what every packet does to a
//! keep-alive – costs nothing: the owner keeps its true deadline and answers [`Due::Later`] when the wheel asks.

/// A wheel of deadlines in milliseconds. `T` names what is due; keep it small.
#[derive(Debug)]
pub struct Wheel<T> {
    tick_ms: u64,
    /// The tick up to which everything has been handed out.
    now_tick: u64,
    slots: Box<[Vec<Entry<T>>]>,
    len: usize,
}

#[derive(Debug)]
struct Entry<T> {
    due_ms: u64,
    what: T,
}

/// What the owner says of an entry whose time has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// It is done with.
    Done,
    /// Its deadline has moved to this time.
    Later(u64),
}

impl<T> Wheel<T> {
    /// A wheel that looks every `tick_ms` and sorts deadlines within the next `slots` ticks; later ones are kept and
    /// looked at once a turn.
    #[must_use]
    pub fn new(tick_ms: u64, slots: usize, now_ms: u64) -> Self {
        let tick_ms = tick_ms.max(1);
        Self { tick_ms, now_tick: now_ms / tick_ms, slots: (0..slots.max(2)).map(|_| Vec::new()).collect(), len: 0 }
    }

    /// Adds a deadline. It is handed out by the first [`Self::advance`] at least one tick later, never before its time.
    pub fn insert(&mut self, due_ms: u64, what: T) {
        self.len += 1;
        self.place(Entry { due_ms, what });
    }

    /// Deadlines held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no deadlines are held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// When to call [`Self::advance`] next: the end of the current tick, or never when nothing is held.
    #[must_use]
    pub fn next_ms(&self) -> Option<u64> {
        (!self.is_empty()).then(|| self.now_tick.saturating_add(1).saturating_mul(self.tick_ms))
    }

    /// Hands out everything due by `now_ms` to `decide`. Takes time in proportion to what is due, and to the ticks passed,
    /// at most one turn of the wheel.
    pub fn advance(&mut self, now_ms: u64, mut decide: impl FnMut(&mut T) -> Due) {
        let target = now_ms / self.tick_ms;
        let slots = u64::try_from(self.slots.len()).unwrap_or(u64::MAX);
        // After a long sleep one turn looks at every slot.
        let mut tick = target.saturating_sub(slots).max(self.now_tick);
        while tick < target {
            tick += 1;
            self.now_tick = tick;
            let taken = std::mem::take(self.slot(tick));
            let mut kept = Vec::new();
            for mut entry in taken {
                if entry.due_ms <= now_ms {
                    match decide(&mut entry.what) {
                        Due::Done => {
                            self.len -= 1;
                            continue;
                        }
                        Due::Later(due_ms) => entry.due_ms = due_ms,
                    }
                }
                kept.push(entry);
            }
            for entry in kept {
                self.place(entry);
            }
        }
    }

    /// The tick after the deadline's, so that it is never early; at least the next, at most one turn ahead.
    fn place(&mut self, entry: Entry<T>) {
        let turn = u64::try_from(self.slots.len()).unwrap_or(u64::MAX) - 1;
        let tick = (entry.due_ms / self.tick_ms).saturating_add(1);
        let tick = tick.clamp(self.now_tick.saturating_add(1), self.now_tick.saturating_add(turn));
        self.slot(tick).push(entry);
    }

    fn slot(&mut self, tick: u64) -> &mut Vec<Entry<T>> {
        let count = self.slots.len();
        let index = usize::try_from(tick % u64::try_from(count).unwrap_or(u64::MAX)).unwrap_or_default();
        self.slots.get_mut(index).expect("the index is below the number of slots")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_deadline_that_moves_is_asked_about_once_a_period() {
        let mut wheel = Wheel::new(100, 16, 0);
        wheel.insert(1000, "keep-alive");
        let mut asked = Vec::new();
        for now in (0..10_000).step_by(100) {
            wheel.advance(now, |_| {
                asked.push(now);
                if now < 5000 { Due::Later(now + 1000) } else { Due::Done }
            });
        }
        assert_eq!(asked.len(), 5, "{asked:?}");
        assert!(wheel.is_empty() && wheel.next_ms().is_none());
    }

    proptest! {
        #[test]
        fn everything_is_handed_out_once_never_early_and_at_most_two_ticks_late(
            deadlines in proptest::collection::vec(0_u64..20_000, 1..60),
            steps in proptest::collection::vec(1_u64..3_000, 1..60),
        ) {
            let mut wheel = Wheel::new(50, 8, 0);
            for (number, due) in deadlines.iter().enumerate() {
                wheel.insert(*due, (number, *due));
            }
            let mut seen = vec![0; deadlines.len()];
            let (mut now, mut before) = (0, 0);
            for step in steps.into_iter().chain([25_000, 100, 1000]) {
                now += step;
                wheel.advance(now, |(number, due)| {
                    seen[*number] += 1;
                    assert!(*due <= now, "early");
                    assert!(*due + 100 > before, "later than the advance before");
                    Due::Done
                });
                before = now;
            }
            prop_assert!(wheel.is_empty());
            prop_assert!(seen.iter().all(|count| *count == 1));
        }
    }
}
