//! CoAP as data and pure state machines, both roles: RFC 7252, 7641 (Observe), 7959 (block-wise), 7967, 8132, 8768, 9175
//! and the link format of RFC 6690.
//!
//! No socket, clock, task or randomness: datagrams and the time come in as arguments, datagrams go out into a buffer of
//! the caller. Nothing a peer sends makes it panic, and every table has a bound.

pub mod block;
pub mod code;
pub mod content_format;
pub mod encode;
pub mod message;
pub mod option;
pub mod time;
pub mod token;

pub use block::{Block, BlockSize};
pub use code::{Class, Code};
pub use encode::Encoder;
pub use message::{Malformed, Message, Remedy, Type};
pub use option::{Opt, OptionNumber};
pub use time::Timestamp;
pub use token::Token;
