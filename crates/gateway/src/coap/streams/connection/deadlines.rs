//! The deadlines of a connection.

use std::{future::Future, task::Context};

use fogmux_coap::stream::{Abort, Due};
use tokio::io::{AsyncRead, AsyncWrite};

use super::Connection;
use crate::{coap::core::session_time, stops::Running};

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Does what is due, and sets the alarm. Whether the connection is to end at once.
    pub(super) fn poll_deadline(&mut self, cx: &mut Context<'_>) -> bool {
        loop {
            let stuck = self.stuck.map(|since| since + self.ctx.door.config.write_timeout);
            let is_judged = self.closing.is_none() && self.unread_since.is_none();
            let session = is_judged.then(|| Running::from_millis(self.session.next_timeout().as_millis()));
            let Some(at) = [self.closing, stuck, session].into_iter().flatten().min() else { return false };
            if self.armed != Some(at) {
                self.armed = Some(at);
                self.sleep.as_mut().reset(self.ctx.timer(at));
            }
            if self.sleep.as_mut().poll(cx).is_pending() {
                return false;
            }
            self.armed = None;
            if !self.ctx.has_passed(at) {
                // The gateway did not run for a part of that time.
                continue;
            }
            // The alarm of the runtime has a grain of its own: it is due now, whatever our clock says.
            let now = self.ctx.running().max(at);
            if self.closing.is_some_and(|closing| now >= closing) {
                return true;
            }
            if stuck.is_some_and(|stuck| now >= stuck) {
                tracing::debug!(reason = %Abort::Deaf, "a CoAP connection is cut");
                self.ctx.shared.metrics.coap.timed_out.increment();
                return true;
            }
            if self.unread_since.is_some() {
                continue;
            }
            let mut bytes = Vec::new();
            let due = self.session.handle_timeout(session_time(now), &mut bytes);
            self.hub.write(self.path, |_, output| output.extend_from_slice(&bytes));
            match due {
                Due::Nothing => {}
                Due::Pinged => {
                    // Written in the next turn.
                    cx.waker().wake_by_ref();
                }
                Due::Over(abort) => {
                    self.ctx.shared.metrics.coap.timed_out.increment();
                    self.abort(abort);
                    cx.waker().wake_by_ref();
                }
            }
        }
    }
}
