//! HTTP/1.1 (RFC 9112) on a stream of our own: one write and one read for each exchange.
//!
//! Requests are not pipelined, as no client in use does: what is submitted while an answer is awaited goes out in
//! sequence, so that a window above 1 keeps a connection busy and never has two requests under way. An event stream
//! takes its connection for itself.

mod line;
mod response;

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::Write as _;
use std::task::{Context, Poll};

use tokio::io::ReadBuf;

pub(super) use self::line::Line;
use self::response::{Malformed, Part, Reader};
use super::events::Events;
use super::over;
use super::request::{Kind, Prepared, Surface, head};
use crate::driver::{Answer, Client, DriverError, Pending, Request, Sink, too_large};
use crate::experiment::Door;
use crate::outcome::Bytes;

/// The size of a read, in bytes.
const READ_BYTES: usize = 64 << 10;
/// The number of request buffers kept for reuse.
const SPARE_MAX: usize = 128;

thread_local! {
    /// Where every connection of a thread reads to.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A connection.
pub(super) struct Http1 {
    line: Line,
    prepared: Prepared<Vec<u8>>,
    reader: Reader,
    /// In line behind the current one.
    waiting: VecDeque<Exchange>,
    current: Option<Exchange>,
    /// Bytes of the current request that are in the socket.
    written: usize,
    flushing: bool,
    status: u16,
    body: Vec<u8>,
    /// A subscription has been submitted.
    follows: bool,
    events: Option<Events>,
    spare: Vec<Vec<u8>>,
    bytes: Bytes,
}

struct Exchange {
    tag: u64,
    kind: Kind,
    /// Head and payload as they go out.
    request: Vec<u8>,
    payload_bytes: usize,
}

impl Http1 {
    pub(super) fn new(line: Line, surface: Surface) -> Self {
        Self {
            line,
            prepared: Prepared::new(surface, head),
            reader: Reader::default(),
            waiting: VecDeque::new(),
            current: None,
            written: 0,
            flushing: false,
            status: 0,
            body: Vec::new(),
            follows: false,
            events: None,
            spare: Vec::new(),
            bytes: Bytes::default(),
        }
    }

    /// Whether anything went out.
    fn send(&mut self, cx: &mut Context<'_>) -> Result<bool, DriverError> {
        if self.current.is_none() {
            self.current = self.waiting.pop_front();
            self.written = 0;
            self.bytes.payload_up += self.current.as_ref().map_or(0, |current| current.payload_bytes as u64);
        }
        if self.current.is_some() && self.line.poll_open(cx)?.is_pending() {
            return Ok(false);
        }
        let mut sent = false;
        while let Some(current) = &self.current
            && let Some(rest @ [_, ..]) = current.request.get(self.written..)
        {
            match self.line.poll_write(cx, rest) {
                Poll::Pending => return Ok(sent),
                Poll::Ready(Ok(0)) => return Err(over("it takes nothing any more")),
                Poll::Ready(Ok(count)) => {
                    self.written += count;
                    self.bytes.protocol_up += count as u64;
                    sent = true;
                    self.flushing = true;
                }
                Poll::Ready(Err(error)) => return Err(over(error)),
            }
        }
        if self.flushing && self.line.poll_flush(cx).map_err(over)?.is_ready() {
            self.flushing = false;
        }
        Ok(sent)
    }

    /// Whether anything came in.
    fn read(&mut self, cx: &mut Context<'_>, sink: &mut dyn Sink) -> Result<bool, DriverError> {
        let mut scratch = SCRATCH.take();
        scratch.resize(READ_BYTES, 0);
        let mut buffer = ReadBuf::new(&mut scratch);
        let came = match self.line.poll_read(cx, &mut buffer) {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(())) if buffer.filled().is_empty() => self.ended(sink),
            Poll::Ready(Ok(())) => self.receive(buffer.filled(), sink).map(|()| true),
            Poll::Ready(Err(error)) => Err(over(error)),
        };
        SCRATCH.set(scratch);
        came
    }

    fn receive(&mut self, mut input: &[u8], sink: &mut dyn Sink) -> Result<(), DriverError> {
        self.bytes.protocol_down += input.len() as u64;
        while let Some(part) = self.reader.next(&mut input).map_err(malformed)? {
            match part {
                Part::Head(status) => self.begin(status, sink)?,
                Part::Body(part) => match &mut self.events {
                    Some(events) => events.read(part, |arrival| {
                        self.bytes.payload_down += arrival.payload.len() as u64;
                        sink.message(arrival);
                    })?,
                    None if self.body.len() + part.len() > self.prepared.surface.body_bytes_max => {
                        self.overlong(sink);
                        return Ok(());
                    }
                    None => self.body.extend_from_slice(part),
                },
                Part::End => self.finish(sink)?,
            }
        }
        Ok(())
    }

    fn begin(&mut self, status: u16, sink: &mut dyn Sink) -> Result<(), DriverError> {
        let Some(current) = &self.current else {
            return Err(DriverError::Protocol("an answer that nobody asked for".to_owned()));
        };
        self.status = status;
        if current.kind == Kind::Subscribe && status == 200 {
            self.events = Some(Events::new(self.prepared.surface.event_bytes_max));
            current.kind.answered(current.tag, status, &[], &mut self.bytes, sink);
        }
        Ok(())
    }

    fn finish(&mut self, sink: &mut dyn Sink) -> Result<(), DriverError> {
        if self.events.is_some() {
            return Err(over("it has ended the event stream"));
        }
        let Some(Exchange { tag, kind, mut request, .. }) = self.current.take() else { return Ok(()) };
        kind.answered(tag, self.status, &self.body, &mut self.bytes, sink);
        self.body.clear();
        if self.written < request.len() {
            // RFC 9112 §9.5: who answers before the request is whole will not read the rest.
            return Err(over(format_args!("it answered {} in the middle of a request", self.status)));
        }
        if self.reader.closes() {
            self.line.leave();
            self.flushing = false;
        }
        if self.spare.len() < SPARE_MAX {
            request.clear();
            self.spare.push(request);
        }
        Ok(())
    }

    /// An answer is larger than any that is expected, and may have no end: what is left of it goes with the connection.
    fn overlong(&mut self, sink: &mut dyn Sink) {
        let Some(Exchange { tag, .. }) = self.current.take() else { return };
        sink.done(tag, Answer::Refused(&too_large(self.prepared.surface.body_bytes_max)));
        self.body = Vec::new();
        self.reader = Reader::default();
        self.line.leave();
        self.flushing = false;
    }

    /// It has closed. Whether that was an answer's end.
    fn ended(&mut self, sink: &mut dyn Sink) -> Result<bool, DriverError> {
        if self.current.is_none() {
            // RFC 9112 §9.5: of an idle connection it may; whoever comes next opens another.
            self.line.leave();
            return Ok(false);
        }
        if !self.reader.until_close() {
            return Err(over("it has closed"));
        }
        // RFC 9112 §6.3: the end of the connection is the end of such a body.
        self.finish(sink)?;
        self.line.leave();
        self.reader = Reader::default();
        Ok(true)
    }
}

impl Client for Http1 {
    fn submit(&mut self, request: Request<'_>, tag: u64) -> Result<(), DriverError> {
        if self.follows {
            return Err(DriverError::Unsupported { door: Door::Http1, what: "request beside an event stream" });
        }
        let mut out = self.spare.pop().unwrap_or_default();
        let (topic, kind, payload) = Kind::of(request);
        let requests = self.prepared.of(topic)?;
        match kind {
            Kind::Publish => {
                out.extend_from_slice(&requests.publish);
                // Writing to a vector cannot fail.
                let _ = write!(out, "Content-Length: {}\r\n\r\n", payload.len());
                out.extend_from_slice(payload);
            }
            Kind::Get => {
                out.extend_from_slice(&requests.get);
                out.extend_from_slice(b"\r\n");
            }
            Kind::Subscribe => {
                let subscribe = requests.subscribe.as_ref();
                let missing = DriverError::Unsupported { door: Door::Http1, what: "event stream of a peer" };
                out.extend_from_slice(subscribe.ok_or(missing)?);
                out.extend_from_slice(b"\r\n");
                self.follows = true;
            }
        }
        self.waiting.push_back(Exchange { tag, kind, request: out, payload_bytes: payload.len() });
        Ok(())
    }

    fn poll_turn(&mut self, cx: &mut Context<'_>, sink: &mut dyn Sink) -> Poll<Result<(), DriverError>> {
        let mut happened = self.send(cx)?;
        if self.read(cx, sink)? {
            happened = true;
            // Requests that waited for this answer are sent in the same turn.
            self.send(cx)?;
        }
        if happened { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn is_open(&self) -> bool {
        self.line.is_open()
    }

    /// Protocol bytes are those of the stream above TLS.
    fn bytes(&self) -> Bytes {
        let (socket_up, socket_down) = self.line.bytes();
        Bytes { socket_up, socket_down, ..self.bytes }
    }

    fn close(self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(self.line.close())
    }
}

fn malformed(error: Malformed) -> DriverError {
    DriverError::Protocol(error.to_string())
}
