//! Numbers that any thread may change and read.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts one more.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Counts `count` more.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    /// Returns the number.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Adds `by`, which may be negative.
    pub fn change(&self, by: i64) {
        self.0.fetch_add(by, Relaxed);
    }

    /// Returns the number.
    #[must_use]
    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
}
