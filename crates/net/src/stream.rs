//! A byte stream protected by TLS, of either stack: doors know one type.

use std::{
    fmt, io,
    io::IoSlice,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use crate::clients::Cut;

/// TLS over TCP, on the server's side, after the handshake.
pub struct Stream {
    inner: Inner,
    /// There when the connection is to end with its certificate.
    cut: Option<Cut>,
}

/// Sizes differ, but nearly every connection is the large one: a box would only cost a detour.
#[cfg_attr(
    feature = "tls-openssl",
    expect(clippy::large_enum_variant, reason = "nearly every stream is the large one")
)]
enum Inner {
    Rustls(tokio_rustls::server::TlsStream<Socket>),
    #[cfg(feature = "tls-openssl")]
    OpenSsl(tokio_openssl::SslStream<Socket>),
}

impl Stream {
    pub(crate) fn rustls(stream: tokio_rustls::server::TlsStream<Socket>) -> Self {
        Self { inner: Inner::Rustls(stream), cut: None }
    }

    #[cfg(feature = "tls-openssl")]
    pub(crate) fn openssl(stream: tokio_openssl::SslStream<Socket>) -> Self {
        Self { inner: Inner::OpenSsl(stream), cut: None }
    }

    pub(crate) fn cut_by(&mut self, cut: Cut) {
        self.cut = Some(cut);
    }

    /// The application protocol that was agreed on (RFC 7301).
    #[must_use]
    pub fn alpn(&self) -> Option<&[u8]> {
        match &self.inner {
            Inner::Rustls(stream) => stream.get_ref().1.alpn_protocol(),
            #[cfg(feature = "tls-openssl")]
            Inner::OpenSsl(stream) => stream.ssl().selected_alpn_protocol(),
        }
    }

    /// Limits how long sent bytes may stay unacknowledged; see [`crate::listener::set_user_timeout`].
    pub fn set_user_timeout(&self, limit: std::time::Duration) {
        let socket = match &self.inner {
            Inner::Rustls(stream) => stream.get_ref().0,
            #[cfg(feature = "tls-openssl")]
            Inner::OpenSsl(stream) => stream.get_ref(),
        };
        if let Socket::Attached(stream) = socket {
            crate::listener::set_user_timeout(stream, limit);
        }
    }

    /// The socket below, to move it from one runtime to another.
    pub(crate) fn socket_mut(&mut self) -> &mut Socket {
        match &mut self.inner {
            Inner::Rustls(stream) => stream.get_mut().0,
            #[cfg(feature = "tls-openssl")]
            Inner::OpenSsl(stream) => stream.get_mut(),
        }
    }

    /// An error as of a connection that was reset, once the certificate has been revoked.
    fn whole(&self, cx: &mut Context<'_>) -> io::Result<()> {
        match &self.cut {
            Some(cut) if cut.poll(cx).is_ready() => {
                Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the client's certificate has been revoked"))
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

macro_rules! pass_on {
    ($self:ident, $stream:ident => $call:expr) => {
        match &mut $self.get_mut().inner {
            Inner::Rustls($stream) => $call,
            #[cfg(feature = "tls-openssl")]
            Inner::OpenSsl($stream) => $call,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.whole(cx)?;
        pass_on!(self, stream => Pin::new(stream).poll_read(cx, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.whole(cx)?;
        pass_on!(self, stream => Pin::new(stream).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.whole(cx)?;
        pass_on!(self, stream => Pin::new(stream).poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        match &self.inner {
            Inner::Rustls(stream) => stream.is_write_vectored(),
            #[cfg(feature = "tls-openssl")]
            Inner::OpenSsl(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        pass_on!(self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        pass_on!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}

/// A TCP socket that can leave the runtime it was made in and enter another.
pub(crate) enum Socket {
    Attached(TcpStream),
    Detached(std::net::TcpStream),
    /// Between the two, and for good when the move failed.
    Lost,
}

impl Socket {
    /// Leaves its runtime.
    pub(crate) fn detach(&mut self) -> io::Result<()> {
        *self = match std::mem::replace(self, Self::Lost) {
            Self::Attached(stream) => Self::Detached(stream.into_std()?),
            other @ (Self::Detached(_) | Self::Lost) => other,
        };
        Ok(())
    }

    /// Enters the runtime in which this is called.
    pub(crate) fn attach(&mut self) -> io::Result<()> {
        *self = match std::mem::replace(self, Self::Lost) {
            Self::Detached(stream) => Self::Attached(TcpStream::from_std(stream)?),
            other @ (Self::Attached(_) | Self::Lost) => other,
        };
        Ok(())
    }

    fn attached(self: Pin<&mut Self>) -> io::Result<Pin<&mut TcpStream>> {
        match self.get_mut() {
            Self::Attached(stream) => Ok(Pin::new(stream)),
            Self::Detached(_) | Self::Lost => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.attached()?.poll_read(cx, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.attached()?.poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.attached()?.poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.attached()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.attached()?.poll_shutdown(cx)
    }
}
