//! HTTP/3 (RFC 9114) from outside, by quinn and h3.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use h3::client::{RequestStream, SendRequest};
use h3_quinn::{BidiStream, OpenStreams};
use http::{Request, Response};
use tokio::time::{Duration, timeout};

use crate::Options;
use crate::error::ClientError;
use crate::tls;
use crate::url::Url;

/// `H3_NO_ERROR` (RFC 9114 §8.1).
const NO_ERROR: u32 = 0x100;
/// How long the end of a connection is waited for.
const LINGER: Duration = Duration::from_millis(200);

/// A connection.
pub struct Http3 {
    sender: SendRequest<OpenStreams, Bytes>,
    endpoint: quinn::Endpoint,
}

impl Http3 {
    /// Connects by QUIC; there is no HTTP/3 without it.
    pub async fn open(url: &Url, options: &Options) -> Result<Self, ClientError> {
        if !url.secure {
            return Err(ClientError::Usage("HTTP/3 needs https://".to_owned()));
        }
        let crypto = tls::quic(options, &[b"h3"])?;
        let mut addresses =
            tokio::net::lookup_host((url.host.as_str(), url.port)).await.map_err(ClientError::unavailable)?;
        let remote = addresses.next().ok_or_else(|| ClientError::unavailable("the host has no address"))?;
        let local: SocketAddr =
            if remote.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
        let mut endpoint = quinn::Endpoint::client(local).map_err(ClientError::unavailable)?;
        endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(crypto)));
        let connecting = endpoint.connect(remote, &url.host).map_err(ClientError::unavailable)?;
        let connection = connecting.await.map_err(ClientError::unavailable)?;
        let (mut driver, sender) =
            h3::client::new(h3_quinn::Connection::new(connection)).await.map_err(ClientError::unavailable)?;
        tokio::spawn(async move { driver.wait_idle().await });
        Ok(Self { sender, endpoint })
    }

    /// One request.
    pub async fn send(&mut self, request: Request<()>, payload: Bytes) -> Result<Response<Http3Body>, ClientError> {
        let mut stream = self.sender.send_request(request).await.map_err(ClientError::unavailable)?;
        // A gateway that has heard enough answers and stops reading: then the answer tells more than the failed write.
        let sent = async {
            if !payload.is_empty() {
                stream.send_data(payload).await?;
            }
            stream.finish().await
        };
        let sent = sent.await;
        match (stream.recv_response().await, sent) {
            (Ok(response), _) => Ok(response.map(|()| Http3Body { stream })),
            (Err(_), Err(error)) | (Err(error), Ok(())) => Err(ClientError::unavailable(error)),
        }
    }

    /// Closes the connection, and waits until that is sent: a peer that is not told keeps it until it is idle for long.
    pub async fn close(self) {
        self.endpoint.close(NO_ERROR.into(), b"");
        // The packet goes out first; then come three probe timeouts, in which nobody need wait (RFC 9000 §10.2).
        let _ = timeout(LINGER, self.endpoint.wait_idle()).await;
    }
}

impl Drop for Http3 {
    fn drop(&mut self) {
        self.endpoint.close(NO_ERROR.into(), b"");
    }
}

/// A response body.
pub struct Http3Body {
    stream: RequestStream<BidiStream<Bytes>, Bytes>,
}

impl Http3Body {
    /// The next piece; nothing at the end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, ClientError> {
        let chunk = self.stream.recv_data().await.map_err(ClientError::unavailable)?;
        Ok(chunk.map(|mut chunk| chunk.copy_to_bytes(chunk.remaining())))
    }
}
