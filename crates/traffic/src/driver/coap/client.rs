//! A client: one turn sends, receives and looks at the clock.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fogmux_coap::client::{Machine, MessageBytes, RequestError};
use fogmux_coap::{BlockSize, Timestamp};
use fogmux_oscore::RequestProtection;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::{Instant, Sleep, timeout};

use super::account::Account;
use super::datagrams::{Buffers, Datagrams};
use super::line::Line;
use super::resource::{Resource, Shape};
use crate::driver::{Client, DriverError, Nobody, Pending, Request, Sink};
use crate::experiment::Door;
use crate::outcome::Bytes;

/// Datagrams that a client takes in before others have their turn.
const TURN: usize = 64;
/// Within which an alarm is looked at in each turn: more than what the coarse clock is behind (a tick of the kernel).
const SOON: Duration = Duration::from_millis(50);
/// How long the end of observations is waited for.
const CLOSING_PATIENCE: Duration = Duration::from_millis(500);

/// Milliseconds of the clock that ticks with the kernel (`CLOCK_MONOTONIC_COARSE`), which costs no more than a look.
fn coarse_ms() -> u64 {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    seconds * 1_000 + u64::try_from(time.tv_nsec).unwrap_or_default() / 1_000_000
}

/// The moment at which a client began to connect, by the precise clock and by the coarse one.
#[derive(Clone, Copy)]
pub(super) struct Since {
    began: Instant,
    coarse_ms: u64,
}

impl Since {
    pub(super) fn now() -> Self {
        Self { began: Instant::now(), coarse_ms: coarse_ms() }
    }

    /// The time since then.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// The time since then, some milliseconds late: deadlines of this protocol are seconds away, and reading the
    /// precise clock for each datagram costs as much as the datagram where the processor's own is of no use.
    fn coarse(&self) -> Timestamp {
        Timestamp::from_millis(coarse_ms().saturating_sub(self.coarse_ms))
    }

    /// The moment of the precise clock.
    fn at(&self, due: Timestamp) -> Instant {
        self.began + Duration::from_millis(due.as_millis())
    }
}

/// Where messages go and come from.
pub(super) enum Link {
    Datagrams(Datagrams),
    Line(Box<Line>),
}

impl Link {
    /// The block size, and the bytes of a body in one message; of datagrams 1024 (RFC 7252 §4.6).
    pub(super) fn blocks(&self) -> (BlockSize, usize) {
        match self {
            Self::Datagrams(_) => (BlockSize::MAX, BlockSize::MAX.bytes()),
            Self::Line(line) => line.blocks(),
        }
    }
}

/// A client on its link, with what it has under way.
pub(super) struct CoapClient {
    link: Link,
    machine: Machine<RequestProtection>,
    shape: Rc<Shape>,
    /// The topics so far.
    resources: Vec<Resource>,
    account: Account,
    buffers: Rc<RefCell<Buffers>>,
    since: Since,
    /// When the last turn began.
    turn_at: Timestamp,
    /// The last turn ended with an empty socket, which wakes us.
    watched: bool,
    alarm: Option<Alarm>,
}

/// When the earliest deadline was, the last time one was set, and what wakes us then.
struct Alarm {
    set: Timestamp,
    sleep: Pin<Box<Sleep>>,
    /// The waker of the task that waits.
    waker: Option<Waker>,
}

impl CoapClient {
    /// A client without requests, on a link that is connected.
    pub(super) fn new(
        link: Link,
        machine: Machine<RequestProtection>,
        shape: Rc<Shape>,
        buffers: Rc<RefCell<Buffers>>,
        since: Since,
    ) -> Self {
        Self {
            link,
            machine,
            shape,
            resources: Vec::new(),
            account: Account::default(),
            buffers,
            since,
            turn_at: Timestamp::ZERO,
            watched: false,
            alarm: None,
        }
    }

    /// Sends what waits. Returns whether something is done by that; what was merely sent is nobody's news.
    fn send(&mut self, cx: &mut Context<'_>, now: Timestamp, sink: &mut dyn Sink) -> Result<bool, DriverError> {
        let mut done = false;
        let mut events = self.account.relay(sink);
        match &mut self.link {
            Link::Datagrams(datagrams) => {
                let mut buffers = self.buffers.borrow_mut();
                while let Some(message) = self.machine.front() {
                    match datagrams.poll_send(cx, message, &mut buffers.record) {
                        Poll::Ready(result) => result?,
                        Poll::Pending => break,
                    }
                    done |= self.machine.sent(now, &mut events);
                }
            }
            Link::Line(line) => {
                while line.has_room() {
                    let Some(message) = self.machine.front() else { break };
                    line.push(message);
                    done |= self.machine.sent(now, &mut events);
                }
                if let Poll::Ready(result) = line.poll_flush(cx) {
                    result?;
                }
            }
        }
        Ok(done)
    }

    /// Takes in what came, up to a turn's worth. Returns whether anything did.
    fn receive(&mut self, cx: &mut Context<'_>, now: Timestamp, sink: &mut dyn Sink) -> Result<bool, DriverError> {
        let mut buffers = self.buffers.borrow_mut();
        let Buffers { datagram, plain, .. } = &mut *buffers;
        let (machine, mut events) = (&mut self.machine, self.account.relay(sink));
        for turn in 0..TURN {
            match &mut self.link {
                Link::Datagrams(datagrams) => {
                    let Poll::Ready(bytes) = datagrams.poll_receive(cx, datagram) else {
                        self.watched = true;
                        return Ok(turn > 0);
                    };
                    let datagram = datagram.get(..bytes?).unwrap_or_default();
                    datagrams.each_message(datagram, plain, |message| machine.handle(now, message, &mut events))?;
                    if machine.is_idle() {
                        datagrams.rest();
                    }
                }
                Link::Line(line) => {
                    let Poll::Ready(result) = line.poll_receive(cx, datagram) else { return Ok(turn > 0) };
                    result?;
                    line.each_message(now, |message, bytes| {
                        machine.handle_stream(now, message, bytes, &mut events);
                    })?;
                }
            }
        }
        Ok(true)
    }

    /// Does what is due, and sees to it that we are woken for what will be. The alarm may be too early, for it is set
    /// only when a deadline comes before all others; answers cost no timer.
    fn watch_clock(&mut self, cx: &mut Context<'_>, now: Timestamp, sink: &mut dyn Sink) -> Result<bool, DriverError> {
        let of_line = match &self.link {
            Link::Datagrams(_) => None,
            Link::Line(line) => Some(line.next_timeout()),
        };
        let Some(due) = [self.machine.next_timeout(), of_line].into_iter().flatten().min() else {
            self.alarm = None;
            return Ok(false);
        };
        // It knows whom to wake, and is far away: nothing to be done for each datagram.
        if let Some(Alarm { set, waker: Some(known), .. }) = &self.alarm
            && *set <= due
            && now + SOON < *set
            && known.will_wake(cx.waker())
        {
            return Ok(false);
        }
        let at = self.since.at(due);
        let alarm = self.alarm.get_or_insert_with(|| Alarm {
            set: due,
            sleep: Box::pin(tokio::time::sleep_until(at)),
            waker: None,
        });
        if due < alarm.set {
            alarm.set = due;
            alarm.sleep.as_mut().reset(at);
        }
        let set = alarm.set;
        alarm.waker = Some(cx.waker().clone());
        if alarm.sleep.as_mut().poll(cx).is_pending() {
            return Ok(false);
        }
        self.alarm = None;
        // The clock of the turn is a little behind the timer's.
        let now = now.max(set);
        self.machine.handle_timeout(now, &mut self.account.relay(sink));
        if let Link::Line(line) = &mut self.link
            && line.next_timeout() <= now
        {
            line.handle_timeout(now)?;
        }
        self.send(cx, now, sink)?;
        Ok(true)
    }

    async fn end(mut self) {
        if self.machine.has_observations() {
            let mut nobody = Nobody;
            self.machine.deregister(&mut self.account.relay(&mut nobody));
            let ended = std::future::poll_fn(|cx| {
                loop {
                    match self.poll_turn(cx, &mut nobody) {
                        Poll::Ready(Ok(())) if self.machine.has_observations() => {}
                        Poll::Ready(_) => return Poll::Ready(()),
                        Poll::Pending => return Poll::Pending,
                    }
                }
            });
            let _ = timeout(CLOSING_PATIENCE, ended).await;
        }
        match self.link {
            Link::Datagrams(datagrams) => datagrams.close().await,
            Link::Line(line) => line.close().await,
        }
    }
}

impl Client for CoapClient {
    fn submit(&mut self, request: Request<'_>, tag: u64) -> Result<(), DriverError> {
        let (topic, payload): (_, &[u8]) = match request {
            Request::Publish { topic, payload } => (topic, payload),
            Request::Get { topic } | Request::Subscribe { topic } => (topic, &[]),
        };
        let at = match self.resources.iter().position(|resource| resource.is_of(topic)) {
            Some(at) => at,
            None => {
                self.resources.push(Resource::new(topic, &self.shape)?);
                self.resources.len() - 1
            }
        };
        let Some(resource) = self.resources.get(at) else { return Ok(()) };
        self.machine.request(resource.template(&request), payload, tag).map_err(|error| match error {
            RequestError::TooMany => {
                DriverError::Unsupported { door: Door::Coap, what: "message IDs for more requests under way" }
            }
            RequestError::Unsealed(error) => DriverError::Protocol(error.to_string()),
        })?;
        self.account.payload_up += u64::try_from(payload.len()).unwrap_or_default();
        Ok(())
    }

    fn poll_turn(&mut self, cx: &mut Context<'_>, sink: &mut dyn Sink) -> Poll<Result<(), DriverError>> {
        let now = self.since.coarse();
        (self.turn_at, self.watched) = (now, false);
        let mut happened = self.send(cx, now, sink)?;
        if self.receive(cx, now, sink)? {
            happened = true;
            // Acknowledgements, and the next blocks.
            self.send(cx, now, sink)?;
        }
        if let Some(failure) = self.account.failure.take() {
            return Poll::Ready(Err(failure));
        }
        if self.watch_clock(cx, now, sink)? || happened { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>, sink: &mut dyn Sink) -> Poll<Result<(), DriverError>> {
        if !self.watched {
            return self.poll_turn(cx, sink);
        }
        let now = self.turn_at;
        let happened = self.send(cx, now, sink)?;
        if self.watch_clock(cx, now, sink)? || happened { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn bytes(&self) -> Bytes {
        let (socket_up, socket_down) = match &self.link {
            Link::Datagrams(datagrams) => (datagrams.up, datagrams.down),
            Link::Line(line) => line.bytes(),
        };
        let MessageBytes { up: protocol_up, down: protocol_down } = self.machine.bytes();
        let Account { payload_up, payload_down, .. } = self.account;
        Bytes { payload_up, payload_down, protocol_up, protocol_down, socket_up, socket_down, wire: None }
    }

    fn close(self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(self.end())
    }
}
