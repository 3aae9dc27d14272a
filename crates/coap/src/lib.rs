//! CoAP as data and pure state machines, both roles: RFC 7252, 7641 (Observe), 7959 (block-wise), 7967, 8132, 8323
//! (TCP, TLS, WebSockets), 8768, 9175 and the link format of RFC 6690.
//!
//! No socket, clock, task or randomness: datagrams and the time come in as arguments, datagrams go out into a buffer of
//! the caller. Nothing a peer sends makes it panic, and every table has a bound.

pub mod block;
pub mod client;
pub mod code;
pub mod content_format;
pub mod encode;
pub mod etag;
pub mod group;
mod jitter;
pub mod link_format;
pub mod message;
pub mod option;
pub mod outbox;
pub mod peer;
pub mod request;
pub mod response;
pub mod server;
mod slab;
pub mod stream;
pub mod token;
pub mod transmission;

pub use block::{Block, BlockSize};
pub use client::{Call, Client, ClientConfig, ClientEvent};
pub use code::{Class, Code};
pub use encode::Encoder;
pub use etag::ETag;
pub use fogmux_time::Timestamp;
pub use message::{Malformed, Message, Remedy, Type};
pub use option::{Opt, OptionNumber};
pub use outbox::Outbox;
pub use peer::Peer;
pub use request::{Body, ObserveWish, Query, Request};
pub use response::{Encoded, Location, Payload, Response};
pub use server::{Incoming, Server, ServerConfig, Ticket};
pub use token::Token;
