//! Multicast DNS (RFC 6762) and DNS-based service discovery (RFC 6763): messages as data, and a responder as a state
//! machine. No socket, clock or randomness: `now` and a seed are arguments.

mod decode;
mod encode;
mod message;
mod name;
mod random;
pub mod responder;

pub use decode::DecodeError;
pub use encode::{Section, Writer};
pub use message::{CLASS_ANY, CLASS_IN, Data, Flags, Kind, Message, Question, Record};
pub use name::Name;
pub use responder::Responder;
