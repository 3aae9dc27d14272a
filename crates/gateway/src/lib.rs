//! The gateway: one module per door, each driving a protocol machine over a connection and translating to and from the
//! bus, and the workers that run them.
//!
//! A worker is a thread with a single-threaded runtime. A connection lives on one worker from accept to close, so its
//! task needs no locks of its own; only mailboxes (see [`fogmux_bus`]) and each door's registry cross workers. No door
//! knows another: [`runtime`] knows all of them, and hands the HTTP door what serves MQTT and CoAP in a WebSocket.

#![cfg_attr(
    not(all(feature = "coap", feature = "http", feature = "mqtt", feature = "xmpp")),
    allow(unused, reason = "the doors of this build need only a part of what all need together")
)]

pub mod administration;
mod audit;
#[cfg(test)]
mod channels;
mod clients;
mod clock;
#[cfg(feature = "coap")]
pub mod coap;
mod counter;
mod credential;
mod deadline;
mod delivery_times;
pub mod discovery;
mod door;
mod egress;
#[cfg(any(feature = "http", feature = "xmpp"))]
mod encodings;
mod fan_out;
mod handshake;
mod handshake_failures;
#[cfg(feature = "http")]
pub mod held;
#[cfg(feature = "http")]
pub mod http;
mod left;
pub mod links;
pub mod listener;
pub mod listening;
mod liveness;
pub mod machine;
pub mod metrics;
#[cfg(feature = "mqtt")]
pub mod mqtt;
mod pause;
mod peer;
mod phase;
mod process;
pub mod proxy;
mod psk_guard;
mod recheck;
#[cfg(feature = "http")]
mod refused;
pub mod runtime;
mod shares;
mod shown;
mod shutdown;
#[cfg(test)]
#[cfg(all(feature = "coap", feature = "http", feature = "mqtt", feature = "xmpp"))]
mod simulation;
mod stops;
mod sys;
mod tasks;
mod throttle;
#[cfg(feature = "traces")]
pub mod traces;
pub mod transport;
mod turn;
mod unfinished;
pub mod verifiers;
mod waiting;
pub mod worker;
#[cfg(feature = "xmpp")]
pub mod xmpp;

pub use audit::TARGET as AUDIT;
pub use clock::Clock;
pub use credential::names_of;
pub use listener::Listener;
pub use peer::Peer;
pub use runtime::{Gateway, GatewayConfig, RunningGateway, StartError};
pub use waiting::Waiting;
pub use worker::{Shared, WorkerContext};
