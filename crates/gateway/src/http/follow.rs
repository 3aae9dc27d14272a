//! `GET /subscribe`: the reader's end of an event stream, as server-sent events, lines of JSON or WebSocket messages.

mod right;
mod wanted;

use std::{
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use fogmux_auth::{Action, Door};
use fogmux_bus::{Claim, Displaced, Mailbox as _, ReadGate as _};
use fogmux_http::{
    Kind, Problem, Query, accept, publish,
    sse::{self, EventId, GapReason},
    websocket::handshake,
};
use http::{
    HeaderName, Method, Response, Version,
    header::{ACCEPT, CACHE_CONTROL, CONNECTION, VARY},
    request::Parts,
};
use smallvec::SmallVec;
use tokio::time::Sleep;

use self::wanted::wanted;
use super::{
    conn::{Conn, Upgrade},
    framing::Format,
    identity::{EXPIRED, Identity},
    payload::Payload,
    respond, state,
    stream::EventStream,
    streams::{Chunk, Gap, NoStream, Place, Portion, Stream, Taken},
    translate, websocket,
};
use crate::{clients::Listed, liveness::check_sleep, phase::Phase, recheck::Recheck, shutdown::Reading, turn};

/// The most that is taken from the mailbox and encoded at a time, of live and of retained messages each.
const PORTION: Portion = Portion { messages: 64, bytes: 16 << 10 };
/// Retained messages looked up at a time.
const RETAINED_MESSAGES: usize = 32;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Responds to a request for a stream: with the stream, or with the handshake of a WebSocket.
pub(super) fn subscribe(
    conn: &Rc<Conn>,
    identity: &Rc<Identity>,
    parts: &Parts,
) -> Result<Response<Payload>, Problem<'static>> {
    if parts.method == Method::CONNECT || handshake::is_upgrade(&parts.headers) {
        return websocket::events(conn, identity, parts);
    }
    let lines: SmallVec<[&str; 4]> =
        parts.headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let content_type =
        accept::choose(&lines, &[sse::CONTENT_TYPE, publish::NDJSON]).ok_or(Problem::new(Kind::NotAcceptable))?;
    let format = if content_type == sse::CONTENT_TYPE { Format::Sse } else { Format::Ndjson };
    let payload = match parts.method {
        Method::HEAD => Payload::unsized_empty(),
        _ => body(conn, parts, Follow::open(conn, identity, parts, format)?),
    };
    let mut response = Response::new(payload);
    let headers = response.headers_mut();
    if parts.version <= Version::HTTP_11 {
        headers.insert(CONNECTION, http::HeaderValue::from_static("close"));
    }
    headers.insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static(match format {
            Format::Sse => sse::CONTENT_TYPE,
            Format::Ndjson | Format::WebSocket => publish::NDJSON,
        }),
    );
    headers.insert(CACHE_CONTROL, respond::NO_STORE);
    headers.insert(VARY, http::HeaderValue::from_static("accept, last-event-id"));
    // nginx buffers a response unless told not to.
    headers.insert(HeaderName::from_static("x-accel-buffering"), http::HeaderValue::from_static("no"));
    Ok(response)
}

/// The body of the response. Over HTTP/1.1 the stream has the connection to itself and is written without hyper, whose
/// buffers would be held as long as the stream lasts.
fn body(conn: &Rc<Conn>, parts: &Parts, follow: Follow) -> Payload {
    if parts.version > Version::HTTP_11 {
        return Payload::events(follow);
    }
    let stream = EventStream::new(follow, parts.version == Version::HTTP_11);
    *conn.upgrade.borrow_mut() = Some(Upgrade::Stream(stream));
    Payload::elsewhere(&conn.progress)
}

/// The reader's end of a stream. When it is dropped, the stream waits for the reader to return.
pub(super) struct Follow {
    conn: Rc<Conn>,
    identity: Rc<Identity>,
    /// The generation of the rules that were checked last.
    generation: u64,
    /// The rules under which messages came into the mailbox.
    recheck: Recheck,
    /// Whether the reader has lost its right, so that the stream ends.
    is_over: bool,
    second_look: Pin<Box<dyn Future<Output = ()>>>,
    stream: Arc<Stream>,
    /// Its place in the list of connections.
    listed: Listed,
    claim: Claim,
    format: Format,
    /// Whether the reader, an administrator, is told where messages came from.
    names_origin: bool,
    /// Completes when the shutdown is one phase further.
    drain: Pin<Box<dyn Future<Output = ()>>>,
    phase: Phase,
    reading: Reading,
    keep_alive: Pin<Box<Sleep>>,
    /// Bytes to send before the first event.
    first: Vec<u8>,
    /// Whether the walk over the retained messages had not ended when the mailbox was last read.
    walking: bool,
}

impl Follow {
    /// Resumes the stream that the request names, or opens a new one, with a gap if it could not be resumed.
    pub(super) fn open(
        conn: &Rc<Conn>,
        identity: &Rc<Identity>,
        parts: &Parts,
        format: Format,
    ) -> Result<Self, Problem<'static>> {
        let query = Query::parse(parts.uri.query()).map_err(|invalid| invalid.problem())?;
        let names_origin = query.origin.unwrap_or(false);
        if names_origin {
            state::check_admin(conn, identity, Action::Read)?;
        }
        let wanted = wanted(conn, identity, &query)?;
        let header = parts.headers.get(LAST_EVENT_ID).and_then(|value| value.to_str().ok());
        let last = header.or(query.since.as_deref()).filter(|text| !text.is_empty());
        let ctx = &conn.ctx;
        let registry = &ctx.door.streams;
        let resumed = last.and_then(|text| registry.resume(ctx, text.parse().ok()?, &wanted));
        let mut first = Vec::new();
        if format == Format::Sse {
            first.extend_from_slice(sse::PREAMBLE);
        }
        let generation = ctx.authority().generation();
        let mut recheck = Recheck::new(generation);
        let (stream, claim) = match resumed {
            Some((stream, claim)) => {
                recheck = Recheck::of_unknown(generation);
                push_rest(format, &stream, claim, &mut first);
                (stream, claim)
            }
            None => {
                if last.is_some() {
                    format.push_notice("gap", None, &sse::gap_json(GapReason::Expired, None, None), &mut first);
                }
                registry.open(ctx, wanted).map_err(unavailable)?
            }
        };
        let listed = ctx.enter(Door::Http, &conn.peer, &identity.publisher);
        Ok(Self {
            conn: Rc::clone(conn),
            identity: Rc::clone(identity),
            generation,
            recheck,
            is_over: false,
            second_look: Box::pin(ctx.door.second_look()),
            stream,
            listed,
            claim,
            format,
            names_origin,
            drain: Box::pin(ctx.emptying()),
            phase: Phase::Open,
            reading: Reading::begin(&ctx.shared.shutdown),
            keep_alive: Box::pin(tokio::time::sleep_until(next_look(conn, identity))),
            first,
            walking: true,
        })
    }

    /// Follows the shutdown of the gateway: to its end, a stream is sent what it is owed.
    fn poll_phase(&mut self, cx: &mut Context<'_>) -> Phase {
        if self.phase < Phase::Emptying && self.drain.as_mut().poll(cx).is_ready() {
            self.phase = Phase::Emptying;
            self.drain = Box::pin(self.conn.ctx.closing());
        }
        if self.phase == Phase::Emptying && self.drain.as_mut().poll(cx).is_ready() {
            self.phase = Phase::Closing;
        }
        self.phase
    }

    /// The next bytes of the stream; `None` when the gateway shuts down or another reader has taken over.
    pub(super) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let phase = self.poll_phase(cx);
        if phase == Phase::Closing {
            return Poll::Ready(None);
        }
        if self.conn.ctx.now() >= self.identity.expires() {
            self.lose_right(EXPIRED);
            return Poll::Ready(None);
        }
        self.listed.register(cx.waker());
        if self.listed.is_kicked() {
            // Not for another reader who has taken it over.
            if self.stream.slot.with_claim(self.claim, |_| ()).is_ok() {
                self.end();
            }
            return Poll::Ready(None);
        }
        if self.second_look.as_mut().poll(cx).is_ready() {
            self.second_look = Box::pin(self.conn.ctx.door.second_look());
            // Registers for the next.
            cx.waker().wake_by_ref();
            if !self.may_go_on() {
                return Poll::Ready(None);
            }
        }
        let mut out = std::mem::take(&mut self.first);
        let Ok(left) = self.fill(cx, &mut out) else { return Poll::Ready(None) };
        if phase == Phase::Emptying {
            self.reading.note_progress();
            if out.is_empty() && !left.output && !left.walking {
                return Poll::Ready(None);
            }
        }
        if !out.is_empty() {
            return Poll::Ready(Some(out.into()));
        }
        if left.output {
            // This portion yielded no output, but there is more.
            turn::again(cx);
            return Poll::Pending;
        }
        if self.keep_alive.as_mut().poll(cx).is_pending() {
            check_sleep(&self.conn.ctx, "http", || (left.output || left.walking).then_some(left));
            return Poll::Pending;
        }
        if !self.may_go_on() {
            return Poll::Ready(None);
        }
        let next = next_look(&self.conn, &self.identity);
        self.keep_alive.as_mut().reset(next);
        // Registers the timer.
        if self.keep_alive.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
        Poll::Ready(Some(self.format.keep_alive()))
    }

    /// Encodes a portion of the mailbox. Returns what is left in it; later deliveries wake the task.
    fn fill(&mut self, cx: &Context<'_>, out: &mut Vec<u8>) -> Result<Left, Displaced> {
        // Retained messages are looked up before the mailbox is drained, so that messages delivered in between are
        // newer.
        let chunk = if self.walking { self.look_up()? } else { None };
        self.recheck.note(self.conn.ctx.authority().generation());
        let max_qos = self.stream.max_qos();
        let (gap, live, retained, fresh, left) = self.stream.slot.poll_with(self.claim, cx, |mailbox| {
            let (gap, waited) = (mailbox.take_gap(), mailbox.waiting());
            let live = mailbox.take_some(PORTION);
            // Those before them are sent for the second time.
            let fresh = waited - mailbox.waiting();
            let retained = chunk.map(|chunk| mailbox.take_retained(&chunk, &live, PORTION, max_qos));
            let left = Left { output: mailbox.has_output(), walking: mailbox.place().is_some() };
            (gap, live, retained, fresh, left)
        })?;
        self.walking = left.walking;
        if let Some(Gap { sequence, missed }) = gap {
            let id = self.id(sequence);
            self.format.push_notice("gap", Some(&id), &sse::gap_json(GapReason::Slow, missed, Some(&id)), out);
        }
        let now = self.conn.ctx.now();
        let again = live.len().saturating_sub(fresh);
        let counted = live.iter().enumerate().map(|(index, taken)| (taken, index >= again, false));
        let (mut expired, mut withdrawn, mut for_others) = (0, 0, Vec::new());
        let retained = retained.iter().flatten().map(|taken| (taken, false, true));
        for (taken, is_fresh, is_retained) in counted.chain(retained) {
            if taken.message.is_expired(now) {
                expired += usize::from(is_fresh);
            } else if !self.recheck.is_due() || self.identity.gate.may_read(&taken.message.topic) {
                self.push(taken, out);
                if is_fresh {
                    self.conn.ctx.delivered(&taken.message, Door::Http, || Some(&self.identity.publisher));
                } else if is_retained {
                    self.conn.ctx.read(&taken.message, Door::Http, || &self.identity.publisher);
                }
            } else if is_fresh && taken.share != 0 {
                for_others.push((taken.share, Arc::clone(&taken.message)));
            } else {
                withdrawn += usize::from(is_fresh);
            }
        }
        if !left.output {
            self.recheck.emptied();
        }
        let counters = self.conn.ctx.bus().counters();
        counters.drained((fresh - expired - withdrawn - for_others.len()) as u64, expired as u64, 0);
        counters.gone(withdrawn as u64);
        self.stream.hand_on_unread(&self.conn.ctx, for_others);
        Ok(left)
    }

    /// Looks up the next retained messages that may be read; `None` when the walk has ended.
    fn look_up(&self) -> Result<Option<Chunk>, Displaced> {
        let Some(place) = self.stream.slot.with_claim(self.claim, |mailbox| mailbox.place().cloned())? else {
            return Ok(None);
        };
        let Some(subscription) = self.stream.subscriptions.get(place.subscription) else {
            return Ok(Some(Chunk { place, messages: Vec::new(), next: None }));
        };
        let following = Some(Place { subscription: place.subscription + 1, after: None });
        // A shared subscription gets no retained message (MQTT 5.0 §4.8.2).
        if subscription.group.is_some() {
            return Ok(Some(Chunk { place, messages: Vec::new(), next: following }));
        }
        let ctx = &self.conn.ctx;
        let found = ctx.bus().retained(&subscription.filter, place.after.as_ref(), RETAINED_MESSAGES, ctx.now());
        let earlier = self.stream.subscriptions.get(..place.subscription).unwrap_or_default();
        let mut messages = found.messages;
        messages.retain(|message| {
            // Overlapping filters give one copy.
            !earlier.iter().any(|other| other.group.is_none() && other.filter.matches(&message.topic))
                && self.identity.gate.access().may_read(&message.topic)
        });
        let next =
            found.next.map_or(following, |after| Some(Place { after: Some(after), subscription: place.subscription }));
        Ok(Some(Chunk { place, messages, next }))
    }

    fn id(&self, sequence: u64) -> String {
        EventId { stream: self.stream.id, sequence }.to_string()
    }

    fn push(&self, taken: &Taken, out: &mut Vec<u8>) {
        let id = self.id(taken.sequence);
        let encodings = &self.conn.ctx.events;
        let head = translate::Head { id: &id, names_origin: self.names_origin };
        self.format.push_event(&id, out, |out| translate::push_json(encodings, taken, head, out));
    }

    /// Ends the stream for good, because its reader has closed it.
    pub(super) fn end(&self) {
        self.conn.ctx.door.streams.end(&self.conn.ctx, &self.stream);
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        let ctx = &self.conn.ctx;
        if ctx.is_draining() {
            self.reading.leave(self.stream.slot.with_claim(self.claim, |mailbox| mailbox.waiting()).unwrap_or(0));
        }
        ctx.door.streams.park(ctx, &self.stream, self.claim);
    }
}

/// When a quiet stream has to send a keep-alive, or end because its credential expires.
fn next_look(conn: &Conn, identity: &Identity) -> tokio::time::Instant {
    let next = tokio::time::Instant::now() + conn.ctx.door.config.event_keep_alive;
    next.min(conn.ctx.shared.clock.instant(identity.expires()))
}

fn unavailable(reason: NoStream) -> Problem<'static> {
    Problem::new(Kind::Unavailable).detail(reason.to_string()).retry_after(5)
}

/// The state of a mailbox after a portion was taken.
#[derive(Clone, Copy, Debug)]
struct Left {
    /// There is something to send.
    output: bool,
    /// The walk over the retained messages has not ended.
    walking: bool,
}

/// Tells a reader that resumes in the middle of the retained messages which of them are still to come.
fn push_rest(format: Format, stream: &Stream, claim: Claim, out: &mut Vec<u8>) {
    let Ok(Some(place)) = stream.slot.with_claim(claim, |mailbox| mailbox.place().cloned()) else { return };
    let rest = stream.subscriptions.iter().enumerate().skip(place.subscription);
    let after = |index: usize| place.after.as_deref().filter(|_| index == place.subscription);
    let rest = rest.filter(|(_, subscription)| subscription.group.is_none());
    let json = sse::rest_json(rest.map(|(index, subscription)| (subscription.filter.as_str(), after(index))));
    format.push_notice("retained", None, &json, out);
}
