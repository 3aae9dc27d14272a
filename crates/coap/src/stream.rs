//! CoAP over reliable transports: TCP, TLS and WebSockets (RFC 8323). There is no message layer; what two connected
//! ends have to agree on, they say in signaling messages.
//!
//! [`frame`] cuts a stream into messages, [`Session`] keeps what one connection has agreed on and when it is to hear
//! something; requests and responses are the affair of [`Server`](crate::Server) and [`Client`](crate::Client).

pub mod frame;
mod session;
pub mod signal;

pub use self::frame::{Frame, FrameFault, Framing};
pub use self::session::{Due, Heard, Session, SessionConfig};
pub use self::signal::{Abort, Alternative};
