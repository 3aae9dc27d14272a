//! Numbers that any thread may change and read.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn increment(&self) {
        self.add(1);
    }

    /// So many more.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    /// How many.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Up or down.
    pub fn change(&self, by: i64) {
        self.0.fetch_add(by, Relaxed);
    }

    /// The number.
    #[must_use]
    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
}
