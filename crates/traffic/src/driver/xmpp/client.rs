//! A connection that is logged in: requests out, answers and notifications in, one write and one read a turn.

use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fogmux_xmpp::iq::{Answer as IqAnswer, IqHead, IqKind};
use fogmux_xmpp::stream::RawEvent;
use fogmux_xmpp::{ClientEvent, Element, Payload, Query, StanzaCondition, StanzaError, ns};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};

use super::node::{Nodes, Prepared};
use super::request::Asked;
use super::scan::{self, Text};
use super::session::{Session, broken, ended, protocol};
use crate::driver::{Answer, Arrival, Client, DriverError, Pending, Request, Role, Sink};
use crate::outcome::Bytes;
use crate::text::said;

/// The size of a read, in bytes.
const TURN_BYTES: usize = 64 << 10;
/// The time to wait for the server's `</stream:stream>` (RFC 6120 §4.4 leaves it to the implementation).
const FAREWELL: Duration = Duration::from_secs(1);

thread_local! {
    /// The read buffer of all connections of the thread, so that ten thousand idle ones hold no buffers.
    static SPARE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A client.
pub(super) struct XmppClient {
    session: Session,
    nodes: Nodes,
    /// How much of the output is written.
    written: usize,
    /// TLS may hold back what it was given until it is told to flush.
    unflushed: bool,
    decoded: Vec<u8>,
    payload_up: u64,
    payload_down: u64,
}

impl XmppClient {
    /// Of a session whose resource is bound.
    pub(super) fn new(session: Session, role: Role, retain: bool, prepared: Prepared) -> Self {
        let nodes = Nodes::new(&session.service, &session.jid, role, retain, prepared);
        let (written, unflushed, decoded) = (0, false, Vec::new());
        Self { session, nodes, written, unflushed, decoded, payload_up: 0, payload_down: 0 }
    }

    /// Writes what waits; whether anything went out.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Result<bool, DriverError> {
        let session = &mut self.session;
        let mut progress = false;
        while let Some(rest) = session.output.get(self.written..).filter(|rest| !rest.is_empty()) {
            match Pin::new(&mut session.transport).poll_write(cx, rest) {
                Poll::Pending => return Ok(progress),
                Poll::Ready(Ok(0)) => return Err(DriverError::Connection("it takes no more bytes".to_owned())),
                Poll::Ready(Ok(bytes)) => {
                    self.written += bytes;
                    session.protocol_up += bytes as u64;
                    (progress, self.unflushed) = (true, true);
                }
                Poll::Ready(Err(error)) => return Err(broken(&error)),
            }
        }
        session.output.clear();
        self.written = 0;
        if self.unflushed {
            match Pin::new(&mut session.transport).poll_flush(cx) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => self.unflushed = false,
                Poll::Ready(Err(error)) => return Err(broken(&error)),
            }
        }
        Ok(progress)
    }

    /// Reads once and tells the sink; whether anything came.
    fn poll_read(&mut self, cx: &mut Context<'_>, sink: &mut dyn Sink) -> Result<bool, DriverError> {
        let held = self.session.input.len();
        // The beginning of a stanza is copied in front of what follows, but one of a large message keeps its place.
        let shared = held <= TURN_BYTES / 2;
        let mut buffer = if shared { SPARE.take() } else { std::mem::take(&mut self.session.input) };
        if shared {
            buffer.resize(TURN_BYTES, 0);
            if let Some(front) = buffer.get_mut(..held) {
                front.copy_from_slice(&self.session.input);
            }
        } else {
            buffer.resize(held + TURN_BYTES, 0);
        }
        let outcome = self.read_behind(cx, &mut buffer, held, sink);
        let (filled, used) = outcome.as_ref().map_or((held, 0), |(bytes, used)| (held + bytes, *used));
        if shared {
            self.session.input.clear();
            self.session.input.extend_from_slice(buffer.get(used..filled).unwrap_or_default());
            SPARE.set(buffer);
        } else {
            buffer.truncate(filled);
            buffer.drain(..used);
            // The memory of a large message is released after it.
            self.session.input = if buffer.len() <= TURN_BYTES / 2 { buffer.to_vec() } else { buffer };
        }
        outcome.map(|(bytes, _)| bytes > 0)
    }

    /// Reads into `buffer` behind the `held` bytes that are there: how many bytes came, and how many are done with.
    fn read_behind(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
        held: usize,
        sink: &mut dyn Sink,
    ) -> Result<(usize, usize), DriverError> {
        let mut room = ReadBuf::new(buffer.get_mut(held..).unwrap_or_default());
        match Pin::new(&mut self.session.transport).poll_read(cx, &mut room) {
            Poll::Pending => return Ok((0, 0)),
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => return Err(broken(&error)),
        }
        let bytes = room.filled().len();
        if bytes == 0 {
            return Err(DriverError::Connection("the other end closed the connection".to_owned()));
        }
        self.session.protocol_down += bytes as u64;
        let used = self.take(buffer.get(..held + bytes).unwrap_or_default(), sink)?;
        Ok((bytes, used))
    }

    /// Takes whole stanzas from the front of `bytes`; how many bytes they were.
    fn take(&mut self, bytes: &[u8], sink: &mut dyn Sink) -> Result<usize, DriverError> {
        let mut used = 0;
        loop {
            let rest = bytes.get(used..).unwrap_or_default();
            let (more, event) = self.session.stream.next_raw(rest).map_err(|error| protocol(&error))?;
            used += more;
            match event {
                None => return Ok(used),
                Some(RawEvent::Ended) => return Err(ended(None)),
                Some(RawEvent::Stanza(stanza)) => self.stanza(stanza, sink)?,
            }
        }
    }

    /// Handles a stanza. Notifications and results, of which there are many, are recognised without a parser.
    fn stanza(&mut self, stanza: &[u8], sink: &mut dyn Sink) -> Result<(), DriverError> {
        if let Some(scan::Notified { node, text }) = scan::notified(stanza)
            && let Some(payload) = plain(text, &mut self.decoded)
        {
            self.payload_down += payload.len() as u64;
            sink.message(Arrival { topic: node, is_kept: false, payload });
            return Ok(());
        }
        match scan::answer(stanza).filter(|answer| answer.success).and_then(|answer| Asked::read(answer.id)) {
            Some(Asked::Publish(tag)) => {
                sink.done(tag, Answer::Success(&[]));
                return Ok(());
            }
            Some(Asked::Get(tag)) => {
                if let Some(text) = scan::found(stanza)
                    && let Some(payload) = plain(text, &mut self.decoded)
                {
                    self.payload_down += payload.len() as u64;
                    sink.done(tag, Answer::Success(payload));
                    return Ok(());
                }
            }
            Some(Asked::Subscribe(_) | Asked::Node(_)) | None => {}
        }
        self.parsed(stanza, sink)
    }

    fn parsed(&mut self, stanza: &[u8], sink: &mut dyn Sink) -> Result<(), DriverError> {
        let element = match self.session.stream.handle_raw(stanza, &mut self.session.output) {
            None => return Ok(()),
            Some(ClientEvent::Stanza(element)) => element,
            Some(ClientEvent::Ended(condition)) => return Err(ended(condition)),
            Some(ClientEvent::Failed(error)) => return Err(protocol(&error)),
            Some(
                ClientEvent::StartTls
                | ClientEvent::Mechanisms(_)
                | ClientEvent::Challenge(_)
                | ClientEvent::Success(_)
                | ClientEvent::Refused(_)
                | ClientEvent::Bound(_),
            ) => return Err(DriverError::Protocol("a login within the stream".to_owned())),
        };
        match (element.name, element.attr("type")) {
            ("iq", Some("result" | "error")) => self.answered(&element, sink),
            ("iq", Some("get" | "set")) => self.asked(&element),
            ("message", kind) if kind != Some("error") => self.notified(&element, sink),
            _ => {}
        }
        Ok(())
    }

    /// An answer that says more than that all is well.
    fn answered(&mut self, iq: &Element<'_>, sink: &mut dyn Sink) {
        let Some(asked) = iq.attr("id").and_then(|id| Asked::read(id.as_bytes())) else { return };
        let error = (iq.attr("type") == Some("error")).then(|| fogmux_xmpp::iq::error_of(iq).unwrap_or_else(undefined));
        match (asked, error) {
            (Asked::Node(index), error) => {
                let ready = self.nodes.answered(index, iq, error.as_ref(), &mut self.session.output);
                for held in ready {
                    self.send(held.request(), held.tag);
                }
            }
            (Asked::Publish(tag) | Asked::Get(tag) | Asked::Subscribe(tag), Some(error)) => {
                sink.done(tag, Answer::Refused(&words(&error)));
            }
            (Asked::Publish(tag), None) => sink.done(tag, Answer::Success(&[])),
            (Asked::Subscribe(tag), None) => match subscription(iq) {
                Some("subscribed") | None => sink.done(tag, Answer::Success(&[])),
                Some(state) => sink.done(tag, Answer::Refused(&said(state))),
            },
            (Asked::Get(tag), None) => {
                let items = iq.child(ns::PUBSUB, "pubsub").and_then(|pubsub| pubsub.child(ns::PUBSUB, "items"));
                let item = items.and_then(|items| items.child(ns::PUBSUB, "item"));
                match item.and_then(|item| Payload::of_item(item).ok().flatten()) {
                    Some(payload) => {
                        self.payload_down += payload.bytes.len() as u64;
                        sink.done(tag, Answer::Success(&payload.bytes));
                    }
                    None => sink.done(tag, Answer::Refused("no item")),
                }
            }
        }
    }

    /// RFC 6120 §8.2.3: who is asked answers. A ping is all that servers ask of clients (XEP-0199 §4.1).
    fn asked(&mut self, iq: &Element<'_>) {
        let Ok(head) = IqHead::of(iq) else { return };
        let answer = IqAnswer { id: head.id, from: None, to: iq.attr("from").unwrap_or(&self.session.domain) };
        if head.kind == IqKind::Get && Query::of(iq, head.kind) == Ok(Query::Ping) {
            answer.empty(&mut self.session.output);
        } else {
            answer.error(&mut self.session.output, &StanzaError::new(StanzaCondition::ServiceUnavailable));
        }
    }

    /// A notification in words that [`scan`] leaves to the parser.
    fn notified(&mut self, message: &Element<'_>, sink: &mut dyn Sink) {
        let event = message.child(ns::PUBSUB_EVENT, "event");
        let Some(items) = event.and_then(|event| event.child(ns::PUBSUB_EVENT, "items")) else { return };
        for item in items.children_named(ns::PUBSUB_EVENT, "item") {
            if let Ok(Some(payload)) = Payload::of_item(item) {
                self.payload_down += payload.bytes.len() as u64;
                sink.message(Arrival { topic: items.attr("node"), is_kept: false, payload: &payload.bytes });
            }
        }
    }

    /// Encodes a request whose node is as it should be.
    fn send(&mut self, request: Request<'_>, tag: u64) {
        if let Request::Publish { payload, .. } = request {
            self.payload_up += payload.len() as u64;
        }
        self.nodes.write(request, tag, &mut self.session.output);
    }
}

impl Client for XmppClient {
    fn submit(&mut self, request: Request<'_>, tag: u64) -> Result<(), DriverError> {
        if self.nodes.is_ready(request, tag, &mut self.session.output)? {
            self.send(request, tag);
        }
        Ok(())
    }

    fn poll_turn(&mut self, cx: &mut Context<'_>, sink: &mut dyn Sink) -> Poll<Result<(), DriverError>> {
        let turn = self.poll_write(cx).and_then(|sent| Ok(self.poll_read(cx, sink)? || sent));
        match turn {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn bytes(&self) -> Bytes {
        let (socket_up, socket_down) = self.session.socket_bytes();
        Bytes {
            payload_up: self.payload_up,
            payload_down: self.payload_down,
            protocol_up: self.session.protocol_up,
            protocol_down: self.session.protocol_down,
            socket_up,
            socket_down,
            wire: None,
        }
    }

    fn close(mut self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(async move {
            self.session.output.drain(..self.written);
            // Errors are ignored, since the server may be gone already.
            let _ = tokio::time::timeout(FAREWELL, self.session.close()).await;
        })
    }
}

/// The payload as bytes; nothing when it is not what it says.
fn plain<'t>(text: Text<'t>, decoded: &'t mut Vec<u8>) -> Option<&'t [u8]> {
    match text {
        Text::Plain(bytes) => Some(bytes),
        Text::Base64(text) => {
            decoded.clear();
            STANDARD.decode_vec(text, decoded).ok()?;
            Some(decoded)
        }
    }
}

/// Returns the state of a subscription (XEP-0060 §6.1.2), which a server may omit.
fn subscription<'e>(iq: &'e Element<'_>) -> Option<&'e str> {
    iq.child(ns::PUBSUB, "pubsub")?.child(ns::PUBSUB, "subscription")?.attr("subscription")
}

fn undefined() -> StanzaError {
    StanzaError::new(StanzaCondition::UndefinedCondition)
}

/// An error for people.
fn words(error: &StanzaError) -> String {
    let mut words = error.condition.as_str().to_owned();
    if let Some(pubsub) = error.pubsub {
        words = format!("{words}, {}", pubsub.as_str());
    }
    match &error.text {
        Some(text) => said(&format!("{words}: {text}")),
        None => words,
    }
}
