//! The harness of the black-box suites: a gateway process of their own, a well-behaved client whose latency is watched,
//! and just enough of each protocol to send what no library would send.
//!
//! Nothing here may use a crate of the gateway: a fault in a codec must not hide itself.

pub mod coap;
pub mod coap_stream;
pub mod dtls;
pub mod foreign;
pub mod gateway;
pub mod http2;
pub mod mqtt;
pub mod probe;
pub mod proxy;
pub mod relay;
pub mod server;
pub mod suite;
pub mod tcp;
pub mod tls;
pub mod users;
pub mod websocket;
pub mod xmpp;
