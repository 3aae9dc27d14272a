//! Sessions that outlive the process: their records, the changes that their events make, and their recovery (ADR 0042).
//!
//! A [`SessionLog`] turns the events of a session into changes of a [`Batch`], which a [`SessionStore`] writes as one.
//! [`Recovered::load`] puts sessions together again from what the store has. Nothing here waits for the disk: the owner
//! of a session appends the batch, and lets its acknowledgement wait for the [`Completion`](crate::Completion).
//!
//! Guarantees: after any number of appended batches, sessions are restored as they were then. A record that is missing
//! costs what it says, and never the start. A message is in the store once, however many sessions wait for it, and no
//! longer than one of them does.
//!
//! A message that the store has need not stay in memory: it is read back when its client comes (ADR 0073).

mod bytes;
mod doubts;
mod earlier;
mod foreign;
mod gather;
mod log;
mod memory;
mod message;
mod read_back;
mod record;
mod recovery;
mod released;
mod replaced;
mod store;

pub(crate) use self::earlier::Earlier;
pub use self::{
    bytes::RecordError,
    gather::Gather,
    log::{SessionLog, StoredDelivery},
    memory::MemoryStore,
    message::StoredMessage,
    read_back::{MessagesRead, ReadBack, ReadBackAnswer},
    record::{Manner, Record, RecordId, Sequence, SessionRecord, Vouched, Wanted},
    recovery::{AwayMessage, Losses, Recovered, RestoredDelivery, RestoredSession, RestoredWill, session_left},
    store::{Batch, Gathering, Parcel, SessionStore},
};
