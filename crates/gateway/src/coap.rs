//! The CoAP door.

mod config;

pub use config::CoapConfig;
pub use fogmux_coap::server::Amplification;

/// What the workers of the CoAP door share: configuration and registries. Connections find it in
/// [`crate::Shared::coap`].
#[derive(Debug)]
pub struct CoapDoor {
    /// How it behaves.
    pub config: CoapConfig,
}

impl CoapDoor {
    /// A door that nobody uses yet.
    #[must_use]
    pub fn new(config: CoapConfig) -> Self {
        Self { config }
    }
}

/// Serves one worker's UDP socket until drain.
pub async fn serve(_ctx: std::rc::Rc<crate::WorkerContext>, _socket: tokio::net::UdpSocket, _anonymous: bool) {}
