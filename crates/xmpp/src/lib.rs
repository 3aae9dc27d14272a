//! XMPP client-to-server streams and publish-subscribe as data and pure state machines, both roles.
//!
//! Bytes become frames (`framer`), frames become elements (`parse`), elements become typed requests (`iq`, `pubsub`);
//! replies are written by `writer` into the caller's buffer. `stream` holds the two machines, server and client.
//!
//! Nothing here opens a socket, reads a clock or draws a random number, and nothing a peer sends can make it panic or
//! hold more than `Limits` says. Nodes, items and access rules live elsewhere: this crate only reads and writes them.

mod chars;
pub mod datetime;
pub mod disco;
pub mod element;
pub mod error;
pub mod form;
pub mod framer;
pub mod iq;
pub mod jid;
pub mod limits;
pub mod ns;
pub mod parse;
pub mod payload;
pub mod pubsub;
pub mod rsm;
pub mod shim;
pub mod stream;
pub mod writer;

pub use element::{Attribute, Element, Node, RawXml};
pub use error::{ErrorKind, PubsubCondition, StanzaCondition, StanzaError, StreamCondition, StreamError};
pub use framer::{Frame, Framed, Framer};
pub use iq::{IqHead, IqKind, Query};
pub use jid::{Jid, JidError};
pub use limits::Limits;
pub use parse::Scope;
pub use payload::Payload;
pub use stream::{ClientEvent, ClientStream, ServerConfig, ServerEvent, ServerStream};
pub use writer::Writer;
