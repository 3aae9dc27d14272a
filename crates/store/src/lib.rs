//! Storage that outlives the process: one journal with one committer (ADR 0041), in which retained messages, small
//! records of doors, and whatever else must not be lost are kept side by side.
//!
//! The bus defines the trait [`fogmux_bus::RetainedStore`]; [`JournalStore`] implements it. Doors keep small records
//! under keys of their own ([`JournalStore::put_record`]). Other users put and forget records in atomic batches
//! ([`JournalStore::batch`], [`JournalStore::commit`]) and visit them at the start ([`JournalStore::visit`]). [`Kind`]
//! is the registry of what there is.
//!
//! Guarantees: a completion that resolves with success means that the value is on the disk as [`Durability`] says. One
//! that fails means that nothing of it is there after a restart, and that the bus has what it had before. A full disk
//! refuses what is put, never what is forgotten, and is found to have room again without a restart; so is a disk that
//! failed. Damage costs the records that it hit, is counted, logged and noted in a file, and never keeps the gateway
//! from starting. The store never blocks a caller and never logs a payload.

mod batch;
mod copy;
mod counters;
mod disk;
mod durability;
mod held;
mod kind;
mod ledger;
mod losses;
mod names;
mod open;
mod queue;
mod reader;
pub mod record;
mod sessions;
mod store;
mod watch;

pub use batch::Batch;
pub use copy::{CopyError, StoreFile, copy_at_rest};
pub use counters::{NotKept, Snapshot, State};
pub use disk::is_unwritable;
pub use durability::Durability;
pub use fogmux_journal::{CommitTimes, ReadError, RecordId, Times};
pub use kind::Kind;
pub use losses::FILE as LOSSES;
pub use open::OpenError;
pub use open::lock_file;
pub use store::{JournalStore, RECORD_KEY_BYTES_MAX, StoreConfig};
