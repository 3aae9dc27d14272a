//! CoAP over TCP, TLS and WebSockets from outside (RFC 8323): messages go in and out in the form of datagrams, so that
//! what is above need not know what they travel by.

use bytes::BytesMut;
use fogmux_coap::message::Type;
use fogmux_coap::server::StreamLimits;
use fogmux_coap::stream::{Abort, Due, Frame, Framing, Heard, Session, SessionConfig, signal};
use fogmux_coap::{Encoder, Message, Timestamp};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Duration, Instant, sleep_until};

use crate::Options;
use crate::error::ClientError;
use crate::stream::Stream;
use crate::url::{Scheme, Url};
use crate::websocket::WebSocket;

/// The path of CoAP over WebSockets, and its subprotocol (RFC 8323 §8.1).
const PATH: &str = "/.well-known/coap";
const SUBPROTOCOL: &str = "coap";
/// The ALPN identifier of CoAP over TLS (RFC 8323 §8.2).
const ALPN: &[u8] = b"coap";

/// The transport of the messages.
enum Carrier {
    Stream(Stream),
    WebSocket(Box<WebSocket>),
}

/// A connection on which both ends have sent a CSM.
pub struct Line {
    carrier: Carrier,
    session: Session,
    input: BytesMut,
    started: Instant,
}

/// A received message, copied out of the input buffer.
enum News {
    Datagram(Vec<u8>),
    Pong(fogmux_coap::Token, bool),
    Nothing,
}

impl Line {
    /// Connects, and waits for the CSM of the server.
    pub async fn open(url: &Url, options: &Options) -> Result<Self, ClientError> {
        let (carrier, framing) = if url.scheme == Scheme::CoapWebSocket {
            let socket = WebSocket::open_at(url, options, PATH, SUBPROTOCOL).await?;
            (Carrier::WebSocket(Box::new(socket)), Framing::WebSocket)
        } else {
            (Carrier::Stream(Stream::open(url, options, &[ALPN]).await?), Framing::Stream)
        };
        let mut settings = Vec::new();
        let session = Session::open(SessionConfig::CLIENT, framing, Timestamp::ZERO, &mut settings);
        let mut line = Self { carrier, session, input: BytesMut::new(), started: Instant::now() };
        line.write(&settings).await?;
        while !line.session.is_settled() {
            line.turn().await?;
        }
        Ok(line)
    }

    /// The message limits of the server.
    pub fn limits(&self) -> StreamLimits {
        self.session.limits()
    }

    /// Sends a message. Empty messages have no meaning on a connection and are not sent.
    pub async fn send(&mut self, datagram: &[u8]) -> Result<(), ClientError> {
        let Some(frame) = Frame::of_datagram(datagram).filter(|frame| frame.code.as_byte() != 0) else {
            return Ok(());
        };
        let mut bytes = Vec::new();
        frame.write(self.session.framing(), &mut bytes);
        self.write(&bytes).await
    }

    /// The next message. May be dropped while it waits: nothing is lost.
    pub async fn receive(&mut self) -> Result<Vec<u8>, ClientError> {
        loop {
            if let News::Datagram(datagram) = self.turn().await? {
                return Ok(datagram);
            }
        }
    }

    /// Ends the connection by Release, behind which nothing is sent (RFC 8323 §5.5).
    pub async fn close(mut self) -> Result<(), ClientError> {
        let mut bytes = Vec::new();
        signal::push_release(None, self.session.framing(), &mut bytes);
        self.write(&bytes).await?;
        match &mut self.carrier {
            Carrier::Stream(stream) => stream.shutdown().await.map_err(ClientError::unavailable),
            Carrier::WebSocket(socket) => socket.close().await,
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millis(u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// Takes one message in, or waits for more bytes or the next deadline.
    async fn turn(&mut self) -> Result<News, ClientError> {
        if let Some(news) = self.take().await? {
            if let News::Pong(token, custody) = news {
                let mut bytes = Vec::new();
                signal::push_pong(&token, custody, self.session.framing(), &mut bytes);
                self.write(&bytes).await?;
                return Ok(News::Nothing);
            }
            return Ok(news);
        }
        let due = self.started + Duration::from_millis(self.session.next_timeout().as_millis());
        tokio::select! {
            read = self.carrier.read(&mut self.input) => read?,
            () = sleep_until(due) => {
                let (now, mut bytes) = (self.now(), Vec::new());
                if let Due::Over(abort) = self.session.handle_timeout(now, &mut bytes) {
                    return Err(self.aborted(abort).await);
                }
                self.write(&bytes).await?;
            }
        }
        Ok(News::Nothing)
    }

    /// A message of what was read; nothing while none is whole.
    async fn take(&mut self) -> Result<Option<News>, ClientError> {
        let now = self.now();
        let taken = match &self.carrier {
            Carrier::Stream(_) => self.session.take(now, &self.input),
            Carrier::WebSocket(socket) if socket.is_whole() && !self.input.is_empty() => {
                let bytes = self.input.len();
                self.session.take_whole(now, &self.input).map(|heard| Some((heard, bytes)))
            }
            Carrier::WebSocket(_) => Ok(None),
        };
        let (news, bytes) = match taken {
            Ok(None) => return Ok(None),
            Ok(Some((heard, bytes))) => (news_of(&heard)?, bytes),
            Err(abort) => return Err(self.aborted(abort).await),
        };
        let _ = self.input.split_to(bytes);
        Ok(Some(news))
    }

    async fn aborted(&mut self, abort: Abort) -> ClientError {
        let mut bytes = Vec::new();
        abort.push(self.session.framing(), &mut bytes);
        // It is over anyhow.
        let _ = self.write(&bytes).await;
        ClientError::protocol(abort)
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        match &mut self.carrier {
            Carrier::Stream(stream) => {
                stream.write_all(bytes).await.map_err(ClientError::unavailable)?;
                stream.flush().await.map_err(ClientError::unavailable)
            }
            Carrier::WebSocket(_) if bytes.is_empty() => Ok(()),
            Carrier::WebSocket(socket) => socket.send(bytes).await,
        }
    }
}

impl Carrier {
    async fn read(&mut self, input: &mut BytesMut) -> Result<(), ClientError> {
        match self {
            Self::Stream(stream) => match stream.read_buf(input).await.map_err(ClientError::unavailable)? {
                0 => Err(ClientError::unavailable("the gateway closed the connection")),
                _ => Ok(()),
            },
            Self::WebSocket(socket) => socket.receive(input).await.map(drop),
        }
    }
}

fn news_of(heard: &Heard<'_>) -> Result<News, ClientError> {
    match heard {
        Heard::Message(message) => Ok(News::Datagram(datagram(message))),
        Heard::Ping { token, custody } => Ok(News::Pong(*token, *custody)),
        Heard::Settings(_) | Heard::Nothing => Ok(News::Nothing),
        Heard::Released(_) => Err(ClientError::unavailable("the gateway is going away")),
        Heard::Aborted(text) => Err(ClientError::unavailable(format!("the gateway aborted the connection: {text}"))),
    }
}

/// The message as a datagram that wants no acknowledgement.
fn datagram(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, Type::NonConfirmable, message.code, 0, &message.token);
    message.options().for_each(|option| encoder.push(option.number, option.value));
    encoder.payload(message.payload());
    bytes
}
