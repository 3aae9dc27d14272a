//! The XMPP door.

/// How the XMPP door behaves; every field has a default.
#[derive(Clone, Debug, Default)]
pub struct XmppConfig {}

/// What the workers of the XMPP door share: configuration and registries. Connections find it in
/// [`crate::Shared::xmpp`].
#[derive(Debug)]
pub struct XmppDoor {
    /// How it behaves.
    pub config: XmppConfig,
}

impl XmppDoor {
    /// A door that nobody uses yet.
    #[must_use]
    pub fn new(config: XmppConfig) -> Self {
        Self { config }
    }
}

/// Serves one connection until it ends; `tls` is there for STARTTLS, direct TLS arrives already decrypted with
/// [`crate::Peer::secure`] set.
pub async fn serve_plain(
    _ctx: std::rc::Rc<crate::WorkerContext>,
    _stream: tokio::net::TcpStream,
    _peer: crate::Peer,
    _tls: Option<tokio_rustls::TlsAcceptor>,
) {
}

/// Serves one connection over direct TLS until it ends.
pub async fn serve_secure<S>(_ctx: std::rc::Rc<crate::WorkerContext>, _stream: S, _peer: crate::Peer)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + 'static,
{
}
