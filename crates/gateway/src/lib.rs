//! The gateway: one module per door, each driving a protocol machine over a connection and translating to and from the
//! bus, and the workers that run them.
//!
//! A worker is a thread with a single-threaded runtime. A connection lives on one worker from accept to close, so its
//! task needs no locks of its own; only mailboxes (see [`fogmux_bus`]) and each door's registry cross workers. No door
//! calls another, except that the HTTP door hands WebSocket streams to the MQTT and CoAP doors.

mod audit;
#[cfg(test)]
mod channels;
pub mod coap;
pub mod context;
mod credential;
mod egress;
pub mod http;
mod left;
mod liveness;
pub mod metrics;
pub mod mqtt;
mod pause;
pub mod proxy;
mod psk_guard;
pub mod runtime;
mod shares;
mod shutdown;
#[cfg(test)]
mod simulation;
mod stops;
mod sys;
mod throttle;
mod turn;
mod unfinished;
pub mod verifiers;
pub mod xmpp;

pub use context::{Clock, Peer, Shared, WorkerContext};
pub use credential::names_of;
pub use runtime::{Gateway, GatewayConfig, Listener, RunningGateway, StartError};
