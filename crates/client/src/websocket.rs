//! A WebSocket (RFC 6455) that carries MQTT ([MQTT-6]) or CoAP (RFC 8323 §4) from outside: hyper makes the handshake,
//! `fogmux_http` the frames.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use fogmux_http::websocket::handshake::{VERSION, accept_key};
use fogmux_http::websocket::{CloseCode, Incoming, Opcode, Receiver, Role, push_close, push_frame};
use http::{Request, StatusCode, header};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::Options;
use crate::error::ClientError;
use crate::stream::Stream;
use crate::url::Url;

/// Where the gateway speaks MQTT over WebSocket.
const PATH: &str = "/mqtt";
/// The largest packet of MQTT, by its length field (§2.1.4).
const MESSAGE_BYTES_MAX: u64 = 268_435_460;

/// An open WebSocket.
pub struct WebSocket {
    stream: TokioIo<Upgraded>,
    receiver: Receiver,
    input: BytesMut,
    whole: bool,
}

impl WebSocket {
    /// Connects and makes the handshake for the subprotocol `mqtt` ([MQTT-6.0.0-3]).
    pub async fn open(url: &Url, options: &Options) -> Result<Self, ClientError> {
        Self::open_at(url, options, PATH, "mqtt").await
    }

    /// The same at another place, for another subprotocol.
    pub async fn open_at(
        url: &Url,
        options: &Options,
        path: &str,
        subprotocol: &'static str,
    ) -> Result<Self, ClientError> {
        let stream = Stream::open(url, options, &[b"http/1.1"]).await?;
        let host = if url.host.contains(':') { format!("[{}]", url.host) } else { url.host.clone() };
        let stream = upgrade(stream, &format!("{host}:{}", url.port), path, subprotocol).await?;
        Ok(Self {
            stream,
            receiver: Receiver::new(Role::Client, MESSAGE_BYTES_MAX),
            input: BytesMut::new(),
            whole: true,
        })
    }

    /// One message of bytes ([MQTT-6.0.0-1]).
    pub async fn send(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        self.send_frame(Opcode::Binary, bytes).await
    }

    /// Whether what was received last ended a message.
    pub const fn is_whole(&self) -> bool {
        self.whole
    }

    /// More bytes, appended to `output`.
    pub async fn receive(&mut self, output: &mut BytesMut) -> Result<(), ClientError> {
        loop {
            match self.receiver.receive(&mut self.input).map_err(ClientError::protocol)? {
                Some(Incoming::Binary { bytes, end }) => {
                    output.extend_from_slice(&bytes);
                    self.whole = end;
                    return Ok(());
                }
                Some(Incoming::Ping(payload)) => self.send_frame(Opcode::Pong, &payload).await?,
                Some(Incoming::Pong(_)) => {}
                Some(Incoming::Text { .. }) => return Err(ClientError::protocol("text in a WebSocket of bytes")),
                Some(Incoming::Close(_)) => return Err(ClientError::unavailable("the gateway closed the WebSocket")),
                None => {
                    if self.stream.read_buf(&mut self.input).await.map_err(ClientError::unavailable)? == 0 {
                        return Err(ClientError::unavailable("the gateway closed the connection"));
                    }
                }
            }
        }
    }

    /// Says goodbye.
    pub async fn close(&mut self) -> Result<(), ClientError> {
        let mut frame = Vec::new();
        push_close(CloseCode::Normal, "", Some(random()?), &mut frame);
        self.stream.write_all(&frame).await.map_err(ClientError::unavailable)?;
        self.stream.shutdown().await.map_err(ClientError::unavailable)
    }

    async fn send_frame(&mut self, opcode: Opcode, payload: &[u8]) -> Result<(), ClientError> {
        let mut frame = Vec::with_capacity(payload.len() + 16);
        push_frame(opcode, payload, Some(random()?), &mut frame);
        self.stream.write_all(&frame).await.map_err(ClientError::unavailable)?;
        self.stream.flush().await.map_err(ClientError::unavailable)
    }
}

/// Makes the handshake (RFC 6455 §4.1) over a stream; what comes of it carries frames.
pub async fn upgrade<S>(
    stream: S,
    authority: &str,
    path: &str,
    subprotocol: &'static str,
) -> Result<TokioIo<Upgraded>, ClientError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(ClientError::unavailable)?;
    tokio::spawn(connection.with_upgrades());
    let key = STANDARD.encode(random::<16>()?);
    let request = Request::get(path)
        .header(header::HOST, authority)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_VERSION, VERSION)
        .header(header::SEC_WEBSOCKET_KEY, &key)
        .header(header::SEC_WEBSOCKET_PROTOCOL, subprotocol)
        .body(Empty::<Bytes>::new())
        .map_err(|error| ClientError::Usage(error.to_string()))?;
    let response = sender.send_request(request).await.map_err(ClientError::unavailable)?;
    match response.status() {
        StatusCode::SWITCHING_PROTOCOLS => {}
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            return Err(ClientError::Refused(response.status().to_string()));
        }
        status => return Err(ClientError::unavailable(format!("no WebSocket at {path}: {status}"))),
    }
    let accepted = response.headers().get(header::SEC_WEBSOCKET_ACCEPT).map(|value| value.as_bytes());
    if accepted != Some(accept_key(key.as_bytes()).as_bytes()) {
        return Err(ClientError::protocol("Sec-WebSocket-Accept does not fit"));
    }
    hyper::upgrade::on(response).await.map(TokioIo::new).map_err(ClientError::unavailable)
}

/// Keys and masks must not be foreseeable (RFC 6455 §10.3).
fn random<const N: usize>() -> Result<[u8; N], ClientError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| ClientError::Io(format!("no random numbers: {error}")))?;
    Ok(bytes)
}
