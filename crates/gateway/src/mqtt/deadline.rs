//! The deadlines of a connection: keep alive, stalls, expiring credentials, shutdown.

use std::{task::Poll, time::Duration};

use fogmux_bus::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite};

use super::connection::{Connection, End};
use crate::{credential::Expiry, phase::Phase, shutdown::Written};

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    fn keep_alive_deadline(&self) -> Timestamp {
        match self.keep_alive {
            0 => Timestamp::NEVER,
            // Its packets may be waiting in the socket.
            _ if self.unread_since != Timestamp::NEVER => Timestamp::NEVER,
            // [MQTT-3.1.2-22]: one and a half times.
            seconds => self.last_read.max(self.ctx.went_on()) + Duration::from_millis(u64::from(seconds) * 1500),
        }
    }

    /// Notes whether the client is read in this turn. The time in which it was not is none of its silence.
    pub(super) fn note_reading(&mut self, reads: bool) {
        match (reads, self.unread_since) {
            (true, Timestamp::NEVER) => {}
            (true, since) => {
                self.last_read = self.last_read + self.now.since(since);
                self.unread_since = Timestamp::NEVER;
            }
            (false, since) => self.unread_since = since.min(self.now),
        }
    }

    fn stall_deadline(&self) -> Timestamp {
        match self.egress.stalled_since() {
            Timestamp::NEVER => Timestamp::NEVER,
            since => since.max(self.ctx.went_on()) + self.ctx.door.config.stall_max,
        }
    }

    /// When the credential expires.
    fn expiry(&self) -> Timestamp {
        self.rare.as_ref().and_then(|rare| rare.expires).map_or(Timestamp::NEVER, Expiry::at)
    }

    /// Ends the connection if a deadline has passed, otherwise sets the alarm for the next. The alarm is set again only
    /// after it has rung, or for an earlier deadline: a client that sends costs no timer operation.
    pub(super) fn poll_deadline(&mut self) -> Poll<End> {
        if self.keep_alive_deadline() <= self.now {
            return Poll::Ready(End::Silent);
        }
        if self.expiry() <= self.now {
            return Poll::Ready(End::Expired);
        }
        if self.stall_deadline() <= self.now {
            return Poll::Ready(End::Stalled);
        }
        let mut next = self.keep_alive_deadline().min(self.stall_deadline());
        next = next.min(self.expiry());
        if next < self.alarm || self.alarm <= self.now {
            self.alarm = next;
            if let Some(entry) = self.entry {
                self.ctx.door.set_alarm(entry, next);
            }
        }
        Poll::Pending
    }

    /// Begins the shutdown of the connection: publishes the will, and from now on handles only acknowledgements.
    pub(super) fn begin_drain(&mut self) -> Result<(), End> {
        if self.draining.is_none() {
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
        let is_empty = is_sent && self.slot.with_claim(self.claim, |mailbox| mailbox.is_drained()).unwrap_or(true);
        written.is_taken(is_empty, &self.ctx.shared.shutdown, self.peer)
    }
}
