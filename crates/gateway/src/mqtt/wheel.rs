//! A hashed timer wheel (Varghese and Lauck, scheme 6): the alarms of connections, to a twentieth of a second.
//!
//! A timer in each connection would cost five times the memory. Setting, moving and removing an alarm takes a few
//! writes, and a tick looks only at the alarms in its slot: about one in [`SLOTS`]. Ticks without an alarm need no run:
//! [`Wheel::next`] returns when the next alarm is due.

use std::time::Duration;

use fogmux_bus::Timestamp;

/// Slots of one tick each, 102 s together: a keep alive of a minute is looked at once.
const SLOTS: usize = 2048;
/// Milliseconds of a tick: half of the permitted lateness of an alarm; the other half is the worker's.
const TICK_MS: u64 = 50;
/// No entry.
const NONE: u32 = u32::MAX;

/// Identifies an entry for as long as it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry(u32);

#[derive(Debug)]
struct Node<T> {
    /// `None` if it is free; `next` is then the next free entry.
    value: Option<T>,
    /// The tick of the alarm; [`u64::MAX`] without one.
    due: u64,
    previous: u32,
    next: u32,
}

/// Values, some with an alarm.
#[derive(Debug)]
pub(super) struct Wheel<T> {
    nodes: Vec<Node<T>>,
    /// The first entry of each slot.
    heads: [u32; SLOTS],
    free: u32,
    /// The last tick that has rung.
    tick: u64,
}

impl<T> Default for Wheel<T> {
    fn default() -> Self {
        Self { nodes: Vec::new(), heads: [NONE; SLOTS], free: NONE, tick: 0 }
    }
}

impl<T: Clone> Wheel<T> {
    /// Adds a value without an alarm. `None` if there are four billion.
    pub(super) fn insert(&mut self, value: T) -> Option<Entry> {
        let node = Node { value: Some(value), due: u64::MAX, previous: NONE, next: NONE };
        if self.free == NONE {
            let index = u32::try_from(self.nodes.len()).ok().filter(|index| *index != NONE)?;
            self.nodes.push(node);
            return Some(Entry(index));
        }
        let index = self.free;
        let free = self.node(index)?;
        let after = free.next;
        *free = node;
        self.free = after;
        Some(Entry(index))
    }

    /// Removes a value.
    pub(super) fn remove(&mut self, entry: Entry) {
        self.unlink(entry.0);
        let free = self.free;
        if let Some(node) = self.node(entry.0).filter(|node| node.value.is_some()) {
            *node = Node { value: None, due: u64::MAX, previous: NONE, next: free };
            self.free = entry.0;
        }
    }

    /// Sets the alarm to the first tick at or after `due`, replacing the one before. Returns when it rings.
    pub(super) fn set(&mut self, entry: Entry, due: Timestamp) -> Timestamp {
        self.unlink(entry.0);
        if due == Timestamp::NEVER {
            return Timestamp::NEVER;
        }
        let tick = due.as_millis().div_ceil(TICK_MS).max(self.tick + 1);
        let slot = slot(tick);
        let Some(head) = self.heads.get_mut(slot) else { return Timestamp::NEVER };
        let next = std::mem::replace(head, entry.0);
        if let Some(node) = self.node(entry.0) {
            (node.due, node.previous, node.next) = (tick, NONE, next);
        }
        if let Some(node) = self.node(next) {
            node.previous = entry.0;
        }
        Timestamp::from_millis(tick * TICK_MS)
    }

    /// When the next alarm rings, or the end of `within` from the last tick that has rung, whichever is earlier.
    pub(super) fn next(&mut self, within: Duration) -> Timestamp {
        let ticks = u64::try_from(within.as_millis()).unwrap_or(u64::MAX) / TICK_MS;
        let last = self.tick.saturating_add(ticks);
        let tick = (self.tick + 1..last).find(|tick| self.rings_at(*tick)).unwrap_or(last);
        Timestamp::from_millis(tick * TICK_MS)
    }

    fn rings_at(&mut self, tick: u64) -> bool {
        let mut index = self.heads.get(slot(tick)).copied().unwrap_or(NONE);
        while let Some(node) = self.node(index) {
            if node.due == tick {
                return true;
            }
            index = node.next;
        }
        false
    }

    /// The values whose alarm is due, each once.
    pub(super) fn ring(&mut self, now: Timestamp) -> Vec<T> {
        let (first, last) = (self.tick + 1, now.as_millis() / TICK_MS);
        let mut rung = Vec::new();
        // After a long sleep one round is enough.
        let round = u64::try_from(SLOTS).unwrap_or(u64::MAX);
        for tick in first.max((last + 1).saturating_sub(round))..=last {
            let mut index = self.heads.get(slot(tick)).copied().unwrap_or(NONE);
            while let Some(node) = self.node(index) {
                let (due, next) = (node.due, node.next);
                if due <= last {
                    rung.extend(node.value.clone());
                    self.unlink(index);
                }
                index = next;
            }
        }
        self.tick = self.tick.max(last);
        rung
    }

    /// All values.
    pub(super) fn all(&self) -> Vec<T> {
        self.nodes.iter().filter_map(|node| node.value.clone()).collect()
    }

    fn node(&mut self, index: u32) -> Option<&mut Node<T>> {
        self.nodes.get_mut(usize::try_from(index).unwrap_or(usize::MAX))
    }

    fn unlink(&mut self, index: u32) {
        let Some(node) = self.node(index).filter(|node| node.due != u64::MAX) else { return };
        let (due, previous, next) = (node.due, node.previous, node.next);
        (node.due, node.previous, node.next) = (u64::MAX, NONE, NONE);
        if let Some(node) = self.node(next) {
            node.previous = previous;
        }
        match self.node(previous) {
            Some(node) => node.next = next,
            None => {
                if let Some(head) = self.heads.get_mut(slot(due)) {
                    *head = next;
                }
            }
        }
    }
}

fn slot(tick: u64) -> usize {
    usize::try_from(tick % u64::try_from(SLOTS).unwrap_or(1)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn an_alarm_rings_once_at_the_first_tick_after_it() {
        let mut wheel = Wheel::default();
        let (a, b) = (wheel.insert("a").unwrap(), wheel.insert("b").unwrap());
        assert_eq!(wheel.set(a, at(1451)), at(1500));
        wheel.set(b, at(1_000_000));
        assert_eq!((wheel.next(Duration::from_secs(1)), wheel.next(Duration::from_secs(9))), (at(1000), at(1500)));
        assert!(wheel.ring(at(1499)).is_empty());
        assert_eq!(wheel.next(Duration::from_secs(1)), at(1500));
        assert_eq!(wheel.ring(at(1500)), ["a"]);
        assert!(wheel.ring(at(900_000)).is_empty());
        wheel.set(b, Timestamp::NEVER);
        assert!(wheel.ring(at(2_000_000)).is_empty());
        wheel.set(a, at(5));
        assert_eq!(wheel.ring(at(2_001_000)), ["a"], "one that is late already");
        wheel.remove(a);
        assert_eq!(wheel.all(), ["b"]);
        assert_eq!(wheel.insert("c").unwrap(), a, "the place is taken again");
        assert_eq!(wheel.nodes.len(), 2);
    }

    proptest! {
        /// Against a map that is asked whole; time is in tenths of a tick.
        #[test]
        fn a_wheel_is_a_list_of_alarms(steps in prop::collection::vec((0..20_usize, 0..400_u64, 0..5_u8), 1..200)) {
            let mut wheel = Wheel::default();
            let mut entries: BTreeMap<usize, Entry> = BTreeMap::new();
            let mut model: BTreeMap<usize, u64> = BTreeMap::new();
            let mut now = 0;
            for (who, ahead, what) in steps {
                match (what, entries.get(&who).copied()) {
                    (0, Some(entry)) => {
                        wheel.remove(entry);
                        entries.remove(&who);
                        model.remove(&who);
                    }
                    (1, _) => {
                        now += ahead * 10;
                        let mut rung = wheel.ring(at(now * 5));
                        rung.sort_unstable();
                        let due: Vec<usize> =
                            model.iter().filter(|(_, due)| **due <= now / 10).map(|(who, _)| *who).collect();
                        prop_assert_eq!(&rung, &due);
                        model.retain(|who, _| !due.contains(who));
                    }
                    (_, Some(entry)) => {
                        let tick = (now + ahead).div_ceil(10).max(wheel.tick + 1);
                        prop_assert_eq!(wheel.set(entry, at((now + ahead) * 5)), at(tick * 50));
                        model.insert(who, tick);
                    }
                    (_, None) => drop(entries.insert(who, wheel.insert(who).unwrap())),
                }
                let next = model.values().copied().min().unwrap_or(u64::MAX).min(wheel.tick + 20);
                prop_assert_eq!(wheel.next(Duration::from_secs(1)), at(next * 50));
            }
            prop_assert_eq!(wheel.all().len(), entries.len());
        }
    }
}
