//! TCP to a door, with or without TLS around it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

#[cfg(feature = "tls-openssl")]
use fogmux_net::openssl::SslStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::error::ClientError;
use crate::url::Url;
use crate::{Options, tls};

/// A byte stream to a door.
pub enum Stream {
    /// TCP.
    Plain(TcpStream),
    /// TLS by rustls.
    Tls(Box<TlsStream<TcpStream>>),
    /// TLS by a pre-shared key.
    #[cfg(feature = "tls-openssl")]
    Psk(SslStream<TcpStream>),
}

impl Stream {
    /// Connects as the URL says; `alpn` only matters with TLS.
    pub async fn open(url: &Url, options: &Options, alpn: &[&[u8]]) -> Result<Self, ClientError> {
        let stream = tcp(url).await?;
        if !url.secure {
            return Ok(Self::Plain(stream));
        }
        tls::open(stream, &url.host, options, alpn).await
    }
}

/// TCP to the host of the URL.
pub async fn tcp(url: &Url) -> Result<TcpStream, ClientError> {
    let stream = TcpStream::connect((url.host.as_str(), url.port))
        .await
        .map_err(|error| ClientError::Unavailable(format!("{}:{}: {error}", url.host, url.port)))?;
    stream.set_nodelay(true).map_err(ClientError::unavailable)?;
    Ok(stream)
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_read(cx, buffer),
            #[cfg(feature = "tls-openssl")]
            Self::Psk(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_write(cx, bytes),
            #[cfg(feature = "tls-openssl")]
            Self::Psk(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
            #[cfg(feature = "tls-openssl")]
            Self::Psk(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
            #[cfg(feature = "tls-openssl")]
            Self::Psk(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
