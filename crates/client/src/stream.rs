//! TCP to a door, with or without TLS around it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

#[cfg(feature = "tls-openssl")]
use fogmux_net::openssl::{self, SslStream};
use fogmux_net::provider::iana_name;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::error::ClientError;

/// A byte stream to a door, over TCP or what counts on top of it.
#[derive(Debug)]
pub enum Stream<S = TcpStream> {
    /// As it is.
    Plain(S),
    /// TLS by rustls.
    Tls(Box<TlsStream<S>>),
    /// TLS by OpenSSL.
    #[cfg(feature = "tls-openssl")]
    OpenSsl(SslStream<S>),
}

impl<S> Stream<S> {
    /// From now on a write is taken whole, however much it is, and encrypted at once; so whoever writes has to keep to
    /// a bound.
    pub fn unbound(&mut self) {
        match self {
            Self::Tls(stream) => stream.get_mut().1.set_buffer_limit(None),
            Self::Plain(_) => {}
            // It takes a record at a time.
            #[cfg(feature = "tls-openssl")]
            Self::OpenSsl(_) => {}
        }
    }

    /// The cipher suite that was agreed on, as IANA names it; empty without TLS.
    pub fn cipher(&self) -> String {
        match self {
            Self::Plain(_) => String::new(),
            Self::Tls(stream) => {
                let suite = stream.get_ref().1.negotiated_cipher_suite();
                suite.map(|suite| iana_name(&format!("{:?}", suite.suite()))).unwrap_or_default()
            }
            #[cfg(feature = "tls-openssl")]
            Self::OpenSsl(stream) => openssl::cipher(stream).to_owned(),
        }
    }
}

/// TCP to a host; what is written goes out at once.
pub async fn tcp(host: &str, port: u16) -> Result<TcpStream, ClientError> {
    let stream = TcpStream::connect((host, port))
        .await
        .map_err(|error| ClientError::Unavailable(format!("{host}:{port}: {error}")))?;
    stream.set_nodelay(true).map_err(ClientError::unavailable)?;
    Ok(stream)
}

macro_rules! pass_on {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Self::Plain($stream) => $call,
            Self::Tls(boxed) => {
                let $stream = boxed.as_mut();
                $call
            }
            #[cfg(feature = "tls-openssl")]
            Self::OpenSsl($stream) => $call,
        }
    };
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        pass_on!(self, stream => Pin::new(stream).poll_read(cx, buffer))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        pass_on!(self, stream => Pin::new(stream).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        pass_on!(self, stream => Pin::new(stream).poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
            #[cfg(feature = "tls-openssl")]
            Self::OpenSsl(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        pass_on!(self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        pass_on!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}
