//! What a connection may not be late with: a sign of life, reading, finishing a packet, a credential that holds.

use std::{task::Poll, time::Duration};

use fogmux_bus::Timestamp;
use fogmux_mqtt::ReasonCode;
use tokio::io::{AsyncRead, AsyncWrite};

use super::connection::{Connection, End};
use crate::credential::Expiry;

/// How long a client may be at one packet once unfinished packets take too much memory.
const UNFINISHED_PATIENCE: Duration = Duration::from_secs(2);
/// Between the wills and the goodbye of a drain: time for the wills to arrive.
pub(super) const DRAIN_GRACE: Duration = Duration::from_millis(100);

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    fn keep_alive_deadline(&self) -> Timestamp {
        match self.keep_alive {
            0 => Timestamp::NEVER,
            // [MQTT-3.1.2-22]: one and a half times.
            seconds => self.last_read + Duration::from_millis(u64::from(seconds) * 1500),
        }
    }

    fn stall_deadline(&self) -> Timestamp {
        self.stalled_since.map_or(Timestamp::NEVER, |since| since + self.ctx.shared.mqtt.config.stall_max)
    }

    /// When to look whether there is too much unfinished.
    fn unfinished_deadline(&self) -> Timestamp {
        if self.unfinished_since == Timestamp::NEVER {
            return Timestamp::NEVER;
        }
        self.unfinished_since + UNFINISHED_PATIENCE
    }

    /// When the credential ends.
    fn expiry(&self) -> Timestamp {
        self.rare.as_ref().and_then(|rare| rare.expires).map_or(Timestamp::NEVER, Expiry::at)
    }

    fn drain_deadline(&self) -> Timestamp {
        self.draining_since.map_or(Timestamp::NEVER, |since| since + DRAIN_GRACE)
    }

    /// Looks whether a deadline is over, otherwise sets the alarm for the next. It is set again only when it has rung
    /// or a deadline comes before it: a client that speaks costs no timer operation.
    pub(super) fn poll_deadline(&mut self) -> Poll<End> {
        if self.drain_deadline() <= self.now {
            return Poll::Ready(End::Draining);
        }
        if self.keep_alive_deadline() <= self.now {
            return Poll::Ready(End::TimedOut(ReasonCode::KEEP_ALIVE_TIMEOUT));
        }
        if self.expiry() <= self.now {
            return Poll::Ready(End::Expired);
        }
        if self.stall_deadline() <= self.now {
            if self.is_overflowing() {
                return Poll::Ready(End::TimedOut(ReasonCode::QUOTA_EXCEEDED));
            }
            self.stalled_since = Some(self.now);
        }
        let mut next = self.keep_alive_deadline().min(self.stall_deadline()).min(self.drain_deadline());
        next = next.min(self.expiry());
        if self.unfinished_deadline() <= self.now {
            if self.ctx.shared.mqtt.unfinished_share() > 0 {
                return Poll::Ready(self.too_much_unfinished());
            }
            next = next.min(self.now + UNFINISHED_PATIENCE);
        } else {
            next = next.min(self.unfinished_deadline());
        }
        if next < self.alarm || self.alarm <= self.now {
            self.alarm = next;
            if let Some(entry) = self.entry {
                self.ctx.shared.mqtt.set_alarm(entry, next);
            }
        }
        Poll::Pending
    }

    fn is_overflowing(&self) -> bool {
        self.overflowed || self.slot.with(|mailbox| mailbox.has_overflowed())
    }

    /// The gateway shuts down: the will goes out at once, the goodbye when it had time to arrive.
    pub(super) fn begin_drain(&mut self) -> Result<(), End> {
        if self.draining_since.is_none() {
            self.draining_since = Some(self.now);
            if let Some(will) = self.will.take() {
                will.publish(&self.ctx);
            }
        }
        if self.drain_deadline() <= self.now { Err(End::Draining) } else { Ok(()) }
    }
}
