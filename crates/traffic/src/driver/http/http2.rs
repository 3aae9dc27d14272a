//! HTTP/2 (RFC 9113) by the `h2` crate itself, without hyper's client and its task and channel for every request:
//! a request is a stream, and all streams of a connection are polled in one turn.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes as Chunk;
use fogmux_client::{Counted, Counter};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use h2::RecvStream;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use http::{HeaderValue, Request as HttpRequest, header};

use super::body::Body;
use super::events::Events;
use super::request::{Kind, Prepared, Surface, absolute};
use super::{Tcp, over};
use crate::driver::{Answer, Client, DriverError, Pending, Request, Sink};
use crate::experiment::Door;
use crate::outcome::Bytes;

/// What the other end may send of one stream, and of all, before we take it: as hyper's client has it, so that nobody
/// is measured with the 64 KiB that the standard begins with (RFC 9113 §6.9.2).
const STREAM_WINDOW_BYTES: u32 = 2 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 5 << 20;

/// A connection.
pub(super) struct Http2 {
    sender: SendRequest<Chunk>,
    connection: Connection<Counted<Tcp>, Chunk>,
    /// Above TLS.
    frames: Arc<Counter>,
    /// Below it.
    socket: Arc<Counter>,
    prepared: Prepared<HttpRequest<()>>,
    /// The length that was said last, as a header has it; most payloads are as long as the one before.
    length: (usize, HeaderValue),
    /// In line for a stream: the other end says how many there may be.
    waiting: VecDeque<Waiting>,
    exchanges: FuturesUnordered<Exchange>,
    followed: Vec<(RecvStream, Events)>,
    bytes: Bytes,
}

struct Waiting {
    tag: u64,
    kind: Kind,
    request: HttpRequest<()>,
    payload: Chunk,
}

impl Http2 {
    /// Sends the preface and our settings; with TLS the protocol has been agreed on by ALPN, without by prior knowledge
    /// (RFC 9113 §3.3).
    pub(super) async fn open(stream: Tcp, socket: Arc<Counter>, surface: Surface) -> Result<Self, DriverError> {
        let stream = Counted::new(stream);
        let frames = stream.counter();
        let mut builder = Builder::new();
        builder
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .enable_push(false);
        let (sender, mut connection) = builder.handshake(stream).await.map_err(over)?;
        // Our settings go out now, and not with the first request.
        let begun = poll_fn(|cx| Poll::Ready(Pin::new(&mut connection).poll(cx))).await;
        if let Poll::Ready(ended) = begun {
            ended.map_err(over)?;
        }
        Ok(Self {
            sender,
            connection,
            frames,
            socket,
            prepared: Prepared::new(surface, absolute),
            length: (0, HeaderValue::from_static("0")),
            waiting: VecDeque::new(),
            exchanges: FuturesUnordered::new(),
            followed: Vec::new(),
            bytes: Bytes::default(),
        })
    }

    /// Whether a request was handed to `h2`.
    fn send(&mut self, cx: &mut Context<'_>) -> Result<bool, DriverError> {
        let mut sent = false;
        while !self.waiting.is_empty() {
            let Poll::Ready(ready) = self.sender.poll_ready(cx) else { break };
            ready.map_err(over)?;
            let Some(Waiting { tag, kind, request, payload }) = self.waiting.pop_front() else { break };
            let bodiless = kind != Kind::Publish || payload.is_empty();
            let (response, mut body) = self.sender.send_request(request, bodiless).map_err(over)?;
            self.bytes.payload_up += payload.len() as u64;
            if !bodiless {
                // It waits within h2 for the windows of the other end. Refused only if the stream has ended already,
                // and then its response says why.
                let _ = body.send_data(payload, true);
            }
            self.exchanges.push(Exchange { tag, kind, state: State::Head(response) });
            sent = true;
        }
        Ok(sent)
    }

    /// Whether an answer was complete.
    fn answers(&mut self, cx: &mut Context<'_>, sink: &mut dyn Sink) -> bool {
        let mut came = false;
        while let Poll::Ready(Some(Finished { tag, kind, end })) = self.exchanges.poll_next_unpin(cx) {
            match end {
                End::Answer(status, body) => kind.answered(tag, status, body.bytes(), &mut self.bytes, sink),
                End::Stream(stream) => {
                    self.followed.push((stream, Events::default()));
                    kind.answered(tag, 200, &[], &mut self.bytes, sink);
                }
                End::Failed(error) => sink.done(tag, Answer::Refused(&error.to_string())),
            }
            came = true;
        }
        came
    }

    /// Whether event streams had anything.
    fn events(&mut self, cx: &mut Context<'_>, sink: &mut dyn Sink) -> Result<bool, DriverError> {
        let mut came = false;
        for (stream, events) in &mut self.followed {
            while let Poll::Ready(chunk) = stream.poll_data(cx) {
                let chunk = chunk.ok_or_else(|| over("it has ended the event stream"))?.map_err(over)?;
                events.read(&chunk, |payload| {
                    self.bytes.payload_down += payload.len() as u64;
                    sink.message(payload);
                })?;
                stream.flow_control().release_capacity(chunk.len()).map_err(over)?;
                came = true;
            }
        }
        Ok(came)
    }
}

impl Client for Http2 {
    fn submit(&mut self, request: Request<'_>, tag: u64) -> Result<(), DriverError> {
        let (topic, kind, payload) = Kind::of(request);
        let requests = self.prepared.of(topic)?;
        let request = match kind {
            Kind::Publish => {
                if self.length.0 != payload.len() {
                    self.length = (payload.len(), HeaderValue::from(payload.len()));
                }
                let mut request = requests.publish.clone();
                request.headers_mut().insert(header::CONTENT_LENGTH, self.length.1.clone());
                request
            }
            Kind::Get => requests.get.clone(),
            Kind::Subscribe => requests
                .subscribe
                .clone()
                .ok_or(DriverError::Unsupported { door: Door::Http2, what: "event stream of a peer" })?,
        };
        self.waiting.push_back(Waiting { tag, kind, request, payload: Chunk::copy_from_slice(payload) });
        Ok(())
    }

    fn poll_turn(&mut self, cx: &mut Context<'_>, sink: &mut dyn Sink) -> Poll<Result<(), DriverError>> {
        let sent = self.send(cx)?;
        // Writes what has been put in, and reads what there is.
        let over_now = Pin::new(&mut self.connection).poll(cx);
        let answered = self.answers(cx, sink);
        let came = self.events(cx, sink)?;
        match over_now {
            Poll::Ready(Ok(())) => Poll::Ready(Err(over("it has closed"))),
            Poll::Ready(Err(error)) => Poll::Ready(Err(over(error))),
            Poll::Pending if sent || answered || came => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Protocol bytes are those of the stream above TLS: all frames.
    fn bytes(&self) -> Bytes {
        Bytes {
            protocol_up: self.frames.up(),
            protocol_down: self.frames.down(),
            socket_up: self.socket.up(),
            socket_down: self.socket.down(),
            ..self.bytes
        }
    }

    fn close(self: Box<Self>) -> Pending<'static, ()> {
        let Self { sender, connection, exchanges, followed, .. } = *self;
        Box::pin(async move {
            // GOAWAY (RFC 9113 §6.8) goes out when nobody can ask any more.
            drop((sender, exchanges, followed));
            let _ = connection.await;
        })
    }
}

/// A request under way.
struct Exchange {
    tag: u64,
    kind: Kind,
    state: State,
}

enum State {
    Head(ResponseFuture),
    Body(u16, RecvStream, Body),
    Over,
}

struct Finished {
    tag: u64,
    kind: Kind,
    end: End,
}

enum End {
    Answer(u16, Body),
    Stream(RecvStream),
    /// Of this request only, or of all: the connection says which.
    Failed(h2::Error),
}

impl Future for Exchange {
    type Output = Finished;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Finished> {
        let (tag, kind) = (self.tag, self.kind);
        let end = match ready!(self.poll_end(cx)) {
            Ok(end) => end,
            Err(error) => End::Failed(error),
        };
        self.state = State::Over;
        Poll::Ready(Finished { tag, kind, end })
    }
}

impl Exchange {
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<End, h2::Error>> {
        if let State::Head(response) = &mut self.state {
            let (head, stream) = ready!(Pin::new(response).poll(cx))?.into_parts();
            let status = head.status.as_u16();
            if self.kind == Kind::Subscribe && status == 200 {
                return Poll::Ready(Ok(End::Stream(stream)));
            }
            self.state = State::Body(status, stream, Body::default());
        }
        let State::Body(status, stream, body) = &mut self.state else { return Poll::Pending };
        while !stream.is_end_stream() {
            let Some(chunk) = ready!(stream.poll_data(cx)) else { break };
            let chunk = chunk?;
            stream.flow_control().release_capacity(chunk.len())?;
            body.push(chunk);
        }
        Poll::Ready(Ok(End::Answer(*status, mem::take(body))))
    }
}
