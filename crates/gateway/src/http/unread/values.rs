//! The bytes that answers share, which count once.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;

use crate::unfinished::{Place, Unfinished};

/// Bytes of an answer that are not counted.
pub(in crate::http) const SMALL_BYTES: usize = 4 << 10;

/// The bytes that answers share, such as those of a message that many read at once: they count once, for one of the
/// answers; the others count as small ones. When that answer goes, another one counts.
#[derive(Debug, Default)]
pub(in crate::http) struct Values(Mutex<HashMap<usize, Vec<u64>>>);

impl Values {
    fn lock(&self) -> MutexGuard<'_, HashMap<usize, Vec<u64>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The weight of one more answer with these bytes.
    pub(super) fn weight(&self, bytes: &Bytes) -> usize {
        if self.lock().contains_key(&address(bytes)) { SMALL_BYTES } else { bytes.len() }
    }

    pub(super) fn enter(&self, bytes: &Bytes, place: &Place) {
        if let Some(number) = place.number() {
            self.lock().entry(address(bytes)).or_default().push(number);
        }
    }

    pub(super) fn leave(&self, bytes: &Bytes, place: &Place, all: &Unfinished) {
        let Some(number) = place.number() else { return };
        let mut values = self.lock();
        let Entry::Occupied(mut holders) = values.entry(address(bytes)) else { return };
        let counted = holders.get().first() == Some(&number);
        holders.get_mut().retain(|other| *other != number);
        if counted {
            // Those that gave way are still there for a moment.
            let next = holders.get().iter().position(|other| all.weigh(*other, bytes.len()));
            if let Some(next) = next {
                holders.get_mut().swap(0, next);
            }
        }
        if holders.get().is_empty() {
            holders.remove();
        }
    }
}

/// The address of bytes is theirs for as long as an answer holds them.
fn address(bytes: &Bytes) -> usize {
    bytes.as_ptr().addr()
}
