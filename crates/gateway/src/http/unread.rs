//! Answers that clients have not taken yet.
//!
//! All of them together have a bound. Above it an answer of the principal that has most gives way, by the rules for
//! unfinished input (ADR 0036): its stream is reset, or its HTTP/1.1 connection ends. An HTTP/2 stream that takes
//! nothing for too long is reset too. Small answers are not counted: a request for a message of usual size costs no
//! lock and no allocation.

mod values;

use std::{
    pin::{Pin, pin},
    rc::Rc,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use fogmux_http::{Kind, Problem};
use http::{Method, Response};
use tokio::time::{Instant, Sleep, sleep};

pub(super) use values::{SMALL_BYTES, Values};

use super::{
    config::SEND_BUFFER_BYTES,
    conn::Conn,
    identity::Identity,
    io::{Carrier, Progress},
    payload::Payload,
    respond,
    shared::HttpDoor,
};
use crate::{
    stops::Running,
    unfinished::{Place, Waiter},
};

/// Bytes that hyper or h3 gets at a time, so that the rest stays here until the client takes it. One frame of HTTP/2
/// carries as much (RFC 9113 §6.5.2).
const PIECE_BYTES: usize = 16 << 10;
/// The same over HTTP/1.1, where an answer has the connection to itself.
const PIECE_BYTES_1: usize = 256 << 10;
/// The longest that a slow link may prolong the deadline of a stream.
const SLOW_MAX: Duration = Duration::from_secs(60);
/// The interval at which a stream that takes nothing is checked.
const TICK: Duration = Duration::from_secs(2);

/// The client for which an answer is made.
pub(super) struct Reader {
    conn: Rc<Conn>,
    identity: Rc<Identity>,
    /// The request changes nothing, so it may be answered by 503 when it has been performed.
    is_safe: bool,
}

impl Reader {
    pub(super) fn new(conn: &Rc<Conn>, identity: &Rc<Identity>, method: &Method) -> Self {
        Self { conn: Rc::clone(conn), identity: Rc::clone(identity), is_safe: method.is_safe() }
    }

    /// Counts the answer until the client has taken it. When there is no room for it, a safe request is answered by
    /// 503; any other answer is sent as far as the client takes it at once, because what was asked has been done.
    pub(super) fn count(self, response: Response<Payload>) -> Response<Payload> {
        let Some(bytes) = response.body().large() else { return response };
        let Self { conn, identity, is_safe } = self;
        let mut place = Place::with(&conn.ctx.door.unread, identity.owner(&conn), waiter(&conn.progress));
        let waiter = Arc::clone(place.waiter());
        let values = &conn.ctx.door.unread_values;
        let has_room = place.set(&conn.ctx, values.weight(&bytes), 0);
        if !has_room && is_safe && conn.progress.forget(&waiter) {
            let problem = Problem::new(Kind::Unavailable).detail("too many answers wait for their clients");
            return respond::problem(&problem.retry_after(1));
        }
        let taken = Arc::new(AtomicBool::new(false));
        values.enter(&bytes, &place);
        let door = Arc::clone(&conn.ctx.door);
        let rest = Bytes::from_owner(Held { bytes, place, door, taken: Arc::clone(&taken) });
        response.map(|_| Payload::unread(Unread { rest, conn, waiter, taken }))
    }
}

/// Answers of one HTTP/1.1 connection give way together, because it can only end as a whole.
fn waiter(progress: &Progress) -> Arc<Waiter> {
    match progress.carrier.get() {
        Carrier::One => Arc::clone(progress.unread.borrow_mut().get_or_insert_default()),
        Carrier::Two | Carrier::Three => Arc::default(),
    }
}

/// The bytes of an answer. They have their place until the last slice of them is dropped, wherever that is: in hyper's
/// buffer or in that of HTTP/2.
struct Held {
    bytes: Bytes,
    place: Place,
    door: Arc<HttpDoor>,
    taken: Arc<AtomicBool>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.door.unread_values.leave(&self.bytes, &self.place, &self.door.unread);
        self.place.leave();
        self.taken.store(true, Release);
        self.place.waiter().wake();
    }
}

/// An answer of which the client has yet to take something.
pub(super) struct Unread {
    rest: Bytes,
    conn: Rc<Conn>,
    waiter: Arc<Waiter>,
    /// No slice is left.
    taken: Arc<AtomicBool>,
}

impl Unread {
    pub(super) const fn rest(&self) -> &Bytes {
        &self.rest
    }

    pub(super) const fn waiter(&self) -> &Arc<Waiter> {
        &self.waiter
    }

    /// The next piece, or none after the last. Over HTTP/2 the end comes only when the client has taken everything: a
    /// stream whose end is queued could no longer be reset.
    pub(super) fn poll_piece(&mut self, cx: &Context<'_>) -> Poll<Option<Bytes>> {
        if !self.rest.is_empty() {
            self.waiter.touch(&self.conn.ctx);
            let piece = self.rest.split_to(self.rest.len().min(self.piece_bytes()));
            if self.rest.is_empty() {
                // An empty slice would hold the buffer.
                self.rest = Bytes::new();
            }
            return Poll::Ready(Some(piece));
        }
        if self.ends_with_last_piece() {
            return Poll::Ready(None);
        }
        // The last slice wakes the task when it goes.
        let _ = self.waiter.poll_gave_way(cx);
        if self.is_taken() { Poll::Ready(None) } else { Poll::Pending }
    }

    pub(super) fn is_end(&self) -> bool {
        self.rest.is_empty() && self.ends_with_last_piece()
    }

    fn piece_bytes(&self) -> usize {
        match self.conn.progress.carrier.get() {
            Carrier::One => PIECE_BYTES_1,
            Carrier::Two | Carrier::Three => PIECE_BYTES,
        }
    }

    fn ends_with_last_piece(&self) -> bool {
        match self.conn.progress.carrier.get() {
            Carrier::One | Carrier::Three => true,
            Carrier::Two => false,
        }
    }

    fn is_taken(&self) -> bool {
        self.taken.load(Acquire)
    }
}

/// Bytes that a body has given to hyper, as the task of its HTTP/2 stream sees it.
#[derive(Debug, Default)]
pub(super) enum Step {
    /// It was not asked.
    #[default]
    Unasked,
    /// It has nothing to give.
    Empty,
    /// It gave some, and the client has to take them; its place, if it is counted.
    Gave(Option<Arc<Waiter>>),
}

/// Runs the future of an HTTP/2 stream, and drops it, which resets the stream, when its answer gives way or the client
/// takes nothing for too long.
pub(super) async fn watched<F: Future>(conn: Rc<Conn>, future: F) {
    let mut future = pin!(future);
    let mut watch = None;
    std::future::poll_fn(|cx| {
        conn.progress.step.take();
        if future.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        match conn.progress.step.take() {
            Step::Unasked => {}
            Step::Empty => watch = None,
            Step::Gave(waiter) => {
                let until = conn.ctx.running() + limit(&conn);
                let tick = watch.take().map_or_else(|| Box::pin(sleep(TICK)), |before: Watch| before.tick);
                watch = Some(Watch { waiter, until, tick });
            }
        }
        watch.as_mut().map_or(Poll::Pending, |watch| watch.poll(&conn, cx))
    })
    .await;
}

/// How long a stream may take nothing: as long as a connection, and as long as what hyper has of it already needs on a
/// slow link, from which no window comes before it has arrived.
fn limit(conn: &Conn) -> Duration {
    let config = &conn.ctx.door.config;
    let seconds = SEND_BUFFER_BYTES.div_ceil(config.body_bytes_per_second.max(1));
    config.write_timeout.saturating_add(Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX)).min(SLOW_MAX))
}

/// A stream whose client has to take something.
struct Watch {
    waiter: Option<Arc<Waiter>>,
    until: Running,
    tick: Pin<Box<Sleep>>,
}

impl Watch {
    /// Ready when the stream has to end.
    fn poll(&mut self, conn: &Conn, cx: &mut Context<'_>) -> Poll<()> {
        if self.waiter.as_ref().is_some_and(|waiter| waiter.poll_gave_way(cx).is_ready()) {
            conn.progress.gave_way.set(true);
            return Poll::Ready(());
        }
        while self.tick.as_mut().poll(cx).is_ready() {
            if conn.progress.blocked.get() {
                // The connection takes nothing, which has a deadline of its own.
                self.until = conn.ctx.running() + limit(conn);
            } else if conn.ctx.has_passed(self.until) {
                conn.ctx.shared.metrics.http.timed_out.increment();
                return Poll::Ready(());
            }
            self.tick.as_mut().reset(Instant::now() + TICK);
        }
        Poll::Pending
    }
}
