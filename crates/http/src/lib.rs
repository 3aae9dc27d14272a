//! The HTTP surface of the gateway as data: routes, parameters, conditions, problems and event encodings.
//!
//! Everything here is pure: no socket, no clock, no task, no randomness. The shell (hyper, h3) owns the framing of
//! HTTP itself; this crate says what a request means and what an answer contains, and holds the two framings that HTTP
//! carries inside a body or an upgraded connection: server-sent events and WebSocket (RFC 6455).

pub mod accept;
pub mod alt_svc;
pub mod api;
pub mod authorization;
pub mod client;
pub mod condition;
pub mod cookie;
pub mod event;
pub mod exposition;
pub mod idempotency;
pub mod login;
pub mod openapi;
pub mod origin;
mod percent;
pub mod problem;
pub mod publish;
pub mod query;
pub mod route;
pub mod session;
pub mod sse;
pub mod time;
pub mod websocket;

pub use event::Event;
pub use problem::{Kind, Problem};
pub use query::Query;
pub use route::{Route, Unroutable};
