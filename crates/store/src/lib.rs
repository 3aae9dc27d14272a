//! Storage that outlives the process: retained messages in a `fjall` tree on disk, and small records that doors keep
//! under keys of their own ([`FjallStore::put_record`]).
//!
//! The bus defines the trait, [`fogmux_bus::RetainedStore`]; [`FjallStore`] implements it. A publisher's call puts the
//! newest value of a topic into a coalescing `queue`. One thread, the `committer`, takes the queue, writes it,
//! synchronises once for all, and resolves the completions (ADR 0005).
//!
//! Guarantees: a completion that resolves with success means that the value is on disk as [`Durability`] says. After a
//! failed write or fsync the store is read-only, logs an error and never tries again; it is read-only from the start if
//! the disk is full or read-only. Damage on disk, lost commits included, is skipped, counted and logged, and never
//! keeps the gateway from starting. The store never blocks a caller and never logs a payload.

mod batch;
mod committer;
mod counters;
mod durability;
mod journal;
mod marks;
mod open;
mod queue;
pub mod record;
mod retained;
mod scratch;
mod tree;

pub use counters::{Counters, NotKept, Snapshot, State};
pub use durability::Durability;
pub use open::{OpenError, is_unwritable};
pub use retained::{FjallStore, RECORD_KEY_BYTES_MAX, StoreConfig};
