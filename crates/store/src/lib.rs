//! Keeps what the bus must not lose: retained messages, in a `fjall` tree on disk, and beside them small records that
//! doors keep under keys of their own ([`FjallStore::put_record`]).
//!
//! The bus knows a trait, [`fogmux_bus::RetainedStore`]; its own [`fogmux_bus::Forgetful`] keeps nothing beyond the
//! process and completes at once, [`FjallStore`] writes. A publisher's call puts the newest value of a topic into a
//! coalescing `queue`; one thread, the `committer`, takes the queue, writes it, synchronises once for all who wait, and
//! resolves their completions (ADR 0005).
//!
//! What it promises: a completion that resolves with success means that the value is on disk as [`Durability`] says;
//! after a failed write or fsync it is read-only, says so loudly and never tries again; so it is from the start where the
//! disk is full or read-only. Damage on disk is skipped, counted and logged, values that were committed and are gone
//! included, and never keeps the gateway from starting. It never blocks a caller and never logs a payload.

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

pub use counters::{Counters, Snapshot, State};
pub use durability::Durability;
pub use open::OpenError;
pub use retained::{FjallStore, RECORD_KEY_BYTES_MAX, StoreConfig};
