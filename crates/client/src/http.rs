//! The HTTP door from outside: HTTP/1.1 and HTTP/2 by hyper, HTTP/3 beside it in [`crate::http3`].

use std::convert::Infallible;

use bytes::{Bytes, BytesMut};
use fogmux_http::client::{self as surface, Flags};
use fogmux_http::event;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::error::ClientError;
use crate::http3::{Http3, Http3Body};
use crate::message::{Arrived, BYTES_MAX, Outgoing, printable};
use crate::stream::Stream;
use crate::url::Url;
use crate::{HttpVersion, Options};

/// Bytes of an answer that is not the value of a topic: of the description of an error (RFC 9457), for example.
const ERROR_BYTES_MAX: usize = 64 << 10;
/// Longest line of an event stream: a message of 16 MiB in base64 and what stands around it.
const LINE_BYTES_MAX: usize = 24 << 20;

/// A connection to publish by.
pub struct Publisher {
    connection: Connection,
    url: Url,
    flags: Flags,
}

impl Publisher {
    /// Connects to the door of a URL.
    pub async fn open(url: &Url, options: &Options) -> Result<Self, ClientError> {
        let connection = Connection::open(url, options).await?;
        Ok(Self { connection, url: url.clone(), flags: flags(options) })
    }

    /// Publishes, and waits for 201, 202 or 204.
    pub async fn publish(&mut self, message: &Outgoing) -> Result<(), ClientError> {
        let flags = Flags {
            retain: message.retain,
            qos: Some(message.qos),
            content_type: message.content_type.clone(),
            ..self.flags.clone()
        };
        let request = surface::publish(&message.topic, &flags);
        let response = self.connection.send(&self.url, request, message.payload.clone()).await?;
        accepted(response).await?.into_body().collect(ERROR_BYTES_MAX).await.map(drop)
    }

    /// Closes the connection.
    pub async fn close(self) {
        self.connection.close().await;
    }
}

/// The latest message; nothing on 404.
pub async fn get(url: &Url, options: &Options) -> Result<Option<Arrived>, ClientError> {
    let mut connection = Connection::open(url, options).await?;
    let response = connection.send(url, surface::latest(&url.topic, &flags(options)), Bytes::new()).await?;
    if response.status() == StatusCode::NOT_FOUND {
        return Ok(None);
    }
    let response = accepted(response).await?;
    let content_type = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    // RFC 9110 §8.3: this is what the gateway answers for a message that has no type.
    let content_type = content_type.filter(|name| *name != "application/octet-stream").map(str::to_owned);
    let payload = response.into_body().collect(BYTES_MAX).await?;
    connection.close().await;
    Ok(Some(Arrived { topic: url.topic.clone(), payload, content_type, ..Arrived::default() }))
}

/// Follows a filter as NDJSON.
pub async fn subscribe(url: &Url, options: &Options) -> Result<Subscription, ClientError> {
    let flags = Flags { qos: Some(options.qos), ..flags(options) };
    let mut connection = Connection::open(url, options).await?;
    let response = connection.send(url, surface::subscribe(&url.topic, &flags), Bytes::new()).await?;
    let body = accepted(response).await?.into_body();
    Ok(Subscription { connection, body, lines: BytesMut::new(), searched: 0 })
}

/// An event stream.
pub struct Subscription {
    connection: Connection,
    body: Body,
    lines: BytesMut,
    /// Bytes of `lines` that have no line end among them.
    searched: usize,
}

impl Subscription {
    /// The next message. Lines that are none (gaps, keep-alives) are said on standard error or skipped.
    pub async fn next(&mut self) -> Result<Arrived, ClientError> {
        loop {
            while let Some(end) = self.lines.iter().skip(self.searched).position(|byte| *byte == b'\n') {
                let line = self.lines.split_to(self.searched + end + 1);
                self.searched = 0;
                let line = line.trim_ascii();
                if line.is_empty() {
                    continue;
                }
                if line.starts_with(b"{\"gap\"") {
                    eprintln!("fogmux: messages were missed: {}", printable(&String::from_utf8_lossy(line)));
                    continue;
                }
                return arrived(line);
            }
            self.searched = self.lines.len();
            if self.lines.len() > LINE_BYTES_MAX {
                return Err(ClientError::protocol("a line of the event stream is too long"));
            }
            match self.body.chunk().await? {
                Some(chunk) => self.lines.extend_from_slice(&chunk),
                None => return Err(ClientError::unavailable("the gateway ended the stream")),
            }
        }
    }

    /// Closes the connection.
    pub async fn close(self) {
        self.connection.close().await;
    }
}

fn arrived(line: &[u8]) -> Result<Arrived, ClientError> {
    let decoded = event::decode(line).map_err(ClientError::protocol)?;
    Ok(Arrived {
        topic: decoded.topic.into_owned(),
        payload: decoded.payload.into_owned().into(),
        content_type: decoded.content_type.map(|name| name.into_owned()),
        qos: decoded.qos,
        retain: Some(decoded.retain),
    })
}

fn flags(options: &Options) -> Flags {
    Flags { credentials: options.credentials.clone(), token: options.token.clone(), ..Flags::default() }
}

/// The response if it says success; otherwise what the problem document says (RFC 9457).
async fn accepted(response: Response<Body>) -> Result<Response<Body>, ClientError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let body = response.into_body().collect(ERROR_BYTES_MAX).await.unwrap_or_default();
    let problem = serde_json::from_slice::<serde_json::Value>(&body).unwrap_or_default();
    let member = |name| problem.get(name).and_then(serde_json::Value::as_str);
    let said = match (member("title"), member("detail")) {
        (Some(title), Some(detail)) => format!("{status}: {title}: {detail}"),
        (Some(text), None) | (None, Some(text)) => format!("{status}: {text}"),
        (None, None) => status.to_string(),
    };
    Err(match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ClientError::Refused(said),
        status if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS => ClientError::NotAccepted(said),
        _ => ClientError::Unavailable(said),
    })
}

/// A connection of any HTTP version.
enum Connection {
    One(http1::SendRequest<Full<Bytes>>),
    Two(http2::SendRequest<Full<Bytes>>),
    Three(Http3),
}

/// A response body of any HTTP version.
pub enum Body {
    /// Of HTTP/1.1 and HTTP/2.
    Hyper(Incoming),
    /// Of HTTP/3.
    Three(Box<Http3Body>),
}

impl Connection {
    async fn open(url: &Url, options: &Options) -> Result<Self, ClientError> {
        match options.http {
            HttpVersion::One => {
                let io = TokioIo::new(Stream::open(url, options, &[b"http/1.1"]).await?);
                let (sender, connection) = http1::handshake(io).await.map_err(ClientError::unavailable)?;
                tokio::spawn(connection);
                Ok(Self::One(sender))
            }
            HttpVersion::Two => {
                let io = TokioIo::new(Stream::open(url, options, &[b"h2"]).await?);
                let handshake = http2::handshake(TokioExecutor::new(), io).await;
                let (sender, connection) = handshake.map_err(ClientError::unavailable)?;
                tokio::spawn(connection);
                Ok(Self::Two(sender))
            }
            HttpVersion::Three => Ok(Self::Three(Http3::open(url, options).await?)),
        }
    }

    /// The end of TCP is told by the system; that of QUIC has to be sent.
    async fn close(self) {
        match self {
            Self::One(_) | Self::Two(_) => {}
            Self::Three(connection) => connection.close().await,
        }
    }

    async fn send(
        &mut self,
        url: &Url,
        request: surface::Request,
        payload: Bytes,
    ) -> Result<Response<Body>, ClientError> {
        let authority = authority(url);
        let has_body = request.method == Method::PUT || request.method == Method::POST;
        let target = match self {
            // RFC 9112 §3.2.1: the origin form. The other versions need scheme and authority as pseudo-headers.
            Self::One(_) => request.target,
            Self::Two(_) | Self::Three(_) => {
                format!("{}://{authority}{}", if url.secure { "https" } else { "http" }, request.target)
            }
        };
        let mut built = Request::builder().method(request.method).uri(target);
        if let Some(headers) = built.headers_mut() {
            *headers = request.headers;
            if matches!(self, Self::One(_)) {
                let host = HeaderValue::from_str(&authority).map_err(|_| ClientError::Usage("no such host".into()))?;
                headers.insert(header::HOST, host);
            }
            if has_body {
                headers.insert(header::CONTENT_LENGTH, payload.len().into());
            }
        }
        let request = built.body(Full::new(payload)).map_err(|error| ClientError::Usage(error.to_string()))?;
        let response = match self {
            Self::One(sender) => {
                sender.ready().await.map_err(ClientError::unavailable)?;
                sender.send_request(request).await.map_err(ClientError::unavailable)?.map(Body::Hyper)
            }
            Self::Two(sender) => {
                sender.ready().await.map_err(ClientError::unavailable)?;
                sender.send_request(request).await.map_err(ClientError::unavailable)?.map(Body::Hyper)
            }
            Self::Three(sender) => {
                let (parts, body) = request.into_parts();
                let body =
                    body.collect().await.map(|body| body.to_bytes()).unwrap_or_else(|never: Infallible| match never {});
                sender.send(Request::from_parts(parts, ()), body).await?.map(|body| Body::Three(Box::new(body)))
            }
        };
        Ok(response)
    }
}

impl Body {
    /// The next piece; nothing at the end.
    async fn chunk(&mut self) -> Result<Option<Bytes>, ClientError> {
        match self {
            Self::Hyper(body) => loop {
                match body.frame().await {
                    None => return Ok(None),
                    Some(Err(error)) => return Err(ClientError::unavailable(error)),
                    Some(Ok(frame)) => {
                        // Trailers say nothing here.
                        if let Ok(data) = frame.into_data() {
                            return Ok(Some(data));
                        }
                    }
                }
            },
            Self::Three(body) => body.chunk().await,
        }
    }

    /// The whole body, which has `max` bytes at most.
    async fn collect(mut self, max: usize) -> Result<Bytes, ClientError> {
        let mut whole = BytesMut::new();
        while let Some(chunk) = self.chunk().await? {
            if whole.len() + chunk.len() > max {
                return Err(ClientError::protocol(format!("a body of more than {max} bytes")));
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(whole.freeze())
    }
}

/// Host and port as `Host` and `:authority` have them.
fn authority(url: &Url) -> String {
    if url.host.contains(':') { format!("[{}]:{}", url.host, url.port) } else { format!("{}:{}", url.host, url.port) }
}
