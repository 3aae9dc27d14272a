//! Turns of one connection: read what came, then send what waits and what that has caused.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use fogmux_client::Counter;
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::carrier::Carrier;
use super::session::Session;
use crate::driver::{Client, DriverError, Nobody, Pending, Request, Sink};
use crate::outcome::Bytes;

/// Writes of one turn at most; what is left then has the next one.
const WRITES_MAX: usize = 8;
/// How long a server may take to hear that we go.
const GOODBYE: Duration = Duration::from_secs(1);

/// One connection.
pub(super) struct MqttClient {
    carrier: Carrier,
    session: Session,
    counter: Arc<Counter>,
    buffer: Rc<RefCell<Box<[u8]>>>,
    /// When a PINGREQ is due, if the server wants any.
    alarm: Option<(Duration, Pin<Box<Sleep>>)>,
}

impl MqttClient {
    pub(super) fn new(
        carrier: Carrier,
        session: Session,
        counter: Arc<Counter>,
        buffer: Rc<RefCell<Box<[u8]>>>,
    ) -> Self {
        Self { carrier, session, counter, buffer, alarm: None }
    }

    /// Whether CONNACK has come.
    pub(super) fn is_connected(&self) -> bool {
        self.session.is_connected()
    }

    /// A turn.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, sink: &mut dyn Sink) -> Poll<Result<(), DriverError>> {
        let received = self.poll_receive(cx, sink)?.is_ready();
        self.poll_alarm(cx);
        let sent = self.send(cx, sink)?;
        if received || sent { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>, sink: &mut dyn Sink) -> Poll<Result<(), DriverError>> {
        let Self { carrier, session, buffer, .. } = self;
        carrier.poll_receive(cx, &mut buffer.borrow_mut(), &mut |bytes| session.handle(bytes, sink))
    }

    /// Sends as much as goes; whether that was anything.
    fn send(&mut self, cx: &mut Context<'_>, sink: &mut dyn Sink) -> Result<bool, DriverError> {
        let mut any = false;
        for _ in 0..WRITES_MAX {
            let output = self.session.output();
            if output.is_empty() && !self.carrier.is_waiting() {
                break;
            }
            match self.carrier.poll_send(cx, output).map_err(broken)? {
                Poll::Ready(sent) => self.session.sent(sent, sink),
                Poll::Pending => return Ok(any),
            }
            any = true;
        }
        // Pending: the task is woken when there is room again.
        let _ = self.carrier.poll_flush(cx).map_err(broken)?;
        Ok(any)
    }

    /// §3.2.2.3.14: the server may want to hear from us. A ping too many does no harm, so other packets do not put it
    /// off.
    fn poll_alarm(&mut self, cx: &mut Context<'_>) {
        if self.alarm.is_none() {
            let Some(every) = self.session.ping_interval() else { return };
            self.alarm = Some((every, Box::pin(sleep(every))));
        }
        if let Some((every, alarm)) = &mut self.alarm {
            while alarm.as_mut().poll(cx).is_ready() {
                self.session.ping();
                alarm.as_mut().reset(Instant::now() + *every);
            }
        }
    }

    /// Sends all that waits.
    fn poll_empty(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), DriverError>> {
        loop {
            let output = self.session.output();
            if output.is_empty() && !self.carrier.is_waiting() {
                return self.carrier.poll_flush(cx).map_err(broken);
            }
            let sent = ready!(self.carrier.poll_send(cx, output)).map_err(broken)?;
            self.session.sent(sent, &mut Nobody);
        }
    }

    /// [MQTT-3.14.4-1]: after DISCONNECT nothing is sent. It waits for the server's end, so that the connection is over
    /// on both sides and not reset.
    async fn finish(mut self) -> Result<(), DriverError> {
        self.session.disconnect();
        poll_fn(|cx| self.poll_empty(cx)).await?;
        self.carrier.say_goodbye();
        poll_fn(|cx| self.poll_empty(cx)).await?;
        poll_fn(|cx| self.carrier.poll_shutdown(cx)).await.map_err(broken)?;
        poll_fn(|cx| self.carrier.poll_end(cx, &mut self.buffer.borrow_mut())).await.map_err(broken)
    }
}

impl Client for MqttClient {
    fn submit(&mut self, request: Request<'_>, tag: u64) -> Result<(), DriverError> {
        self.session.submit(request, tag)
    }

    fn poll_turn(&mut self, cx: &mut Context<'_>, sink: &mut dyn Sink) -> Poll<Result<(), DriverError>> {
        self.poll(cx, sink)
    }

    fn bytes(&self) -> Bytes {
        let count = self.session.count();
        Bytes {
            payload_up: count.payload_up,
            payload_down: count.payload_down,
            protocol_up: self.session.sent_bytes(),
            protocol_down: count.down,
            socket_up: self.counter.up(),
            socket_down: self.counter.down(),
            wire: None,
        }
    }

    fn close(self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(async move {
            // Whether the other end still listens makes no difference to us.
            let _ = timeout(GOODBYE, self.finish()).await;
        })
    }
}

fn broken(error: std::io::Error) -> DriverError {
    DriverError::Connection(error.to_string())
}
