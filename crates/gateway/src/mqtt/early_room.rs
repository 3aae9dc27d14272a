//! The memory for logins that are under way. Their senders are strangers: it is bounded apart from everything that
//! clients with a login hold, and when it is full the login that has waited longest for its client gives way.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

/// The logins that hold more than a little.
#[derive(Debug)]
pub(super) struct EarlyRoom {
    table: Mutex<Table>,
    bytes_max: usize,
}

/// The logins by age.
#[derive(Debug, Default)]
struct Table {
    next: u64,
    bytes: usize,
    held: BTreeMap<u64, Held>,
}

#[derive(Debug)]
struct Held {
    bytes: usize,
    /// Present while the client is waited for: then the login may be ended.
    waits: Option<Arc<Notify>>,
}

impl EarlyRoom {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { table: Mutex::default(), bytes_max }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of all logins.
    pub(super) fn bytes(&self) -> usize {
        self.table().bytes
    }

    /// Adds a login. Returns its number.
    pub(super) fn enter(&self) -> u64 {
        let mut table = self.table();
        let number = table.next;
        table.next += 1;
        table.held.insert(number, Held { bytes: 0, waits: None });
        number
    }

    /// A login holds so many bytes from now on. If that is more than there is room for, others end, the oldest first,
    /// and if that is not enough the login itself: [`wait`](Self::wait) tells it.
    pub(super) fn set(&self, number: u64, bytes: usize) {
        let mut table = self.table();
        let Some(held) = table.held.get_mut(&number) else { return };
        let before = std::mem::replace(&mut held.bytes, bytes);
        table.bytes = table.bytes - before + bytes;
        while table.bytes > self.bytes_max {
            let oldest = table.held.iter().find_map(|(other, held)| held.waits.is_some().then_some(*other));
            if let Some(waits) = table.remove(oldest.unwrap_or(number)) {
                waits.notify_one();
            }
            if oldest.is_none() {
                break;
            }
        }
    }

    /// A login waits for its client from now on, and may be ended by `ended` meanwhile. False if it has ended already.
    #[must_use]
    pub(super) fn wait(&self, number: u64, ended: &Arc<Notify>) -> bool {
        let mut table = self.table();
        let Some(held) = table.held.get_mut(&number) else { return false };
        held.waits = Some(Arc::clone(ended));
        true
    }

    /// A login no longer waits for its client.
    pub(super) fn wait_no_longer(&self, number: u64) {
        if let Some(held) = self.table().held.get_mut(&number) {
            held.waits = None;
        }
    }

    /// A login is over.
    pub(super) fn leave(&self, number: u64) {
        self.table().remove(number);
    }
}

impl Table {
    fn remove(&mut self, number: u64) -> Option<Arc<Notify>> {
        let held = self.held.remove(&number)?;
        self.bytes -= held.bytes;
        held.waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A login of `bytes` that waits for its client.
    fn login(room: &EarlyRoom, bytes: usize) -> u64 {
        let number = room.enter();
        room.set(number, bytes);
        let _ = room.wait(number, &Arc::default());
        number
    }

    fn is_there(room: &EarlyRoom, number: u64) -> bool {
        room.table().held.contains_key(&number)
    }

    #[test]
    fn the_oldest_that_waits_gives_way() {
        let room = EarlyRoom::new(100);
        let [first, second, third] = [50, 30, 20].map(|bytes| login(&room, bytes));
        room.wait_no_longer(first);
        let fourth = login(&room, 25);
        assert_eq!([first, second, third, fourth].map(|number| is_there(&room, number)), [true, false, true, true]);
        assert_eq!(room.bytes(), 95);
        assert!(!room.wait(second, &Arc::default()), "it has ended");
        room.leave(second);
        [first, third, fourth].into_iter().for_each(|number| room.leave(number));
        assert_eq!(room.bytes(), 0);
    }

    #[test]
    fn without_another_that_waits_the_newest_gives_way() {
        let room = EarlyRoom::new(100);
        let first = login(&room, 100);
        room.wait_no_longer(first);
        let second = room.enter();
        room.set(second, 1);
        assert!(is_there(&room, first) && !is_there(&room, second));
        assert_eq!(room.bytes(), 100);
    }

    #[test]
    fn one_that_grows_step_by_step_is_counted_once() {
        let room = EarlyRoom::new(100);
        let other = login(&room, 10);
        let growing = room.enter();
        for bytes in 1..=90 {
            room.set(growing, bytes);
        }
        assert_eq!(room.bytes(), 100);
        room.set(growing, 91);
        assert!(!is_there(&room, other));
        assert_eq!(room.bytes(), 91);
    }
}
