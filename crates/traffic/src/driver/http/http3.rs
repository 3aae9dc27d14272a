//! HTTP/3 (RFC 9114) by quinn and h3.
//!
//! quinn moves datagrams in a task of its own; a request is a future, because h3 has no other way of sending one, and
//! all of a connection are polled in one turn.

mod metered;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes as Chunk};
use futures_util::StreamExt as _;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;
use h3::client::{Connection, RequestStream, SendRequest};
use h3::error::{Code, StreamError};
use http::{HeaderValue, Request as HttpRequest, header};
use quinn::crypto::rustls::QuicClientConfig;

use self::metered::{Meter, MeteredBidi, MeteredConnection, MeteredOpener};
use super::body::Body;
use super::events::Events;
use super::over;
use super::request::{Kind, Prepared, Surface, absolute};
use crate::driver::{Answer, Client, DriverError, Pending, Request, Sink, too_large};
use crate::experiment::Door;
use crate::outcome::Bytes;
use crate::text::said;

/// H3_NO_ERROR (RFC 9114 §8.1).
const NO_ERROR: u32 = 0x100;

type Stream = RequestStream<MeteredBidi, Chunk>;

/// A connection.
pub(super) struct Http3 {
    quic: quinn::Connection,
    connection: Connection<MeteredConnection, Chunk>,
    sender: SendRequest<MeteredOpener, Chunk>,
    meter: Rc<Meter>,
    prepared: Prepared<HttpRequest<()>>,
    exchanges: FuturesUnordered<LocalBoxFuture<'static, Finished>>,
    followed: Vec<(Stream, Events)>,
    bytes: Bytes,
}

impl Http3 {
    /// Connects to `remote`, whose certificate carries `name`. Each connection has a socket of its own, as each device
    /// has.
    pub(super) async fn open(
        remote: SocketAddr,
        name: &str,
        tls: Arc<QuicClientConfig>,
        surface: Surface,
    ) -> Result<Self, DriverError> {
        let local: SocketAddr =
            if remote.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
        let mut endpoint = quinn::Endpoint::client(local).map_err(over)?;
        endpoint.set_default_client_config(quinn::ClientConfig::new(tls));
        let quic = endpoint.connect(remote, name).map_err(over)?.await.map_err(over)?;
        let meter = Rc::new(Meter::default());
        // Greasing (RFC 9114 §7.2.8) would add a frame of random length to every request.
        let (connection, sender) = h3::client::builder()
            .send_grease(false)
            .build(MeteredConnection::new(quic.clone(), Rc::clone(&meter)))
            .await
            .map_err(over)?;
        Ok(Self {
            quic,
            connection,
            sender,
            meter,
            prepared: Prepared::new(surface, absolute),
            exchanges: FuturesUnordered::new(),
            followed: Vec::new(),
            bytes: Bytes::default(),
        })
    }

    /// Whether an answer was complete.
    fn answers(&mut self, cx: &mut Context<'_>, sink: &mut dyn Sink) -> bool {
        let mut came = false;
        while let Poll::Ready(Some(Finished { tag, kind, end })) = self.exchanges.poll_next_unpin(cx) {
            match end {
                Ok(End::Answer(status, body)) => kind.answered(tag, status, body.bytes(), &mut self.bytes, sink),
                Ok(End::Stream(stream)) => {
                    self.followed.push((*stream, Events::new(self.prepared.surface.event_bytes_max)));
                    kind.answered(tag, 200, &[], &mut self.bytes, sink);
                }
                Ok(End::TooLarge(bytes_max)) => sink.done(tag, Answer::Refused(&too_large(bytes_max))),
                Err(error) => sink.done(tag, Answer::Refused(&said(&error.to_string()))),
            }
            came = true;
        }
        came
    }

    /// Whether event streams had anything.
    fn events(&mut self, cx: &mut Context<'_>, sink: &mut dyn Sink) -> Result<bool, DriverError> {
        let mut came = false;
        for (stream, events) in &mut self.followed {
            while let Poll::Ready(chunk) = stream.poll_recv_data(cx) {
                let mut chunk = chunk.map_err(over)?.ok_or_else(|| over("it has ended the event stream"))?;
                let chunk = chunk.copy_to_bytes(chunk.remaining());
                events.read(&chunk, |arrival| {
                    self.bytes.payload_down += arrival.payload.len() as u64;
                    sink.message(arrival);
                })?;
                came = true;
            }
        }
        Ok(came)
    }
}

impl Client for Http3 {
    fn submit(&mut self, request: Request<'_>, tag: u64) -> Result<(), DriverError> {
        let (topic, kind, payload) = Kind::of(request);
        let requests = self.prepared.of(topic)?;
        let request = match kind {
            Kind::Publish => {
                let mut request = requests.publish.clone();
                request.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(payload.len()));
                request
            }
            Kind::Get => requests.get.clone(),
            Kind::Subscribe => requests
                .subscribe
                .clone()
                .ok_or(DriverError::Unsupported { door: Door::Http3, what: "event stream of a peer" })?,
        };
        self.bytes.payload_up += payload.len() as u64;
        let (sender, payload) = (self.sender.clone(), Chunk::copy_from_slice(payload));
        let body_bytes_max = self.prepared.surface.body_bytes_max;
        self.exchanges.push(Box::pin(async move {
            Finished { tag, kind, end: exchange(sender, kind, request, payload, body_bytes_max).await }
        }));
        Ok(())
    }

    fn poll_turn(&mut self, cx: &mut Context<'_>, sink: &mut dyn Sink) -> Poll<Result<(), DriverError>> {
        let closed = self.connection.poll_close(cx);
        let answered = self.answers(cx, sink);
        let came = self.events(cx, sink)?;
        match closed {
            Poll::Ready(error) => Poll::Ready(Err(over(error))),
            Poll::Pending if answered || came => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Protocol bytes are those of all QUIC streams: HTTP/3 and QPACK. Socket bytes are the payloads of UDP datagrams:
    /// what QUIC and its TLS add is the difference.
    fn bytes(&self) -> Bytes {
        let stats = self.quic.stats();
        Bytes {
            protocol_up: self.meter.up.get(),
            protocol_down: self.meter.down.get(),
            socket_up: stats.udp_tx.bytes,
            socket_down: stats.udp_rx.bytes,
            ..self.bytes
        }
    }

    fn close(self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(async move {
            self.quic.close(NO_ERROR.into(), b"");
            // quinn's task sends it now. That the three timeouts of RFC 9000 §10.2 are over is not waited for, as
            // nobody waits for the end of TCP's TIME-WAIT: it would be counted as a part of a short visit.
            tokio::task::yield_now().await;
        })
    }
}

struct Finished {
    tag: u64,
    kind: Kind,
    end: Result<End, StreamError>,
}

enum End {
    Answer(u16, Body),
    Stream(Box<Stream>),
    /// The body has more bytes than this.
    TooLarge(usize),
}

async fn exchange(
    mut sender: SendRequest<MeteredOpener, Chunk>,
    kind: Kind,
    request: HttpRequest<()>,
    payload: Chunk,
    body_bytes_max: usize,
) -> Result<End, StreamError> {
    let mut stream = sender.send_request(request).await?;
    // A server may answer and stop reading; then its answer tells more than the failed write.
    let sent = async {
        if !payload.is_empty() {
            stream.send_data(payload).await?;
        }
        stream.finish().await
    };
    let sent = sent.await;
    let response = match (stream.recv_response().await, sent) {
        (Ok(response), _) => response,
        (Err(_), Err(error)) | (Err(error), Ok(())) => return Err(error),
    };
    let status = response.status().as_u16();
    if kind == Kind::Subscribe && status == 200 {
        return Ok(End::Stream(Box::new(stream)));
    }
    let mut body = Body::default();
    while let Some(mut piece) = stream.recv_data().await? {
        if body.len() + piece.remaining() > body_bytes_max {
            // RFC 9114 §4.1.1: who does not want the rest of an answer says so.
            stream.stop_sending(Code::H3_REQUEST_CANCELLED);
            return Ok(End::TooLarge(body_bytes_max));
        }
        body.push(piece.copy_to_bytes(piece.remaining()));
    }
    Ok(End::Answer(status, body))
}
