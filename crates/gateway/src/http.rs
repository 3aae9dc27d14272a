//! The HTTP door.

/// How the HTTP door behaves; every field has a default.
#[derive(Clone, Debug, Default)]
pub struct HttpConfig {}

/// What the workers of the HTTP door share: configuration and registries. Connections find it in
/// [`crate::Shared::http`].
#[derive(Debug)]
pub struct HttpDoor {
    /// How it behaves.
    pub config: HttpConfig,
}

impl HttpDoor {
    /// A door that nobody uses yet.
    #[must_use]
    pub fn new(config: HttpConfig) -> Self {
        Self { config }
    }
}

/// Serves one TCP or TLS connection (HTTP/1.1 or HTTP/2 by ALPN, else by the preface) until it ends.
pub async fn serve<S>(_ctx: std::rc::Rc<crate::WorkerContext>, _stream: S, _peer: crate::Peer, _alpn: Option<Vec<u8>>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + 'static,
{
}

/// Serves HTTP/3 on a QUIC endpoint until drain.
pub async fn serve_quic(_ctx: std::rc::Rc<crate::WorkerContext>, _endpoint: quinn::Endpoint, _anonymous: bool) {}

/// Ends event streams that nobody came back for and forgets old idempotency keys; one worker runs it until drain.
pub async fn housekeeping(_ctx: std::rc::Rc<crate::WorkerContext>) {}
