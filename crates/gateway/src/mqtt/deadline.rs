//! The deadlines of a connection: keep alive, stalls, expiring credentials, shutdown.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use fogmux_bus::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{
    connection::{Connection, End},
    receive::Input,
};
use crate::{credential::Expiry, phase::Phase, shutdown::Written, stops::Running};

/// Bytes that are read of a client that is not read otherwise, to learn whether it is there.
const LOOK_BYTES: usize = 512;
/// Bytes of such a client above which no more are read for that.
const LOOKED_AT_MAX: usize = 32 << 10;

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// The running time of this turn.
    pub(super) fn running(&self) -> Running {
        self.ctx.running_at(self.now)
    }

    fn keep_alive_deadline(&self) -> Timestamp {
        match self.facts.keep_alive {
            0 => Timestamp::NEVER,
            // [MQTT-3.1.2-22]: one and a half times.
            seconds => self.ctx.passes(self.reading.last_read + Duration::from_millis(u64::from(seconds) * 1500)),
        }
    }

    /// Notes whether the client is read in this turn. The time in which it was not is none of its silence.
    pub(super) fn note_reading(&mut self, reads: bool) {
        match (reads, self.reading.unread_since) {
            (true, Running::NEVER) => {}
            (true, since) => {
                self.reading.last_read = self.reading.last_read + self.running().since(since);
                self.reading.unread_since = Running::NEVER;
            }
            (false, since) => self.reading.unread_since = since.min(self.running()),
        }
    }

    /// Whether the client was not read in the last turn.
    pub(super) fn is_unread(&self) -> bool {
        self.reading.unread_since != Running::NEVER
    }

    fn stall_deadline(&self) -> Timestamp {
        match self.egress.stalled_since() {
            Running::NEVER => Timestamp::NEVER,
            since => self.ctx.passes(since + self.ctx.door.config.stall_max),
        }
    }

    /// When the credential expires.
    fn expiry(&self) -> Timestamp {
        self.rare.as_ref().and_then(|rare| rare.expires).map_or(Timestamp::NEVER, Expiry::at)
    }

    /// Ends the connection if a deadline has passed, otherwise sets the alarm for the next. The alarm is set again only
    /// after it has rung, or for an earlier deadline: a client that sends costs no timer operation.
    pub(super) fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        if self.keep_alive_deadline() <= self.now {
            // A client that is not read has not been silent if something of it waits in the socket.
            match self.is_unread().then(|| self.poll_look(cx)) {
                Some(Poll::Ready(Ok(()))) => {
                    self.reading.last_read = self.running();
                    self.reading.unread_since = self.reading.last_read;
                }
                Some(Poll::Ready(Err(end))) => return Poll::Ready(end),
                Some(Poll::Pending) | None => return Poll::Ready(End::Silent),
            }
        }
        if self.expiry() <= self.now {
            return Poll::Ready(End::Expired);
        }
        if self.stall_deadline() <= self.now {
            return Poll::Ready(End::Stalled);
        }
        let mut next = self.keep_alive_deadline().min(self.stall_deadline());
        next = next.min(self.expiry());
        if next < self.wakes.alarm || self.wakes.alarm <= self.now {
            self.wakes.alarm = next;
            if let Some(entry) = self.wakes.entry {
                self.ctx.door.set_alarm(entry, next);
            }
        }
        Poll::Pending
    }

    /// Reads a little of a client that is not read otherwise, and keeps it for later. Ready if something was there.
    fn poll_look(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        let (Input::Partial(bytes) | Input::Unread(bytes) | Input::Held(bytes)) = &mut self.reading.input else {
            // The client is in the middle of a packet, whose size has a bound already.
            return Poll::Ready(Ok(()));
        };
        if bytes.len() >= LOOKED_AT_MAX {
            return Poll::Ready(Ok(()));
        }
        let mut some = [0; LOOK_BYTES];
        let mut read = ReadBuf::new(&mut some);
        match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut read)) {
            Ok(()) if !read.filled().is_empty() => {}
            Ok(()) => return Poll::Ready(Err(End::Closed)),
            Err(error) => return Poll::Ready(Err(End::of(&error))),
        }
        bytes.extend_from_slice(read.filled());
        let (bytes, count) = (std::mem::take(bytes), read.filled().len());
        self.reading.input = Input::Held(bytes);
        self.reading.recent.add(count, self.now);
        self.reading.boundary.read(count);
        self.ctx.shared.metrics.mqtt.bytes_in.add(u64::try_from(count).unwrap_or_default());
        Poll::Ready(Ok(()))
    }

    /// Begins the shutdown of the connection: publishes the will, and from now on handles only acknowledgements.
    pub(super) fn begin_drain(&mut self) -> Result<(), End> {
        if self.draining.is_none() {
            // These came in before the shutdown.
            self.handle_set_aside()?;
            if self.has_set_aside() {
                return Ok(());
            }
            self.draining = Some(Written::default());
            if let Some(will) = self.will.take() {
                will.publish(&self.ctx);
            }
            self.ctx.shared.shutdown.quiesced();
        }
        if self.ctx.phase() == Phase::Closing { Err(End::Draining) } else { Ok(()) }
    }

    /// Whether everything is delivered and acknowledged during a shutdown, that of QoS 0 by the client's host.
    pub(super) fn is_drained(&mut self) -> bool {
        let Some(written) = self.draining.as_mut().filter(|_| self.ctx.phase() == Phase::Emptying) else {
            return false;
        };
        let pending = self.rare.as_ref().map_or(0, |rare| rare.pending.len());
        let is_sent = self.egress.is_idle() && self.output.is_empty() && pending == 0;
        let is_empty = is_sent && self.mailbox.with(|mailbox| mailbox.is_drained()).unwrap_or(true);
        written.is_taken(is_empty, &self.ctx.shared.shutdown, self.wakes.listed.address())
    }
}
