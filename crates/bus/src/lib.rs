//! The bus: topics, messages, subscriptions, routing, mailboxes, sessions and retained messages.
//!
//! It knows no protocol, opens no socket, reads no clock and starts no task: time is an argument (`now`), and the owner
//! of a mailbox hands in the [`std::task::Waker`] to be woken by. A worker that times deliveries is handed its clock.
//! [`Worker::publish`] matches a publication against the subscription tree through a per-worker cache of routes, groups
//! deliveries by destination, and hands them to each destination's [`Mailbox`] under one lock; each other worker is
//! woken once.
//!
//! Guarantees: publications of one publisher on one topic reach every subscriber in order. Retained publications of all
//! publishers on one topic reach the retained messages, the store and every subscriber in one order. A slow subscriber
//! never blocks a publisher. Nothing grows past a configured limit. Every drop is counted.

mod account;
mod bus;
mod completions;
mod copies;
mod counters;
mod door;
pub mod durable;
mod fifo;
mod filter;
mod footprint;
mod group;
mod id;
mod limits;
mod mailbox;
mod meaning;
mod memory;
mod message;
mod order;
mod outcome;
mod retained;
mod route;
mod sampling;
mod session;
mod share;
mod slot;
mod slow_down;
mod subscription;
mod topic;
#[cfg(feature = "traces")]
mod tracer;
mod tree;
mod wake_list;
mod worker;

pub use account::Account;
pub use bus::{Bus, BusConfig, TooManySubscriptions};
pub use completions::Completions;
pub use counters::{ByDoor, Counters};
pub use door::Door;
pub use fifo::{FifoLimits, FifoMailbox, Queued};
pub use filter::{Filter, FilterError};
pub use fogmux_time::Timestamp;
pub use footprint::{COUNTS_BYTES, allocation};
pub use id::{SlotId, WorkerId};
pub use limits::{DELIVERIES_PER_TURN, FILTER_BYTES_MAX, LEVELS_MAX, TOPIC_BYTES_MAX};
pub use mailbox::{Delivered, Delivery, Mailbox, Readiness};
pub use meaning::{Clearing, Meaning};
pub use memory::{Memory, Relieved};
pub use message::{Message, MessageId, Payload, Precondition, Properties, Publication, Publisher, Qos, etag};
pub use outcome::Outcome;
pub use retained::{
    ClockSet, Completer, Completion, Eventual, Forgetful, RetainedChunk, RetainedError, RetainedStore, StoreFailed,
    Stored, Undo,
};
pub use sampling::Sample;
pub use session::{Asked, AttachError, Attached, Departure, GaveWay, ListedSession, SessionKey, Sessions};
pub use share::{NoRoom, RESERVE_PERCENT, Room, Share, Shares};
pub use slot::{Claim, Displaced, Slot};
pub use slow_down::{Progress, SlowDown, Until};
pub use subscription::{ReadGate, SubscribeOptions, Subscription, SubscriptionError};
pub use topic::{Topic, TopicError, TopicRef};
#[cfg(feature = "traces")]
pub use tracer::Tracer;
pub use wake_list::Place;
pub use worker::{Add, Published, Worker};
