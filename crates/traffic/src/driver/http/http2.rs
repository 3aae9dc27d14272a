//! HTTP/2 (RFC 9113) by the `h2` crate itself, without hyper's client and its task and channel for every request:
//! a request is a stream, and all streams of a connection are polled in one turn.

mod link;

use std::collections::VecDeque;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes as Chunk;
use fogmux_client::Dialer;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use h2::RecvStream;
use h2::client::ResponseFuture;
use http::{HeaderValue, Request as HttpRequest, header};

pub(super) use self::link::Link;
use self::link::{Links, is_farewell};
use super::body::Body;
use super::events::Events;
use super::over;
use super::request::{Kind, Prepared, Requests, Surface, absolute};
use crate::driver::{Answer, Client, DriverError, Pending, Request, Sink, too_large};
use crate::experiment::Door;
use crate::outcome::Bytes;
use crate::text::said;

/// A connection, and what follows when the other end has had enough of it.
pub(super) struct Http2 {
    links: Links,
    prepared: Prepared<HttpRequest<()>>,
    /// The length that was said last, as a header has it; most payloads are as long as the one before.
    length: (usize, HeaderValue),
    /// In line for a stream: the other end says how many there may be.
    waiting: VecDeque<Asked>,
    exchanges: FuturesUnordered<Exchange>,
    followed: Vec<(RecvStream, Events)>,
    bytes: Bytes,
}

/// A submitted request.
struct Asked {
    tag: u64,
    kind: Kind,
    requests: Rc<Requests<HttpRequest<()>>>,
    payload: Chunk,
}

impl Asked {
    /// As it goes out; `length` is the last one.
    fn request(&self, length: &mut (usize, HeaderValue)) -> HttpRequest<()> {
        match self.kind {
            Kind::Publish => {
                if length.0 != self.payload.len() {
                    *length = (self.payload.len(), HeaderValue::from(self.payload.len()));
                }
                let mut request = self.requests.publish.clone();
                request.headers_mut().insert(header::CONTENT_LENGTH, length.1.clone());
                request
            }
            Kind::Get => self.requests.get.clone(),
            // That there is one was seen when it was submitted.
            Kind::Subscribe => self.requests.subscribe.clone().unwrap_or_default(),
        }
    }
}

impl Http2 {
    pub(super) fn new(dialer: Rc<Dialer>, link: Link, surface: Surface) -> Self {
        Self {
            links: Links::new(dialer, link),
            prepared: Prepared::new(surface, absolute),
            length: (0, HeaderValue::from_static("0")),
            waiting: VecDeque::new(),
            exchanges: FuturesUnordered::new(),
            followed: Vec::new(),
            bytes: Bytes::default(),
        }
    }

    /// Whether a request was handed to `h2`.
    fn send(&mut self, cx: &mut Context<'_>) -> Result<bool, DriverError> {
        let mut sent = false;
        while let Some(asked) = self.waiting.front() {
            let Poll::Ready(link) = self.links.poll_current(cx) else { break };
            let sender = &mut link?.sender;
            match sender.poll_ready(cx) {
                Poll::Pending => break,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) if is_farewell(&error) => {
                    self.links.leave();
                    continue;
                }
                Poll::Ready(Err(error)) => return Err(over(error)),
            }
            let bodiless = asked.kind != Kind::Publish || asked.payload.is_empty();
            let (response, mut body) = match sender.send_request(asked.request(&mut self.length), bodiless) {
                Ok(begun) => begun,
                Err(error) if is_farewell(&error) => {
                    self.links.leave();
                    continue;
                }
                Err(error) => return Err(over(error)),
            };
            let Some(asked) = self.waiting.pop_front() else { break };
            self.bytes.payload_up += asked.payload.len() as u64;
            if !bodiless {
                // It waits within h2 for the windows of the other end. Refused only if the stream has ended already,
                // and then its response says why.
                let _ = body.send_data(asked.payload.clone(), true);
            }
            let body_bytes_max = self.prepared.surface.body_bytes_max;
            self.exchanges.push(Exchange { asked: Some(asked), state: State::Head(response), body_bytes_max });
            sent = true;
        }
        Ok(sent)
    }

    /// Whether an answer was complete.
    fn answers(&mut self, cx: &mut Context<'_>, sink: &mut dyn Sink) -> bool {
        let mut came = false;
        while let Poll::Ready(Some(Some(Finished { asked, end }))) = self.exchanges.poll_next_unpin(cx) {
            let Asked { tag, kind, .. } = asked;
            match end {
                End::Answer(status, body) => kind.answered(tag, status, body.bytes(), &mut self.bytes, sink),
                End::Stream(stream) => {
                    self.followed.push((stream, Events::new(self.prepared.surface.event_bytes_max)));
                    kind.answered(tag, 200, &[], &mut self.bytes, sink);
                }
                End::Failed(error) if is_farewell(&error) => {
                    self.bytes.payload_up -= asked.payload.len() as u64;
                    self.waiting.push_front(asked);
                    self.links.leave();
                }
                End::Failed(error) => sink.done(tag, Answer::Refused(&said(&error.to_string()))),
                End::TooLarge(bytes_max) => sink.done(tag, Answer::Refused(&too_large(bytes_max))),
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
                events.read(&chunk, |arrival| {
                    self.bytes.payload_down += arrival.payload.len() as u64;
                    sink.message(arrival);
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
        let requests = Rc::clone(self.prepared.of(topic)?);
        if kind == Kind::Subscribe && requests.subscribe.is_none() {
            return Err(DriverError::Unsupported { door: Door::Http2, what: "event stream of a peer" });
        }
        self.waiting.push_back(Asked { tag, kind, requests, payload: Chunk::copy_from_slice(payload) });
        Ok(())
    }

    fn poll_turn(&mut self, cx: &mut Context<'_>, sink: &mut dyn Sink) -> Poll<Result<(), DriverError>> {
        let sent = self.send(cx)?;
        let over_now = self.links.poll(cx);
        let answered = self.answers(cx, sink);
        let came = self.events(cx, sink)?;
        match over_now {
            // A subscriber cannot resume its event stream on another connection.
            Poll::Ready(Ok(())) if !self.followed.is_empty() => return Poll::Ready(Err(over("it has closed"))),
            Poll::Ready(Err(error)) if !is_farewell(&error) => return Poll::Ready(Err(over(error))),
            Poll::Ready(Ok(()) | Err(_)) => self.links.leave(),
            Poll::Pending => {}
        }
        if sent || answered || came { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn is_open(&self) -> bool {
        self.links.is_open()
    }

    /// Protocol bytes are those of the stream above TLS: all frames.
    fn bytes(&self) -> Bytes {
        self.bytes.plus(self.links.bytes())
    }

    fn close(self: Box<Self>) -> Pending<'static, ()> {
        let Self { links, exchanges, followed, .. } = *self;
        Box::pin(async move {
            drop((exchanges, followed));
            links.close().await;
        })
    }
}

/// A request under way.
struct Exchange {
    /// Until it is over.
    asked: Option<Asked>,
    state: State,
    body_bytes_max: usize,
}

enum State {
    Head(ResponseFuture),
    Body(u16, RecvStream, Body),
    Over,
}

struct Finished {
    asked: Asked,
    end: End,
}

enum End {
    Answer(u16, Body),
    Stream(RecvStream),
    /// The body has more bytes than this. The stream is reset when it is dropped.
    TooLarge(usize),
    /// Of this request only, or of all: the connection says which.
    Failed(h2::Error),
}

impl Future for Exchange {
    type Output = Option<Finished>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Finished>> {
        let end = match ready!(self.poll_end(cx)) {
            Ok(end) => end,
            Err(error) => End::Failed(error),
        };
        self.state = State::Over;
        Poll::Ready(self.asked.take().map(|asked| Finished { asked, end }))
    }
}

impl Exchange {
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<End, h2::Error>> {
        if let State::Head(response) = &mut self.state {
            let (head, stream) = ready!(Pin::new(response).poll(cx))?.into_parts();
            let status = head.status.as_u16();
            let follows = self.asked.as_ref().is_some_and(|asked| asked.kind == Kind::Subscribe);
            if follows && status == 200 {
                return Poll::Ready(Ok(End::Stream(stream)));
            }
            self.state = State::Body(status, stream, Body::default());
        }
        let State::Body(status, stream, body) = &mut self.state else { return Poll::Pending };
        while !stream.is_end_stream() {
            let Some(chunk) = ready!(stream.poll_data(cx)) else { break };
            let chunk = chunk?;
            stream.flow_control().release_capacity(chunk.len())?;
            if body.len() + chunk.len() > self.body_bytes_max {
                return Poll::Ready(Ok(End::TooLarge(self.body_bytes_max)));
            }
            body.push(chunk);
        }
        Poll::Ready(Ok(End::Answer(*status, mem::take(body))))
    }
}
