//! Client-to-server streams (RFC 6120 §4): the machine of the server and that of the client.

mod client;
mod header;
mod management;
mod sasl;
mod server;

pub use client::{ClientConfig, ClientEvent, ClientStream, RawEvent, TlsWish};
pub use management::StreamManagement;
pub use sasl::SaslCondition;
pub use server::{BindRequest, Offer, ServerConfig, ServerEvent, ServerStream, StartTls};
