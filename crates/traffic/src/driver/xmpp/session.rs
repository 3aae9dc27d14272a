//! A stream on its way to a bound resource: TLS, SASL, and one step after the other.

use std::io;
use std::sync::Arc;

use fogmux_client::connector::Connector;
use fogmux_client::stream::{Stream, tcp};
use fogmux_client::{ClientError, Counted, Counter};
use fogmux_xmpp::stream::{ClientConfig, TlsWish};
use fogmux_xmpp::{ClientEvent, ClientStream, Limits, StreamCondition, StreamError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::driver::DriverError;

/// TLS or not, over TCP that is counted.
type Transport = Stream<Counted<TcpStream>>;

/// When the handshake comes, and what makes it.
pub(super) enum Security {
    None,
    /// In the stream (RFC 6120 §5).
    StartTls(Connector),
    /// Before it (XEP-0368).
    Direct(Connector),
}

/// A stream and what is on its way in and out.
pub(super) struct Session {
    pub(super) transport: Transport,
    socket: Arc<Counter>,
    pub(super) stream: ClientStream,
    /// Input that is not a complete stanza yet.
    pub(super) input: Vec<u8>,
    /// Output to be written.
    pub(super) output: Vec<u8>,
    pub(super) domain: Box<str>,
    /// The address of the publish-subscribe service.
    pub(super) service: Box<str>,
    /// Ours, once it is bound.
    pub(super) jid: Box<str>,
    pub(super) protocol_up: u64,
    pub(super) protocol_down: u64,
}

impl Session {
    /// Connects, secures the connection and opens a stream in it.
    pub(super) async fn open(
        (host, port): (&str, u16),
        domain: &str,
        security: &Security,
        resource: String,
        stanza_bytes_max: usize,
    ) -> Result<Self, DriverError> {
        let socket = Counted::new(tcp(host, port).await.map_err(unreachable)?);
        let counter = socket.counter();
        let (transport, tls) = match security {
            Security::None => (Stream::Plain(socket), TlsWish::No),
            Security::StartTls(_) => (Stream::Plain(socket), TlsWish::StartTls),
            Security::Direct(connector) => (connector.connect(socket, domain).await.map_err(unreachable)?, TlsWish::No),
        };
        let limits = Limits { stanza_bytes_max, ..Limits::default() };
        let config = ClientConfig { domain: domain.to_owned(), resource: Some(resource), tls, limits };
        let mut output = Vec::new();
        let stream = ClientStream::new(config, &mut output);
        let this = Self {
            transport,
            socket: counter,
            stream,
            input: Vec::new(),
            output,
            domain: domain.into(),
            service: format!("pubsub.{domain}").into(),
            jid: "".into(),
            protocol_up: 0,
            protocol_down: 0,
        };
        match security {
            Security::StartTls(connector) => this.start_tls(connector).await,
            Security::None | Security::Direct(_) => Ok(this),
        }
    }

    /// RFC 6120 §5.4.3.3: what came before TLS does not count.
    async fn start_tls(mut self, connector: &Connector) -> Result<Self, DriverError> {
        self.until(|event| matches!(event, ClientEvent::StartTls).then_some(())).await?;
        let Stream::Plain(socket) = self.transport else { return Ok(self) };
        self.transport = connector.connect(socket, &self.domain).await.map_err(unreachable)?;
        self.input.clear();
        self.stream.tls_established(&mut self.output);
        Ok(self)
    }

    /// Sends what is to be sent and takes what comes until `wanted` says what it was waiting for.
    pub(super) async fn until<T>(
        &mut self,
        mut wanted: impl FnMut(ClientEvent<'_>) -> Option<T>,
    ) -> Result<T, DriverError> {
        loop {
            let (used, event) = self.stream.handle(&self.input, &mut self.output);
            let found = match event {
                None => None,
                Some(ClientEvent::Refused(condition)) => return Err(DriverError::Refused(condition)),
                Some(ClientEvent::Ended(condition)) => return Err(ended(condition)),
                Some(ClientEvent::Failed(error)) => return Err(protocol(&error)),
                Some(
                    event @ (ClientEvent::StartTls
                    | ClientEvent::Mechanisms(_)
                    | ClientEvent::Challenge(_)
                    | ClientEvent::Success(_)
                    | ClientEvent::Bound(_)
                    | ClientEvent::Stanza(_)),
                ) => {
                    let found = wanted(event);
                    if found.is_none() {
                        self.input.drain(..used);
                        continue;
                    }
                    found
                }
            };
            self.input.drain(..used);
            if let Some(found) = found {
                return Ok(found);
            }
            self.flush().await?;
            let bytes = self.transport.read_buf(&mut self.input).await.map_err(|error| broken(&error))?;
            if bytes == 0 {
                return Err(DriverError::Connection("the other end closed the connection".to_owned()));
            }
            self.protocol_down += bytes as u64;
        }
    }

    /// Out and in, as the socket had them.
    pub(super) fn socket_bytes(&self) -> (u64, u64) {
        (self.socket.up(), self.socket.down())
    }

    /// Writes all that is to be written.
    pub(super) async fn flush(&mut self) -> Result<(), DriverError> {
        let write = async {
            self.transport.write_all(&self.output).await?;
            self.transport.flush().await
        };
        write.await.map_err(|error| broken(&error))?;
        self.protocol_up += self.output.len() as u64;
        self.output.clear();
        Ok(())
    }

    /// Ends the stream and waits for the other end to do so (RFC 6120 §4.4).
    pub(super) async fn close(&mut self) -> Result<(), DriverError> {
        self.stream.close(&mut self.output);
        self.flush().await?;
        let mut rest = [0; 1024];
        while let Ok(1..) = self.transport.read(&mut rest).await {}
        self.transport.shutdown().await.map_err(|error| broken(&error))
    }
}

/// Nobody there, or the handshake failed.
fn unreachable(error: ClientError) -> DriverError {
    DriverError::Connection(error.to_string())
}

/// The connection broke.
pub(super) fn broken(error: &io::Error) -> DriverError {
    DriverError::Connection(error.to_string())
}

/// The other end broke the protocol.
pub(super) fn protocol(error: &StreamError) -> DriverError {
    DriverError::Protocol(error.to_string())
}

/// The other end ended the stream.
pub(super) fn ended(condition: Option<StreamCondition>) -> DriverError {
    let why = condition.map(|condition| format!(": {}", condition.as_str())).unwrap_or_default();
    DriverError::Connection(format!("the other end ended the stream{why}"))
}
