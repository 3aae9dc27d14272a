//! Parts of a gateway, besides listeners, that are not in service yet although nothing is wrong with them: they wait
//! for something that comes by itself, such as the time.

use std::sync::{Mutex, PoisonError};

/// The reason, for `/readyz`; `None` if nothing waits.
#[derive(Debug, Default)]
pub struct Waiting(Mutex<Option<String>>);

impl Waiting {
    /// Notes what waits, and for what.
    pub fn set(&self, why: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// Returns what waits, and for what.
    #[must_use]
    pub fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
