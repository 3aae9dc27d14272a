//! The MQTT door.

/// How the MQTT door behaves; every field has a default.
#[derive(Clone, Debug, Default)]
pub struct MqttConfig {}

/// What the workers of the MQTT door share: configuration and registries. Connections find it in
/// [`crate::Shared::mqtt`].
#[derive(Debug)]
pub struct MqttDoor {
    /// How it behaves.
    pub config: MqttConfig,
}

impl MqttDoor {
    /// A door that nobody uses yet.
    #[must_use]
    pub fn new(config: MqttConfig) -> Self {
        Self { config }
    }
}

/// Serves one connection until it ends.
pub async fn serve<S>(_ctx: std::rc::Rc<crate::WorkerContext>, _stream: S, _peer: crate::Peer)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
}

/// Ends sessions that have expired and publishes wills whose delay is over; one worker runs it until drain.
pub async fn housekeeping(_ctx: std::rc::Rc<crate::WorkerContext>) {}
